"""What the `trajectory:` assertions of promptfoo and AgentV (TypeScript) 5 require of the tool calls of an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from agentv.evaluators.base import CALLS_UNKNOWN, Evaluator, pass_if
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement
from agentv.model.message import ToolCall, tool_calls_in
from agentv.support.json_values import same

_SHELLS = ("exec_command", "local_shell", "shell")
_COMMANDS = ("cmd", "command", "commands")
_TOOL = "tool"
_MOST_SHOWN = 20


class _Step(msgspec.Struct, frozen=True):
    """A call, the names that match it, its arguments if it has any, and its kind: `tool` or `command`."""

    names: tuple[str, ...]
    args: Any = None
    kind: str = _TOOL


class ToolSteps(Evaluator, frozen=True, kw_only=True):
    """Tool calls as `trajectory:` assertions of promptfoo and AgentV 5 check them: they score 1 or 0.

    `check` is the rest of the assertion's type, and `value` its value. Names are patterns with `*` and `?`, whatever
    their case. `inverse` is `not-`: of several tools, none may be called. With `commands`, as in AgentV 5, a call of a
    shell with a command is a command, not a tool.
    """

    check: Literal["tool-used", "tool-sequence", "tool-args-match", "step-count"]
    value: Any
    inverse: bool = False
    commands: bool = False

    @property
    def needs(self) -> Needs:
        """The tool calls of the answer."""
        return Needs(trace=True)

    def complaints(self) -> list[str]:
        """A value that the assertion does not have."""
        data = self.value if isinstance(self.value, dict) else {}
        if self.check == "step-count":
            return [] if {"min", "max"} & _limits(data).keys() else ["'value' of a step count needs 'min' or 'max'"]
        is_list = isinstance(self.value, list)
        if not self._matchers or not all(map(_pattern, self._matchers)):
            return ["'value' names no tool: write its name, or a pattern"]
        if self.check == "tool-used" and is_list and not all(isinstance(item, str) for item in self._matchers):
            return ["'value' must be the name of a tool, a list of names, or an object"]
        if self.check == "tool-sequence" and not (is_list or isinstance(data.get("steps"), list)):
            return ["'value' must be a list of steps, or have one in 'steps'"]
        return _problems_of_args(data) if self.check == "tool-args-match" else []

    @property
    def _matchers(self) -> list[Any]:
        value = self.value
        if self.check == "tool-sequence" and isinstance(value, dict):
            value = value.get("steps")
        return value if isinstance(value, list) else [value]

    def score(self, judgement: Judgement) -> Score:
        """Check the calls. Raises EvaluatorFailure if the target did not report them."""
        calls = tool_calls_in(judgement.response.messages)
        if not calls and judgement.response.calls_unknown:
            raise EvaluatorFailure(CALLS_UNKNOWN)
        steps = [_step(call, self.commands) for call in calls]
        names = ", ".join(step.names[0] for step in steps[:_MOST_SHOWN]) or "no tool was called"
        return pass_if(self._holds(steps), f"{'not ' if self.inverse else ''}{self.check}: {names}")

    def _holds(self, steps: Sequence[_Step]) -> bool:
        if self.check == "tool-used" and not isinstance(self.value, dict):
            has_call = [any(_matches(step, matcher) for step in steps) for matcher in self._matchers]
            return not any(has_call) if self.inverse else all(has_call)
        checks = {"tool-used": _count, "step-count": _count, "tool-sequence": _sequence, "tool-args-match": _args_match}
        kind = None if self.check == "step-count" else _TOOL
        data = self.value if isinstance(self.value, dict) else {"steps": self._matchers}
        least = 1 if self.check == "tool-used" else 0
        chosen = [step for step in steps if kind in (None, step.kind)]
        return checks[self.check](chosen, {**({"type": kind} if kind else {}), **data, "least": least}) != self.inverse


def _step(call: ToolCall, has_commands: bool) -> _Step:
    args = call.input
    if isinstance(args, str):
        args = args.strip() or None
        with suppress(ValueError):
            args = json.loads(args) if args else None
    is_shell = has_commands and call.tool.lower() in _SHELLS and isinstance(args, dict)
    value = next((args[key] for key in _COMMANDS if args.get(key) is not None), None) if is_shell else None
    if isinstance(value, list):
        value = ("; " if "commands" in args and "cmd" not in args and "command" not in args else " ").join(
            word for item in value if (word := str(item).strip())
        )
    if isinstance(value, str) and (command := value.strip()):
        return _Step((command, call.tool, command.split()[0]), args, "command")
    return _Step((call.tool,), args)


def _pattern(matcher: Any) -> str:
    """Return the pattern of a matcher: a text, or an object with a pattern or a name."""
    text = matcher.get("pattern") or matcher.get("name") if isinstance(matcher, dict) else matcher
    return text if isinstance(text, str) else ""


def _fits(text: str, pattern: str) -> bool:
    parts = ({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch("".join(parts), text, re.IGNORECASE) is not None


def _matches(step: _Step, matcher: Any) -> bool:
    kinds = matcher.get("type", _TOOL) if isinstance(matcher, dict) else _TOOL
    if step.kind not in (kinds if isinstance(kinds, list) else [kinds]):
        return False
    pattern = _pattern(matcher)
    return not pattern or any(_fits(name, pattern) for name in step.names)


def _limits(data: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits of a count that are numbers: others have no effect."""
    limits = {key: data[key] for key in ("min", "max") if isinstance(data.get(key), int | float)}
    return {key: limit for key, limit in limits.items() if not isinstance(limit, bool)}


