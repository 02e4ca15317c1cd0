"""Read results of letta-evals: a header with the graders, and one line for each sample and model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import read_lines, row_keys
from agentv.extensions.interop.imports.foreign_values import (
    dict_of,
    error_info,
    list_of,
    number_or_none,
    text_of,
    token_usage,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun

_TOKENS = ("prompt_tokens", "completion_tokens")


class LettaResults(ForeignResults):
    """Results of a suite. The score is the grade that its gate is about."""

    title = "results of letta-evals"
    unit = "result"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = row_keys(head)
        has_result = "result" in keys and b'"submission"' in head
        return "type" in keys and (has_result or {"suite", "config"} <= keys.keys())

    def jobs(self, path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
        suite, graders = "letta", {}
        for number, row in ((number, dict_of(row)) for number, row in read_lines(path)):
            if row.get("type") == "header":
                suite, graders = text_of(row.get("suite")) or suite, dict_of(dict_of(row.get("config")).get("graders"))
            elif row.get("type") == "result":
                result = dict_of(row.get("result"))
                target = run.target(text_of(result.get("model_name")) or "agent", "letta")
                yield _job(result, suite, graders, target, f"line {number}")


def _job(result: dict[str, Any], suite: str, graders: dict[str, Any], target: str, place: str) -> ForeignJob:
    sample, total = dict_of(result.get("sample")), dict_of(result.get("grade"))
    questions = [text_of(item) for item in list_of(sample.get("input")) or [sample.get("input")]]
    usages = [dict_of(item) for item in list_of(result.get("agent_usage"))]
    tokens = [sum(number_or_none(item.get(key)) or 0 for item in usages) for key in _TOKENS] if usages else [None, None]
    error = dict_of(total.get("metadata")).get("error")
    question, expected = "\n\n".join(questions), sample.get("ground_truth")
    return ForeignJob(
        case=ForeignCase(id=text_of(sample.get("id")) or place, dataset=suite, input=question, expected=expected),
        target=target,
        answer=text_of(result.get("submission")) or None,
        grades=() if error else tuple(_grades(dict_of(result.get("grades")) or {"score": total}, graders)),
        score=None if error else number_or_none(total.get("score")),
        error=error_info(error) if error else None,
        usage=token_usage(*tokens),
        place=place,
    )


def _grades(grades: dict[str, Any], graders: dict[str, Any]) -> Iterator[ForeignGrade]:
    for name, grade in grades.items():
        settings = dict_of(graders.get(name))
        model = settings.get("model") if settings.get("kind") == "rubric" else None
        yield ForeignGrade(
            name=name,
            type=f"letta:{text_of(settings.get('kind')) or 'grader'}",
            value=number_or_none(dict_of(grade).get("score")),
            reasoning=text_of(dict_of(grade).get("rationale")) or None,
            settings={"tool": "letta-evals", **{key: settings.get(key) for key in ("function", "prompt")}},
            judge=text_of(model) or None,
        )
