"""Read test runs of DeepEval: `.deepeval/.latest_test_run.json`, and evaluation results that were saved as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import problem, read_header, read_items
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_messages,
    dict_of,
    list_of,
    text_of,
    token_usage,
    unique_names,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message, ToolCall
from agentv.model.result import TokenUsage
from agentv.model.values import digest
from agentv.support.json_keys import top_level

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
        if keys.get("testRunData", b"").startswith(b"{") or keys.keys() == {"testRunLink"}:
            return True
        has_cases = any(name in keys for name in ("testCases", "test_results"))
        return has_cases and (b'"metricsData"' in head or b'"metrics_data"' in head or "testPassed" in keys)

    def files(self, path: Path) -> list[Path]:
        return [next(file for file in _candidates(path) if file.is_file())] if path.is_dir() else [path]

    def open(self, path: Path) -> ForeignRun:
        path = self.files(path)[0]
        header = _snake(read_header(path, _OPENED, _LISTS))
        if address := header.text("test_run_link"):
            raise problem(path, f"The results are on Confident AI: {address}", "Run DeepEval without logging in")
        settings = header.object("hyperparameters")
        target = settings.text("model") or "default"
        dataset = header.text("dataset_alias", "test_file", "identifier")
        run = ForeignRun(
            jobs=(),
            id=header.text("identifier") or "deepeval",
            targets={target: {"provider": "deepeval", **settings}},
        )
        rows = read_items(path, _OPENED, _LISTS, "Test case")
        run.jobs = (_job(_snake(row), target, dataset or "deepeval") for _, row in rows)
        return run


def _candidates(folder: Path) -> tuple[Path, Path]:
    return folder / LATEST.name, folder / LATEST


def _job(row: Fields, target: str, dataset: str) -> ForeignJob:
    turns = chat_messages(row.get("turns"))
    answer = row.get("actual_output")
    if answer is None and turns:
        answer = next((turn.content for turn in reversed(turns) if turn.role == "assistant"), None)
    return ForeignJob(
        case=_case(row, dataset, turns),
        target=target,
        answer=None if answer is None else text_of(answer),
        messages=turns or _messages(row),
        grades=tuple(_grades(row)),
        passed=row.truth("success"),
        cost_usd=row.number("token_cost"),
        duration_ms=row.milliseconds("completion_time"),
        # What was retrieved belongs to the answer: the next run may retrieve something else for the same case.
        metadata={"retrieval_context": row["retrieval_context"]} if row.get("retrieval_context") else {},
        place=f"test case {row.text('name')}",
    )


def _case(row: Fields, dataset: str, turns: tuple[Message, ...]) -> ForeignCase:
    prompt = row.get("input")
    if prompt is None:
        prompt = row.get("scenario") or next((turn.content for turn in turns if turn.role == "user"), "")
    metadata = dict_of(row.get("additional_metadata") or row.get("metadata"))
    name = row.text("name")
    # DeepEval numbers test cases that have no name in the order in which they ended.
    is_numbered = not name or re.fullmatch(r"(conversational_)?test_case_\d+", name)
    return ForeignCase(
        id=f"case-{digest(prompt)[:10]}" if is_numbered else name,
        dataset=dataset,
        input=text_of(prompt),
        expected=row.get("expected_output"),
        outcome=row.text("expected_outcome"),
        context=row.texts("context"),
        metadata=metadata,
        tags=row.texts("tags"),
    )


def _messages(row: Fields) -> tuple[Message, ...]:
    """Return the answer with the tools that were called."""
    calls = tuple(
        ToolCall(tool=text_of(call["name"]), input=call.get("inputParameters", call.get("input_parameters")),
                 output=call.get("output"))
        for call in row.items_of("tools_called")
        if isinstance(call, dict) and call.get("name")
    )  # fmt: skip
    return (Message("assistant", row.text("actual_output"), calls),) if calls else ()


def _grades(row: Fields) -> Iterator[ForeignGrade]:
    items = row.get("metrics_data") or row.get("metrics_metadata")
    metrics = [_snake(item) for item in list_of(items) if isinstance(item, dict)]
    for name, metric in zip(unique_names(item.text("name") for item in metrics), metrics, strict=True):
        value = _value(metric)
        is_skipped = metric.get("skipped") is True
        error = None if value is not None or is_skipped else metric.text("error") or "The metric has no score"
        settings = {key: metric[key] for key in ("threshold", "strict_mode") if metric.get(key) is not None}
        yield ForeignGrade(
            name=name or "metric",
            type=f"deepeval:{name or 'metric'}",
            value=value,
            passed=metric.truth("success"),
            weight=0.0 if is_skipped else 1.0,
            reasoning=metric.text("reason") or None,
            error=error,
            settings={"tool": "deepeval", **settings},
            judge=metric.text("evaluation_model") or None,
            usage=_usage(metric),
            cost_usd=metric.number("evaluation_cost"),
        )


def _value(metric: Fields) -> float | bool | None:
    """Return the score, where higher is better; of a metric that passes below its threshold, 1 minus its score."""
    score, limit, passed = metric.number("score"), metric.number("threshold"), metric.get("success")
    is_inverted = metric.get("name") in _INVERTED and isinstance(passed, bool)
    if is_inverted and score is not None and limit is not None and score != limit and passed == (score < limit):
        return 1 - score
    return metric.grade("score")


def _usage(metric: Fields) -> TokenUsage | None:
    counts = (metric.get(f"{kind}_token_count") or metric.get(f"{kind}_tokens") or None for kind in ("input", "output"))
    return token_usage(*counts)


def _snake(item: dict[str, Any]) -> Fields:
    """Return an object with keys in snake case, which older and newer versions write."""
    return Fields({_HUMP.sub(lambda match: "_" + match[0].lower(), key): value for key, value in item.items()})
