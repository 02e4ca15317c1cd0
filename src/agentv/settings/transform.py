"""Transform an answer before it is scored, for example to extract the final result.

Steps are applied in the order `strip`, `regex`, `json_path`, `function`, `javascript`. A step that fails, or that
leaves nothing of the answer, is an error: a check such as `not-contains` would pass on an empty text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, signature
from typing import Any, Literal

import msgspec

from agentv.errors import UsageError, start_of
from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import KeyPath, Problems
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.response import content_text
from agentv.registry import service
from agentv.settings.settings_reader import read_settings
from agentv.support.json_values import MISSING, steps_of, value_at
from agentv.support.patterns import search
from agentv.support.user_code import describe, load

_THINKING = lazy_regex(r"<(?P<closing>/?)(?P<name>think|thinking|thought)>", re.IGNORECASE)
_FENCED = lazy_regex(r"(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<text>.*?)\n?[ \t]*(?P=fence)", re.DOTALL)
_ANSI = lazy_regex(r"\x1b(?:[@-Z\\-_]|\[[0-?]*[ -/]*[@-~])")
"""Escape codes of terminals, such as those of colours."""

_LONGEST_CODE = 80
_SCRIPT_FILE = lazy_regex(r"(?P<file>.+\.[cm]?[jt]s)(?::(?P<name>\w+))?")
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_WITH_CONTEXT = 2
"""The number of parameters of a function that gets the context too."""


class Transform(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that transform an answer before it is scored, applied in the order of these fields.

    `function` is `file.py:name`, `module:name` or `file.js:name`. `javascript` is code with `output` and `context`.
    """

    strip: tuple[Literal["thinking", "fences", "whitespace", "ansi"], ...] = ()
    regex: str | None = None
    json_path: str | None = None
    function: str | None = None
    javascript: str | None = None
    allow_empty: bool = False


class TransformContext(msgspec.Struct, frozen=True):
    """What code of a transform may need: how files are found, the case's variables, the answer's metadata."""

    find_file: Callable[[str], str]
    variables: Mapping[str, Any]
    metadata: Any = None

    @property
    def second_argument(self) -> dict[str, Any]:
        """The second argument of functions as in promptfoo."""
        return {"vars": dict(self.variables), "prompt": {}, "metadata": self.metadata or {}}


class TransformFailure(ValueError):
    """An answer that cannot be transformed, and therefore not scored."""


def apply_transform(
    answer: Any,
    transform: Any,
    find_file: Callable[[str], str] = str,
    variables: Mapping[str, Any] | None = None,
    metadata: Any = None,
) -> Any:
    """Apply a transform to an answer: a mapping or a struct of its fields, or several in a list. None changes nothing.

    The answer, and the result, is text or data. `variables` are those of the case, and `metadata` is what a
    provider returned with the answer, for JavaScript. Raises TransformFailure if a step fails, or if nothing is left.
    """
    context = TransformContext(find_file, variables or {}, metadata)
    try:
        for item in transforms_in(transform):
            steps = _steps_of(item)
            answer = _apply(answer, steps, context)
            if steps.javascript is not None:
                answer = _returned(answer, steps, context)
    except (ValueError, EvaluatorFailure, UsageError) as error:
        raise TransformFailure(f"Cannot transform the answer: {error}") from error
    return answer


def transforms_in(transform: Any) -> Sequence[Any]:
    """Return the transforms that are applied one after another."""
    if transform is None:
        return ()
    return transform if isinstance(transform, list | tuple) else (transform,)


def code_of(transform: Any, step: Literal["function", "javascript"]) -> Iterator[str]:
    """Yield the functions or the JavaScript of a transform. Malformed ones are left to `check_transform`."""
    for item in transforms_in(transform):
        code = item.get(step) if isinstance(item, Mapping) else getattr(item, step, None)
        if isinstance(code, str):
            yield code


def _apply(answer: Any, steps: Transform, context: TransformContext) -> Any:
    if not steps.strip and (steps.regex, steps.json_path, steps.function) == (None, None, None):
        return answer
    value: Any = answer if steps.function is not None else content_text(answer)
    for name in steps.strip:
        value = _STRIPS[name](content_text(value))
    if steps.regex is not None:
        value = _picked(content_text(value), steps.regex)
    if steps.json_path is not None:
        value = _at_path(content_text(value), steps.json_path)
    if steps.function is not None:
        value = _called(value, steps.function, context)
    _check_rest(value, answer, steps)
    return value


