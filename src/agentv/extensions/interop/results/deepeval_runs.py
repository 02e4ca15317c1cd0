"""Read test runs of DeepEval: `.deepeval/.latest_test_run.json`, and evaluation results that were saved as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import decoded, problem, read_parts
from agentv.extensions.interop.imports.foreign_values import (
    chat_messages,
    dict_of,
    grade_value,
    list_of,
    number_or_none,
    text_of,
    token_usage,
    unique_names,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message, ToolCall
from agentv.model.result import TokenUsage
from agentv.model.values import digest
from agentv.support.json_stream import top_level

LATEST = Path(".deepeval", ".latest_test_run.json")
_LISTS = {
    (*start, name)
    for start in ((), ("testRunData",))
    for name in ("testCases", "conversationalTestCases", "test_cases", "test_results")
}
_OPENED = {(), ("testRunData",), *_LISTS}
_INVERTED = ("Hallucination", "Bias", "Toxicity")
"""Metrics that were better if lower in older versions."""

_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")


class DeepEvalRun(ForeignResults):
    """A test run of DeepEval. Metrics are evaluators; one without a score failed, whatever its `success` is."""

    title = "a test run of DeepEval"
    unit = "test case"

    def sniff(self, head: bytes, path: Path) -> bool:
        if path.is_dir():
            return any(file.is_file() for file in _candidates(path))
        keys = top_level(head)
        if keys.get("testRunData", b"").startswith(b"{"):
            return True
        has_cases = any(name in keys for name in ("testCases", "test_results"))
        return has_cases and (b'"metricsData"' in head or b'"metrics_data"' in head or "testPassed" in keys)

    def files(self, path: Path) -> list[Path]:
        return [next(file for file in _candidates(path) if file.is_file())] if path.is_dir() else [path]

    def open(self, path: Path) -> ForeignRun:
        path = self.files(path)[0]
        header: dict[str, Any] = {}
        for keys, data in read_parts(path, _OPENED):
            if keys not in _LISTS and keys:
                header[_snake(keys[-1])] = decoded(path, data, keys[-1])
        if not isinstance(header, dict):
            raise problem(path, "It is not a test run of DeepEval")
        settings = dict_of(header.get("hyperparameters"))
        target = text_of(settings.get("model")) or "default"
        dataset = text_of(header.get("dataset_alias") or header.get("test_file") or header.get("identifier"))
        run = ForeignRun(
            jobs=(),
            id=text_of(header.get("identifier")) or "deepeval",
            targets={target: {"provider": "deepeval", **settings}},
        )
        run.jobs = _jobs(path, target, dataset or "deepeval")
        return run


def _candidates(folder: Path) -> tuple[Path, Path]:
    return folder / LATEST.name, folder / LATEST


def _jobs(path: Path, target: str, dataset: str) -> Iterator[ForeignJob]:
    number = 0
    for keys, data in read_parts(path, _OPENED):
        if keys in _LISTS and data != b"null":
            number += 1
            row = decoded(path, data, f"test case {number}")
            if not isinstance(row, dict):
                raise problem(path, f"Test case {number} is not an object")
            yield _job({_snake(key): value for key, value in row.items()}, target, dataset)


def _job(row: dict[str, Any], target: str, dataset: str) -> ForeignJob:
    turns = _turns(row)
    seconds = number_or_none(row.get("completion_time"))
    answer = row.get("actual_output")
    if answer is None and turns:
        answer = next((turn.content for turn in reversed(turns) if turn.role == "assistant"), None)
    return ForeignJob(
        case=_case(row, dataset, turns),
        target=target,
        answer=None if answer is None else text_of(answer),
        messages=turns or _messages(row),
        grades=tuple(_grades(row)),
        passed=row.get("success") if isinstance(row.get("success"), bool) else None,
        cost_usd=number_or_none(row.get("token_cost")),
        duration_ms=None if seconds is None else seconds * 1000,
        # What was retrieved belongs to the answer: the next run may retrieve something else for the same case.
        metadata={"retrieval_context": row["retrieval_context"]} if row.get("retrieval_context") else {},
        place=f"test case {text_of(row.get('name'))}",
    )


def _case(row: dict[str, Any], dataset: str, turns: tuple[Message, ...]) -> ForeignCase:
    prompt = row.get("input")
    if prompt is None:
        prompt = row.get("scenario") or next((turn.content for turn in turns if turn.role == "user"), "")
    metadata = dict_of(row.get("additional_metadata") or row.get("metadata"))
    name = text_of(row.get("name"))
    # DeepEval numbers test cases that have no name in the order in which they ended.
    is_numbered = not name or re.fullmatch(r"(conversational_)?test_case_\d+", name)
    return ForeignCase(
        id=f"case-{digest(prompt)[:10]}" if is_numbered else name,
        dataset=dataset,
        input=text_of(prompt),
        expected=row.get("expected_output"),
        outcome=text_of(row.get("expected_outcome")),
        context=tuple(map(text_of, list_of(row.get("context")))),
        metadata=metadata,
        tags=tuple(map(text_of, list_of(row.get("tags")))),
    )


def _messages(row: dict[str, Any]) -> tuple[Message, ...]:
    """Return the answer with the tools that were called."""
    calls = tuple(
        ToolCall(tool=text_of(call["name"]), input=call.get("inputParameters", call.get("input_parameters")),
                 output=call.get("output"))
        for call in list_of(row.get("tools_called"))
        if isinstance(call, dict) and call.get("name")
    )  # fmt: skip
    return (Message("assistant", text_of(row.get("actual_output")), calls),) if calls else ()


def _turns(row: dict[str, Any]) -> tuple[Message, ...]:
    return chat_messages(row.get("turns")) if isinstance(row.get("turns"), list) else ()


def _grades(row: dict[str, Any]) -> Iterator[ForeignGrade]:
    items = row.get("metrics_data") or row.get("metrics_metadata")
    metrics = [{_snake(key): value for key, value in item.items()} for item in list_of(items) if isinstance(item, dict)]
    for name, metric in zip(unique_names(text_of(item.get("name")) for item in metrics), metrics, strict=True):
        value = _value(metric)
        is_skipped = metric.get("skipped") is True
        error = None if value is not None or is_skipped else text_of(metric.get("error")) or "The metric has no score"
        settings = {key: metric[key] for key in ("threshold", "strict_mode") if metric.get(key) is not None}
        yield ForeignGrade(
            name=name or "metric",
            type=f"deepeval:{name or 'metric'}",
            value=value,
            passed=metric.get("success") if isinstance(metric.get("success"), bool) else None,
            weight=0.0 if is_skipped else 1.0,
            reasoning=text_of(metric.get("reason")) or None,
            error=error,
            settings={"tool": "deepeval", **settings},
            judge=text_of(metric.get("evaluation_model")) or None,
            usage=_usage(metric),
            cost_usd=number_or_none(metric.get("evaluation_cost")),
        )


def _value(metric: dict[str, Any]) -> float | bool | None:
    """Return the score, where higher is better; of a metric that passes below its threshold, 1 minus its score."""
    score, limit, passed = (
        number_or_none(metric.get("score")),
        number_or_none(metric.get("threshold")),
        metric.get("success"),
    )
    is_inverted = metric.get("name") in _INVERTED and isinstance(passed, bool)
    if is_inverted and score is not None and limit is not None and score != limit and passed == (score < limit):
        return 1 - score
    return grade_value(metric.get("score"))


def _usage(metric: dict[str, Any]) -> TokenUsage | None:
    counts = (metric.get(f"{kind}_token_count") or metric.get(f"{kind}_tokens") or None for kind in ("input", "output"))
    return token_usage(*counts)


def _snake(name: str) -> str:
    return _HUMP.sub(lambda match: "_" + match[0].lower(), name)
