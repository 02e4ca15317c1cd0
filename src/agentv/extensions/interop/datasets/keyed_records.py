"""Read the formats that are lists of keys (`record_formats`): each record becomes one case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from agentv.datasets.foreign.field_map import value_at
from agentv.datasets.foreign.foreign_format import (
    ForeignFormat,
    Lose,
    Mapper,
    document_of,
    listed_objects,
    objects,
    record_file,
    table_records,
)
from agentv.datasets.foreign.records import SAMPLE, Record, RecordFile, items_of
from agentv.datasets.foreign.values import (
    call_of,
    expected_calls,
    is_blank,
    messages_of,
    parsed,
    question_of,
    text_of,
    texts_of,
    with_outcome,
)
from agentv.datasets.formats.dataset_format import Document, Source
from agentv.errors import InvalidDatasetError
from agentv.extensions.interop.datasets.dataset_values import (
    cell_list,
    cell_value,
    reference_of,
    split_conversation,
    with_turns,
)
from agentv.extensions.interop.datasets.record_formats import RECORD_FORMATS
from agentv.extensions.interop.datasets.record_keys import RecordKeys, Signature

_METADATA = "metadata."
_PLAIN = frozenset(
    {
        *("id", "description", "conversation_id", "expected_output", "expected_outcome"),
        *("context", "rubrics", "tags", "assertions", "references"),
    }
)
"""Parts of a case that have the value as it is."""

PARTS = _PLAIN | {"input", "system", "metadata"}
"""All parts of a case, in addition to `metadata.NAME`."""

_TABLES = ("table", "sheet", "parquet")
_SURE = 0.5
"""Strength of the formats that are also read from a list inside a document."""


class _Place(NamedTuple):
    """Keys of a record, and the function that reads the first one with a value."""

    reader: str
    paths: tuple[str, ...]


class KeyedRecords(ForeignFormat):
    """A format of the table."""

    keys: RecordKeys

    def fits(self, file: RecordFile) -> bool:
        rows = self._sample(file)
        signatures = [*self.keys["fits"], *(Signature(all=keys) for keys in self.keys.get("refused", {}))]
        return bool(rows) and any(_matches(rows, signature) for signature in signatures)

    def _sample(self, file: RecordFile) -> list[dict[str, Any]]:
        rows = objects(file) or [row for row in self._listed(file)[:SAMPLE] if isinstance(row, dict)]
        return list(map(self._cells, rows)) if file.kind in _TABLES else rows

    def _cells(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the values in the cells of a row, with the objects that have a column for each key."""
        objects = self.keys.get("flattened", "").split()
        separator = "_" if "example_id" in row else "."
        data: dict[str, Any] = {}
        for name, cell in row.items():
            head, _, key = name.partition(separator)
            if not (key and head in objects):
                data[name] = cell_value(cell)
            elif not is_blank(cell):
                data.setdefault(head, {})[key] = cell_value(cell)
        return data

    def _listed(self, file: RecordFile) -> list[Any]:
        """Return the records of a document: of a table or list, of a page of an API, or the document itself."""
        document = document_of(file) if file.kind == "json" else {}
        pages = (value_at(document, path) for path in self.keys.get("pages", "").split())
        page = next((page for page in pages if isinstance(page, list)), None)
        if page is not None or not self.keys.get("in_documents"):
            # What only looks like training data may have expectations with other names: `--guess` finds them.
            records = listed_objects(file) if document and self.strength > _SURE else table_records(document)
            return records if page is None else page
        by_id = [row for row in document.values() if isinstance(row, dict)]
        return by_id if len(by_id) == len(document) else [document]

    def open(self, source: Source) -> Document:
        rows = self._sample(record_file(source.files[0]))
        for keys, (what, hint) in self.keys.get("refused", {}).items():
            if _matches(rows, {"all": keys}):
                raise InvalidDatasetError(f"No cases in {source.path}", what, hint, path=source.path, line=1)
        return super().open(source)

    def items(self, file: RecordFile) -> Iterator[Record]:
        return file.placed() if objects(file) else items_of(self._listed(file))

    def mapper(self, document: Document) -> Mapper:
        if record_file(document.source.files[0]).kind not in _TABLES:
            return self.rows
        return lambda record, lose: self.rows(Record(record.line, self._cells(record.data)), lose)

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        key, value, what = self.keys.get("skipped", ("", "", ""))
        if key and str(data.get(key)).lower() == value:
            lose(what)
            return []
        for names, loss in self._losses:
            if any(not is_blank(parsed(data.get(name))) for name in names):
                lose(loss)
        if self._inputs[0] not in data and not any(_has(data, path) for path in self._inputs):
            raise KeyError(self._inputs[0])
        row: dict[str, Any] = {"expected_outcome": self.keys.get("outcome"), "metadata": {}}
        used = {key, *self._unused}
        for part, places in self._parts.items():
            value = _read(places, data, used, lose)
            if part in _PLAIN:
                row[part] = row.get(part) if value is None else value
            elif value is not None:
                _add(row, part, value)
        if is_blank(row.get("input")) and "turn_texts" not in row:
            raise ValueError(f"The record has no input: '{self._inputs[0]}' is blank")
        if row.get("assertions") and not is_blank(row.get("expected_output")):
            row["assertions"] = [{"type": "llm_judge"}, *row["assertions"]]
        if data.keys() - used:
            row["metadata"] = {**self._rest(data, used), **row["metadata"]}
        if "turn_texts" not in row:
            return [with_outcome(row)]
        turns = _with_references(row.pop("turn_texts"), row.pop("references", None) or [], row)
        return [with_turns(row, turns)]

    @cached_property
    def _parts(self) -> dict[str, list[_Place]]:
        return {part: [_place(text) for text in places.split(" | ")] for part, places in self.keys["case"].items()}

    @cached_property
    def _paths(self) -> set[str]:
        return {path for places in self._parts.values() for place in places for path in place.paths}

    @cached_property
    def _objects(self) -> dict[str, set[str]]:
        """The objects of which parts are named, and these parts."""
        heads = {path.partition(".")[0] for path in self._paths if "." in path}
        return {head: {path.partition(".")[2] for path in self._paths if path.startswith(f"{head}.")} for head in heads}

    @cached_property
    def _unused(self) -> list[str]:
        return self.keys.get("unused", "").split()

    @cached_property
    def _inputs(self) -> list[str]:
        return [path for place in self._parts["input"] for path in place.paths]

    @cached_property
    def _losses(self) -> list[tuple[list[str], str]]:
        return [(names.split(), loss) for names, loss in self.keys.get("losses", {}).items()]

    def _rest(self, data: dict[str, Any], used: set[str]) -> dict[str, Any]:
        """Return the values that no part of the case has; of an object whose parts are named, the other parts."""
        rest: dict[str, Any] = {}
        for name, value in data.items():
            if name in self._objects and not is_blank(value):
                value = _other_parts(name, parsed(value), self._objects[name])
            if name not in used and not is_blank(value):
                rest[str(name)] = parsed(value) if name in self._paths else value
        return rest


