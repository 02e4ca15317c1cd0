"""Read the keys of a JSON object from the start of its text, which tell the format of a file."""

import re

BOM = b"\xef\xbb\xbf"
_BLANK = re.compile(rb"[ \t\r\n]*")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)


def top_level(head: bytes) -> dict[str, bytes]:
    """Return the keys of the object that a text starts with, as far as it goes, each with the start of its value."""
    values: dict[str, bytes] = {}
    place = skip_blank(head.removeprefix(BOM), 0)
    text = head.removeprefix(BOM)
    if text[place : place + 1] != b"{":
        return values
    depth = 0
    for token in _TOKEN.finditer(text, place):
        if (mark := token[0]) in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if not depth:
                break
        elif depth == 1 and len(mark) > 1:
            after = skip_blank(text, token.end())
            if text[after : after + 1] == b":":
                start = skip_blank(text, after + 1)
                values[mark[1:-1].decode("utf-8", "replace")] = text[start : start + 64]
    return values


def skip_blank(text: bytes, place: int) -> int:
    """Return the place of the next byte that is not blank."""
    match = _BLANK.match(text, place)
    assert match is not None
    return match.end()
