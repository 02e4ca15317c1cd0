"""What a run would take, before anything is called: tokens of its prompts, and money where a price is known."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agentv.engine.conversation import prompt_lengths
from agentv.engine.job import Job
from agentv.engine.question import Question
from agentv.targets.base import Target

CHARACTERS_PER_TOKEN = 4
"""Of English text; an estimate is all it is for."""

_FREE = frozenset({"mock", "replay"})


class Estimate(msgspec.Struct, kw_only=True):
    """The jobs of one target, its calls at most, and the tokens that they send. No `cost_usd`: no price is known."""

    jobs: int = 0
    calls: int = 0
    characters: int = 0
    cost_usd: float | None = None

    @property
    def tokens(self) -> int:
        """Tokens of prompts, roughly."""
        return self.characters // CHARACTERS_PER_TOKEN


def estimate(jobs: Iterable[Job], targets: dict[str, Target]) -> dict[str, Estimate]:
    """By target. Renders every prompt, which finds what cannot be rendered."""
    found = {name: Estimate(cost_usd=_price(settings)) for name, settings in targets.items()}
    for job in jobs:
        entry = found[job.target]
        entry.jobs += 1
        lengths = prompt_lengths(Question(job.case, prompt_id=job.prompt))
        entry.calls += len(lengths)
        entry.characters += sum(lengths)
    return found


def _price(settings: Target) -> float | None:
    """What the jobs of a target cost. There is no table of prices yet: known are those that call nobody."""
    return 0.0 if settings.provider in _FREE else None