def __getattr__(name: str) -> KeyedRecords:
    """Return the format of the table with this name."""
    if name not in RECORD_FORMATS:
        raise AttributeError(name)
    keys = RECORD_FORMATS[name]
    attributes = {"title": keys["title"], "strength": keys["strength"], "fields": keys["fields"], "keys": keys}
    attributes["known_metadata"] = frozenset(" ".join(keys.get("losses", ())).split())
    fmt: KeyedRecords = type(f"KeyedRecords_{name}", (KeyedRecords,), attributes)()
    globals()[name] = fmt
    return fmt


def _matches(rows: list[dict[str, Any]], signature: Signature) -> bool:
    marks, others = signature.get("any", "").split(), signature.get("none", "").split()
    return (
        all(_has(row, path) for row in rows for path in signature["all"].split())
        and (not marks or any(key in row for row in rows for key in marks))
        and not any(key in row for row in rows for key in others)
        and all(isinstance(parsed(row[key]), dict) for row in rows for key in signature.get("objects", "").split())
        and all(isinstance(row[key], list) for row in rows for key in signature.get("lists", "").split())
        and all(part in text_of(row[key]) for row in rows for key, part in signature.get("contains", {}).items())
    )


def _has(row: dict[str, Any], path: str) -> bool:
    return path in row or ("." in path and value_at(row, path) is not None)


