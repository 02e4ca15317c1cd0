"""Recognize a verdict that a judge quoted from the judged text instead of giving its own.

Texts are compared as words, numbers and colons. Quotes, braces, escapes, spacing, letter case and the order of keys do
not matter, so a copy in another notation, or one that a judge repaired or shortened, is recognized as well.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

MOST_PARTS = 200
"""Limit on the keys of an object that are looked up, so that the time is proportional to the length of the texts."""

_ESCAPED_CHARACTER = re.compile(r"\\+u([0-9a-fA-F]{4})")
_ESCAPED_SPACE = re.compile(r"\\+[nrtbf]")
_TOKEN = re.compile(r"[^\W\d]\w*+|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|[:=]")

_NO_WORDS = "  "
"""The normal form of a text without words."""


class Quotations:
    """The texts that a judge was shown, prepared on first use."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)
        self._normal: dict[int, str] = {}

    def contain(self, value: dict[str, Any]) -> bool:
        """Whether one of the texts has every key of an object with its value, in any order and notation."""
        parts = {_normal_form(part) for part in islice(_parts(value, ""), MOST_PARTS)} - {_NO_WORDS}
        return bool(parts) and any(self._has(index, parts, value) for index in range(len(self._texts)))

    def length_at(self, text: str, position: int) -> int:
        """Return the length of the longest passage at a position of a response that occurs in one of the texts."""
        known = 0
        for quoted in self._texts:
            most = min(len(quoted), len(text) - position)
            while known < most:  # a longer passage can only occur where all shorter ones do
                middle = (known + most + 1) // 2
                if text[position : position + middle] in quoted:
                    known = middle
                else:
                    most = middle - 1
        return known

    def _has(self, index: int, parts: set[str], value: dict[str, Any]) -> bool:
        text = self._texts[index]
        if "\\u" not in text and text.isascii():
            lower = text.lower()  # a cheap test that rules out most texts
            if not all(key.lower() in lower for key, item in value.items() if item not in (None, "", [], {})):
                return False
        if index not in self._normal:
            self._normal[index] = _normal_form(text)
        return all(part in self._normal[index] for part in parts)


def _parts(value: Any, key: str) -> Iterator[str]:
    """Yield the keys of an object, at all levels, each with its value."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _parts(item, f"{name}:")
    elif isinstance(value, list):
        for item in value:
            yield from _parts(item, "")
    elif value is not None and value != "":
        yield f"{key}{value if isinstance(value, str) else json.dumps(value)}"


def _normal_form(text: str) -> str:
    """Return the words, numbers and colons of a text, each between spaces."""
    if "\\u" in text:
        text = _ESCAPED_CHARACTER.sub(lambda found: chr(int(found[1], 16)), text)
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _ESCAPED_SPACE.sub(" ", text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return f" {' '.join(map(_token, _TOKEN.findall(text.casefold())))} "


def _token(token: str) -> str:
    if token == "=":
        return ":"
    return repr(float(token)) if token[0] in "-0123456789" else token
