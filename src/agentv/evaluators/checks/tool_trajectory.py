"""Check which tools were called, how often, in what order and with which arguments, and which skills were used."""

import re
from collections import Counter, deque
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.evaluators.base import (
    CALLS_UNKNOWN,
    OTHER_TOOLS,
    Count,
    Evaluator,
    Limit,
    cut,
    missed,
    pass_if,
    passed,
    within,
)
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement
from agentv.model.message import ToolCall, tool_calls_in
from agentv.support.json_values import MISSING, json_or, same, value_at

ArgumentMatch = Literal["exact", "superset", "subset", "ignore"] | list[str]
"""`superset` allows arguments that are not listed; a list names the only arguments to compare."""

Pairs = list[tuple[int, int]]
"""Pairs of an index in the expected calls and the index of the matching actual call."""

_NO_CALL_MODES = ("exact", "subset")
"""The modes in which an empty list of expected calls means that no tool may be called."""

_MOST_SHOWN = 20
_MOST_LINES = 200
_MOST_COMPARED = 250_000


class ExpectedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One expected call. `args` unset or `any` allows any arguments; `args_match` overrides the evaluator's.

    `output` is a part of the call's result: of an object the listed keys, of a list the listed items.
    """

    aliases: ClassVar[dict[str, str]] = {"name": "tool", "arguments": "args", "input": "args"}

    tool: str
    args: dict[str, Any] | Literal["any"] | None = None
    args_match: ArgumentMatch | None = None
    output: Any = None
    max_duration_ms: Limit | None = None


class ToolTrajectory(Evaluator, frozen=True, kw_only=True):
    """The tools that were called: how often, in what order and with which arguments.

    `any_order` counts calls by `minimums`; the other modes compare the calls with `expected`.

    Every call that the target reports counts, whether or not the tool succeeded: a failed attempt and its repetition
    are two calls. Calls are in message order, and parallel calls of one message are in the order listed there. Messages
    with the role `tool` contain results, not calls.

    | `mode` | holds if |
    |---|---|
    | `any_order` | the score is the fraction of `minimums` that are reached |
    | `in_order` | the expected calls were made in this order; other calls may come before, between or after them |
    | `exact` | the calls are exactly these, in this order |
    | `superset` | every expected call was made, in any order; each needs a call of its own |
    | `subset` | every call that was made is expected; one expected call may match several |

    A call matches an expected one if the tool name is the same and the arguments match:

    | `args_match` | the arguments match if |
    |---|---|
    | `superset` (default) | all arguments in `args` are present and equal, nested values included; others are allowed |
    | `exact` (default under `tests`) | the arguments are exactly those in `args` |
    | `subset` | every argument of the call is in `args` and equal; some may be missing |
    | `ignore` | always |
    | a list of paths | the values at these paths are equal |

    An answer without calls scores 1 in the mode `subset` and 0 in every other. `expected: []` with the mode `exact` or
    `subset` means that no tool may be called: an answer without calls scores 1, any other 0. If the target reports
    only text, its calls are unknown, which is an error. A mode that does not hold scores 0. A mode that holds scores
    (1 + limits kept) / (1 + limits checked), where each `max_duration_ms` of a matching call is a limit. If a call has
    no duration, its limit is skipped with a warning. If several calls match under `in_order`, the first is used.
    `details.alignment` lists expected and actual calls: `=` made as expected, `-` expected but not made, `+` made but
    not expected, `~` made and allowed.
    """

    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        "steps": "List the calls in `expected`: `expected: [{tool: search}]`",
    }

    mode: Literal["any_order", "in_order", "exact", "subset", "superset"]
    minimums: dict[str, Count] | None = None
    expected: list[ExpectedCall] | None = None
    args_match: ArgumentMatch = "superset"

    @property
    def needs(self) -> Needs:
        """The messages and tool calls of the answer."""
        return Needs(trace=True)

    def complaints(self) -> list[str]:
        """A missing list, the list of another mode, or a blank tool name."""
        needed, other = ("minimums", "expected") if self.mode == "any_order" else ("expected", "minimums")
        complaints = []
        means_no_call = self.mode in _NO_CALL_MODES and self.expected is not None
        if not getattr(self, needed) and not means_no_call:
            complaints.append(f"Mode '{self.mode}' needs '{needed}'")
        if getattr(self, other):
            complaints.append(f"Mode '{self.mode}' uses '{needed}', not '{other}'")
        if any(not call.tool.strip() for call in self.expected or ()):
            complaints.append("A call in 'expected' has a blank 'tool'")
        return complaints

    def score(self, judgement: Judgement) -> Score:
        """Compare the calls of the answer with those that the mode requires."""
        calls = tool_calls_in(judgement.response.messages)
        if not calls and judgement.response.calls_unknown:
            raise EvaluatorFailure(CALLS_UNKNOWN)
        if not calls:
            holds = self.mode == "subset" or (self.mode == "exact" and not self.expected)
            return passed("no tool was called") if holds else missed("No trace available for evaluation")
        if self.mode == "any_order":
            return _counted(calls, self.minimums or {})
        expected = self.expected or []
        aligned = self._aligned(expected, calls)
        misses = self._misses(expected, calls, aligned)
        details = {"alignment": self._side_by_side(expected, calls, aligned)}
        if misses:
            hits = tuple(_found(expected, number, at) for number, at in aligned)
            return Score(0.0, hits, tuple(misses), reasoning=_shown(calls), details=details)
        return _timed(expected, calls, aligned, details)

    def _aligned(self, expected: list[ExpectedCall], calls: list[ToolCall]) -> Pairs:
        """Match calls with expected calls; under `subset` several may match the same one."""
        if self.mode in ("in_order", "exact"):
            earliest = self._earliest(expected, calls)
            # If the order does not hold, show as many matches as possible.
            return earliest if len(earliest) == len(expected) else self._longest(expected, calls)
        if self.mode == "superset":
            return self._paired(expected, calls)
        numbered = list(enumerate(expected))
        fitting = (next((number for number, item in numbered if self._matches(item, call)), None) for call in calls)
        return [(number, at) for at, number in enumerate(fitting) if number is not None]

    def _earliest(self, expected: list[ExpectedCall], calls: list[ToolCall]) -> Pairs:
        """Match each expected call with the first matching call after the previous one."""
        aligned: Pairs = []
        upcoming = enumerate(calls)
        for number, item in enumerate(expected):
            if (at := next((at for at, call in upcoming if self._matches(item, call)), None)) is None:
                break
            aligned.append((number, at))
        return aligned

    def _longest(self, expected: list[ExpectedCall], calls: list[ToolCall]) -> Pairs:
        """Return the longest common subsequence, so that one missing call does not hide the others."""
        if len(expected) * len(calls) > _MOST_COMPARED:
            return self._earliest(expected, calls)
        fits = [[self._matches(item, call) for call in calls] for item in expected]
        best = [[0] * (len(calls) + 1) for _ in range(len(expected) + 1)]
        for number in reversed(range(len(expected))):
            for at in reversed(range(len(calls))):
                both = best[number + 1][at + 1] + 1 if fits[number][at] else 0
                best[number][at] = max(both, best[number + 1][at], best[number][at + 1])
        aligned: Pairs = []
        number = at = 0
        while number < len(expected) and at < len(calls):
            if fits[number][at] and best[number][at] == best[number + 1][at + 1] + 1:
                aligned.append((number, at))
                number, at = number + 1, at + 1
            elif best[number + 1][at] >= best[number][at + 1]:
                number += 1
            else:
                at += 1
        return aligned

    def _paired(self, expected: list[ExpectedCall], calls: list[ToolCall]) -> Pairs:
        """Return a maximum matching in which every call is used at most once."""
        fitting = [[at for at, call in enumerate(calls) if self._matches(item, call)] for item in expected]
        number_at: dict[int, int] = {}

        def place(number: int, tried: set[int]) -> bool:
            free = next((at for at in fitting[number] if at not in number_at), None)
            for at in fitting[number] if free is None else (free,):
                if at in tried:
                    continue
                tried.add(at)
                if at not in number_at or place(number_at[at], tried):
                    number_at[at] = number
                    return True
            return False

        for number in range(len(expected)):
            place(number, set())
        return sorted((number, at) for at, number in number_at.items())

    def _misses(self, expected: list[ExpectedCall], calls: list[ToolCall], aligned: Pairs) -> list[str]:
        extra = sorted(set(range(len(calls))) - {at for _, at in aligned})
        if self.mode == "subset":
            return [f"call {at + 1}, {_call(calls[at])}, is not expected" for at in extra]
        numbers = {number for number, _ in aligned}
        misses = [
            f"expected call {number + 1}, {_expected(item)}, {self._instead(item, calls)}"
            for number, item in enumerate(expected)
            if number not in numbers
        ]
        if self.mode == "exact":
            misses += [f"call {at + 1}, {_call(calls[at])}, is not expected here" for at in extra[:_MOST_SHOWN]]
        return misses

    def _side_by_side(self, expected: list[ExpectedCall], calls: list[ToolCall], aligned: Pairs) -> list[str]:
        """Return expected and actual calls as the lines of a diff."""
        number_at = {at: number for number, at in aligned}
        numbers = set(number_at.values())
        missing = deque(number for number in range(len(expected)) if number not in numbers and self.mode != "subset")
        other = "+" if self.mode in ("exact", "subset") else "~"
        lines: list[str] = []
        for at, call in enumerate(calls):
            # In order, a missing call is listed where it was expected; otherwise after all calls.
            while self.mode in ("in_order", "exact") and missing and missing[0] < number_at.get(at, 0):
                lines.append(f"- {_expected(expected[missing.popleft()])}")
            lines.append(f"{'=' if at in number_at else other} {_call(call)}")
        lines += [f"- {_expected(expected[number])}" for number in missing]
        return lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more"]

    def _instead(self, item: ExpectedCall, calls: list[ToolCall]) -> str:
        """Describe how an expected call was missed."""
        if any(self._matches(item, call) for call in calls):
            return "was not made often enough" if self.mode == "superset" else "was not made in this order"
        if any(self._is_made_by(item, call) for call in calls):
            return "was made, but its result does not have the expected output"
        other = next((call for call in calls if call.tool == item.tool), None)
        return f"was made as {_call(other)}" if other is not None else "was not made"

    def _matches(self, item: ExpectedCall, call: ToolCall) -> bool:
        return self._is_made_by(item, call) and (item.output is None or _holds(call.output, item.output))

    def _is_made_by(self, item: ExpectedCall, call: ToolCall) -> bool:
        """Whether a call has the expected tool and arguments, whatever its result."""
        return item.tool == call.tool and _arguments_match(item, call.input, item.args_match or self.args_match)


def _arguments_match(item: ExpectedCall, arguments: Any, match: ArgumentMatch) -> bool:
    expected = item.args
    if expected is None or expected == "any" or match == "ignore":
        return True
    arguments = {} if arguments is None else arguments
    if not isinstance(arguments, Mapping):
        return False
    if isinstance(match, list):
        return all(_same_at(path, expected, arguments) for path in match)
    if match == "exact":
        return same(expected, dict(arguments))
    # `superset`: the call has every listed argument. `subset`: the call has no others.
    smaller, larger = (expected, arguments) if match == "superset" else (arguments, expected)
    return all(key in larger and same(value, larger[key]) for key, value in smaller.items())


def _holds(data: Any, expected: Any) -> bool:
    """Whether a result has everything that is listed. Text is read as JSON if an object or a list is wanted."""
    if isinstance(data, str) and isinstance(expected, Mapping | list):
        data = json_or(data, None)
    if isinstance(expected, Mapping):
        return isinstance(data, Mapping) and all(key in data and _holds(data[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return isinstance(data, list | tuple) and all(any(_holds(part, item) for part in data) for item in expected)
    return same(expected, data)


def _same_at(path: str, expected: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Return whether both have the same value at a path or key. A path that is not in `expected` is ignored."""
    if path in expected:
        return path in arguments and same(expected[path], arguments[path])
    value = value_at(expected, path)
    return value is MISSING or same(value, value_at(arguments, path))


