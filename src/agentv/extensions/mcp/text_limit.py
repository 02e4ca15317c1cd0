"""Keep the answers of tools short: cut long texts and lists, and list what was cut and where."""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from agentv.errors import UsageError, start_of

MOST_CHARACTERS = 40_000
"""The size of an answer as JSON; about 10,000 tokens, which clients accept without a warning."""
MOST_TEXT = 4_000
"""The size of the short text of an answer."""

_DEEPEST = 40
_MOST_VALUES = 6_000
_LONGEST_KEY = 200
_LONGEST_LINE = 1_000
_SPARE = 2_000
_MOST_CUTS, _LONGEST_PLACE = 30, 300
_SURROGATE = re.compile("[\ud800-\udfff]")


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A text, list or name that was cut. `place` is a JSON Pointer; `shown` of `size` characters or items are left."""

    place: str
    shown: int
    size: int


class Limit(NamedTuple):
    """The longest text and the longest list of an answer."""

    text: int
    items: int


_LIMITS = tuple(
    Limit(*each) for each in ((20_000, 500), (8_000, 500), (3_000, 200), (1_000, 100), (400, 40), (150, 15), (60, 5))
)
_LAST_LIMITS = tuple(Limit(*each) for each in ((60, 2), (60, 1), (60, 0)))
"""For answers, whose fields are all kept. With the last one, no lists and dicts are left to be long."""


def fitted(data: Any, most: int = MOST_CHARACTERS) -> tuple[Any, list[Cut]]:
    """Return data that fits into a number of characters as JSON, and what was cut for it. Structs keep their fields."""
    is_struct = isinstance(data, msgspec.Struct)
    result: Any = None
    cuts: list[Cut] = []
    for limit in (*_LIMITS, *_LAST_LIMITS) if is_struct else _LIMITS:
        cutter = _Cutter(limit)
        result, cuts = cutter.cut(data), cutter.cuts
        if _size(result) <= most:
            return result, _listed(cuts)
    cuts = _listed(cuts)
    if isinstance(result, dict):
        share = most // max(1, len(result))
        return {name: _flat(value, f"/{name}", share, cuts) for name, value in result.items()}, cuts
    return result if is_struct else _flat(result, "", most, cuts), cuts


def short_text(lines: Iterable[str], last: Iterable[str] = ()) -> str:
    """Return the short text of an answer, whose last lines are always shown. A long line leaves room for the others."""
    short_lines = [*lines]
    if len(short_lines) > 1:
        short_lines = [start_of(line, _LONGEST_LINE) for line in short_lines]
    text = "\n".join(short_lines)
    result = start_of(text, MOST_TEXT)
    if len(result) < len(text):
        result += f"\n({len(text) - len(result):,} more characters; the structured content of this answer has more)"
    return "\n".join((result, *last))


def is_named(name: str | None, query: str) -> bool:
    """Whether a name is the given one, as an answer shows it: with replaced surrogates, or its start and `…`."""
    if name is None or name == query:
        return name == query
    plain = plain_text(name)
    return plain == query or (query.endswith("…") and plain.startswith(query[:-1]))


def _listed(cuts: list[Cut]) -> list[Cut]:
    """Return the first cuts; if there are more, the last one counts them."""
    if len(cuts) <= _MOST_CUTS:
        return cuts
    return [*cuts[:_MOST_CUTS], Cut(place="/cut", shown=_MOST_CUTS, size=len(cuts))]


def slice_of(text: str, offset: int) -> str:
    """Return as much of a text as one answer can hold."""
    part = text[offset : offset + _LIMITS[0].text]
    while _size(part) > MOST_CHARACTERS - _SPARE:
        part = part[: len(part) // 2]
    return part


def _size(data: Any) -> int:
    return len(msgspec.json.encode(data).decode())


def _flat(value: Any, place: str, most: int, cuts: list[Cut]) -> Any:
    """Return a value; if it is too long, the start of its JSON in a value of the same type."""
    if _size(value) <= most:
        return value
    text = msgspec.json.encode(value).decode()
    cuts.append(Cut(place=place, shown=most, size=len(text)))
    excerpt = {"json": start_of(text, most)}
    return [excerpt] if isinstance(value, list) else excerpt if isinstance(value, dict) else excerpt["json"]


def text_at(data: Any, place: str) -> str:
    """Return the text, or the JSON of the value, at a JSON Pointer. Raises UsageError."""
    for step in place.split("/")[1:] if place.startswith("/") else [place] if place else []:
        key = step.replace("~1", "/").replace("~0", "~")
        try:
            data = data[int(key)] if isinstance(data, list) else data[key]
        except (KeyError, IndexError, ValueError, TypeError):
            hint = "Take the place from `cut` of an earlier answer, for example /candidate_answer"
            raise UsageError(f"The result has nothing at '{start_of(place, 200)}'", hint=hint) from None
    return plain_text(data) if isinstance(data, str) else msgspec.json.encode(data).decode()


def plain_text(text: str) -> str:
    """Replace lone surrogates, which cannot be sent."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


class _Cutter:
    """Cuts one value. Aliases of YAML can make small files expand to endless data, so the values are counted."""

    def __init__(self, limit: Limit) -> None:
        self.cuts: list[Cut] = []
        self._limit = limit
        self._seen = 0

    def cut(self, value: Any, place: str = "", depth: int = 0) -> Any:
        self._seen += 1
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, msgspec.Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            short_fields = {name: self.cut(item, _below(place, name), depth + 1) for name, item in fields.items()}
            return msgspec.structs.replace(value, **short_fields)
        if not isinstance(value, dict | list | tuple):
            return value
        most = self._limit.items if depth < _DEEPEST and self._seen < _MOST_VALUES else 0
        if isinstance(value, tuple):  # intervals stay complete
            most = max(most, 2)
        if len(value) > most:
            self._note(place, most, len(value))
        if isinstance(value, dict):
            return self._dict(value, place, depth, most)
        return [self.cut(item, _below(place, number), depth + 1) for number, item in enumerate(value[:most])]

    def _dict(self, value: dict[Any, Any], place: str, depth: int, most: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, item in islice(value.items(), most):
            name = start = _key(key)
            count = 1
            while name in result:  # long names that start in the same way
                count += 1
                name = f"{start} ({count})"
            below = _below(place, name)
            if len(str(key)) > _LONGEST_KEY:
                self._note(below, len(start) - 1, len(str(key)))
            result[name] = self.cut(item, below, depth + 1)
        return result

    def _text(self, text: str, place: str) -> str:
        if len(text) <= self._limit.text:
            return plain_text(text)
        start = start_of(text, self._limit.text)
        self._note(place, len(start) - 1, len(text))
        return plain_text(start)

    def _note(self, place: str, count: int, size: int) -> None:
        self.cuts.append(Cut(place=start_of(place, _LONGEST_PLACE), shown=count, size=size))


def _key(key: object) -> str:
    return plain_text(start_of(str(key), _LONGEST_KEY))


def _below(place: str, key: object) -> str:
    return f"{place}/{_key(key).replace('~', '~0').replace('/', '~1')}"
