"""Rubrics: criteria that a judge checks individually, each satisfied or not, or scored from 0 to 10."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.evaluators.base import OTHER_TOOLS, Judge, Prompt, Share, Weight, prompt_complaints, quoted
from agentv.evaluators.judges.answer_files import (
    Preprocessor,
    preprocessor_complaints,
    preprocessor_references,
    with_file_texts,
)
from agentv.evaluators.judges.judge_prompt import builtin_prompts, judge_prompt, material_of, prompt_references
from agentv.evaluators.judges.judge_responses import (
    ResponseFormat,
    UnusableResponse,
    call_judges,
    combine_votes,
    object_schema,
    read_text,
    vote_details,
)
from agentv.model.evaluator import EvaluatorFailure, FileReference, Score
from agentv.model.job import Judgement

TOP_SCORE = 10
LARGEST_WEIGHT = 1e100
"""The same limit as for evaluators: a sum of weights stays finite."""

Points = Annotated[int, Meta(ge=0, le=TOP_SCORE)]


class ScoreRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range of points, lowest and highest, and a description of the answers that get them."""

    aliases: ClassVar[dict[str, str]] = {"description": "expected_outcome", "outcome": "expected_outcome"}

    score_range: tuple[Points, Points]
    expected_outcome: str


class RubricItem(msgspec.Struct, frozen=True, kw_only=True):
    """One criterion. `score_ranges` is a list, or a map from the lowest points of each range to its description.

    `required` defaults to true in a checklist and to false if there are score ranges. `min_score` is
    `required_min_score` as a fraction. With the operator `contradiction`, an answer meets the criterion unless it
    contradicts it.
    """

    aliases: ClassVar[dict[str, str]] = {
        "description": "expected_outcome",
        "outcome": "expected_outcome",
        "criteria": "expected_outcome",
    }
    id: str | int | None = None
    expected_outcome: str | None = None
    weight: Weight = 1.0
    required: bool | None = None
    required_min_score: Points | None = None
    min_score: Share | None = None
    operator: Literal["correctness", "contradiction"] | None = None
    score_ranges: list[ScoreRange] | dict[str, str] | None = None


Rubrics = str | list[str | RubricItem] | RubricItem