def _place(text: str) -> _Place:
    reader, colon, paths = text.partition(": ")
    return _Place(reader, tuple(paths.split())) if colon else _Place("value", tuple(text.split()))


def _read(places: list[_Place], data: dict[str, Any], used: set[str], lose: Lose) -> Any:
    """Return the first value of a part of the case, and add the keys that it was read from to `used`."""
    for reader, paths in places:
        values = []
        for path in paths:
            value = value_at(data, path) if "." in path else data.get(path)
            if reader == "calls" and value == []:
                lose(f"that no tool is called: {path} is an empty list")
            if value is None or is_blank(value):
                continue
            used.add(path)
            if reader == "value":
                return value
            if reader in _READERS:
                return _READERS[reader](value, lose)
            values.append(value)
        if reader in _COMBINED and (values or len(places) == 1):
            return _COMBINED[reader](values)
    return None


def _add(row: dict[str, Any], part: str, value: Any) -> None:
    """Add a part of the case. An input may have other parts with it, such as the turns after it."""
    if part == "input":
        row.update(value if isinstance(value, dict) else {part: value})
    elif part == "metadata":
        row["metadata"].update(value if isinstance(value, dict) else {"metadata": value})
    elif part == "system":
        own = row["input"] if isinstance(row["input"], list) else [{"role": "user", "content": row["input"]}]
        row["input"] = [{"role": "system", "content": value}, *own] if value else row["input"]
    elif not is_blank(value):
        row["metadata"][part.removeprefix(_METADATA)] = value


