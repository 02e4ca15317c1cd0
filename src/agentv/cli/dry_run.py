"""`agentv eval --dry-run`: print the plan of a run and an estimate of its cost."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from agentv.cli import output
from agentv.engine.calls.open_targets import OpenTargets
from agentv.engine.calls.prices import price_of
from agentv.engine.job.artifacts import JobFiles
from agentv.engine.job.conversation import prompt_lengths
from agentv.engine.job.request import CaseRequest
from agentv.engine.job.spec import RunSpec
from agentv.engine.run_plan import RunPlan
from agentv.errors import UsageError, plural
from agentv.executors.executor import LocalLimits
from agentv.model.job import Job
from agentv.model.result import TokenUsage
from agentv.model.values import to_json
from agentv.runs.redaction import Redactor
from agentv.targets.target import Target
from agentv.trust.consent import trust_notes

CHARACTERS_PER_TOKEN = 4
"""A rough average for English text."""

JUDGE_PROMPT_CHARACTERS = 1500
"""The length of a judge's instructions, without the case."""


class CostEstimate(msgspec.Struct):
    """The maximum number of calls to a target, and the characters they send."""

    target: Target
    jobs: int = 0
    calls: int = 0
    characters: int = 0

    @property
    def tokens(self) -> int:
        """The approximate number of prompt tokens."""
        return self.characters // CHARACTERS_PER_TOKEN

    def cost(self) -> str:
        """Describe the cost of the prompts, and of the responses: their maximum, or the price of 1,000 tokens."""
        if self.target.is_free:
            return "cost $0.00"
        prompts, thousand = self._usd(0), _price(self.target, 0, 1000)
        if prompts is None or thousand is None:
            return f"cost unknown: no price for {self.target.name}"
        most_output = getattr(self.target, "max_output_tokens", None)
        most = None if most_output is None else self._usd(most_output)
        if most is not None:
            return f"cost about {_usd(prompts)} for prompts, at most {_usd(most)} with responses"
        return f"cost about {_usd(prompts)} for prompts, plus {_usd(thousand)} per 1,000 response tokens"

    def _usd(self, output: int) -> float | None:
        # Priced per call: the price of a token may depend on the length of the call.
        price = _price(self.target, -(-self.tokens // max(1, self.calls)), output)
        return None if price is None else price * self.calls


def _price(target: Target, input: int, output: int) -> float | None:
    price = price_of(target)
    return None if price is None else price.cost_usd(TokenUsage(input, output))


def estimate(jobs: Iterable[Job], targets: dict[str, Target]) -> dict[str, CostEstimate]:
    """Return an estimate for each target. Renders every prompt, so rendering errors are found."""
    estimates = {name: CostEstimate(target) for name, target in targets.items()}
    for job in jobs:
        entry = estimates[job.target]
        entry.jobs += 1
        if job.case.case_error is not None:
            continue
        lengths = prompt_lengths(CaseRequest(job.case, prompt_id=job.prompt))
        entry.calls += len(lengths)
        entry.characters += sum(lengths)
    for entry in estimates.values():
        entry.characters += entry.calls * _constant_characters(entry.target)
    return estimates


def _constant_characters(target: Target) -> int:
    """Return the characters that every call to a target sends: its system prompt, tools and response format."""
    settings = (getattr(target, name, None) for name in ("tools", "response_format"))
    texts = (to_json(value).decode() for value in settings if value)
    return len(getattr(target, "system_prompt", None) or "") + sum(map(len, texts))


def print_plan(plan: RunPlan, *, as_json: bool = False) -> None:
    """Print the plan with token and cost estimates. Renders every prompt, and writes it with --dump-prompts."""
    checked, project = plan.checked, plan.project
    jobs = _dump_prompts(plan) if plan.options.dump_prompts is not None else plan.jobs()
    estimates = estimate(jobs, {name: project.answering(name) for name in checked.jobs})
    judges = {name: _judge_estimate(plan, name, calls) for name, calls in checked.judges.items()}
    if as_json:
        output.echo_json(_plan_data(plan, estimates, judges))
        return
    tokens = sum(entry.tokens for entry in estimates.values())
    cases, jobs_ = plural(checked.cases, "case"), plural(checked.total, "job")
    output.echo(f"{cases}, {jobs_}, about {plural(tokens, 'prompt token')}")
    for name, entry in estimates.items():
        most = f", at most {plural(entry.calls, 'call')}" if entry.calls > entry.jobs else ""
        use = f"about {plural(entry.tokens, 'token')}, {entry.cost()}"
        output.echo(f"  {name}: {plural(entry.jobs, 'job')} ({entry.target.provider}){most}, {use}")
    for name, entry in judges.items():
        use = f"about {plural(entry.tokens, 'token')} without the answers, {entry.cost()}"
        output.echo(f"  {name}: {plural(entry.calls, 'judge call')} ({entry.target.provider}), {use}")
    for dataset in checked.datasets:
        output.echo(f"  {dataset.path}: {plural(dataset.cases, 'case')}")
    if checked.refused:
        output.echo(f"  Refused: {plural(checked.refused, 'case')}, whose jobs end in an error without a call")
    if any(entry.calls > entry.jobs for entry in estimates.values()):
        output.echo("  Conversations: responses and simulated users add to these prompt tokens")
    if plan.uses:
        output.echo(f"A run would use {plan.uses.totals}:")
    for line in plan.uses.lines():
        output.echo(f"  {line}")
    for note in trust_notes(plan.uses):
        output.note(note)
    output.echo("Nothing was called.")


def _judge_estimate(plan: RunPlan, name: str, calls: int) -> CostEstimate:
    """Return the estimate of a judge, without the answers, which are not known yet."""
    characters = plan.checked.judge_characters[name] + calls * JUDGE_PROMPT_CHARACTERS
    judge = plan.project.target(name)
    return CostEstimate(judge, calls=calls, characters=characters + calls * _constant_characters(judge))


def _plan_data(plan: RunPlan, estimates: dict[str, CostEstimate], judges: dict[str, CostEstimate]) -> dict[str, Any]:
    """Return the plan as printed by `--json`."""
    checked = plan.checked
    return {
        "cases": checked.cases,
        "jobs": checked.total,
        "prompt_tokens": sum(entry.tokens for entry in estimates.values()),
        "targets": {name: _estimate_data(entry) for name, entry in estimates.items()},
        "judges": {name: _estimate_data(entry) for name, entry in judges.items()},
        "datasets": [{"path": dataset.path, "cases": dataset.cases} for dataset in checked.datasets],
        "uses": list(plan.uses),
    }


def _estimate_data(entry: CostEstimate) -> dict[str, Any]:
    data = {"provider": entry.target.provider, "jobs": entry.jobs, "calls": entry.calls}
    return {**data, "prompt_tokens": entry.tokens, "cost": entry.cost()}


def _usd(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.1 else f"${amount:.4f}"


def _dump_prompts(plan: RunPlan) -> Iterator[Job]:
    """Yield the jobs, and write the prompt of each as it would be sent. Targets are opened, but not called."""
    project = plan.project
    if (folder := project.run_files(plan.options, None).prompts_folder) is None:
        raise UsageError("A dry run has no run folder to write prompts to", hint="Pass a folder: --dump-prompts DIR")
    prompts = JobFiles(folder, Redactor(project.secrets))
    answering = tuple(map(project.answering, plan.checked.jobs))
    targets = OpenTargets(RunSpec(run_id="", targets=answering, home=project.home), LocalLimits())
    try:
        for job in plan.jobs():
            question = CaseRequest(job.case, prompt_id=job.prompt, trial=job.trial)
            prompts.write_prompt(job, question, targets.get(job.target).responder)
            yield job
    finally:
        asyncio.run(targets.aclose())
