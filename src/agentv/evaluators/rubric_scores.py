"""The arithmetic of rubrics: a judge's checks or points, item by item, made into a score and its gates. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from agentv.evaluators.replies import Unfit
from agentv.evaluators.rubric import TOP_SCORE, RubricItem, has_points
from agentv.evaluators.scoring import LONGEST_REASON, cut, quoted
from agentv.evaluators.votes import majority, mean, spread
from agentv.model.score import Score

HIT_POINTS = 7
"""From so many points on an item counts as a hit."""

_LEFT_OUT = "the judge left it out"


def _schema(title: str, value: str, type_: str) -> dict[str, Any]:
    check = {"id": {"type": "string"}, "reasoning": {"type": "string"}, value: {"type": type_}}
    closed: dict[str, Any] = {"type": "object", "additionalProperties": False}
    item = {**closed, "properties": check, "required": list(check)}
    properties = {"checks": {"type": "array", "items": item}, "overall_reasoning": {"type": "string"}}
    return {"title": title, **closed, "properties": properties, "required": list(properties)}


SCHEMAS = {"checks": _schema("checks", "satisfied", "boolean"), "points": _schema("points", "score", "integer")}


class Check(msgspec.Struct, frozen=True):
    """What a judge says of one item: satisfied or not as 10 or 0 points, or points between."""

    points: int
    reasoning: str | None = None


class Checks(msgspec.Struct, frozen=True):
    """A judge's reply: items by their ids, of which some may be missing."""

    by_id: dict[str, Check]
    reasoning: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What the votes on one item come to: points from 0 to 10, whether its gate is met, and why."""

    item: RubricItem
    points: float
    met: bool
    reasoning: str | None


def least_points(item: RubricItem, points: bool) -> int | None:
    """The gate of an item: the points below which the whole rubric fails. None: it has no gate."""
    if not points:
        return None if item.required is False else TOP_SCORE
    if item.required_min_score is not None:
        return item.required_min_score
    return TOP_SCORE if item.required else None


def read_checks(reply: dict[str, Any], items: Sequence[RubricItem]) -> Checks:
    """The checks in a judge's object. Raises Unfit for unknown or repeated ids, and for anything that is no check."""
    entries = reply.get("checks")
    if not isinstance(entries, list):
        raise Unfit("it has no list 'checks'")
    known = {str(item.id) for item in items}
    points = has_points(items)
    found: dict[str, Check] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise Unfit("an entry of 'checks' is no object")
        id = _id(entry, known)
        if id in found:
            raise Unfit(f"'checks' has the id {quoted(id)} twice")
        found[id] = Check(_points(entry) if points else _satisfied(entry), _text(entry, "reasoning"))
    if not found:
        raise Unfit("'checks' is empty")
    return Checks(found, _text(reply, "overall_reasoning"))


def rubric_score(
    items: Sequence[RubricItem], votes: Sequence[Checks], judges: Sequence[str] = (), how: str | None = None
) -> Score:
    """The weighted mean of the items, over all of them: one that was left out has no points. A missed gate fails."""
    points = has_points(items)
    outcomes = [_outcome(item, votes, points, how) for item in items]
    score = weighted(outcomes)
    details: dict[str, Any] = {"checks": [_detail(outcome, points) for outcome in outcomes]}
    if points:
        raw = {str(outcome.item.id): outcome.points for outcome in outcomes}
        details |= {"raw_scores": raw, "normalization": "score / 10", "aggregation": "weighted_average"}
    if len(votes) > 1:
        each = [weighted([_outcome(item, [vote], points, how) for item in items]) for vote in votes]
        named = zip(judges or [""] * len(votes), each, strict=True)
        details["votes"] = [{"judge": judge, "score": value} for judge, value in named]
        details |= {"combine": how or ("mean" if points else "majority"), **spread(each)}
    return Score(
        score,
        hits=tuple(_sentence(outcome, points) for outcome in outcomes if _is_hit(outcome, points)),
        misses=tuple(_sentence(outcome, points) for outcome in outcomes if not _is_hit(outcome, points)),
        reasoning=next((vote.reasoning for vote in votes if vote.reasoning), None),
        details=details,
        verdict=None if all(outcome.met for outcome in outcomes) else "fail",
    )


def weighted(outcomes: Sequence[Outcome]) -> float:
    """The mean of the items' points by their weights, from 0 to 1."""
    total = math.fsum(outcome.item.weight for outcome in outcomes)
    reached = math.fsum(outcome.item.weight * outcome.points / TOP_SCORE for outcome in outcomes)
    return min(1.0, reached / total)


def _outcome(item: RubricItem, votes: Sequence[Checks], points: bool, how: str | None) -> Outcome:
    checks = [vote.by_id.get(str(item.id)) for vote in votes]
    given = [float(check.points) if check is not None else 0.0 for check in checks]
    value = mean(given) if how == "mean" or (how is None and points) else majority(given)
    if not points and how != "mean":
        # Half of the votes are no majority.
        value = float(TOP_SCORE) if value > TOP_SCORE / 2 else 0.0
    least = least_points(item, points)
    met = least is None or (value >= least if points else value > TOP_SCORE / 2)
    reasons = [check.reasoning if check is not None else _LEFT_OUT for check in checks]
    nearest = min(range(len(checks)), key=lambda index: abs(given[index] - value))
    return Outcome(item, value, met, reasons[nearest])


def _id(entry: dict[str, Any], known: set[str]) -> str:
    id = entry.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int):
        raise Unfit("a check has no 'id'")
    if str(id) not in known:
        raise Unfit(f"'checks' has the id {quoted(str(id))}, which no item has; the ids are {', '.join(sorted(known))}")
    return str(id)


def _satisfied(entry: dict[str, Any]) -> int:
    value = entry.get("satisfied")
    if not isinstance(value, bool):
        raise Unfit(f"'satisfied' of the check {quoted(str(entry.get('id')))} must be true or false")
    return TOP_SCORE if value else 0


def _points(entry: dict[str, Any]) -> int:
    value = entry.get("score")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TOP_SCORE:
        raise Unfit(f"'score' of the check {quoted(str(entry.get('id')))} must be a whole number from 0 to {TOP_SCORE}")
    return value


def _text(data: dict[str, Any], key: str) -> str | None:
    value = data.get(key)
    if not isinstance(value, str | None):
        raise Unfit(f"'{key}' must be a text")
    return cut(value, LONGEST_REASON) if value else None


def _is_hit(outcome: Outcome, points: bool) -> bool:
    return outcome.met and outcome.points >= HIT_POINTS if points else outcome.points > TOP_SCORE / 2


def _detail(outcome: Outcome, points: bool) -> dict[str, Any]:
    item = outcome.item
    value: dict[str, Any] = {"score": outcome.points} if points else {"satisfied": outcome.points > TOP_SCORE / 2}
    gate = {"required": least_points(item, points) is not None, "met": outcome.met}
    reason = {"reasoning": outcome.reasoning} if outcome.reasoning else {}
    return {"id": str(item.id), **value, "weight": item.weight, **gate, **reason}


def _sentence(outcome: Outcome, points: bool) -> str:
    item = outcome.item
    text = item.expected_outcome or str(item.id)
    if points:
        text += f" ({outcome.points:g} of {TOP_SCORE})"
    return f"{text}: {outcome.reasoning}" if outcome.reasoning and not _is_hit(outcome, points) else text
