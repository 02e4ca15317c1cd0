"""The rubric: items that a judge checks one by one, each satisfied or not, or scored from 0 to 10."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.evaluators.base import LONGEST_REASON, Judge, Prompt, Weight, cut, prompt_complaints, quoted
from agentv.evaluators.judges.judge_prompt import builtin_prompts, judge_prompt, material_of, prompt_references
from agentv.evaluators.judges.replies import Form, Unfit, ask_judges, majority, mean, spread
from agentv.model.evaluator import EvaluatorFailure, FileReference, Score
from agentv.model.job import Judgement

TOP_SCORE = 10
LARGEST_WEIGHT = 1e100
"""As for entries: a sum of weights stays a number."""

Points = Annotated[int, Meta(ge=0, le=TOP_SCORE)]


class ScoreRange(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer that gets these points, from the lowest to the highest, is like."""

    aliases: ClassVar[dict[str, str]] = {"description": "expected_outcome", "outcome": "expected_outcome"}

    score_range: tuple[Points, Points]
    expected_outcome: str


class RubricItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to check. `score_ranges` is a list, or a map from the lowest points of each range to its text.

    `required` unset means true in a checklist and false where there are ranges.
    """

    aliases: ClassVar[dict[str, str]] = {
        "description": "expected_outcome",
        "outcome": "expected_outcome",
        "criteria": "expected_outcome",
    }
    unsupported: ClassVar[dict[str, str]] = {
        "min_score": "Write the least points, 0 to 10, into `required_min_score`",
        "operator": "Say in the item's text what must hold",
    }

    id: str | int | None = None
    expected_outcome: str | None = None
    weight: Weight = 1.0
    required: bool | None = None
    required_min_score: Points | None = None
    score_ranges: list[ScoreRange] | dict[str, str] | None = None


Rubrics = str | list[str | RubricItem] | RubricItem


class Rubric(Judge, frozen=True, kw_only=True):
    """The items of `rubrics`; without any, the expected outcome is the one item."""

    aliases: ClassVar[dict[str, str]] = {
        "criteria": "rubrics",
        "value": "rubrics",
        "items": "rubrics",
        "rubric_prompt": "prompt",
    }

    rubrics: Rubrics | None = None
    prompt: Prompt | None = None

    def complaints(self) -> list[str]:
        """Items that say nothing or share an id, ranges with gaps or overlaps, a prompt of no known form."""
        return rubric_complaints(self.rubrics) + prompt_complaints(self.prompt)

    def references(self) -> Iterator[FileReference]:
        """The prompt."""
        return prompt_references(self.prompt)

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """Those of the built-in prompt, or around the user's, and of the form: checks or points."""
        kind = "points" if has_points(rubric_items(self.rubrics)) else "checks"
        return builtin_prompts("rubric" if self.prompt is None else None, kind, include_trace=self.include_trace)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Asks for a check of each item, or for points where items have ranges of them."""
        items = rubric_items(self.rubrics) or rubric_items(judgement.expected_outcome.strip() or None)
        if not items:
            raise EvaluatorFailure("A rubric without items needs the case's 'expected_outcome'")
        kind = "points" if has_points(items) else "checks"
        material = material_of(judgement, rubrics=list(map(_shown, items)), include_trace=self.include_trace)
        asked = await judge_prompt(self.prompt, "rubric", kind, material, judgement)
        form = Form(SCHEMAS[kind], lambda reply: read_checks(reply, items), quoted=asked.quoted)
        votes = await ask_judges(self, judgement, asked.messages, form)
        return rubric_score(items, [vote.value for vote in votes], [vote.judge for vote in votes], self.combine)


def rubric_items(rubrics: Rubrics | None) -> tuple[RubricItem, ...]:
    """The items whatever form they were written in, each with an id: `rubric-1`, `rubric-2`… where none was given."""
    if rubrics is None:
        return ()
    written = rubrics if isinstance(rubrics, list) else [rubrics]
    items = [RubricItem(expected_outcome=item) if isinstance(item, str) else item for item in written]
    return tuple(
        item if item.id is not None else msgspec.structs.replace(item, id=f"rubric-{number}")
        for number, item in enumerate(items, 1)
    )


def has_points(items: Sequence[RubricItem]) -> bool:
    """Whether the items of a rubric get points; else each is satisfied or not."""
    return any(item.score_ranges is not None or item.required_min_score is not None for item in items)


def rubric_complaints(rubrics: Rubrics | None) -> list[str]:
    """What is wrong with a rubric's items."""
    items = rubric_items(rubrics)
    complaints = []
    if rubrics is not None and not items:
        complaints.append("'rubrics' is an empty list; leave it out to judge by the expected outcome")
    if items and not any(item.weight for item in items):
        complaints.append("Every item of 'rubrics' has weight 0, so there is nothing to score")
    seen: set[str | int | None] = set()
    for index, item in enumerate(items):
        complaints += [f"'rubrics[{index}]' {complaint}" for complaint in _item_complaints(item, seen)]
    return complaints


def ranges_in_order(ranges: list[ScoreRange] | dict[str, str]) -> list[tuple[tuple[int, int], str]]:
    """The lowest and highest points of each range in order, with its text; the keys of a map must be integers."""
    if isinstance(ranges, list):
        return sorted((item.score_range, item.expected_outcome) for item in ranges)
    texts = sorted((int(key), text) for key, text in ranges.items())
    highest = [low - 1 for low, _ in texts[1:]] + [TOP_SCORE]
    return [((low, high), text) for (low, text), high in zip(texts, highest, strict=True)]


