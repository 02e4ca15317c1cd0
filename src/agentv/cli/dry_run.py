"""`agentv eval --dry-run`: what a run would do, said and not done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import click
import msgspec

from agentv.engine.calls.open_targets import OpenTargets
from agentv.engine.calls.prices import price_of
from agentv.engine.job.artifacts import JobFiles
from agentv.engine.job.conversation import prompt_lengths
from agentv.engine.job.request import Question
from agentv.engine.job.spec import RunSpec
from agentv.engine.run_plan import RunPlan
from agentv.errors import UsageError
from agentv.executors.executor import LocalLimits
from agentv.model.job import Job
from agentv.model.result import TokenUsage
from agentv.runs.redaction import Redactor
from agentv.targets.target import Target

CHARACTERS_PER_TOKEN = 4
"""Of English text; an estimate is all it is for."""

A_THOUSAND = 1000
JUDGE_PROMPT_CHARACTERS = 1500
"""What a judge is told besides the case: what to do, and what to reply."""


class CostEstimate(msgspec.Struct):
    """The calls to one target at most, and the characters that they send."""

    target: Target
    jobs: int = 0
    calls: int = 0
    characters: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of prompts, roughly."""
        return self.characters // CHARACTERS_PER_TOKEN

    def cost(self) -> str:
        """What is known of the cost: of the prompts, and of answers by the thousand tokens or at most.

        What answers will cost nobody knows before they are there: their price is given for a thousand tokens, or for
        the most that they may have.
        """
        if self.target.is_free:
            return "cost $0.00"
        prompts, thousand = self._usd(0), _price(self.target, 0, A_THOUSAND)
        if prompts is None or thousand is None:
            return f"cost unknown: no price for {self.target.name}"
        most_output = getattr(self.target, "max_output_tokens", None)
        most = None if most_output is None else self._usd(most_output)
        answers = f"1,000 tokens of answers {_usd(thousand)}" if most is None else f"with answers at most {_usd(most)}"
        return f"prompts about {_usd(prompts)}, {answers}"

    def _usd(self, output: int) -> float | None:
        # Of one call, times all: a call of many tokens may have a price of its own.
        each = _price(self.target, -(-self.tokens // max(1, self.calls)), output)
        return None if each is None else each * self.calls


def _price(target: Target, input: int, output: int) -> float | None:
    price = price_of(target)
    return None if price is None else price.cost_usd(TokenUsage(input, output))


def estimate(jobs: Iterable[Job], targets: dict[str, Target]) -> dict[str, CostEstimate]:
    """By target. Renders every prompt, which finds what cannot be rendered."""
    found = {name: CostEstimate(target) for name, target in targets.items()}
    for job in jobs:
        entry = found[job.target]
        entry.jobs += 1
        lengths = prompt_lengths(Question(job.case, prompt_id=job.prompt))
        entry.calls += len(lengths)
        entry.characters += sum(lengths)
    return found


def print_plan(plan: RunPlan) -> None:
    """The plan, with what its prompts would take. Every prompt is rendered, and kept when that is asked for."""
    checked, project = plan.checked, plan.project
    jobs = _dumped(plan) if plan.options.dump_prompts is not None else plan.jobs()
    found = estimate(jobs, {name: project.answering(name) for name in checked.jobs})
    tokens = sum(entry.tokens for entry in found.values())
    click.echo(f"{checked.cases:,} cases, {checked.total:,} jobs, about {tokens:,} tokens of prompts")
    for name, entry in found.items():
        talks = f", at most {entry.calls:,} calls" if entry.calls > entry.jobs else ""
        use = f"about {entry.tokens:,} tokens, {entry.cost()}"
        click.echo(f"  {name}: {entry.jobs:,} jobs ({entry.target.provider}){talks}, {use}")
    for name, calls in checked.judges.items():
        # Answers are not there yet and count for nothing; our own words count as they are.
        characters = checked.judge_characters[name] + calls * JUDGE_PROMPT_CHARACTERS
        entry = CostEstimate(project.target(name), calls=calls, characters=characters)
        use = f"about {entry.tokens:,} tokens besides the answers, {entry.cost()}"
        click.echo(f"  {name}: {calls:,} calls as judge ({entry.target.provider}), {use}")
    for dataset in checked.datasets:
        click.echo(f"  {dataset.path}: {dataset.cases:,} cases")
    if any(entry.calls > entry.jobs for entry in found.values()):
        click.echo(
            "  Of conversations this counts what is known before they begin; replies and simulated users add to it"
        )
    click.echo("Nothing was called.")


def _usd(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.1 else f"${amount:.4f}"


def _dumped(plan: RunPlan) -> Iterator[Job]:
    """The jobs, each with its prompt written as it would be sent. Targets are opened for that, and not called."""
    project = plan.project
    folder = project.run_files(plan.options, None).prompts_folder
    if folder is None:
        raise UsageError("A dry run has no folder of its own", hint="Say where prompts go: --dump-prompts DIR")
    prompts = JobFiles(folder, Redactor(project.secrets))
    answering = tuple(map(project.answering, plan.checked.jobs))
    targets = OpenTargets(RunSpec(run_id="", targets=answering, home=project.home), LocalLimits())
    try:
        for job in plan.jobs():
            question = Question(job.case, prompt_id=job.prompt, trial=job.trial)
            prompts.write_prompt(job, question, targets.get(job.target).responder)
            yield job
    finally:
        asyncio.run(targets.aclose())
