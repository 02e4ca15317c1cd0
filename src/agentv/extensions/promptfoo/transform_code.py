"""Translate the JavaScript that promptfoo applies to an answer, and that which reads the body of a response."""

from __future__ import annotations

import re
from typing import Any

from agentv.extensions.promptfoo.functions.calls import FUNCTION_FILE

_ARROW = re.compile(r"^\(?\s*(?P<name>\w+)(?:\s*,\s*\w+)*\s*\)?\s*=>\s*(?P<body>[^{].*)$", re.DOTALL)
_TRIMS = re.compile(r"\.(?:trim|trimEnd|trimStart|toString)\(\)$")
_STEPS = r"""(?P<steps>(?:\??\.\w+|\??\.?\[\s*(?:\d+|'[^']*'|"[^"]*")\s*\])*)"""
_PARSED = re.compile(rf"(?:await\s+)?JSON\.parse\(\s*(?:output|text|json)\s*\){_STEPS}")
_DATA = re.compile(rf"(?:json|output|data|response|text){_STEPS}")
_STEP = re.compile(r"""\??\.?(?:(\w+)|\[\s*(\d+)\s*\]|\[\s*['"]([^'"]*)['"]\s*\])""")


def transforms_of(*codes: Any) -> Any:
    """Return the transform for JavaScript that is applied one after another, such as a test's and an assertion's.

    It is None if nothing changes, an object, or a list of objects. Raises ValueError for code that is not text.
    """
    steps = [_step(code) for code in codes if code]
    return steps if len(steps) > 1 else steps[0] if steps else None


def _step(code: Any) -> dict[str, Any]:
    """Return the step for a step, or for JavaScript. As in promptfoo, an empty text is a result, and null an error."""
    if isinstance(code, dict):
        return code
    if not isinstance(code, str):
        raise ValueError(f"A transform must be text, got {type(code).__name__}")
    if code.startswith("file://"):
        match = FUNCTION_FILE.match(code)
        if match is None:
            raise ValueError(f"The transform {code} is not a file of JavaScript or Python")
        file, name = match["file"], match["name"] or ("get_transform" if match["file"].endswith(".py") else "")
        return {"function": f"{file}:{name}" if name else file, "allow_empty": True}
    return {"javascript": code, "allow_empty": True}


def response_path_of(code: Any) -> str | None:
    """Return the path of the answer in a JSON response; None for the whole body. Raises ValueError."""
    if code is None:
        return None
    body = _body(code)
    if body in ("text", "output"):
        return None
    for pattern in (_PARSED, _DATA):
        match = pattern.fullmatch(body)
        if match is not None:
            return path_of(match["steps"]) or "$"
    raise ValueError(f"the response is read with JavaScript: `{str(code).strip()[:80]}`")


def _body(code: Any) -> str:
    """Return an expression without `return`, an arrow, a semicolon, and steps that only trim."""
    text = str(code).strip().removeprefix("return ").rstrip("; \n").strip()
    arrow = _ARROW.match(text)
    if arrow is not None:
        name = "json" if arrow["name"] in ("json", "response", "data") else "output"
        text = re.sub(rf"\b{arrow['name']}\b", name, arrow["body"]).strip()
    return _TRIMS.sub("", text)


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
