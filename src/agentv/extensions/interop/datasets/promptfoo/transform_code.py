"""Translate the JavaScript that promptfoo applies to an answer, as far as the steps of a transform can express it."""

from __future__ import annotations

import re
from typing import Any

_ARROW = re.compile(r"^\(?\s*(?P<name>\w+)(?:\s*,\s*\w+)*\s*\)?\s*=>\s*(?P<body>[^{].*)$", re.DOTALL)
_TRIM = re.compile(r"\.trim\(\)$")
_TRIMS = re.compile(r"\.(?:trim|trimEnd|trimStart|toString)\(\)$")
_STEPS = r"""(?P<steps>(?:\??\.\w+|\??\.?\[\s*(?:\d+|'[^']*'|"[^"]*")\s*\])*)"""
_PARSED = re.compile(rf"(?:await\s+)?JSON\.parse\(\s*(?:output|text|json)\s*\){_STEPS}")
_DATA = re.compile(rf"(?:json|output|data|response|text){_STEPS}")
_PARSED_OUTPUT = re.compile(rf"JSON\.parse\(\s*output\s*\){_STEPS}")
_MATCH = re.compile(r"output\.match\(/(?P<pattern>(?:[^/\\]|\\.)+)/(?P<flags>[imsu]*)\)(?:\?\.|\?)?\[(?P<group>[01])\]")
_OPENING = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\((?!\?)", re.DOTALL)
"""An opening parenthesis of a group; escapes and character classes are matched to skip them."""
_STEP = re.compile(r"""\??\.?(?:(\w+)|\[\s*(\d+)\s*\]|\[\s*['"]([^'"]*)['"]\s*\])""")


def transforms_of(*codes: Any) -> Any:
    """Return the transform for JavaScript that is applied one after another, such as a test's and an assertion's.

    It is None if nothing changes, an object, or a list of objects. Raises ValueError if steps cannot express the code.
    """
    steps = [step for code in codes if code for step in _steps(code)]
    return steps if len(steps) > 1 else steps[0] if steps else None


def _steps(code: Any) -> list[dict[str, Any]]:
    """Return the steps for one expression. As in promptfoo, an empty text is a result, and undefined is an error."""
    body = _expression(code)
    steps: list[dict[str, Any]] = []
    if _TRIM.search(body):
        body = _TRIM.sub("", body)
        steps.append({"strip": ["whitespace"], "allow_empty": True})
    if body == "output":
        return steps
    parsed = _PARSED_OUTPUT.fullmatch(body)
    if parsed is not None:
        return [{"json_path": path_of(parsed["steps"]) or "$", "allow_empty": True}, *steps]
    match = _MATCH.fullmatch(body)
    if match is not None:
        return [{"regex": _pattern(match), "allow_empty": True}, *steps]
    raise ValueError(
        f"The transform `{str(code).strip()[:80]}` is JavaScript that agentv does not run. "
        "Use `JSON.parse(output).path` or `output.match(/…/)[1]`, or move the check to a `javascript` assertion"
    )


def _expression(code: Any) -> str:
    """Return the expression whose value promptfoo uses: code of several lines needs a `return`, other code has none."""
    text = str(code)
    is_block, returns = "\n" in text, text.lstrip().startswith("return ")
    if is_block != returns:
        why = "several lines without a `return`" if is_block else "one line with a `return`"
        raise ValueError(f"The transform `{text.strip()[:80]}` is {why}, which promptfoo gets no value from")
    return text.strip().removeprefix("return ").rstrip("; \n").strip()


def _pattern(match: re.Match[str]) -> str:
    """Return the pattern of `output.match(…)` with one group: the one that is used."""
    pattern, flags = match["pattern"].replace("\\/", "/"), match["flags"].replace("u", "")
    prefix = f"(?{flags})" if flags else ""
    if match["group"] == "0":
        return f"{prefix}({pattern})"
    openings = [each.start() for each in _OPENING.finditer(pattern) if each[0] == "("]
    if not openings:
        raise ValueError(f"The transform `{match[0][:80]}` uses a group, and its pattern has none")
    for place in reversed(openings[1:]):
        pattern = f"{pattern[:place]}(?:{pattern[place + 1 :]}"
    return prefix + pattern


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
