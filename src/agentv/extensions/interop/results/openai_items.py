"""Read the output items of a run of OpenAI's hosted Evals, as `agentv generate from-openai` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import read_lines
from agentv.extensions.interop.imports.foreign_values import (
    chat_messages,
    dict_of,
    error_info,
    grade_value,
    list_of,
    text_of,
    token_usage,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.support.json_stream import top_level


class OpenAiItems(ForeignResults):
    """A file with the output items of one run, one on each line."""

    title = "a run of OpenAI's hosted Evals"
    unit = "output item"

    strength = 0.6  # an item may have the keys of a record of AgentV (TypeScript)

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        return {"datasource_item", "sample"} <= top_level(head).keys()

    def open(self, path: Path) -> ForeignRun:
        first: dict[str, Any] = next((dict_of(row) for _, row in read_lines(path)), {})
        target = text_of(dict_of(first.get("sample")).get("model")) or "model"
        return ForeignRun(
            jobs=_jobs(path),
            id=text_of(first.get("run_id")) or path.stem,
            targets={target: {"provider": "openai-evals", "model": target}},
        )


def _jobs(path: Path) -> Iterator[ForeignJob]:
    for number, row in read_lines(path):
        data = dict_of(row)
        item, sample = dict_of(data.get("datasource_item")), dict_of(data.get("sample"))
        error, usage = dict_of(sample.get("error")), dict_of(sample.get("usage"))
        message = ": ".join(filter(None, (text_of(error.get("code")), text_of(error.get("message")))))
        answers = [text_of(dict_of(output).get("content")) for output in list_of(sample.get("output"))]
        id = next((text_of(item[key]) for key in ("id", "item_id") if item.get(key)), "")
        expected = next((item[key] for key in _EXPECTED if item.get(key)), None)
        yield ForeignJob(
            case=ForeignCase(
                id=id or f"item-{text_of(data.get('datasource_item_id')) or number}",
                dataset=text_of(data.get("eval_id")) or path.stem,
                input=chat_messages(list_of(sample.get("input"))) or text_of(item),
                expected=expected,
                metadata={"item": item},
            ),
            target=text_of(sample.get("model")) or "model",
            answer=answers[-1] if answers and not message else None,
            grades=() if message else tuple(_grades(data)),
            error=error_info(message) if message else None,
            usage=token_usage(usage.get("prompt_tokens"), usage.get("completion_tokens")),
            stop_reason=text_of(sample.get("finish_reason")) or None,
            place=f"line {number}",
        )


_EXPECTED = ("expected_output", "ideal", "reference", "ground_truth", "expected", "answer", "label", "correct_label")


def _grades(data: dict[str, Any]) -> Iterator[ForeignGrade]:
    for result in map(dict_of, list_of(data.get("results"))):
        score = grade_value(result.get("score"))
        passed = result.get("passed") if isinstance(result.get("passed"), bool) else None
        name = text_of(result.get("name")) or "grade"
        yield ForeignGrade(
            name=name,
            type=f"openai-evals:{text_of(result.get('type')) or 'grade'}",
            value=passed if score is None else score,
            passed=passed,
            settings={"tool": "openai-evals", "eval": text_of(data.get("eval_id")), "name": name},
        )
