"""Globs over paths: `*` and `?` stay inside a folder, `**` crosses folders, `{a,b}` and `[…]` as usual."""

from __future__ import annotations

import os
import re
from functools import lru_cache

_TOKEN = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[!?\]?[^\]]*\]|\{|\}|,|\\.|.", re.DOTALL)
_PLAIN = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matches(pattern: str, path: str) -> bool:
    """Whether a `/`-separated relative path fits the pattern."""
    return _compiled(pattern).fullmatch(path) is not None


def has_magic(text: str) -> bool:
    """Whether a text is a pattern rather than a plain path."""
    return any(char in text for char in "*?[{")


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    regex, depth = "", 0
    for token in _TOKEN.findall(pattern.replace("\\", "/")):
        if token in _PLAIN:
            regex += _PLAIN[token]
        elif token == "{":
            depth += 1
            regex += "(?:"
        elif token == "}" and depth:
            depth -= 1
            regex += ")"
        elif token == "," and depth:
            regex += "|"
        elif token[0] == "[" and len(token) > 2:
            regex += _set(token[1:-1])
        else:
            regex += re.escape(token)
    try:
        return re.compile(regex + ")" * depth, re.DOTALL)
    except re.error:
        return re.compile(re.escape(pattern))


def _set(inside: str) -> str:
    """One character of a set, `!` before it for one of all others; never a slash."""
    sign = "^" if inside[0] in "!^" else ""
    characters = re.sub(r"[\\\[\]^&~|]|--", lambda found: re.escape(found[0]), inside[len(sign) :])
    return f"(?!/)[{sign}{characters}]"


def upward(folder: str, root: str) -> list[str]:
    """A folder and its parents up to the root; the folder alone when the root is not above it."""
    folder, root = os.path.realpath(folder), os.path.realpath(root)
    found = [folder]
    while found[-1] != root and os.path.dirname(found[-1]) != found[-1]:
        found.append(os.path.dirname(found[-1]))
    return found if found[-1] == root else [folder]
