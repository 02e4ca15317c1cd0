"""Cases as a run folder keeps them, for runs whose datasets are gone: files are in them, their hashes are known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.datasets.case.builder import CaseBuilder
from agentv.datasets.case.header import Header
from agentv.datasets.files import FileFinder, project_root
from agentv.datasets.loader import Stopping
from agentv.datasets.selection import Selection
from agentv.datasets.source import Source
from agentv.errors import DatasetWarning, InvalidCaseError
from agentv.model.case import EvalCase, Origin, Place, PromptInput
from agentv.model.message import Message
from agentv.runs.store import RunStore, StoredCase
from agentv.settings.diagnostics import Problems

_GUIDELINES = "[[ ## Guidelines ## ]]"


class StoredCases:
    """The cases of one run, read from its folder any number of times."""

    sources: tuple[Source, ...] = ()

    def __init__(self, store: RunStore, selection: Selection = Selection()) -> None:
        self._store = store
        self._selection = selection
        self._builders: dict[tuple[str, str], tuple[CaseBuilder, Origin]] = {}
        self.sink = Stopping(_ignore)

    def stream(self) -> Iterator[EvalCase]:
        """The selected cases."""
        return self._selection.apply(self._all(), self._all)

    stream_again = stream

    def _all(self) -> Iterator[EvalCase]:
        seen: set[tuple[str, str]] = set()
        for number, stored in enumerate(self._store.cases(), 1):
            case = self._case(stored, number)
            if (case.path, case.id) not in seen:
                seen.add((case.path, case.id))
                yield case

    def _case(self, stored: StoredCase, line: int) -> EvalCase:
        data, row = stored.fields, stored.row
        builder, origin = self._builder(data.get("dataset", ""), data.get("dataset_path", ""))
        prompts = [(prompt["id"], _inlined(prompt["input"])) for prompt in data.get("prompts", ())]
        for key, value in (("input", prompts[0][1] if prompts else data.get("input")), *_expected(data)):
            row[key] = _inlined(value)
        if "turns" in row:
            row["turns"] = [{**turn, "input": _inlined(turn["input"])} for turn in row["turns"]]
        case = self._built(builder, row, Place(origin, line))
        if not prompts:
            return case
        rendered = tuple(PromptInput(id, self._messages(builder, row, value)) for id, value in prompts)
        return msgspec.structs.replace(case, details=msgspec.structs.replace(case.details, prompts=rendered))

    def _messages(self, builder: CaseBuilder, row: dict[str, Any], value: list[Any]) -> tuple[Message, ...]:
        return self._built(builder, {**row, "input": value}, Place(Origin(), 0)).input

    def _built(self, builder: CaseBuilder, row: dict[str, Any], place: Place) -> EvalCase:
        problems = Problems()
        case = builder.build(row, place, 0, problems)
        for problem in problems.errors:
            headline = f"Invalid stored case at line {place.line} in {self._store.folder.cases_path}"
            raise InvalidCaseError(headline, problem.message, problem.hint, line=place.line, field=problem.field)
        assert case is not None
        return case

    def _builder(self, dataset: str, path: str) -> tuple[CaseBuilder, Origin]:
        """What builds the cases of one dataset, beside which the files of evaluators are looked up."""
        known = self._builders.get((dataset, path))
        if known is None:
            folder = os.path.dirname(path) or "."
            folder = folder if os.path.isdir(folder) else "."
            root = project_root(folder)
            builder = CaseBuilder(Header(dataset=dataset), FileFinder(folder, root), outcome_optional=True)
            known = self._builders[dataset, path] = (builder, Origin(path, dataset, folder, root))
        return known


def _expected(data: dict[str, Any]) -> list[tuple[str, Any]]:
    """The expected output as a dataset may write it: a list that is data, and no parts, stands for itself."""
    expected = data.get("expected_output")
    if not expected:
        return []
    content = expected[0].get("content") if len(expected) == 1 else None
    is_data = isinstance(content, list) and not all(isinstance(part, dict) and "type" in part for part in content)
    return [("expected_output", content if is_data else expected)]


def _inlined(messages: Any) -> Any:
    """Messages with the contents that the run kept in place of files, guidelines first, as a target was shown them."""
    if not isinstance(messages, list) or not all(isinstance(each, dict) and "role" in each for each in messages):
        return messages
    guidelines: list[str] = []
    told = [_message(message, guidelines) for message in messages]
    if not guidelines:
        return told
    return [{"role": "system", "content": "\n\n".join((_GUIDELINES, *guidelines))}, *told]


def _message(message: dict[str, Any], guidelines: list[str]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = []
    for part in content:
        block = _part(part)
        if isinstance(part, dict) and part.get("guideline"):
            guidelines.append(block["value"])
        else:
            parts.append(block)
    return {**message, "content": parts}


def _part(part: Any) -> Any:
    if isinstance(part, dict) and "text" in part:
        return {"type": "text", "value": f'<file path="{part["value"]}">\n{part["text"].strip()}\n</file>'}
    if isinstance(part, dict) and "data" in part:
        return {"type": "image", "value": part["data"]}
    return part


def _ignore(warning: DatasetWarning) -> None:
    pass