def _shown(item: RubricItem) -> dict[str, Any]:
    """An item as a judge sees it: what to check, and not what it counts for."""
    shown: dict[str, Any] = {"id": str(item.id)}
    if item.expected_outcome:
        shown["expected_outcome"] = item.expected_outcome
    if item.score_ranges is not None:
        in_order = ranges_in_order(item.score_ranges)
        shown["score_ranges"] = [{"score_range": bounds, "expected_outcome": text} for bounds, text in in_order]
    return shown


def _item_complaints(item: RubricItem, seen: set[str | int | None]) -> list[str]:
    complaints = []
    if not item.weight <= LARGEST_WEIGHT:
        complaints.append("has a weight that is too large")
    if item.id in seen:
        complaints.append(f"has the id '{item.id}', which another item has too")
    seen.add(item.id)
    if item.score_ranges is None and not (item.expected_outcome or "").strip():
        complaints.append("needs 'expected_outcome' or 'score_ranges'")
    if item.score_ranges is not None:
        complaints += _range_complaints(item.score_ranges)
    return complaints


def _range_complaints(ranges: list[ScoreRange] | dict[str, str]) -> list[str]:
    if not ranges:
        return ["has empty 'score_ranges'"]
    for key in ranges if isinstance(ranges, dict) else ():
        if not (key.isascii() and key.isdigit()):
            return [f"has '{key}' in 'score_ranges', where the lowest points of a range belong, an integer"]
    bounds = [bounds for bounds, _ in ranges_in_order(ranges)]
    for low, high in bounds:
        if not 0 <= low <= high <= TOP_SCORE:
            return [f"has the range {low} to {high} in 'score_ranges', which is not within 0 to 10"]
    if bounds[0][0] != 0:
        return [f"has 'score_ranges' that start at {bounds[0][0]} instead of 0"]
    for (_, before), (after, _) in pairwise(bounds):
        if after <= before:
            return [f"has 'score_ranges' that overlap at {after}"]
        if after > before + 1:
            return [f"has 'score_ranges' that leave out {before + 1}"]
    if bounds[-1][1] != TOP_SCORE:
        return [f"has 'score_ranges' that end at {bounds[-1][1]} instead of {TOP_SCORE}"]
    return []


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


class ItemCheck(msgspec.Struct, frozen=True):
    """What a judge says of one item: satisfied or not as 10 or 0 points, or points between."""

    points: int
    reasoning: str | None = None


class Checks(msgspec.Struct, frozen=True):
    """A judge's reply: items by their ids, of which some may be missing."""

    by_id: dict[str, ItemCheck]
    reasoning: str | None = None


class ItemScore(msgspec.Struct, frozen=True):
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
    found: dict[str, ItemCheck] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise Unfit("an entry of 'checks' is no object")
        id = _id(entry, known)
        if id in found:
            raise Unfit(f"'checks' has the id {quoted(id)} twice")
        found[id] = ItemCheck(_points(entry, points), _text(entry, "reasoning"))
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


def weighted(outcomes: Sequence[ItemScore]) -> float:
    """The mean of the items' points by their weights, from 0 to 1."""
    total = math.fsum(outcome.item.weight for outcome in outcomes)
    reached = math.fsum(outcome.item.weight * outcome.points / TOP_SCORE for outcome in outcomes)
    return min(1.0, reached / total)


def _outcome(item: RubricItem, votes: Sequence[Checks], points: bool, how: str | None) -> ItemScore:
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
    return ItemScore(item, value, met, reasons[nearest])


def _id(entry: dict[str, Any], known: set[str]) -> str:
    id = entry.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int):
        raise Unfit("a check has no 'id'")
    if str(id) not in known:
        raise Unfit(f"'checks' has the id {quoted(str(id))}, which no item has; the ids are {', '.join(sorted(known))}")
    return str(id)


def _points(entry: dict[str, Any], with_points: bool) -> int:
    """The points of a check; one that is satisfied or not has all or none."""
    if not with_points:
        value = entry.get("satisfied")
        if not isinstance(value, bool):
            raise Unfit(f"'satisfied' of the check {quoted(str(entry.get('id')))} must be true or false")
        return TOP_SCORE if value else 0
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


def _is_hit(outcome: ItemScore, points: bool) -> bool:
    return outcome.met and outcome.points >= HIT_POINTS if points else outcome.points > TOP_SCORE / 2


def _detail(outcome: ItemScore, points: bool) -> dict[str, Any]:
    item = outcome.item
    value: dict[str, Any] = {"score": outcome.points} if points else {"satisfied": outcome.points > TOP_SCORE / 2}
    gate = {"required": least_points(item, points) is not None, "met": outcome.met}
    reason = {"reasoning": outcome.reasoning} if outcome.reasoning else {}
    return {"id": str(item.id), **value, "weight": item.weight, **gate, **reason}


def _sentence(outcome: ItemScore, points: bool) -> str:
    item = outcome.item
    text = item.expected_outcome or str(item.id)
    if points:
        text += f" ({outcome.points:g} of {TOP_SCORE})"
    return f"{text}: {outcome.reasoning}" if outcome.reasoning and not _is_hit(outcome, points) else text
