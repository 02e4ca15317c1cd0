"""Records of any shape, in any kind of file, with a field map: given by `--map`, in a sidecar, or by our own names."""

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from agentv.datasets.case.keys import OUTCOME_KEYS, CaseKeys
from agentv.datasets.case.shorthand import ItemIds, is_result
from agentv.datasets.foreign.field_guess import Guess, guess_map, map_text
from agentv.datasets.foreign.field_map import (
    FieldMap,
    check_fields,
    checked_map,
    listed,
    parse_map,
    plain_mapper,
    value_at,
)
from agentv.datasets.foreign.foreign_format import (
    NAMED_FILE,
    RECORD_LISTS,
    ForeignFormat,
    Lose,
    MappedFile,
    Mapper,
    PlainMapper,
    any_has,
    document_of,
    listed_objects,
    listed_records,
    looks_like_check,
    objects,
    record_file,
    rows_of,
    table_records,
)
from agentv.datasets.foreign.records import SAMPLE, Record, RecordFile
from agentv.datasets.foreign.values import OUTCOME, is_blank, metadata_of, parsed, with_outcome
from agentv.datasets.formats.dataset_format import Document, Source, read_head, sidecar_of
from agentv.datasets.formats.foreign_files import name_of_document, results_in
from agentv.errors import InvalidDatasetError
from agentv.settings.settings_reader import aliases_of, known_keys

_TABLES = ("table", "sheet", "parquet")
_SURE = 0.6
_CHECKED = (*OUTCOME_KEYS, "expected_output", "expected_messages", "evaluators", "assertions", "assert", "rubrics")
"""Our keys for what is expected: records with one of them are read as our own."""

_EXPECTED = re.compile("expect|must|required|forbid|gold|ideal|ground|answer|should", re.IGNORECASE)
"""How the names of fields begin that say what is expected of an answer."""

OUR_NAMES = FieldMap({"input": "input"})
"""Records whose fields already have our names."""

_KEYS = frozenset({*known_keys(CaseKeys), *aliases_of(CaseKeys)})
_LISTS = ("tags", "context", "rubrics")


class _MappedRecords(ForeignFormat):
    title = "records"
    strength = 0.1
    has_sidecar = True
    refuses_cases = False
    names_unchecked = False  # with a map, `--guess` has named them

    def fits(self, file: RecordFile) -> bool:
        """Tables, and arrays in .json files; other lists and lines only if a name shows which field is the input."""
        if file.kind in _TABLES:
            return True
        if file.suffix == ".json" and file.kind == "json" and file.is_array:
            return True
        rows = [] if name_of_document(document_of(file)) else rows_of(file)
        is_document = file.kind == "json" and not file.is_array
        is_ours = not is_document and any("input" in row and ("id" in row or file.kind == "jsonl") for row in rows)
        if is_ours or not any(row.keys() - {"id"} for row in rows) or any(map(is_result, rows)):
            return False
        return is_document or not any_has(rows, *_CHECKED, "input_messages", "messages", "turns", "vars")

    def items(self, file: RecordFile) -> Iterator[Record]:
        return listed_records(file)

    def open(self, source: Source) -> Document:
        file = record_file(source.files[0])
        if not rows_of(file):
            deque(islice(file.records(), SAMPLE), maxlen=0)  # raises the error that the sample left out
        fields = self._map(source, file)
        check_fields(fields, rows_of(file), source.path)
        summary = "" if fields is OUR_NAMES else ", ".join(f"{path} → {key}" for key, path in fields.paths.items())
        mapped = MappedFile(self.title, summary)
        mapped.field_map = fields
        return Document(source, {}, source.files[0], lists_tests=True, mapped=mapped)

    def _map(self, source: Source, file: RecordFile) -> FieldMap:
        if source.fields:
            return parse_map(source.fields)
        sidecar = sidecar_of(source.base)
        settings = RecordFile(sidecar).document if sidecar else None
        if isinstance(settings, dict) and isinstance(settings.get("fields"), dict):
            return checked_map({str(key): str(path) for key, path in settings["fields"].items()})
        rows = rows_of(file)
        names = dict.fromkeys(str(name) for row in rows for name in row)
        has_checks = any(isinstance(row.get("expected_output"), dict) for row in rows) and any(
            guess.path.startswith("expected_output.") for guess in guess_map(rows)
        )
        has_checks |= not any_has(rows, *_CHECKED) and any(map(_EXPECTED.match, names))
        if "input" in names and not has_checks and (objects(file) or _is_record_list(file)):
            return OUR_NAMES
        raise _unmapped(source.path, rows, list(names))

    def mapper(self, document: Document) -> Mapper:
        fields = _field_map(document)
        mapped = document.mapped
        assert mapped is not None
        for name in _other_lists(record_file(document.source.files[0]), fields):
            mapped.differ(f"the list '{name}' has records with an input too, and is not read: move it to its own file")

        def rows(record: Record, lose: Lose) -> list[dict[str, Any]]:
            if fields is not OUR_NAMES:
                row = fields.row(record.data)
            else:
                row = _own_row(record.data)
                self.name_unchecked(record.data, row, mapped)
            if row.get("expected_outcome") == OUTCOME:
                lose("a way to check the answer: the record has none, so the judge only sees the input")
            return [row]

        return rows

    def plain_mapper(self, document: Document, names: list[str], ids: ItemIds) -> PlainMapper:
        has_notes = any(map(NAMED_FILE.match, names))  # for each row
        if (fields := _field_map(document)) is OUR_NAMES:
            own = {name: name for name in names if name in _KEYS}
            has_notes = has_notes or any(name not in own and looks_like_check(name) for name in names)
            fields = FieldMap({**own, "metadata.*": "*"} if "metadata" not in own else {"metadata": "metadata"})
        plain = None if has_notes else plain_mapper(fields, names, ids)
        return plain or super().plain_mapper(document, names, ids)