class Rubric(Judge, frozen=True, kw_only=True):
    """A judge checks the items of `rubrics`, or the expected outcome if there are none.

    With `preprocessors`, the judge also reads the files in the answer. Each converts one type of file to text.
    """

    aliases: ClassVar[dict[str, str]] = {
        "criteria": "rubrics",
        "value": "rubrics",
        "items": "rubrics",
        "rubric_prompt": "prompt",
    }
    ignored: ClassVar[dict[str, str]] = {"max_steps": OTHER_TOOLS["max_steps"]}

    prompt: Prompt | None = None
    rubrics: Rubrics | None = None
    preprocessors: list[Preprocessor] = []

    def complaints(self) -> list[str]:
        """Blank items, shared ids, score ranges with gaps or overlaps, or an invalid prompt or preprocessor."""
        own = rubric_complaints(self.rubrics) + prompt_complaints(self.prompt)
        return own + preprocessor_complaints(self.preprocessors)

    def references(self) -> Iterator[FileReference]:
        """The prompt and the programs that convert files."""
        yield from prompt_references(self.prompt)
        yield from preprocessor_references(self.preprocessors)

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """The texts of the built-in prompt, or around the user's prompt, for checks or points."""
        kind = "points" if has_points(rubric_items(self.rubrics)) else "checks"
        return builtin_prompts("rubric", kind, include_trace=self.include_trace)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Call the judges for a check of each item, or for points if items have score ranges."""
        items = rubric_items(self.rubrics) or rubric_items(judgement.expected_outcome.strip() or None)
        if not items:
            raise EvaluatorFailure("A rubric without items needs the case's 'expected_outcome'")
        judgement = await with_file_texts(self.preprocessors, judgement)
        kind = "points" if has_points(items) else "checks"
        material = material_of(judgement, rubrics=list(map(_shown, items)), include_trace=self.include_trace)
        prompt = await judge_prompt(self.prompt, "rubric", kind, material, judgement)
        form = ResponseFormat(
            SCHEMAS[kind],
            lambda data: read_checks(data, items),
            quoted=prompt.quoted,
            decision=lambda reply: {id: check.points for id, check in reply.by_id.items()},
        )
        return rubric_score(items, await call_judges(self, judgement, prompt.messages, form), self.combine)


def rubric_items(rubrics: Rubrics | None) -> tuple[RubricItem, ...]:
    """Return the items of a rubric in any form. Items without an id get `rubric-1`, `rubric-2`, and so on."""
    if rubrics is None:
        return ()
    entries = rubrics if isinstance(rubrics, list) else [rubrics]
    items = [RubricItem(expected_outcome=item) if isinstance(item, str) else item for item in entries]
    return tuple(
        item if item.id is not None else msgspec.structs.replace(item, id=f"rubric-{number}")
        for number, item in enumerate(items, 1)
    )


def has_points(items: Sequence[RubricItem]) -> bool:
    """Return whether the items of a rubric get points; otherwise each is satisfied or not."""
    gates = ((item.score_ranges, item.required_min_score, item.min_score) for item in items)
    return any(gate is not None for gates_of_item in gates for gate in gates_of_item)


def rubric_complaints(rubrics: Rubrics | None) -> list[str]:
    """Return the problems of a rubric's items."""
    items = rubric_items(rubrics)
    complaints = []
    if rubrics is not None and not items:
        complaints.append("'rubrics' is an empty list; omit it to judge by the expected outcome")
    if items and not any(item.weight for item in items):
        complaints.append("Every item of 'rubrics' has weight 0, so there is nothing to score")
    ids: set[str | int | None] = set()
    for index, item in enumerate(items):
        complaints += [f"'rubrics[{index}]' {complaint}" for complaint in _item_complaints(item, ids)]
    return complaints


def ranges_in_order(ranges: list[ScoreRange] | dict[str, str]) -> list[tuple[tuple[int, int], str]]:
    """Return the lowest and highest points of each range with its description, sorted. Map keys must be integers."""
    if isinstance(ranges, list):
        return sorted((item.score_range, item.expected_outcome) for item in ranges)
    texts = sorted((int(key), text) for key, text in ranges.items())
    highest = [low - 1 for low, _ in texts[1:]] + [TOP_SCORE]
    return [((low, high), text) for (low, text), high in zip(texts, highest, strict=True)]


def _shown(item: RubricItem) -> dict[str, Any]:
    """Return an item as the judge sees it: the criterion without its weight."""
    data: dict[str, Any] = {"id": str(item.id)}
    if item.expected_outcome and item.operator == "contradiction":
        rule = "Met unless the answer claims something that contradicts this; the answer need not mention it"
        data["expected_outcome"] = f"{rule}: {item.expected_outcome}"
    elif item.expected_outcome:
        data["expected_outcome"] = item.expected_outcome
    if item.score_ranges is not None:
        in_order = ranges_in_order(item.score_ranges)
        data["score_ranges"] = [{"score_range": bounds, "expected_outcome": text} for bounds, text in in_order]
    return data


def _item_complaints(item: RubricItem, ids: set[str | int | None]) -> list[str]:
    complaints = []
    if not item.weight <= LARGEST_WEIGHT:
        complaints.append("has a weight that is too large")
    if item.id in ids:
        complaints.append(f"has the same id as another item: '{item.id}'")
    ids.add(item.id)
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
            return [f"has the key '{key}' in 'score_ranges'; keys are the lowest points of a range, as integers"]
    bounds = [bounds for bounds, _ in ranges_in_order(ranges)]
    for low, high in bounds:
        if not 0 <= low <= high <= TOP_SCORE:
            return [f"has the range {low} to {high} in 'score_ranges', which is not within 0 to 10"]
    ranges_of = Counter(points for low, high in bounds for points in range(low, high + 1))
    for points in range(TOP_SCORE + 1):
        if ranges_of[points] != 1:
            return [f"has 'score_ranges' that {'overlap at' if ranges_of[points] else 'leave out'} {points}"]
    return []


