"""Write plain data as YAML 1.2 that our parser reads back unchanged, in a hand-written style."""

from collections.abc import Iterator
from typing import IO, Any

import yaml

from agentv.lazy_regex import lazy_regex


class WrittenInt(int):
    """An integer in a non-canonical form such as `007` or `0x1F`; an id keeps its original spelling."""

    written: str


_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_START = frozenset("-+.0123456789")
_INTEGER = lazy_regex(r"[-+]?[0-9]+")
_BASED = lazy_regex(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = lazy_regex(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = lazy_regex(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_DIGITS = 4300
_TOO_MANY_DIGITS = f"an integer of more than {_MAX_DIGITS:,} digits"


def resolve(text: str) -> Any:
    """Return the value of a plain scalar in the YAML 1.2 core schema. Raises ValueError for numbers that JSON lacks."""
    return _resolve_number(text) if text[:1] in _NUMBER_START else _CONSTANTS.get(text, text)


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
        if (number := float(text)) in (float("inf"), float("-inf")):
            raise ValueError(f"the out-of-range number {text}")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"the value {text}, which JSON cannot represent")
    return text


def _integer(text: str, value: int) -> int:
    if text == str(value):
        return value
    number = WrittenInt(value)
    number.written = text
    return number


def replace_written_integers(document: Any) -> Any:
    """Replace integers that keep their spelling by plain ones, in all lists and objects; an id becomes its spelling."""
    pending, ids = [[document]], set[int]()
    root = pending[0]
    while pending:
        container: Any = pending.pop()
        if id(container) in ids:
            continue
        ids.add(id(container))
        for key, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
            if isinstance(value, WrittenInt):
                container[key] = value.written if key == "id" else int(value)
            elif isinstance(value, dict | list):
                pending.append(value)  # type: ignore[arg-type]
    return root[0]


_WIDE = 1 << 30
_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")


def write_yaml(data: dict[str, Any], stream: IO[bytes]) -> None:
    """Write a mapping as one document. A value may be an iterator, which is written as a list while it is consumed."""
    emitter = yaml.CSafeDumper(stream, allow_unicode=True, width=_WIDE, encoding="utf-8")
    try:
        emitter.emit(yaml.StreamStartEvent(encoding="utf-8"))
        emitter.emit(yaml.DocumentStartEvent(explicit=False))
        for event in _node(data):
            emitter.emit(event)
        emitter.emit(yaml.DocumentEndEvent(explicit=False))
        emitter.emit(yaml.StreamEndEvent())
    finally:
        emitter.dispose()


def _node(value: Any) -> Iterator[yaml.Event]:
    if isinstance(value, str):
        yield _text(value)
    elif isinstance(value, dict):
        yield yaml.MappingStartEvent(None, None, True, flow_style=not value)
        for key, item in value.items():
            yield _text(key)
            yield from _node(item)
        yield yaml.MappingEndEvent()
    elif isinstance(value, list | tuple | Iterator):
        yield yaml.SequenceStartEvent(None, None, True, flow_style=not value)
        for item in value:
            yield from _node(item)
        yield yaml.SequenceEndEvent()
    else:
        import json  # late: few commands write YAML

        yield yaml.ScalarEvent(None, None, (True, False), json.dumps(value))


def _text(text: str) -> yaml.ScalarEvent:
    """Choose a style: a literal block for several lines, plain if that reads back the same, else double quotes."""
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