def _counted(calls: list[ToolCall], minimums: dict[str, int]) -> Score:
    """Score the fraction of tools that were called often enough."""
    counts = Counter(call.tool for call in calls)
    hits: list[str] = []
    misses: list[str] = []
    for tool, least in minimums.items():
        (hits if counts[tool] >= least else misses).append(f"{tool}: {counts[tool]} of at least {least} calls")
    return Score(len(hits) / len(minimums) if minimums else 1.0, tuple(hits), tuple(misses), reasoning=_shown(calls))


def _timed(expected: list[ExpectedCall], calls: list[ToolCall], aligned: Pairs, details: dict[str, Any]) -> Score:
    """Score calls that are as expected: one part for that, and one for each time limit that can be checked."""
    hits = [_found(expected, number, at) for number, at in aligned]
    misses: list[str] = []
    notes = [_shown(calls)]
    on_time = checked = 0
    for number, at in aligned:
        limit, elapsed = expected[number].max_duration_ms, calls[at].duration_ms
        if limit is None:
            continue
        if elapsed is None:
            notes.append(f"Warning: call {at + 1}, {calls[at].tool}, has no duration; its limit was not checked")
            continue
        checked += 1
        holds = within(elapsed, limit)
        on_time += holds
        (hits if holds else misses).append(f"call {at + 1}, {calls[at].tool}, took {elapsed:g} ms (limit {limit:g} ms)")
    return Score((1 + on_time) / (1 + checked), tuple(hits), tuple(misses), reasoning="; ".join(notes), details=details)


