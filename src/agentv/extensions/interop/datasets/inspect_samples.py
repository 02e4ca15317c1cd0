"""Samples of Inspect: input, target, choices, id, metadata, files and sandbox, in JSON, JSON Lines or CSV."""

from __future__ import annotations

from collections.abc import Iterable
from string import ascii_uppercase
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects, write_records
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import (
    any_of,
    filled,
    is_blank,
    messages_of,
    metadata_of,
    parsed,
    texts_of,
    with_outcome,
)
from agentv.datasets.formats.dataset_format import Content
from agentv.extensions.interop.datasets.written_case import chat_messages, count_losses, extra_data, text_in
from agentv.model.case import EvalCase

_USED = ("id", "input", "target", "choices", "metadata", "files", "setup", "sandbox")


class _InspectSamples(ForeignFormat):
    title = "samples of Inspect"
    strength = 0.78
    fields = "input → input, target → expected_output, choices → the question"
    writes = (".jsonl", ".json")

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "input") and any_has(rows, "target") and not any_has(rows, "expected_outcome", "ideal")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        question = data["input"]
        if isinstance(question, str) and isinstance(messages := parsed(question), list):
            question = messages  # as a cell of a table has them
        targets = texts_of(parsed(data.get("target")))
        choices = _choices(data.get("choices"))
        row: dict[str, Any] = {
            "id": data.get("id"),
            "input": question if isinstance(question, str) else messages_of(question, lose),
            "expected_output": targets[0] if targets else None,
            "metadata": metadata_of(data, _USED, parsed(data.get("metadata"))),
        }
        if choices:
            row["input"] = _with_choices(row["input"], choices)
            row["metadata"]["choices"] = choices
        if len(targets) > 1:
            row["assertions"] = [any_of(targets)]
        for key, what in (("sandbox", "the sandbox"), ("setup", "the setup script"), ("files", "the files")):
            if not is_blank(data.get(key)):
                lose(f"{what} of a sample: use `workspace`")
                row["metadata"][key] = data[key]
        return [with_outcome(row)]

    def write(self, content: Content, path: str) -> None:
        write_records((_sample(row.case, content.lose) for row in content.rows), path)


INSPECT_SAMPLES = _InspectSamples()


def _choices(value: Any) -> list[str]:
    value = parsed(value)
    if isinstance(value, str):  # as Inspect splits them in a table
        return [part.strip() for part in (value.split(",") if "," in value else value.split()) if part.strip()]
    return texts_of(value)


def _with_choices(question: Any, choices: list[str]) -> Any:
    """Return the question with its choices, lettered; a list of messages gets them in its last message."""
    letters = (
        ascii_uppercase[index] if index < len(ascii_uppercase) else str(index + 1) for index in range(len(choices))
    )
    listed = "\n".join(f"{letter}) {choice}" for letter, choice in zip(letters, choices, strict=False))
    if isinstance(question, str):
        return f"{question}\n\n{listed}"
    last = question[-1]
    if isinstance(last.get("content"), str):
        return [*question[:-1], {**last, "content": f"{last['content']}\n\n{listed}"}]
    return [*question, {"role": "user", "content": listed}]


def _sample(case: EvalCase, lose: Lose) -> dict[str, Any]:
    """Return a sample. The target is the reference, or else the outcome, which a model can grade by."""
    count_losses(case, lose, ("rubrics",))
    reference = text_in(case.expected_output, lose) if case.expected_output else ""
    more = {
        "expected_outcome": case.expected_outcome if reference else "",
        "context": list(case.context),
        "rubrics": [dict(item) for item in case.rubrics],
    }
    is_question = len(case.input) == 1 and case.input[0].role == "user"
    return {
        "id": case.id,
        "input": text_in(case.input, lose) if is_question else chat_messages(case.input, lose),
        "target": reference or case.expected_outcome,
        **filled({"metadata": extra_data(case, **more)}),
    }
