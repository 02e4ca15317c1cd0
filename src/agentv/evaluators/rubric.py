"""The rubric: items that a judge checks one by one, each satisfied or not, or scored from 0 to 10."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from agentv.evaluators.base import Judge, Prompt, Weight, prompt_complaints

TOP_SCORE = 10

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


def range_bounds(ranges: list[ScoreRange] | dict[str, str]) -> list[tuple[int, int]]:
    """The lowest and highest points of each range in order; the keys of a map must be integers."""
    if isinstance(ranges, list):
        return sorted(item.score_range for item in ranges)
    lowest = sorted(int(key) for key in ranges)
    highest = [low - 1 for low in lowest[1:]] + [TOP_SCORE]
    return list(zip(lowest, highest, strict=True))


def _item_complaints(item: RubricItem, seen: set[str | int | None]) -> list[str]:
    complaints = []
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
    bounds = range_bounds(ranges)
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
