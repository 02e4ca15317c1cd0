"""What a run would take, before anything is called: tokens of its prompts, and money where a price is known."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agentv.engine.conversation import prompt_lengths
from agentv.engine.job import Job
from agentv.engine.prices import Price, is_free, price_of
from agentv.engine.question import Question
from agentv.model.result import TokenUsage
from agentv.targets.base import Target

CHARACTERS_PER_TOKEN = 4
"""Of English text; an estimate is all it is for."""

A_THOUSAND = 1000
JUDGE_PROMPT_CHARACTERS = 1500
"""What a judge is told besides the case: what to do, and what to reply."""


class Estimate(msgspec.Struct, kw_only=True):
    """The jobs of one target, its calls at most, and the tokens that they send.

    What answers will cost nobody knows before they are there: their price is given for a thousand tokens, and for the
    most that they may have.
    """

    jobs: int = 0
    calls: int = 0
    characters: int = 0
    is_free: bool = False
    price: Price | None = None
    most_output: int | None = None

    @property
    def tokens(self) -> int:
        """Tokens of prompts, roughly."""
        return self.characters // CHARACTERS_PER_TOKEN

    @property
    def cost_usd(self) -> float | None:
        """What the prompts cost, roughly; None where no price is known."""
        return 0.0 if self.is_free else self._cost(0)

    @property
    def thousand_usd(self) -> float | None:
        """What a thousand tokens of answers cost."""
        return None if self.price is None else self.price.cost_usd(TokenUsage(0, A_THOUSAND))

    @property
    def most_usd(self) -> float | None:
        """What prompts and answers cost at most, where answers have a limit."""
        return None if self.most_output is None else self._cost(self.most_output)

    def _cost(self, output: int) -> float | None:
        # Of one call, times all: a call of many tokens may have a price of its own.
        input = -(-self.tokens // max(1, self.calls))
        each = None if self.price is None else self.price.cost_usd(TokenUsage(input, output))
        return None if each is None else each * self.calls


def estimate(jobs: Iterable[Job], targets: dict[str, Target]) -> dict[str, Estimate]:
    """By target. Renders every prompt, which finds what cannot be rendered."""
    found = {name: _of(settings) for name, settings in targets.items()}
    for job in jobs:
        entry = found[job.target]
        entry.jobs += 1
        lengths = prompt_lengths(Question(job.case, prompt_id=job.prompt))
        entry.calls += len(lengths)
        entry.characters += sum(lengths)
    return found


def judge_estimate(settings: Target, calls: int, characters: int) -> Estimate:
    """The calls of a judge. Answers are not there yet and count for nothing; our own words count as they are."""
    entry = _of(settings)
    entry.calls = calls
    entry.characters = characters + calls * JUDGE_PROMPT_CHARACTERS
    return entry


def _of(settings: Target) -> Estimate:
    most = getattr(settings, "max_output_tokens", None)
    return Estimate(is_free=is_free(settings), price=price_of(settings), most_output=most)
