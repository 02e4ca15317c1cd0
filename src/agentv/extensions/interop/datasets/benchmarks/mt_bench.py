"""Questions of MT-bench, with the reference answers in the folder next to them."""

from __future__ import annotations

import os
from typing import Any

from agentv.datasets.foreign.field_map import value_at
from agentv.datasets.foreign.foreign_format import Mapper
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import object_at
from agentv.datasets.formats.dataset_format import Document
from agentv.extensions.interop.datasets.keyed_records import KeyedRecords
from agentv.extensions.interop.datasets.record_formats import RECORD_FORMATS

_FOLDER = "reference_answer"
_JUDGE = "gpt-4.jsonl"
_WITH_REFERENCES = ("math", "reasoning", "coding", "arena-hard-200")
"""Categories whose judge sees a reference answer."""


class MtBench(KeyedRecords):
    """Reads the references as its judge does: those of the judge's own model, for some categories."""

    keys = RECORD_FORMATS["mt-bench"]
    title, strength, fields = keys["title"], keys["strength"], keys["fields"]

    def mapper(self, document: Document) -> Mapper:
        references = _references(os.path.dirname(document.source.files[0]))
        rows = super().mapper(document)

        def with_reference(record: Record) -> Record:
            answer = references.get(str(record.data.get("question_id")))
            if answer is None or record.data.get("category") not in _WITH_REFERENCES or "reference" in record.data:
                return record
            return Record(record.line, {**record.data, "reference": answer})

        return lambda record, lose: rows(with_reference(record), lose)


MT_BENCH = MtBench()


def _references(folder: str) -> dict[str, Any]:
    """Return the answers of each reference by the id of its question. Raises DatasetError."""
    path = os.path.join(folder, _FOLDER, _JUDGE)
    if not os.path.isfile(path):
        return {}
    rows = (object_at({"row": record.data}, "row") for record in RecordFile(path).records())
    answers = ((str(row.get("question_id")), value_at(row, "choices[0].turns")) for row in rows)
    return {id: turns for id, turns in answers if isinstance(turns, list)}
