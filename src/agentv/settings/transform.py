"""Transform an answer before it is scored, for example to extract the final result.

Steps are applied in the order `strip`, `regex`, `json_path`, `function`. A step that fails, or that leaves nothing of
the answer, is an error: a check such as `not-contains` would pass on an empty text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from agentv.model.diagnostics import KeyPath, Problems
from agentv.settings.settings_reader import read_settings
from agentv.support.json_values import MISSING, steps_of, value_at
from agentv.support.patterns import search
from agentv.support.user_code import describe, load

_THINKING = re.compile(r"<(?P<closing>/?)(?P<name>think|thinking|thought)>", re.IGNORECASE)
_FENCED = re.compile(r"(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<text>.*?)\n?[ \t]*(?P=fence)", re.DOTALL)


class Transform(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that transform an answer before it is scored, applied in the order of these fields."""

    strip: tuple[Literal["thinking", "fences", "whitespace"], ...] = ()
    regex: str | None = None
    json_path: str | None = None
    function: str | None = None
    allow_empty: bool = False


class TransformFailure(ValueError):
    """An answer that cannot be transformed, and therefore not scored."""


def apply_transform(text: str, transform: Any, find_file: Callable[[str], str] = str) -> str:
    """Apply a transform to an answer: a mapping or a struct of its fields, or several in a list. None changes nothing.

    Raises TransformFailure if a step fails, or if nothing is left of the answer.
    """
    try:
        for each in transforms_in(transform):
            text = _apply(text, _steps_of(each), find_file)
    except ValueError as error:
        raise TransformFailure(f"Cannot transform the answer: {error}") from error
    return text


def transforms_in(transform: Any) -> Sequence[Any]:
    """Return the transforms that are applied one after another."""
    if transform is None:
        return ()
    return transform if isinstance(transform, list | tuple) else (transform,)


def functions_of(transform: Any) -> Iterator[str]:
    """Yield the functions that a transform calls, as written. Malformed transforms are left to `check_transform`."""
    for each in transforms_in(transform):
        function = each.get("function") if isinstance(each, Mapping) else getattr(each, "function", None)
        if isinstance(function, str):
            yield function


def _apply(answer: str, steps: Transform, find_file: Callable[[str], str]) -> str:
    text = answer
    for name in steps.strip:
        text = _STRIPS[name](text)
    if steps.regex is not None:
        text = _picked(text, steps.regex)
    if steps.json_path is not None:
        text = _at_path(text, steps.json_path)
    if steps.function is not None:
        text = _called(text, steps.function, find_file)
    if not steps.allow_empty and not text.strip() and answer.strip():
        raise ValueError("nothing is left of it. To score an empty text, add `allow_empty: true` to the transform")
    return text


def check_transform(transform: Any, path: KeyPath, problems: Problems) -> None:
    """Add an error for an invalid transform."""
    try:
        for each in transforms_in(transform):
            _steps_of(each)
    except ValueError as error:
        problems.error(path, str(error))


def _steps_of(transform: Any) -> Transform:
    try:
        return _remembered_steps(transform)
    except TypeError:
        # A plain dict is not hashable; the frozen ones of datasets and targets are.
        return _read(transform)


def _read(transform: Any) -> Transform:
    if isinstance(transform, msgspec.Struct):
        transform = msgspec.to_builtins(transform)
    if not isinstance(transform, Mapping):
        raise ValueError("'transform' must be an object with strip, regex, json_path or function, or a list of them")
    problems = Problems()
    steps = read_settings(Transform, transform, ("transform",), problems, strict=True)
    if steps is None:
        problem = problems.errors[0]
        raise ValueError(f"{problem.message}. {problem.hint}" if problem.hint else problem.message)
    if steps.regex is not None:
        _compiled(steps.regex)
    if steps.json_path is not None:
        try:
            steps_of(steps.json_path)
        except ValueError as error:
            raise ValueError(f"'transform.json_path': {error}") from None
    return steps


_remembered_steps = lru_cache(maxsize=4096)(_read)


def _without_thinking(text: str) -> str:
    """Remove blocks of thinking, including one that was opened in the prompt, and one that is never closed."""
    kept: list[str] = []
    start, opening = 0, None
    for tag in _THINKING.finditer(text):
        if tag["closing"] and opening is None:
            kept.clear()
            start = tag.end()
        elif opening is None:
            kept.append(text[start : tag.start()])
            start, opening = tag.start(), tag
        elif tag["closing"] and tag["name"].lower() == opening["name"].lower():
            start, opening = tag.end(), None
    # An unclosed tag at the start is truncated thinking; elsewhere it is part of the answer.
    if opening is None or "".join(kept).strip():
        kept.append(text[start:])
    return "".join(kept).strip()


def _without_fences(text: str) -> str:
    """Return the text inside a code fence around the whole answer; any other answer unchanged."""
    stripped = text.strip()
    found = _FENCED.fullmatch(stripped)
    return found["text"] if found and found["fence"] not in found["text"] else text


_STRIPS: dict[str, Callable[[str], str]] = {
    "thinking": _without_thinking,
    "fences": _without_fences,
    "whitespace": str.strip,
}


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"'transform.regex' is not a valid regular expression: {error}") from None


def _picked(text: str, pattern: str) -> str:
    """Return the first group of the first match that took part in it, or the whole match if there are no groups."""
    found = search(_compiled(pattern), text)
    if found is None:
        raise ValueError(f"'transform.regex' does not match it: {pattern}")
    if found.re.groups == 0:
        return found[0]
    group = next((group for group in found.groups() if group is not None), None)
    if group is None:
        raise ValueError(f"'transform.regex' matches it, but none of its groups does: {pattern}")
    return group


def _at_path(text: str, path: str) -> str:
    try:
        value = value_at(msgspec.json.decode(text), path)
    except (ValueError, RecursionError):
        raise ValueError(f"it is not valid JSON, which 'transform.json_path' needs: {path}") from None
    if value is MISSING or value is None:
        what = "leads to nothing in it" if value is MISSING else "leads to null in it"
        raise ValueError(f"'transform.json_path' {what}: {path}")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _called(text: str, function: str, find_file: Callable[[str], str]) -> str:
    called = load(function, find_file)
    try:
        returned = called(text)
    except (Exception, SystemExit) as error:
        path = getattr(getattr(called, "__code__", None), "co_filename", "")
        raise ValueError(f"'transform.function' {function} failed: {describe(error, path)}") from error
    if not isinstance(returned, str):
        raise ValueError(f"'transform.function' {function} must return a string, got {type(returned).__name__}")
    return returned
