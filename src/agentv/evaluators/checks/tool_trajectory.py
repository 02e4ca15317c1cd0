"""The tool trajectory: which tools were called, how often, in which order and with which arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from agentv.evaluators.base import OTHER_TOOLS, Count, Evaluator, Limit, at_most, cut, missed
from agentv.model.evaluator import Needs, Score
from agentv.model.job import Judgement
from agentv.model.message import ToolCall, tool_calls_in
from agentv.support.json_values import MISSING, same, value_at

ArgumentMatch = Literal["exact", "superset", "subset", "ignore"] | list[str]
"""`superset`: listed arguments are there and equal, others may be; a list: only these arguments are compared."""

Pairs = list[tuple[int, int]]
"""Places in the list of expected calls, each with the place of the call that stands for it."""

_MOST_SHOWN = 20
_MOST_LINES = 200
_MOST_COMPARED = 250_000


class ExpectedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One expected call. `args` unset or `any` means any arguments; `args_match` replaces the evaluator's."""

    aliases: ClassVar[dict[str, str]] = {"name": "tool", "arguments": "args", "input": "args"}

    tool: str
    args: dict[str, Any] | Literal["any"] | None = None
    args_match: ArgumentMatch | None = None
    max_duration_ms: Limit | None = None


class ToolTrajectory(Evaluator, frozen=True, kw_only=True):
    """Which tools were called, how often, in which order and with which arguments.

    `any_order` counts calls by `minimums`; the other modes hold the calls against `expected`.

    A call counts when the target says that it was made, whether or not the tool succeeded: a failed attempt and its
    repetition are two calls. Calls come in the order of their messages, and those of one message, which ran in
    parallel, in the order in which it lists them. What a message of the role `tool` lists are results, not calls.

    | `mode` | holds when |
    |---|---|
    | `any_order` | the score is the share of `minimums` that are reached |
    | `in_order` | the expected calls come in this order, whatever stands between or around them |
    | `exact` | the calls are these, in this order, and no others |
    | `superset` | every expected call was made, each by a call of its own, in any order |
    | `subset` | every call that was made is an expected one; one expected call may stand for several |

    A call fits an expected one when the tool has the same name and the arguments fit: with `args_match: superset`, the
    default, those listed in `args` are there and equal, inner values included, and others may be there too; `exact`
    allows no others; `subset` allows no others, and not all need be there; `ignore` compares nothing; a list of paths
    compares only what is there. No calls at all score 0 in every mode.

    A mode that does not hold scores 0. One that holds scores (1 + limits kept) / (1 + limits checked), counting each
    `max_duration_ms` of a call that fits and has a duration. A limit on a call without one is skipped with a warning.
    Of several calls that fit under `in_order`, the first is taken. `details.alignment` shows expected and actual calls
    side by side: `=` made as expected, `-` expected and not made, `+` made and not expected, `~` made and allowed.
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
        """The calls are what is judged."""
        return Needs(trace=True)

    def complaints(self) -> list[str]:
        """The list that the mode needs is missing or blank, or the one of another mode is there."""
        needed, other = ("minimums", "expected") if self.mode == "any_order" else ("expected", "minimums")
        complaints = []
        if not getattr(self, needed):
            complaints.append(f"Mode '{self.mode}' needs '{needed}'")
        if getattr(self, other):
            complaints.append(f"Mode '{self.mode}' takes '{needed}', not '{other}'")
        if any(not call.tool.strip() for call in self.expected or ()):
            complaints.append("A call in 'expected' has a blank 'tool'")
        return complaints

    def score(self, judgement: Judgement) -> Score:
        """Holds the calls of the answer, in the order in which they were made, against what the mode asks."""
        calls = tool_calls_in(judgement.response.messages)
        if not calls:
            return missed("No trace available for evaluation")
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
        """Which call stands for which expected one; under `subset` several may stand for the same."""
        if self.mode in ("in_order", "exact"):
            earliest = self._earliest(expected, calls)
            # What does not hold is shown with as many calls in their places as there can be.
            return earliest if len(earliest) == len(expected) else self._longest(expected, calls)
        if self.mode == "superset":
            return self._paired(expected, calls)
        numbered = list(enumerate(expected))
        fitting = (next((number for number, item in numbered if self._fits(item, call)), None) for call in calls)
        return [(number, at) for at, number in enumerate(fitting) if number is not None]

    def _earliest(self, expected: list[ExpectedCall], calls: list[ToolCall]) -> Pairs:
        """Each expected call at the first fitting one after its predecessor; other calls may stand between."""
        aligned: Pairs = []
        at = 0
        for number, item in enumerate(expected):
            while at < len(calls) and not self._fits(item, calls[at]):
                at += 1
            if at == len(calls):
                break
            aligned.append((number, at))
            at += 1
        return aligned

    def _longest(self, expected: list[ExpectedCall], calls: list[ToolCall]) -> Pairs:
        """The longest list of pairs in the order of both, so that one call that is missing hides no other."""
        if len(expected) * len(calls) > _MOST_COMPARED:
            return self._earliest(expected, calls)
        fits = [[self._fits(item, call) for call in calls] for item in expected]
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
        """As many pairs as there can be, no call twice: one that two could have goes where it is needed."""
        fitting = [[at for at, call in enumerate(calls) if self._fits(item, call)] for item in expected]
        taken: dict[int, int] = {}

        def place(number: int, tried: set[int]) -> bool:
            free = next((at for at in fitting[number] if at not in taken), None)
            for at in fitting[number] if free is None else (free,):
                if at in tried:
                    continue
                tried.add(at)
                if at not in taken or place(taken[at], tried):
                    taken[at] = number
                    return True
            return False

        for number in range(len(expected)):
            place(number, set())
        return sorted((number, at) for at, number in taken.items())

    def _misses(self, expected: list[ExpectedCall], calls: list[ToolCall], aligned: Pairs) -> list[str]:
        if self.mode == "subset":
            extra = sorted(set(range(len(calls))) - {at for _, at in aligned})
            return [f"call {at + 1}, {_call(calls[at])}, is not expected" for at in extra]
        made = {number for number, _ in aligned}
        misses = [
            f"expected call {number + 1}, {_expected(item)}, {self._instead(item, calls)}"
            for number, item in enumerate(expected)
            if number not in made
        ]
        if self.mode == "exact" and len(calls) > len(aligned):
            extra = sorted(set(range(len(calls))) - {at for _, at in aligned})
            misses += [f"call {at + 1}, {_call(calls[at])}, is not expected here" for at in extra[:_MOST_SHOWN]]
        return misses

    def _side_by_side(self, expected: list[ExpectedCall], calls: list[ToolCall], aligned: Pairs) -> list[str]:
        """Expected and actual calls in one list, as a comparison of two texts shows lines."""
        lines: list[str] = []
        if self.mode in ("in_order", "exact"):
            upcoming = 0
            number_at = {at: number for number, at in aligned}
            other = "+" if self.mode == "exact" else "~"
            for at, call in enumerate(calls):
                if at not in number_at:
                    lines.append(f"{other} {_call(call)}")
                    continue
                lines += [f"- {_expected(item)}" for item in expected[upcoming : number_at[at]]]
                lines.append(f"= {_call(call)}")
                upcoming = number_at[at] + 1
            lines += [f"- {_expected(item)}" for item in expected[upcoming:]]
        else:
            made = {at for _, at in aligned}
            found = {number for number, _ in aligned}
            other = "+" if self.mode == "subset" else "~"
            lines = [f"{'=' if at in made else other} {_call(call)}" for at, call in enumerate(calls)]
            missing = [item for number, item in enumerate(expected) if number not in found]
            lines += [f"- {_expected(item)}" for item in missing if self.mode == "superset"]
        return lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more"]

    def _instead(self, item: ExpectedCall, calls: list[ToolCall]) -> str:
        """What was found in the place of an expected call."""
        if any(self._fits(item, call) for call in calls):
            return "was not made so often" if self.mode == "superset" else "was not made in this order"
        named = next((call for call in calls if call.tool == item.tool), None)
        return f"was made as {_call(named)}" if named is not None else "was not made"

    def _fits(self, item: ExpectedCall, call: ToolCall) -> bool:
        return item.tool == call.tool and _arguments_fit(item, call.input, item.args_match or self.args_match)


def _arguments_fit(item: ExpectedCall, given: Any, match: ArgumentMatch) -> bool:
    wanted = item.args
    if wanted is None or wanted == "any" or match == "ignore":
        return True
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        return False
    if isinstance(match, list):
        return all(_same_at(path, wanted, given) for path in match)
    if match == "exact":
        return same(wanted, dict(given))
    # With `superset` the call has all that is listed, with `subset` it has nothing that is not.
    smaller, larger = (wanted, given) if match == "superset" else (given, wanted)
    return all(key in larger and same(value, larger[key]) for key, value in smaller.items())


def _same_at(path: str, wanted: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether both have the same at a path, or at a key of that name; what is not wanted is not compared."""
    if path in wanted:
        return path in given and same(wanted[path], given[path])
    value = value_at(wanted, path)
    return value is MISSING or same(value, value_at(given, path))


