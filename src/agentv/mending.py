"""JSON that others write a little wrong, put right: an answer that was paid for is not lost to half a character."""

from __future__ import annotations

import re

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# Escapes one after another, so that `\\ud800`, a backslash and five letters, stays what it is.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def mended_json(body: bytes) -> bytes:
    """The same without a byte order mark, and with U+FFFD in place of each half of a surrogate pair.

    What is no JSON stays as it is.
    """
    body = body.removeprefix(_BYTE_ORDER_MARK)
    is_json = body.lstrip()[:1] in (b"{", b"[", b'"')
    if not is_json or _HALF.search(body) is None:
        return body
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found["half"] else found[0], body)
