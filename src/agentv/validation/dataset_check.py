"""Validates one dataset: everything wrong in it, of good cases and bad ones, in the order of its lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentv.datasets.case.shorthand import is_message
from agentv.datasets.case_ids import PackedIds
from agentv.datasets.dataset import MissingSidecarWarning, OpenDataset, Options
from agentv.datasets.formats.jsonl import read_lines
from agentv.datasets.formats.lines import TooLong
from agentv.datasets.source import Source
from agentv.errors import DatasetError, DatasetWarning
from agentv.model.case import EvalCase
from agentv.settings.diagnostics import type_word
from agentv.validation.finding import Finding, from_error, from_warning
from agentv.validation.references import References


class _Pairs(dict[str, Any]):
    """An object as it was written: the keys that came twice are kept apart."""

    repeated: tuple[str, ...] = ()


def repeated_keys(path: str, max_line_bytes: int) -> Iterator[Finding]:
    """Keys that an object has twice. Loading takes the last of them, which is rarely what was meant."""
    decoder = json.JSONDecoder(object_pairs_hook=_pairs)
    for number, line in read_lines(path, max_line_bytes):
        if isinstance(line, TooLong) or line.count(b'"') < 8:
            continue
        try:
            value = decoder.decode(line.decode("utf-8").strip(" \t\r"))
        except (ValueError, RecursionError):
            continue  # said already, with its place, by whoever read the line as a case
        for key in dict.fromkeys(_all_repeated(value)):
            message = f"The key '{key}' is there twice in one object; the last one is taken"
            yield Finding("error", path, message, number, None, key, "Remove one of the two")


def agentmark_rules(path: str, max_line_bytes: int) -> Iterator[Finding]:
    """AgentMark's own rules for its files, each line that breaks one."""
    for number, line in read_lines(path, max_line_bytes):
        if isinstance(line, TooLong):
            continue
        if not line.strip(b" \t\r"):
            yield Finding("error", path, "AgentMark datasets have no blank lines", number, hint="Remove the line")
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield from _row_findings(row, path, number)


def _row_findings(row: dict[str, Any], path: str, number: int) -> Iterator[Finding]:
    value = row.get("input")
    if value is not None and (not isinstance(value, dict) or is_message(value)):
        found = "message" if is_message(value) else type_word(value)
        message = f"AgentMark's 'input' must be an object of variables, got {found}"
        yield Finding("error", path, message, number, None, "input", "")
    expected = row.get("expected_output")
    if expected is not None and not isinstance(expected, str):
        message = f"AgentMark's 'expected_output' must be a string, got {type_word(expected)}"
        yield Finding("error", path, message, number, None, "expected_output", "Write the JSON as a string")


def _pairs(pairs: list[tuple[str, Any]]) -> _Pairs:
    value = _Pairs(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        value.repeated = tuple(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return value


def _all_repeated(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Pairs):
            yield from item.repeated
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


class Collecting:
    """Keeps what a dataset is told, whatever it is, and lets the reading go on."""

    wants_all = True
    stops_at_first = False

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.bad: list[EvalCase] = []

    def warning(self, warning: DatasetWarning) -> None:
        if not isinstance(warning, MissingSidecarWarning):
            self.findings.append(from_warning(warning))

    def bad_dataset(self, errors: list[DatasetError]) -> None:
        self.findings += map(from_error, errors)

    def bad_case(self, errors: list[DatasetError], case: EvalCase | None) -> None:
        self.findings += map(from_error, errors)
        if case is not None and case.id:
            self.bad.append(case)

    def cases(self, dataset: OpenDataset) -> Iterator[tuple[EvalCase, bool]]:
        """Every case that has an id, and whether it is good: a bad one may have more wrong with it."""
        for batch in dataset.batches(None):
            yield from ((case, False) for case in self._taken())
            yield from ((case, True) for case in batch)
        yield from ((case, False) for case in self._taken())

    def _taken(self) -> list[EvalCase]:
        taken, self.bad = self.bad, []
        return taken


def check_dataset(source: Source, options: Options) -> tuple[int, list[Finding]]:
    """The number of good cases, and everything that is wrong."""
    sink = Collecting()
    count = 0
    try:
        dataset = OpenDataset(source, options, sink)
        references = References(dataset)
        seen, repeated = PackedIds(), set()
        for case, good in sink.cases(dataset):
            count += good
            sink.findings += references.check(case)
            if seen.repeats((case.id,)):
                repeated.add(case.id)
        sink.findings += references.unused_thresholds()
        if repeated:
            sink.findings += _duplicates(source, options, repeated)
        for file in source.files if source.kind == "jsonl" else ():
            sink.findings += repeated_keys(file, options.max_line_bytes)
            if dataset.agentmark:
                sink.findings += agentmark_rules(file, options.max_line_bytes)
    except DatasetError as error:
        sink.bad_dataset([error])
    return count, sorted(sink.findings, key=lambda finding: (finding.path, finding.line or 0, finding.column or 0))


def _duplicates(source: Source, options: Options, ids: set[str]) -> Iterator[Finding]:
    """Every use of these ids but the first, found by reading the dataset once more."""
    sink = Collecting()
    order = {file: position for position, file in enumerate(source.files)}
    uses: dict[str, list[tuple[int, int, str]]] = {}
    for case, _ in sink.cases(OpenDataset(source, options, sink)):
        if case.id in ids:
            uses.setdefault(case.id, []).append((order[case.path], case.line, case.path))
    for id, places in uses.items():
        (_, first_line, first_path), *others = sorted(places)
        for _, line, path in others:
            where = f"line {first_line}" if path == first_path else f"line {first_line} of {first_path}"
            message = f"Duplicate id '{id}': first used at {where}"
            yield Finding("error", path, message, line, None, "id", "Ids must be unique within a dataset")
