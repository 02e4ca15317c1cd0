"""Read results of the Azure AI Evaluation SDK: rows with the inputs, and the outputs of each evaluator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import problem, read_document, row_keys
from agentv.extensions.interop.imports.foreign_values import chat_messages, dict_of, number_or_none, text_of
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message
from agentv.model.response import content_text
from agentv.model.values import digest

_MOST_BYTES = 512 * 1024 * 1024
_PART = re.compile(r"(.+)_(score|result|label|reason|threshold)")
_FROM_0_TO_1 = re.compile(r"(f1|bleu|gleu|meteor|rouge.*)(_score)?|rouge_(precision|recall)")
_NO_METRIC = re.compile(
    r"gpt_.*|.*(_tokens|_model|_sample_input|_sample_output|finish_reason|_status|status|_properties|properties|sample)"
    r"|.*\..*"
)
"""Parts of an outcome that are not about the answer, older names of others, and those of single turns."""


class AzureEvaluation(ForeignResults):
    """The rows of `evaluate`. An outcome with a result passes or fails; other grades are from 1 to 5 or from 0 to 7."""

    title = "results of Azure AI evaluation"
    unit = "row"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = row_keys(head, "rows")
        return all(any(key.startswith(f"{part}.") for key in keys) for part in ("inputs", "outputs"))

    def jobs(self, path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
        document = dict_of(read_document(path, _MOST_BYTES))
        target = run.target("model", "azure-ai-evaluation")
        for number, row in enumerate(document.items_of("rows"), 1):
            if not isinstance(row, dict):
                raise problem(path, f"Row {number} is not an object")
            grades = tuple(_grades(row))
            for name in (grade.name for grade in grades if grade.value is None and not grade.error):
                note = f"'{name}' has values that are not from 0 to 1: kept, not counted as scores"
                run.notes += [] if note in run.notes else [note]
            yield _job(row, grades, target, number)


def _job(row: dict[str, Any], grades: tuple[ForeignGrade, ...], target: str, number: int) -> ForeignJob:
    inputs = {key.removeprefix("inputs."): value for key, value in row.items() if key.startswith("inputs.")}
    messages = chat_messages(dict_of(inputs.get("conversation")).get("messages"))
    question: str | tuple[Message, ...] = text_of(next((inputs[key] for key in _QUESTIONS if inputs.get(key)), ""))
    answers = [row.get(f"outputs.{name}") or inputs.get(name) for name in ("response", "answer")]
    answer = text_of(next(filter(None, answers), "")) or None
    if messages and not question:
        last = messages[-1]
        question = messages[:-1] if last.role == "assistant" else messages
        answer = answer or (content_text(last.content) if last.role == "assistant" and last.content else None)
    results = [grade.passed for grade in grades if grade.passed is not None]
    return ForeignJob(
        case=ForeignCase(
            id=text_of(inputs.get("id")) or digest(inputs.get("conversation") or question)[:12],
            dataset="azure",
            input=question,
            expected=inputs.get("ground_truth") or None,
            context=tuple(filter(None, [text_of(inputs.get("context"))])),
        ),
        target=target,
        answer=answer,
        grades=grades,
        passed=all(results) if results else None,
        place=f"row {number}",
    )


_QUESTIONS = ("query", "question")


def _grades(row: dict[str, Any]) -> Iterator[ForeignGrade]:
    """Yield the outcome of each metric of each evaluator: `outputs.EVALUATOR.METRIC`, and its parts with suffixes."""
    outcomes: dict[tuple[str, str], dict[str, Any]] = {}
    for key, value in row.items():
        _, _, name = key.partition("outputs.")
        evaluator, _, column = name.partition(".")
        if not key.startswith("outputs.") or not column or _NO_METRIC.fullmatch(column):
            continue
        own = "value" if number_or_none(value) is None else "score"
        metric, kind = part.groups() if (part := _PART.fullmatch(column)) else (column, own)
        outcomes.setdefault((evaluator, metric), {}).update({kind: value})
    for (evaluator, metric), outcome in outcomes.items():
        score, passed = number_or_none(outcome.get("score")), _PASSED.get(text_of(outcome.get("result")).lower())
        is_score = score is not None and _FROM_0_TO_1.fullmatch(metric) is not None
        is_missing = score is None and passed is None and outcome.get("label", outcome.get("value")) is None
        reason = text_of(outcome.get("reason"))
        yield ForeignGrade(
            name=evaluator if metric == evaluator else f"{evaluator}.{metric}",
            type=f"azure:{metric}",
            value=score if is_score else passed,
            passed=passed,
            weight=0.0 if is_missing else 1.0,
            reasoning=reason or None,
            details={key: value for key, value in outcome.items() if key != "reason" and value is not None} or None,
            error=(reason or "The evaluator has no result") if is_missing else None,
            settings={"tool": "azure-ai-evaluation", "metric": metric, "threshold": outcome.get("threshold")},
        )


_PASSED = {"pass": True, "true": True, "fail": False, "false": False}