MAPPED_RECORDS = _MappedRecords()


def _is_record_list(file: RecordFile) -> bool:
    """Whether the records of a document are its table, or under a name for cases: another list may be settings."""
    document = document_of(file)
    return any(key in document for key in RECORD_LISTS) or bool(table_records(document))


def _field_map(document: Document) -> FieldMap:
    assert document.mapped is not None
    field_map: FieldMap = document.mapped.field_map
    return field_map


def _other_lists(file: RecordFile, fields: FieldMap) -> list[str]:
    """Return the lists of a document whose records have the mapped input, next to the list that is read."""
    records = listed_objects(file)
    return [
        name
        for name, items in document_of(file).items()
        if isinstance(items, list) and items is not records and any(isinstance(item, dict) for item in items)
        if all(isinstance(item, dict) and value_at(item, fields.paths["input"]) is not None for item in items)
    ]


def _own_row(data: dict[str, Any]) -> dict[str, Any]:
    """Return a record with our names as a row. Cells of a table may have lists and JSON; other fields are metadata."""
    row = {key: value for key, value in data.items() if key in _KEYS and not is_blank(value)}
    row |= {key: listed(row[key]) for key in _LISTS if isinstance(row.get(key), str)}
    row |= {key: parsed(row[key]) for key in ("evaluators", "assertions", "assert", "execution", "input") if key in row}
    if "input" not in row:
        raise ValueError("The record has no 'input'")
    return with_outcome({**row, "metadata": metadata_of(data, _KEYS, parsed(row.get("metadata")))})


def _unmapped(path: str, rows: list[dict[str, Any]], names: list[str]) -> InvalidDatasetError:
    """Return the error for records whose fields must be mapped, with a proposal."""
    if not rows:
        hint = "A table needs a header line and at least one row"
        return InvalidDatasetError(f"No cases in {path}", "It has no records", hint, path=path, line=1)
    if results := results_in(path, read_head(path)):
        what, hint = f"It has {results}", "To see its results, use `agentv report`"
        return InvalidDatasetError(f"No cases in {path}", what, hint, path=path, line=1)
    guesses = [guess for guess in guess_map(rows) if guess.key != "input" or guess.confidence >= _SURE]
    if all(guess.key != "input" for guess in guesses):
        guesses.insert(0, Guess("input", "FIELD", 0.0, ""))
    if "input" in names:
        what = "The records have a field 'input', and other fields that only a map explains"
    else:
        what = f"The records have no field 'input', but {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"
    hint = f"Say which field is what: --map '{map_text(guesses)}'\n`agentv cases {path} --guess` explains this"
    return InvalidDatasetError(f"Cannot tell which fields of {path} are the input", what, hint, path=path, line=1)
