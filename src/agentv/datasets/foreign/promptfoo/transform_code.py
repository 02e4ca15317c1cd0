"""Translate the JavaScript that promptfoo applies to an answer, as far as the steps of a transform can express it."""

from __future__ import annotations

import re
from typing import Any

_ARROW = re.compile(r"^\(?\s*(?P<name>\w+)(?:\s*,\s*\w+)*\s*\)?\s*=>\s*(?P<body>[^{].*)$", re.DOTALL)
_TRIM = re.compile(r"\.(?:trim|trimEnd|trimStart|toString)\(\)$")
_STEPS = r"""(?P<steps>(?:\??\.\w+|\??\.?\[\s*(?:\d+|'[^']*'|"[^"]*")\s*\])*)"""
_PARSED = re.compile(rf"(?:await\s+)?JSON\.parse\(\s*(?:output|text|json)\s*\){_STEPS}")
_DATA = re.compile(rf"(?:json|output|data|response|text){_STEPS}")
_MATCH = re.compile(r"output\.match\(/(?P<pattern>(?:[^/\\]|\\.)+)/\)(?:\?\.|\?)?\[(?P<group>[01])\]")
_STEP = re.compile(r"""\??\.?(?:(\w+)|\[\s*(\d+)\s*\]|\[\s*['"]([^'"]*)['"]\s*\])""")


def transform_of(code: Any) -> dict[str, Any] | None:
    """Return the steps for the transform of a test or an assertion. Raises ValueError if they cannot express it."""
    if code is None:
        return None
    body = _body(code)
    if body in ("output", "text"):
        return None
    parsed = _PARSED.fullmatch(body)
    if parsed is not None:
        return {"json_path": path_of(parsed["steps"])} if parsed["steps"] else None
    found = _MATCH.fullmatch(body)
    if found is not None:
        pattern = found["pattern"].replace("\\/", "/")
        return {"regex": pattern if found["group"] == "1" else f"({pattern})"}
    raise ValueError(
        f"The transform `{str(code).strip()[:80]}` is JavaScript that agentv does not run. "
        "Use `JSON.parse(output).path` or `output.match(/…/)[1]`, or move the check to a `javascript` assertion"
    )


def response_path_of(code: Any) -> str | None:
    """Return the path of the answer in a JSON response; None for the whole body. Raises ValueError."""
    if code is None:
        return None
    body = _body(code)
    if body in ("text", "output"):
        return None
    for pattern in (_PARSED, _DATA):
        found = pattern.fullmatch(body)
        if found is not None:
            return path_of(found["steps"]) or "$"
    raise ValueError(f"the response is read with JavaScript: `{str(code).strip()[:80]}`")


def _body(code: Any) -> str:
    """Return an expression without `return`, an arrow, a semicolon, and steps that only trim."""
    text = str(code).strip().removeprefix("return ").rstrip("; \n").strip()
    arrow = _ARROW.match(text)
    if arrow is not None:
        name = "json" if arrow["name"] in ("json", "response", "data") else "output"
        text = re.sub(rf"\b{arrow['name']}\b", name, arrow["body"]).strip()
    return _TRIM.sub("", text)


def path_of(steps: str) -> str:
    """Return steps such as `.a?.b[0]['c d']` as a path: `a.b[0]["c d"]`."""
    path = ""
    for name, index, key in _STEP.findall(steps):
        word = name or (key if re.fullmatch(r"\w+", key or "") else "")
        if index:
            path += f"[{index}]"
        elif word:
            path += f".{word}" if path else word
        else:
            path += f"['{key}']"
    return path