def _counted(calls: list[ToolCall], minimums: dict[str, int]) -> Score:
    """The share of tools that were called as often as they should be."""
    made = Counter(call.tool for call in calls)
    hits: list[str] = []
    misses: list[str] = []
    for tool, least in minimums.items():
        (hits if made[tool] >= least else misses).append(f"{tool}: {made[tool]} of at least {least} calls")
    return Score(len(hits) / len(minimums) if minimums else 1.0, tuple(hits), tuple(misses), reasoning=_shown(calls))


def _timed(expected: list[ExpectedCall], calls: list[ToolCall], aligned: Pairs, details: dict[str, Any]) -> Score:
    """The score of calls that are as expected: one part for that, one for each time limit that can be checked."""
    hits = [_found(expected, number, at) for number, at in aligned]
    misses: list[str] = []
    notes = [_shown(calls)]
    kept = checked = 0
    for number, at in aligned:
        limit, taken = expected[number].max_duration_ms, calls[at].duration_ms
        if limit is None:
            continue
        if taken is None:
            notes.append(f"Warning: call {at + 1}, {calls[at].tool}, has no duration; its limit was not checked")
            continue
        checked += 1
        holds = at_most(taken, limit)
        kept += holds
        sentence = f"call {at + 1}, {calls[at].tool}, took {taken:g} ms of at most {limit:g}"
        (hits if holds else misses).append(sentence)
    share = (1 + kept) / (1 + checked)
    return Score(share, tuple(hits), tuple(misses), reasoning="; ".join(notes), details=details)


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