HIT_POINTS = 7
"""Minimum points for an item to count as a hit."""

_LEFT_OUT = "the judge left it out"


def _schema(title: str, value: str, type_: str) -> dict[str, Any]:
    item = object_schema({"id": {"type": "string"}, "reasoning": {"type": "string"}, value: {"type": type_}})
    checks = {"type": "array", "items": item}
    return object_schema({"checks": checks, "overall_reasoning": {"type": "string"}}, title=title)


SCHEMAS = {"checks": _schema("checks", "satisfied", "boolean"), "points": _schema("points", "score", "integer")}


class ItemCheck(msgspec.Struct, frozen=True):
    """A judge's result for one item: points from 0 to 10; satisfied is 10, not satisfied is 0."""

    points: int
    reasoning: str | None = None


class Checks(msgspec.Struct, frozen=True):
    """A judge's results by item id. Some items may be missing."""

    by_id: dict[str, ItemCheck]
    reasoning: str | None = None


class ItemScore(msgspec.Struct, frozen=True):
    """The combined votes on one item: points from 0 to 10, whether its gate is met, and the reasoning."""

    item: RubricItem
    points: float
    met: bool
    reasoning: str | None


def least_points(item: RubricItem, points: bool) -> float | None:
    """Return the gate of an item, the points below which the whole rubric fails, or None if it has no gate."""
    if not points:
        return None if item.required is False else TOP_SCORE
    if item.min_score is not None:
        return round(item.min_score * TOP_SCORE, 9)
    if item.required_min_score is not None:
        return item.required_min_score
    return TOP_SCORE if item.required else None


def read_checks(data: dict[str, Any], items: Sequence[RubricItem]) -> Checks:
    """Read the checks in a judge's object. Raises UnusableResponse if any is invalid or repeated.

    An unknown one may be meant for an item that has none; if all have one, it is ignored.
    """
    entries = data.get("checks")
    if not isinstance(entries, list):
        raise UnusableResponse("it has no list 'checks'")
    known_ids = {str(item.id) for item in items}
    points = has_points(items)
    checks: dict[str, ItemCheck] = {}
    unknown = ""
    for entry in entries:
        if not isinstance(entry, dict):
            raise UnusableResponse("an entry of 'checks' is not an object")
        id = entry.get("id")
        if isinstance(id, bool) or not isinstance(id, str | int):
            raise UnusableResponse("a check has no 'id'")
        if str(id) not in known_ids:
            unknown = unknown or str(id)
            continue
        if str(id) in checks:
            raise UnusableResponse(f"'checks' has the id {quoted(str(id))} twice")
        checks[str(id)] = ItemCheck(_points(entry, points), read_text(entry, "reasoning"))
    if unknown and len(checks) < len(known_ids):
        ids = ", ".join(sorted(known_ids))
        raise UnusableResponse(f"'checks' has the unknown id {quoted(unknown)}; the ids are {ids}")
    if not checks:
        raise UnusableResponse("'checks' is empty")
    return Checks(checks, read_text(data, "overall_reasoning"))