def _check_rest(value: Any, answer: Any, steps: Transform) -> None:
    is_blank = isinstance(value, str) and not value.strip()
    if is_blank and not steps.allow_empty and content_text(answer).strip():
        raise ValueError("nothing is left of it. To score an empty text, add `allow_empty: true` to the transform")


def _returned(answer: Any, steps: Transform, place: TransformContext) -> Any:
    """Return what the JavaScript of a transform returns for an answer: text or data."""
    context = {"vars": dict(place.variables), **({"metadata": place.metadata} if place.metadata else {})}
    result = service("javascript-engine", "'transform.javascript'")(
        steps.javascript or "", answer, context, syntax="transform"
    )
    if (value := result.get("value")) is None:
        code = start_of(steps.javascript or "", _LONGEST_CODE)
        raise ValueError(f"'transform.javascript' {_reason(result)}: {code}")
    _check_rest(value, answer, steps)
    return value


def _reason(result: dict[str, Any]) -> str:
    if "syntax" in result:
        return f"is not valid ({result['syntax']})"
    if "threw" in result:
        return f"failed ({result['threw'] or 'Error'}: {result['message']})"
    return f"returned {result.get('odd', 'null')}"


def check_transform(transform: Any, path: KeyPath, problems: Problems) -> None:
    """Add an error for an invalid transform."""
    try:
        for item in transforms_in(transform):
            _steps_of(item)
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
    if (steps := read_settings(Transform, transform, ("transform",), problems, strict=True)) is None:
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
    parts: list[str] = []
    start, opening = 0, None
    for tag in _THINKING.finditer(text):
        if tag["closing"] and opening is None:
            parts.clear()
            start = tag.end()
        elif opening is None:
            parts.append(text[start : tag.start()])
            start, opening = tag.start(), tag
        elif tag["closing"] and tag["name"].lower() == opening["name"].lower():
            start, opening = tag.end(), None
    # An unclosed tag at the start is truncated thinking; elsewhere it is part of the answer.
    if opening is None or "".join(parts).strip():
        parts.append(text[start:])
    return "".join(parts).strip()


def _without_fences(text: str) -> str:
    """Return the text inside a code fence around the whole answer; any other answer unchanged."""
    stripped = text.strip()
    match = _FENCED.fullmatch(stripped)
    return match["text"] if match and match["fence"] not in match["text"] else text


_STRIPS: dict[str, Callable[[str], str]] = {
    "thinking": _without_thinking,
    "fences": _without_fences,
    "whitespace": str.strip,
    "ansi": lambda text: _ANSI.sub("", text),
}


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"'transform.regex' is not a valid regular expression: {error}") from None


def _picked(text: str, pattern: str) -> str:
    """Return the first group of the first match that took part in it, or the whole match if there are no groups."""
    if (match := search(_compiled(pattern), text)) is None:
        raise ValueError(f"'transform.regex' does not match it: {pattern}")
    if match.re.groups == 0:
        return match[0]
    if (group := next((group for group in match.groups() if group is not None), None)) is None:
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


def script_file(function: str) -> tuple[str, str] | None:
    """Return the JavaScript file and the function that a reference names; None for Python."""
    match = _SCRIPT_FILE.fullmatch(function)
    return None if match is None else (match["file"], match["name"] or "")


def _called(value: Any, function: str, context: TransformContext) -> Any:
    """Return what a function returns: a text, or data if it takes `output` and `context`, as those of promptfoo."""
    if (script := script_file(function)) is not None:
        call = service("javascript-files", f"The transform {function}")
        path = os.path.abspath(context.find_file(script[0]))
        returned = call(path, script[1], [value, context.second_argument], is_transform=True)
        if returned is None:
            raise ValueError(f"'transform.function' {function} returned null")
        return returned
    called = load(function, context.find_file)
    takes_data = _parameter_count(called) == _WITH_CONTEXT
    try:
        returned = called(value, context.second_argument) if takes_data else called(content_text(value))
    except (Exception, SystemExit) as error:
        path = getattr(getattr(called, "__code__", None), "co_filename", "")
        raise ValueError(f"'transform.function' {function} failed: {describe(error, path)}") from error
    if not isinstance(returned, str | dict | list if takes_data else str):
        raise ValueError(f"'transform.function' {function} must return a string, got {type(returned).__name__}")
    return returned


def _parameter_count(called: Any) -> int:
    """Return how many parameters without a default a function has."""
    try:
        parameters = signature(called).parameters.values()
    except (TypeError, ValueError):
        return 1
    return sum(item.default is item.empty and item.kind not in _VARIADIC for item in parameters)
