"""Records of any shape, in any kind of file, with a field map: given by `--map`, in a sidecar, or by our own names."""

from __future__ import annotations

from typing import Any

from agentv.datasets.foreign.field_map import (
    FieldMap,
    check_fields,
    checked_map,
    guess_map,
    map_text,
    parse_map,
)
from agentv.datasets.foreign.foreign_format import ForeignFormat, MappedFile, Mapper, objects, record_file
from agentv.datasets.foreign.records import RecordFile
from agentv.datasets.formats.dataset_format import Document, Source, sidecar_of
from agentv.errors import InvalidDatasetError

_TABLES = ("table", "sheet", "parquet")
_OUR_NAMES = (
    "id",
    "input",
    "expected_output",
    "expected_outcome",
    "criteria",
    "conversation_id",
    "description",
    "tags",
)


class _MappedRecords(ForeignFormat):
    title = "records"
    has_sidecar = True

    def fits(self, file: RecordFile) -> bool:
        """Tables and lists of objects; lines of JSON only if they have no input under our name."""
        rows = objects(file)
        if file.kind == "jsonl":
            return bool(rows) and not any("input" in row or "input_messages" in row for row in rows)
        return file.kind in _TABLES or bool(rows)

    def open(self, source: Source) -> Document:
        file = record_file(source.files[0])
        fields = self._map(source, file)
        check_fields(fields, objects(file), source.path)
        shown = ", ".join(f"{path} → {key}" for key, path in fields.paths.items())
        mapped = MappedFile(self.title, shown)
        return Document(source, {}, source.files[0], lists_tests=True, mapped=mapped, cases=fields)

    def _map(self, source: Source, file: RecordFile) -> FieldMap:
        if source.fields:
            return parse_map(source.fields)
        sidecar = sidecar_of(source.base)
        settings = RecordFile(sidecar).document if sidecar else None
        if isinstance(settings, dict) and isinstance(settings.get("fields"), dict):
            return checked_map({str(key): str(path) for key, path in settings["fields"].items()})
        rows = objects(file)
        names = dict.fromkeys(str(name) for row in rows for name in row)
        if "input" in names:
            paths = {name: name for name in names if name in _OUR_NAMES}
            return checked_map({**paths, "metadata.*": "*"})
        raise _unmapped(source.path, rows, list(names))

    def mapper(self, document: Document) -> Mapper:
        fields: FieldMap = document.cases
        return lambda record, _: [fields.row(record.data)]


MAPPED_RECORDS = _MappedRecords()


def _unmapped(path: str, rows: list[dict[str, Any]], names: list[str]) -> InvalidDatasetError:
    """Return the error for records whose fields must be mapped, with a proposal."""
    if not rows:
        return InvalidDatasetError(f"No cases in {path}", "It has no records", path=path, line=1)
    guesses = guess_map(rows)
    what = f"The records have no field 'input', but {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"
    if not guesses:
        hint = "Say which field is what: --map input=FIELD,expected_output=FIELD"
    else:
        hint = f"Say which field is what: --map '{map_text(guesses)}'\n`agentv cases {path} --guess` explains this"
    return InvalidDatasetError(f"Cannot tell which fields of {path} are the input", what, hint, path=path, line=1)