def rubric_score(items: Sequence[RubricItem], votes: Sequence[tuple[str, Checks]], combine: str | None = None) -> Score:
    """Score the weighted mean of all items. Missing items get no points. A missed gate fails the rubric."""
    points = has_points(items)
    combine = combine or ("mean" if points else "majority")
    checks = [vote for _, vote in votes]
    outcomes = [_outcome(item, checks, points, combine) for item in items]
    details: dict[str, Any] = {"checks": [_detail(outcome, points) for outcome in outcomes]}
    if points:
        raw = {str(outcome.item.id): outcome.points for outcome in outcomes}
        details |= {"raw_scores": raw, "normalization": "score / 10", "aggregation": "weighted_average"}
    if len(votes) > 1:
        scores = [weighted([_outcome(item, [vote], points, combine) for item in items]) for vote in checks]
        summaries = [{"judge": judge, "score": score} for (judge, _), score in zip(votes, scores, strict=True)]
        details |= vote_details(summaries, combine)
    return Score(
        weighted(outcomes),
        hits=tuple(_sentence(outcome, points) for outcome in outcomes if _is_hit(outcome, points)),
        misses=tuple(_sentence(outcome, points) for outcome in outcomes if not _is_hit(outcome, points)),
        reasoning=next((vote.reasoning for vote in checks if vote.reasoning), None),
        details=details,
        verdict=None if all(outcome.met for outcome in outcomes) else "fail",
        is_partial=any(str(item.id) not in vote.by_id for vote in checks for item in items),
    )


def weighted(outcomes: Sequence[ItemScore]) -> float:
    """Return the weighted mean of the items' points, from 0 to 1."""
    total = math.fsum(outcome.item.weight for outcome in outcomes)
    reached = math.fsum(outcome.item.weight * outcome.points / TOP_SCORE for outcome in outcomes)
    return min(1.0, reached / total)


def _outcome(item: RubricItem, votes: Sequence[Checks], points: bool, combine: str) -> ItemScore:
    checks = [vote.by_id.get(str(item.id)) or ItemCheck(0, _LEFT_OUT) for vote in votes]
    value = combine_votes([float(check.points) for check in checks], combine)
    if not points and combine == "majority":
        # Half of the votes is not a majority.
        value = float(TOP_SCORE) if value > TOP_SCORE / 2 else 0.0
    least = least_points(item, points)
    is_met = least is None or (value >= least if points else value > TOP_SCORE / 2)
    nearest = min(checks, key=lambda check: abs(check.points - value))
    return ItemScore(item, value, is_met, nearest.reasoning)


def _points(entry: dict[str, Any], with_points: bool) -> int:
    """Return the points of a check; satisfied is 10 and not satisfied is 0."""
    if not with_points:
        value = entry.get("satisfied")
        if not isinstance(value, bool):
            raise UnusableResponse(f"'satisfied' of the check {quoted(str(entry.get('id')))} must be true or false")
        return TOP_SCORE if value else 0
    value = entry.get("score")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TOP_SCORE:
        where = f"'score' of the check {quoted(str(entry.get('id')))}"
        raise UnusableResponse(f"{where} must be a whole number from 0 to {TOP_SCORE}")
    return value


def _is_hit(outcome: ItemScore, points: bool) -> bool:
    return outcome.met and outcome.points >= HIT_POINTS if points else outcome.points > TOP_SCORE / 2


def _detail(outcome: ItemScore, points: bool) -> dict[str, Any]:
    """Return an item with its result: `met` if it counts as a hit, `required` if missing it fails the rubric."""
    item, is_met = outcome.item, _is_hit(outcome, points)
    value: dict[str, Any] = {"score": outcome.points} if points else {"satisfied": is_met}
    gate = {"required": least_points(item, points) is not None, "met": is_met}
    reason = {"reasoning": outcome.reasoning} if outcome.reasoning else {}
    return {"id": str(item.id), **value, "weight": item.weight, **gate, **reason}


def _sentence(outcome: ItemScore, points: bool) -> str:
    item = outcome.item
    text = item.expected_outcome or str(item.id)
    if points:
        text += f" ({outcome.points:g} of {TOP_SCORE})"
    return f"{text}: {outcome.reasoning}" if outcome.reasoning and not _is_hit(outcome, points) else text