def _found(expected: list[ExpectedCall], number: int, at: int) -> str:
    return f"expected call {number + 1}, {_expected(expected[number])}, is call {at + 1}"


def _expected(item: ExpectedCall) -> str:
    return cut(item.tool if item.args is None or item.args == "any" else f"{item.tool}({_json(item.args)})")


def _call(call: ToolCall) -> str:
    return cut(f"{call.tool}({'' if call.input is None else _json(call.input)})")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _shown(calls: list[ToolCall]) -> str:
    more = f" and {len(calls) - _MOST_SHOWN} more" if len(calls) > _MOST_SHOWN else ""
    return f"Calls: {', '.join(call.tool for call in calls[:_MOST_SHOWN])}{more}"


_SKILL_TOOLS = frozenset(("skill", "activate_skill", "load_skill", "use_skill"))


class SkillTrigger(Evaluator, frozen=True, kw_only=True):
    """Whether the agent loaded a skill, or with `should_trigger: false` did not load it.

    A skill counts as loaded if a tool for skills (`Skill`, `activate_skill`) was called with its name, or if the
    arguments or the result of any tool call contain the path of its folder, `skills/NAME/`. If the target reports only
    text, its calls are unknown, which is an error.
    """

    skill: Annotated[str, Meta(min_length=1)]
    should_trigger: bool = True

    @property
    def needs(self) -> Needs:
        """The messages and tool calls of the answer."""
        return Needs(trace=True)

    def score(self, judgement: Judgement) -> Score:
        """Search the tool calls of the answer for the skill."""
        calls = tool_calls_in(judgement.response.messages)
        if not calls and judgement.response.calls_unknown:
            raise EvaluatorFailure(CALLS_UNKNOWN)
        call = next((call for call in calls if loads_skill(call.tool, call.input, call.output, self.skill)), None)
        note = f"skill '{self.skill}' was not loaded" if call is None else f"{call.tool} loaded skill '{self.skill}'"
        score = pass_if((call is not None) is self.should_trigger, note)
        details = {"skill": self.skill, "loaded": call is not None, "should_trigger": self.should_trigger}
        return msgspec.structs.replace(score, details=details)


def loads_skill(tool: str, input: Any, output: Any, skill: str) -> bool:
    """Whether a tool call loaded a skill: with a tool for skills, or by a path in its folder."""
    name = re.escape(skill)
    if tool.lower() in _SKILL_TOOLS and _contains(input, rf"(?<![\w-]){name}(?![\w-])"):
        return True
    folder = rf"(?<![\w-])skills[/\\]{name}[/\\]"
    return _contains(input, folder) or _contains(output, folder)


def _contains(value: Any, pattern: str) -> bool:
    """Whether any text inside a value matches."""
    if isinstance(value, str):
        return re.search(pattern, value) is not None
    if isinstance(value, dict | list | tuple):
        return any(_contains(item, pattern) for item in (value.values() if isinstance(value, dict) else value))
    return False