def _with_references(texts: list[str], references: list[str], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the turns of the user, each with its reference. A single reference is that of the whole conversation."""
    if len(references) == len(texts):
        return [{"input": text, "expected_output": reply} for text, reply in zip(texts, references, strict=True)]
    if len(references) > 1:
        raise ValueError(f"The record has {len(references)} references for {len(texts)} turns")
    row["expected_output"] = next(iter(references), row.get("expected_output"))
    return [{"input": text} for text in texts]


def _other_parts(name: str, value: Any, parts: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"'{name}' must be an object")
    return {key: item for key, item in value.items() if key not in parts}


def _dialogue(value: Any, lose: Lose) -> Any:
    """Return a text, or the input and the turns of a conversation."""
    messages = parsed(value)
    return split_conversation(messages_of(messages, lose), lose) if isinstance(messages, list) else text_of(messages)


def _last_reply(value: Any, lose: Lose) -> dict[str, Any]:
    """Return the messages before the last reply as the input, and the reply as the reference."""
    messages = messages_of(parsed(value), lose)
    last = messages.pop() if messages and messages[-1]["role"] == "assistant" else None
    if not messages:
        raise ValueError("The record has no message before the reply")
    reference = None if last is None else last.get("content") if "tool_calls" not in last else [last]
    return {"input": messages, "expected_output": reference}


def _turns(value: Any, _: Lose) -> dict[str, Any]:
    """Return the texts of the user's turns."""
    turns = parsed(value)
    contents = [turn.get("content", turn) if isinstance(turn, dict) else turn for turn in turns if turn]
    texts = texts_of(contents if isinstance(turns, list) else turns)
    if not texts:
        raise ValueError("The record has no turns")
    return {"turn_texts": texts}


def _bedrock_turns(value: Any, lose: Lose) -> dict[str, Any]:
    """Return the texts of the turns of a conversation, and the reference of each."""
    if any(turn.keys() - {"prompt", "referenceResponses", "output"} for turn in value):
        lose("the passages that a turn should retrieve")
    replies = [turn.get("referenceResponses") or [""] for turn in value]
    if any(len(texts) > 1 for texts in replies):
        raise ValueError("A turn has several reference responses, and here it can have one")
    return {
        "turn_texts": [_parts_text(turn["prompt"]) for turn in value],
        "references": [_parts_text(texts[0]) for texts in replies],
    }


def _responses(value: Any, lose: Lose) -> Any:
    """Return the input of a request to the Responses API: a text, or messages, tool calls and their results."""
    if not isinstance(value, list):
        return text_of(value)
    messages = []
    for item in value:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "function_call":
            messages.append({"role": "assistant", "tool_calls": [call_of(item)]})
        elif kind == "function_call_output":
            messages.append({"role": "tool", "content": text_of(item.get("output"))})
        elif kind == "reasoning":
            lose("the reasoning in a conversation")
        else:
            messages += messages_of({key: part for key, part in item.items() if key != "type"}, lose)
    return messages


def _calls(value: Any) -> list[dict[str, Any]]:
    calls = parsed(value)
    is_list = isinstance(calls, list) and calls
    return [expected_calls([call_of(call) for call in calls], "in_order")] if is_list else []


def _labels(value: Any) -> list[str]:
    tags = parsed(value)
    return [f"{key}:{label}" for key, label in tags.items()] if isinstance(tags, dict) else texts_of(tags)


def _parts_text(value: Any) -> str:
    """Return the text of content of Gemini or Bedrock, which is a text or an object with parts."""
    parts = value.get("parts", value.get("content")) if isinstance(value, dict) else None
    items = parts if isinstance(parts, list) else [parts or value]
    return "\n".join(text_of(item.get("text") if isinstance(item, dict) else item) for item in items)


def _chat(values: list[Any]) -> Any:
    """Return a question, after the messages before it."""
    history, question = (values[:-1], values[-1]) if len(values) > 1 else ([], values[0] if values else None)
    earlier = [message for messages in history for message in messages_of(parsed(messages), lambda _: None)]
    return [*earlier, {"role": "user", "content": text_of(question)}] if earlier else question


def _passages(value: Any) -> list[str]:
    items = value if isinstance(value, list) else []
    return texts_of([item.get("content") if isinstance(item, dict) else item for item in items])


_READERS: dict[str, Callable[[Any, Lose], Any]] = {
    "value": lambda value, _: value,
    "json": lambda value, _: parsed(value),
    "text": lambda value, _: text_of(value),
    "texts": lambda value, _: texts_of(parsed(value)),
    "cells": lambda value, _: cell_list(value),
    "lines": lambda value, _: cell_list(value, "\n"),
    "first": lambda value, _: next(iter(cell_list(value, "\n")), None),
    "labels": lambda value, _: _labels(value),
    "after_marks": lambda value, _: text_of(value).rpartition("####")[2].strip(),
    "parts": lambda value, _: _parts_text(value),
    "passages": lambda value, _: _passages(value),
    "calls": lambda value, _: _calls(value),
    "question": lambda value, lose: question_of(parsed(value), lose),
    "reference": lambda value, lose: reference_of(parsed(value), lose),
    "dialogue": _dialogue,
    "last_reply": _last_reply,
    "bedrock_turns": _bedrock_turns,
    "turns": _turns,
    "responses": _responses,
}
"""Functions that read the value of one key."""

_COMBINED: dict[str, Callable[[list[Any]], Any]] = {
    "all_texts": lambda values: [text for value in values for text in texts_of(value)],
    "chat": _chat,
    "paragraphs": lambda values: "\n\n".join(map(text_of, values)),
}
"""Functions that read the values of several keys."""

READERS = frozenset({*_READERS, *_COMBINED})
