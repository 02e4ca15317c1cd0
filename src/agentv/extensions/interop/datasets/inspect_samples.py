"""Samples of Inspect: input, target, choices, id, metadata, files and sandbox, in JSON, JSON Lines or CSV."""

from __future__ import annotations

from collections.abc import Iterable
from string import ascii_uppercase
from typing import Any

from agentv.datasets.foreign.case_parts import NO_CHECK, chat_messages, count_losses, first_input, text_in
from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import is_blank, messages_of, metadata_of, parsed, texts_of, with_outcome
from agentv.datasets.formats.dataset_format import Content
from agentv.extensions.interop.datasets.dataset_values import any_of
from agentv.extensions.interop.datasets.multiple_choice import choice_parts
from agentv.extensions.interop.datasets.written_case import is_text, restore, seal, write_records
from agentv.model.case import EvalCase

_USED = ("id", "input", "target", "choices", "metadata", "files", "setup", "sandbox")


class _InspectSamples(ForeignFormat):
    title = "samples of Inspect"
    strength = 0.78
    fields = "input → input, target → expected_output, choices → the question and a check of the letter"
    writes = (".jsonl", ".json")

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "input") and any_has(rows, "target") and not any_has(rows, "expected_outcome", "ideal")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        question = data["input"]
        if isinstance(question, str) and _are_messages(messages := parsed(question)):
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
            row["metadata"]["choices"] = choices
            row |= self._question(row["input"], choices, targets, lose)
        elif len(targets) > 1:
            row["assertions"] = [any_of(targets)]
        for key, what in (("sandbox", "the sandbox"), ("setup", "the setup script"), ("files", "the files")):
            if not is_blank(data.get(key)):
                lose(f"{what} of a sample: use `workspace`")
                row["metadata"][key] = data[key]
        return [restore(with_outcome(row), data, "metadata", lose)]

    def _question(self, question: Any, choices: list[str], targets: list[str], lose: Lose) -> dict[str, Any]:
        """Return a multiple-choice question. Its targets are letters, or else the texts of choices."""
        letters = [ascii_uppercase[choices.index(text)] for text in targets if text in choices[: len(ascii_uppercase)]]
        if len(letters) == len(targets) and any(len(text) > 1 for text in targets):
            lose("a target that is the text of a choice: `choice` of Inspect needs its letter, which is checked")
            return choice_parts(question, choices, letters)
        return choice_parts(question, choices, targets)

    def write(self, content: Content, path: str) -> None:
        write_records((_sample(row.case, content.lose) for row in content.rows), path)


INSPECT_SAMPLES = _InspectSamples()


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _choices(value: Any) -> list[str]:
    value = parsed(value)
    if isinstance(value, str):  # as Inspect splits them in a table
        return [part.strip() for part in (value.split(",") if "," in value else value.split()) if part.strip()]
    return texts_of(value)


def _sample(case: EvalCase, lose: Lose) -> dict[str, Any]:
    """Return a sample. The target is the reference, or else the outcome, which a model can grade by."""
    count_losses(case, lose)
    reference = text_in(case.expected_output, lose) if case.expected_output else ""
    if not reference and not case.expected_outcome:
        lose("a target: a case has no reference and no outcome, so that its target matches no answer")
    messages = first_input(case)
    record = {
        "id": case.id,
        "input": text_in(messages, lose) if is_text(messages, "user") else chat_messages(messages, lose),
        "target": reference or case.expected_outcome or NO_CHECK,
    }
    fields = ("id", "input", "chat", "evaluators", *(("expected_output",) if reference else ()))
    return seal(record, "metadata", case, fields)
