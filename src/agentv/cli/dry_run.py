"""`agentv eval --dry-run`: what a run would do, said and not done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import click

from agentv.engine.calls import Targets
from agentv.engine.estimate import Estimate, estimate, judge_estimate
from agentv.engine.job import Job, RunSpec
from agentv.engine.job_files import JobFiles
from agentv.engine.plan import Checked
from agentv.engine.question import Question
from agentv.engine.session import Session
from agentv.errors import UsageError
from agentv.results.redact import Redactor


def print_plan(session: Session, checked: Checked) -> None:
    """The plan, with what its prompts would take. Every prompt is rendered, and kept when that is asked for."""
    jobs = _dumped(session, checked) if session.options.dump_prompts is not None else session.plan.jobs()
    found = estimate(jobs, {name: session.answering(name) for name in checked.jobs})
    tokens = sum(entry.tokens for entry in found.values())
    click.echo(f"{checked.cases:,} cases, {checked.total:,} jobs, about {tokens:,} tokens of prompts")
    for name, entry in found.items():
        provider = session.answering(name).provider
        talks = f", at most {entry.calls:,} calls" if entry.calls > entry.jobs else ""
        use = f"about {entry.tokens:,} tokens, {_cost(name, entry)}"
        click.echo(f"  {name}: {entry.jobs:,} jobs ({provider}){talks}, {use}")
    for name, calls in checked.judges.items():
        entry = judge_estimate(session.target(name), calls, checked.judge_characters[name])
        use = f"about {entry.tokens:,} tokens besides the answers, {_cost(name, entry)}"
        click.echo(f"  {name}: {calls:,} calls as judge ({session.target(name).provider}), {use}")
    for dataset in checked.datasets:
        click.echo(f"  {dataset.path}: {dataset.cases:,} cases")
    if any(entry.calls > entry.jobs for entry in found.values()):
        click.echo(
            "  Of conversations this counts what is known before they begin; replies and simulated users add to it"
        )
    click.echo("Nothing was called.")


def _cost(name: str, entry: Estimate) -> str:
    """What is known of the cost: of the prompts, and of answers by the thousand tokens or at most."""
    if entry.is_free:
        return "cost $0.00"
    prompts, thousand, most = entry.cost_usd, entry.thousand_usd, entry.most_usd
    if prompts is None or thousand is None:
        return f"cost unknown: no price for {name}"
    answers = f"with answers at most {_usd(most)}" if most is not None else f"1,000 tokens of answers {_usd(thousand)}"
    return f"prompts about {_usd(prompts)}, {answers}"


def _usd(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.1 else f"${amount:.4f}"


def _dumped(session: Session, checked: Checked) -> Iterator[Job]:
    """The jobs, each with its prompt written as it would be sent. Targets are opened for that, and not called."""
    folder = session.layers(None).prompts_folder
    if folder is None:
        raise UsageError("A dry run has no folder of its own", hint="Say where prompts go: --dump-prompts DIR")
    prompts = JobFiles(folder, Redactor(session.secrets))
    targets = Targets(RunSpec(run_id="", targets=tuple(map(session.answering, checked.jobs)), home=session.home))
    try:
        for job in session.plan.jobs():
            question = Question(job.case, prompt_id=job.prompt, trial=job.trial)
            prompts.write_prompt(job, question, targets.get(job.target).responder)
            yield job
    finally:
        asyncio.run(targets.aclose())
