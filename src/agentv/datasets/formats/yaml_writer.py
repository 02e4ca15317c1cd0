"""Plain data → YAML 1.2 text that our reader gives back unchanged, laid out as a person would write it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import IO, Any

import yaml


class WrittenInt(int):
    """An integer not written in its plain form (`007`, `0x1F`): an id keeps the digits it was written with."""

    written: str


_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_START = frozenset("-+.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_DIGITS = 4300
_TOO_MANY_DIGITS = f"an integer of more than {_MAX_DIGITS:,} digits"


def resolve(text: str) -> Any:
    """What a plain scalar means under the core schema of YAML 1.2. Raises ValueError for numbers JSON cannot hold."""
    if text[:1] in _NUMBER_START:
        return _resolve_number(text)
    return _CONSTANTS.get(text, text)


def _resolve_number(text: str) -> Any:
    if not text:
        return None
    if _INTEGER.fullmatch(text):
        if len(text.lstrip("+-")) > _MAX_DIGITS:
            raise ValueError(_TOO_MANY_DIGITS)
        return _integer(text, int(text))
    if _BASED.fullmatch(text):
        value = int(text[2:], 8 if text[1] == "o" else 16)
        if value >= 10**_MAX_DIGITS:
            raise ValueError(_TOO_MANY_DIGITS)
        return _integer(text, value)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"the number {text}, which is out of range")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"the value {text}, which JSON has no form for")
    return text


def _integer(text: str, value: int) -> int:
    if text.isdigit() and (text[0] != "0" or text == "0"):
        return value
    number = WrittenInt(value)
    number.written = text
    return number


_WIDE = 1 << 30
_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")


def write_yaml(header: dict[str, Any], list_key: str, rows: Iterable[Any], stream: IO[bytes]) -> None:
    """A document with the header's keys and a list of rows under `list_key`, written as the rows come."""
    _emit(_document(header, list_key, rows), stream)


def write_mapping(data: dict[str, Any], stream: IO[bytes]) -> None:
    """A document that is one mapping."""
    _emit(_wrapped(_node(data)), stream)


def _emit(events: Iterator[yaml.Event], stream: IO[bytes]) -> None:
    emitter = yaml.CSafeDumper(stream, allow_unicode=True, width=_WIDE, encoding="utf-8")
    try:
        for event in events:
            emitter.emit(event)
    finally:
        emitter.dispose()


def _document(header: dict[str, Any], list_key: str, rows: Iterable[Any]) -> Iterator[yaml.Event]:
    def body() -> Iterator[yaml.Event]:
        yield yaml.MappingStartEvent(None, None, True, flow_style=False)
        for key, value in header.items():
            yield _text(key)
            yield from _node(value)
        yield _text(list_key)
        yield yaml.SequenceStartEvent(None, None, True, flow_style=False)
        for row in rows:
            yield from _node(row)
        yield yaml.SequenceEndEvent()
        yield yaml.MappingEndEvent()

    return _wrapped(body())


def _wrapped(events: Iterable[yaml.Event]) -> Iterator[yaml.Event]:
    yield yaml.StreamStartEvent(encoding="utf-8")
    yield yaml.DocumentStartEvent(explicit=False)
    yield from events
    yield yaml.DocumentEndEvent(explicit=False)
    yield yaml.StreamEndEvent()


def _node(value: Any) -> Iterator[yaml.Event]:
    if isinstance(value, str):
        yield _text(value)
    elif isinstance(value, dict):
        yield yaml.MappingStartEvent(None, None, True, flow_style=not value)
        for key, item in value.items():
            yield _text(key)
            yield from _node(item)
        yield yaml.MappingEndEvent()
    elif isinstance(value, list | tuple):
        yield yaml.SequenceStartEvent(None, None, True, flow_style=not value)
        for item in value:
            yield from _node(item)
        yield yaml.SequenceEndEvent()
    else:
        yield yaml.ScalarEvent(None, None, (True, False), _scalar(value))


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(int(value))


def _text(text: str) -> yaml.ScalarEvent:
    """Plain where that reads back as the same text, a literal block for lines, double quotes for everything else."""
    if "\n" in text and _fits_block(text):
        return yaml.ScalarEvent(None, None, (False, True), text, style="|")
    if _is_safe_plain(text):
        return yaml.ScalarEvent(None, None, (True, True), text)
    return yaml.ScalarEvent(None, None, (False, True), text, style='"')


def _is_safe_plain(text: str) -> bool:
    if not text or text == "<<" or not text.isprintable() or text != text.strip():
        return False
    try:
        return resolve(text) is text
    except ValueError:
        return False


def _fits_block(text: str) -> bool:
    if text[0] in " \t\n" or not text.strip():
        return False
    lines = text.split("\n")
    printable = all(line.replace("\t", " ").isprintable() and line == line.rstrip() for line in lines)
    return printable and not any(char in text for char in _BREAKS)
