"""The rubric: items that a judge checks one by one, each satisfied or not, or scored from 0 to 10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.evaluators.base import Judge, Prompt, Weight, prompt_complaints
from agentv.evaluators.judge_prompt import asked_by_user, built_in, material_of, own_words, prompt_problems
from agentv.model.judgement import Judgement
from agentv.model.score import EvaluatorFailure, Score
from agentv.problems import Problems

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
    files: ClassVar[tuple[str, ...]] = ("prompt",)

    rubrics: Rubrics | None = None
    prompt: Prompt | None = None

    def complaints(self) -> list[str]:
        """Items that say nothing or share an id, ranges with gaps or overlaps, a prompt of no known form."""
        return rubric_complaints(self.rubrics) + prompt_complaints(self.prompt)

    def preflight(self, find_file: Callable[[str], str], folder: str) -> Problems:  # noqa: ARG002
        """A prompt that is not there, is no template, or uses names that there are not."""
        return prompt_problems(self.prompt, find_file)

    @property
    def own_words(self) -> tuple[str, ...]:
        """Those of the built-in prompt, or around the user's, and of the form: checks or points."""
        kind = "points" if has_points(rubric_items(self.rubrics)) else "checks"
        return own_words("rubric" if self.prompt is None else None, kind, include_trace=self.include_trace)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Asks for a check of each item, or for points where items have ranges of them."""
        from agentv.evaluators.asking import Form, ask_judges  # late: settings are read without asyncio
        from agentv.evaluators.rubric_scores import SCHEMAS, read_checks, rubric_score

        items = rubric_items(self.rubrics) or _outcome_item(judgement)
        kind = "points" if has_points(items) else "checks"
        shown = [_shown(item) for item in items]
        material = material_of(judgement, rubrics=shown, include_trace=self.include_trace)
        if self.prompt is None:
            asked = built_in("rubric", kind, material)
        else:
            asked = await asked_by_user(self.prompt, kind, material, judgement)
        form = Form(SCHEMAS[kind], lambda reply: read_checks(reply, items))
        votes = await ask_judges(self, judgement, asked.messages, form, asked.quoted)
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


def _outcome_item(judgement: Judgement) -> tuple[RubricItem, ...]:
    outcome = judgement.expected_outcome.strip()
    if not outcome:
        raise EvaluatorFailure("A rubric without items needs the case's 'expected_outcome'")
    return rubric_items(outcome)


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
