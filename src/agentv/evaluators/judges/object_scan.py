"""Find the JSON objects in a model's text, in time proportional to its length.

An object counts only if it is complete and not part of another value. Text inside a broken object is never searched: it
may be a quotation in one of its strings. A brace that does not start an object, as in `{a, b}`, is ordinary text.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

_START = re.compile(r'\{\s*+(?:\}|"(?:[^"\\]++|\\.)*+"\s*+:)', re.DOTALL)
"""The start of an object: its first key and colon, or its end."""
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[{}]', re.DOTALL)
_BRACE = re.compile(r"[{}]")
_CONTINUES = re.compile(r"\s*+[,\]}]")
"""Text after an object that is part of a larger value."""
MOST_RESCUES = 10
"""Limit on the broken objects in one text that are compared with the quoted texts."""

_WORD = re.compile(r'("passed"\s*+:\s*+)(?!(?:true|false|null)\b)([A-Za-z_]\w*+)')
"""A word without quotes as the result of an assertion, such as `mixed` or `True`."""

_FENCE = re.compile(r"```(?:json)?\s*+(?P<text>\{.*\})\s*+(?:```)?", re.DOTALL)


class UnusableResponse(Exception):
    """A response or an object that cannot be used. The message is one short sentence about the reason.

    `suspicious` if the response may have been manipulated by the judged text: it has two different verdicts, or only
    one that was quoted.
    """

    def __init__(self, reason: str, *, suspicious: bool = False) -> None:
        super().__init__(reason)
        self.suspicious = suspicious


def whole_object(text: str) -> Any:
    """Return the object that makes up a text, apart from whitespace and a code fence; None if it is not one."""
    text = text.strip()
    fenced = _FENCE.fullmatch(text) if text.startswith("```") else None
    text = text if fenced is None else fenced["text"]
    if not (text.startswith("{") and text.endswith("}")):
        return None
    value = _decoded(text)
    return None if isinstance(value, UnusableResponse) else value


def objects_in(text: str, quoted_length: Callable[[str, int], int] | None = None) -> Iterator[tuple[int, Any]]:
    """Yield each object in a text with its end, or an UnusableResponse in its place if it is not acceptable.

    Every step moves past the text it has read, so the time is linear. An object without an end hides the rest, unless
    its start is a quotation: `quoted_length` returns the length of the quotation at a position.
    """
    position = text.find("{")
    rescues = MOST_RESCUES
    while position >= 0:
        if (start := _START.match(text, position)) is None:
            position = text.find("{", position + 1)
            continue
        end = _closing(_STRING_OR_BRACE, text, position)
        if (value := _decoded(text[position:end])) is None:
            # Broken: the strings may begin and end elsewhere than they seem to.
            end = max(end, _closing(_BRACE, text, position))
            if quoted_length is not None and rescues:
                rescues -= 1
                quotation_end = position + quoted_length(text, position)
                end = quotation_end if quotation_end >= start.end() else end
        elif not _CONTINUES.match(text, end):
            yield end, value
        position = text.find("{", end)


def _closing(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Return the end of the brace that closes the one at `start`, or the end of the text."""
    depth = 0
    for match in pattern.finditer(text, start):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if not depth:
                return match.end()
    return len(text)


def _decoded(text: str) -> Any:
    """Return an object, an UnusableResponse if it is not acceptable, or None if it is broken."""
    try:
        return _DECODER.decode(text)
    except UnusableResponse as unusable:
        return unusable
    except (ValueError, RecursionError):
        repaired = _WORD.sub(r'\1"\2"', text)
        return None if repaired == text else _decoded(repaired)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = {_without_surrogates(key): _without_surrogates(item) for key, item in pairs}
    if len(value) < len(pairs):
        ((twice, _),) = Counter(_without_surrogates(key) for key, _ in pairs).most_common(1)
        raise UnusableResponse(f"it has the key '{twice[:40]}' twice")
    return value


def _without_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which JSON can express but UTF-8 cannot."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value


def _constant(name: str) -> NoReturn:
    raise UnusableResponse(f"{name} is not a valid number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, strict=False)
