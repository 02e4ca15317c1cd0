"""Read the output items of a run of OpenAI's hosted Evals: as the API writes them, or the early dashboard did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import read_lines
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_messages,
    dict_of,
    error_info,
    text_of,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.support.json_keys import top_level


class OpenAiItems(ForeignResults):
    """A file with the output items of one run, one on each line."""

    title = "a run of OpenAI's hosted Evals"
    unit = "output item"

    strength = 0.6  # an item may have the keys of a record of AgentV (TypeScript)

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = top_level(head).keys()
        return {"datasource_item", "sample"} <= keys or {"item", "sample", "grades"} <= keys

    def open(self, path: Path) -> ForeignRun:
        first = next((_as_of_the_api(row) for _, row in read_lines(path)), Fields())
        target = first.object("sample").text("model") or "model"
        return ForeignRun(
            jobs=_jobs(path),
            id=first.text("run_id") or path.stem,
            targets={target: {"provider": "openai-evals", "model": target}},
        )


def _jobs(path: Path) -> Iterator[ForeignJob]:
    for number, row in read_lines(path):
        data = _as_of_the_api(row)
        item, sample = data.object("datasource_item"), data.object("sample")
        error, usage = sample.object("error"), sample.object("usage")
        message = ": ".join(filter(None, (error.text("code"), error.text("message"))))
        answers = [output.text("content") for output in sample.objects("output")]
        id = next((text_of(item[key]) for key in ("id", "item_id") if item.get(key)), "")
        expected = next((item[key] for key in _EXPECTED if item.get(key)), None)
        yield ForeignJob(
            case=ForeignCase(
                id=id or f"item-{data.text('datasource_item_id') or number}",
                dataset=data.text("eval_id") or path.stem,
                input=chat_messages(sample.items_of("input")) or text_of(item),
                expected=expected,
                metadata={"item": item},
            ),
            target=sample.text("model") or "model",
            answer=answers[-1] if answers and not message else None,
            grades=() if message else tuple(_grades(data)),
            error=error_info(message) if message else None,
            usage=usage.usage("prompt_tokens", "completion_tokens"),
            stop_reason=sample.text("finish_reason") or None,
            place=f"line {number}",
        )


def _as_of_the_api(row: Any) -> Fields:
    """Return an output item with the names of the API. Early downloads of the dashboard have others."""
    data = dict_of(row)
    if "grades" not in data:
        return data
    sample, passes = data.object("sample"), data.object("passes")
    names = {"input": "trajectory", "output": "outputs", "model": "sampled_model_name", "usage": "token_usage"}
    return Fields(
        run_id=data.get("run_id"),
        datasource_item=data.get("item"),
        datasource_item_id=data.get("data_source_idx"),
        sample={**sample, **{name: sample.get(early) for name, early in names.items()}},
        results=[
            {"name": name, "score": score, "passed": passes.get(name)} for name, score in data.object("grades").items()
        ],
    )


_EXPECTED = ("expected_output", "ideal", "reference", "ground_truth", "expected", "answer", "label", "correct_label")


def _grades(data: Fields) -> Iterator[ForeignGrade]:
    for result in data.objects("results"):
        score = result.grade("score")
        passed = result.truth("passed")
        name = result.text("name") or "grade"
        yield ForeignGrade(
            name=name,
            type=f"openai-evals:{result.text('type') or 'grade'}",
            value=passed if score is None else score,
            passed=passed,
            settings={"tool": "openai-evals", "eval": data.text("eval_id"), "name": name},
        )
