"""Questions of the Berkeley Function Calling Leaderboard (BFCL), whose checker compares the calls of the model."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, Mapper, all_have, any_has, objects, record_file
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import filled, messages_of, metadata_of
from agentv.datasets.formats.dataset_format import Document, Source
from agentv.errors import InvalidDatasetError

_ANSWERS = "possible_answer"
_NO_MESSAGE = {"role": "user", "content": "(functions are added)"}
_REFUSAL = (
    "The model must be given the functions of a question, and the checker of BFCL compares its calls: run it with bfcl"
)


class _BFCL(ForeignFormat):
    title = "questions of BFCL"
    strength = 0.63
    fields = "question → input and turns, function and ground_truth → metadata"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        if all_have(rows, "id", "ground_truth"):
            return all(row.keys() - {"execution_result_type"} == {"id", "ground_truth"} for row in rows)
        is_nested = all(_are_lists(row.get("question")) for row in rows)
        return all_have(rows, "id") and is_nested and any_has(rows, "function", "involved_classes")

    def open(self, source: Source) -> Document:
        if not any_has(objects(record_file(source.path)), "question"):
            what, hint = "It has possible answers of BFCL", "Name the file with the questions, in the folder above"
            raise InvalidDatasetError(f"No cases in {source.path}", what, hint, path=source.path, line=1)
        return super().open(source)

    def mapper(self, document: Document) -> Mapper:
        folder, name = os.path.split(document.source.files[0])
        path = os.path.join(folder, _ANSWERS, name)
        records = record_file(path).records() if os.path.isfile(path) else ()
        answers = {record.data.get("id"): record.data.get("ground_truth") for record in records}

        def rows(record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
            data = record.data
            first, *later = [messages_of(turn, lose) or [_NO_MESSAGE] for turn in data["question"]]
            row = {
                "id": data["id"],
                "input": first,
                "turns": [{"input": turn} for turn in later],
                "metadata": metadata_of(data, ("id", "question"), filled({"ground_truth": answers.get(data["id"])})),
                "case_error": _REFUSAL,
            }
            return [filled(row)]

        return rows


BFCL = _BFCL()


def _are_lists(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, list) for item in value)