def _problems_of_args(data: Mapping[str, Any]) -> list[str]:
    ignore = data.get("ignore", [])
    names = ignore if isinstance(ignore, list) else [ignore]
    rules = {
        "'value' needs the 'args' of the call": "args" in data or "arguments" in data,
        "'mode' must be 'partial' or 'exact'": data.get("mode", "partial") in ("partial", "exact"),
        "'defaults' must be an object": isinstance(data.get("defaults", {}), dict),
        "'ignore' must name arguments": all(isinstance(name, str) and name.strip() for name in names),
    }
    return [problem for problem, holds in rules.items() if not holds]


def _count(steps: Sequence[_Step], data: Mapping[str, Any]) -> bool:
    count, limits = sum(_matches(step, data) for step in steps), _limits(data)
    return count >= limits.get("min", data["least"]) and ("max" not in limits or count <= limits["max"])


def _sequence(steps: Sequence[_Step], data: Mapping[str, Any]) -> bool:
    matchers = data["steps"]
    if data.get("mode") == "exact":
        return len(steps) == len(matchers) and all(map(_matches, steps, matchers))
    remaining = iter(steps)
    return all(any(_matches(step, matcher) for step in remaining) for matcher in matchers)


def _args_match(steps: Sequence[_Step], data: Mapping[str, Any]) -> bool:
    ignore = data.get("ignore", [])
    ignore = ignore if isinstance(ignore, list) else [ignore]
    expected = _without(data["args"] if "args" in data else data["arguments"], ignore, {})
    is_equal = same if data.get("mode") == "exact" else _contains
    actual = (step.args for step in steps if step.args is not None and _matches(step, data))
    return any(is_equal(_without(args, ignore, data.get("defaults", {})), expected) for args in actual)


def _without(args: Any, ignore: list[str], defaults: Mapping[str, Any]) -> Any:
    """Return arguments without those to ignore, and those that have their default."""
    if not isinstance(args, dict):
        return args
    compared = {key: value for key, value in args.items() if not any(_fits_key(key, entry) for entry in ignore)}
    return {key: value for key, value in compared.items() if key not in defaults or not same(value, defaults[key])}


def _fits_key(key: str, entry: str) -> bool:
    return key == entry or (("*" in entry or "?" in entry) and _fits(key, entry))


def _contains(actual: Any, expected: Any) -> bool:
    """Whether a value has all that is expected: objects may have more keys, lists have as many items."""
    if isinstance(expected, dict):
        keys = expected.keys() if isinstance(actual, dict) else ()
        return isinstance(actual, dict) and all(key in actual and _contains(actual[key], expected[key]) for key in keys)
    if isinstance(expected, list):
        is_list = isinstance(actual, list) and len(actual) == len(expected)
        return is_list and all(map(_contains, actual, expected))
    return same(actual, expected)
