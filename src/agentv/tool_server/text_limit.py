"""Keep the answers of tools short: cut long texts and lists, and list what was cut and where."""

from __future__ import annotations

import re
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
_MOST_CUTS = 50
_SURROGATE = re.compile("[\ud800-\udfff]")


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A text or list that was cut. `place` is a JSON Pointer; `shown` of its `size` characters or items are left."""

    place: str
    shown: int
    size: int


class Limit(NamedTuple):
    """The longest text and the longest list of an answer."""

    text: int
    items: int


_LIMITS = tuple(Limit(*each) for each in ((8_000, 500), (3_000, 200), (1_000, 100), (400, 40), (150, 15), (60, 5)))


def fitted(data: Any, most: int = MOST_CHARACTERS) -> tuple[Any, list[Cut]]:
    """Return a dict or list that fits into a number of characters as JSON, and what was cut for it."""
    kept: Any = None
    cuts: list[Cut] = []
    for limit in _LIMITS:
        cutter = _Cutter(limit)
        kept, cuts = cutter.cut(data), cutter.cuts
        if _size(kept) <= most:
            return kept, cuts[:_MOST_CUTS]
    cuts = cuts[:_MOST_CUTS]
    if isinstance(kept, dict):
        share = most // max(1, len(kept))
        return {name: _flat(each, f"/{name}", share, cuts) for name, each in kept.items()}, cuts
    return _flat(kept, "", most, cuts), cuts


def _size(data: Any) -> int:
    return len(msgspec.json.encode(data))


def _flat(value: Any, place: str, most: int, cuts: list[Cut]) -> Any:
    """Return a value; if it is too long, the start of its JSON in a value of the same type."""
    if _size(value) <= most:
        return value
    text = msgspec.json.encode(value).decode()
    cuts.append(Cut(place=place, shown=most, size=len(text)))
    shown = {"json": start_of(text, most)}
    return [shown] if isinstance(value, list) else shown if isinstance(value, dict) else shown["json"]


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
        if not isinstance(value, dict | list | tuple):
            return value
        most = self._limit.items if depth < _DEEPEST and self._seen < _MOST_VALUES else 0
        if len(value) > most:
            self.cuts.append(Cut(place=place, shown=most, size=len(value)))
        if isinstance(value, dict):
            return {
                _key(key): self.cut(each, _below(place, key), depth + 1) for key, each in islice(value.items(), most)
            }
        return [self.cut(each, _below(place, number), depth + 1) for number, each in enumerate(value[:most])]

    def _text(self, text: str, place: str) -> str:
        if len(text) <= self._limit.text:
            return plain_text(text)
        kept = start_of(text, self._limit.text)
        self.cuts.append(Cut(place=place, shown=len(kept) - 1, size=len(text)))
        return plain_text(kept)


def _key(key: object) -> str:
    return plain_text(start_of(str(key), _LONGEST_KEY))


def _below(place: str, key: object) -> str:
    return f"{place}/{_key(key).replace('~', '~0').replace('/', '~1')}"
