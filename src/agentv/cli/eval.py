"""`agentv eval`: cases go in, results come out: answered, scored and written one by one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agentv.cli import output
from agentv.cli.options import parse_sample, parse_shard, reading_options, selection_options
from agentv.errors import UsageError

if TYPE_CHECKING:
    from agentv.engine.carry import Keep
    from agentv.engine.options import EvalOptions
    from agentv.engine.plan import Checked
    from agentv.engine.session import Outcome, Session


@click.command(
    "eval",
    epilog="Examples:  agentv eval evals  ·  agentv eval evals/dataset.yaml --target gpt --trials 3  ·  "
    "agentv eval evals --threshold 0.8 --max-errors 1%  ·  agentv eval --resume",
)
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--target", "-t", "targets", multiple=True, metavar="NAME", help="Who answers; several make a matrix.")
@click.option("--targets", "targets_file", metavar="FILE", type=click.Path(), help="The targets file to read.")
@click.option("--case", "cases", multiple=True, metavar="ID", help="The same as --filter ID.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Calls at once; without it, adapted.")
@click.option("--trials", type=click.IntRange(min=1), metavar="N", help="How often each case is asked.")
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", help="For one attempt.")
@click.option("--max-retries", type=click.IntRange(min=0), metavar="N", help="After failures worth another try.")
@click.option(
    "--out",
    metavar="DIR|FILE",
    type=click.Path(),
    help="The run folder, or a .jsonl or .yaml file to write the records to besides.",
)
@click.option("--resume", is_flag=True, help="Go on with the run in --out, else with the last unfinished one.")
@click.option("--retry-errors", metavar="RUN", type=click.Path(), help="A new run of what ended in errors in RUN.")
@click.option("--changed-since", metavar="RUN", type=click.Path(), help="A new run of what changed since RUN.")
@click.option("--why", is_flag=True, help="Say for each job why it is run or carried over.")
@click.option("--threshold", type=float, metavar="X", help="Gate: the mean of each target must reach this.")
@click.option("--min-pass-rate", type=float, metavar="P", help="Gate: the share of cases that pass must reach this.")
@click.option("--max-errors", metavar="N|N%", help="Gate: so many jobs may end in errors; 0 beside another gate.")
@click.option("--budget-usd", type=float, metavar="USD", help="Start nothing new once this much is spent.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure or error.")
@click.option("--dry-run", is_flag=True, help="Check and render everything, call nothing, print the plan.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on stdout.")
@selection_options
@reading_options
def command(paths: tuple[str, ...], **given: Any) -> None:
    """Answer, score and record every case.

    PATHS are dataset files, folders or globs. Everything is read and checked before the first call. Results are on
    disk the moment they exist: after a crash, `agentv eval --resume` goes on without asking anything twice.

    \b
    Exit codes: 0 done, gates met   1 a gate missed   2 usage, configuration or dataset
                3 too many errors   4 budget used up  130 interrupted
    """
    from agentv.datasets.loading import case_source
    from agentv.datasets.reading import Options
    from agentv.engine.session import Session, resumed_options

    if not paths and given["resume"]:
        options = resumed_options(given["out"], ".")
    elif paths:
        options = _options(paths, given)
    else:
        raise click.UsageError("Missing argument 'PATHS...'")
    quiet = given["quiet"]
    warn, note = (output.silent, output.silent) if quiet else (output.warn, output.note)
    reading = Options(options.allow_outside_files, options.max_line_bytes)
    cases = case_source(
        options.paths, warn=warn, note=note, on_error=options.on_error, options=reading, selection=options.selection
    )
    session = Session(options, cases)
    checked = session.check()
    if given["dry_run"]:
        _print_plan(session, checked)
        return
    outcome = _execute(session, checked, given)
    _, file = _places(given["out"])
    if file is not None:
        from agentv.results.export import export_records

        export_records(outcome.folder / "results.jsonl", file)
    _print_outcome(outcome, given, options)
    sys.exit(outcome.verdict.exit_code)


def _options(paths: tuple[str, ...], given: dict[str, Any]) -> EvalOptions:
    from agentv.engine.options import EvalOptions, Gates, parse_max_errors

    errors, is_share = (None, False) if given["max_errors"] is None else parse_max_errors(given["max_errors"])
    gates = Gates(
        threshold=given["threshold"], min_pass_rate=given["min_pass_rate"], max_errors=errors, errors_are_share=is_share
    )
    return EvalOptions(
        paths=paths,
        targets=tuple(dict.fromkeys(given["targets"])),
        targets_file=given["targets_file"],
        workers=given["workers"],
        trials=given["trials"],
        filters=(*given["filters"], *(f"tag={tag}" for tag in given["tags"]), *given["cases"]),
        sample=parse_sample(given["sample"]),
        seed=given["seed"],
        shard=parse_shard(given["shard"]),
        limit=given["limit"],
        timeout_s=given["timeout_s"],
        max_retries=given["max_retries"],
        on_error=given["on_error"],
        allow_outside_files=given["allow_outside_files"],
        max_line_bytes=given["max_line_bytes"],
        budget_usd=given["budget_usd"],
        fail_fast=given["fail_fast"],
        gates=None if gates == Gates() else gates,
    )


def _execute(session: Session, checked: Checked, given: dict[str, Any]) -> Outcome:
    from agentv.engine.session import unwatched
    from agentv.results.redact import Redactor

    folder, _ = _places(given["out"])
    if given["quiet"] or given["as_json"]:
        from agentv.engine.run import Observer

        return session.execute(checked, folder, given["resume"], Observer(), unwatched, _carry(given))
    from agentv.cli.watching import Shown

    shown = Shown(Redactor(session.secrets), why=given["why"])
    return session.execute(checked, folder, given["resume"], shown, shown, _carry(given))


def _carry(given: dict[str, Any]) -> tuple[str, Keep] | None:
    if given["retry_errors"] and given["changed_since"]:
        raise UsageError("--retry-errors and --changed-since exclude each other")
    if given["retry_errors"]:
        return given["retry_errors"], "all but errors"
    return (given["changed_since"], "what still holds") if given["changed_since"] else None


def _places(out: str | None) -> tuple[str | None, str | None]:
    """The run folder and the file of records that `--out` names: one of them, by its extension."""
    if out is not None and out.lower().endswith((".jsonl", ".yaml", ".yml")):
        return None, out
    return out, None


def _print_plan(session: Session, checked: Checked) -> None:
    """What would run. Rendering every prompt shows what would be sent, and about how much it is."""
    from agentv.engine.question import Question

    characters = 0
    for job in session.plan.jobs():
        characters += len(Question(job.case, prompt_id=job.prompt).prompt)
    click.echo(f"{checked.cases:,} cases, {checked.total:,} jobs, about {characters // 4:,} tokens of prompts")
    for name, jobs in checked.jobs.items():
        click.echo(f"  {name}: {jobs:,} jobs ({session.target(name).provider})")
    for dataset in checked.datasets:
        click.echo(f"  {dataset.path}: {dataset.cases:,} cases")
    click.echo("Nothing was called.")


def _print_outcome(outcome: Outcome, given: dict[str, Any], options: EvalOptions) -> None:
    from agentv.model.values import to_json
    from agentv.report.terminal import Ending, print_ending

    if given["as_json"]:
        data = {"run": str(outcome.folder), "exit_code": outcome.verdict.exit_code, "summary": outcome.summary}
        click.echo(to_json(data))
        return
    stopped = outcome.verdict.exit_code in (130, 4)
    command = f"agentv eval --resume --out {outcome.folder}" if stopped or options.fail_fast else ""
    if not given["quiet"]:
        notes = [f"{outcome.skipped_cases:,} bad cases were skipped"] if outcome.skipped_cases else []
        ending = Ending(
            summary=outcome.summary,
            details=outcome.details,
            duration_ms=outcome.duration_ms,
            notes=notes,
            commands=[command] if command else [],
        )
        print_ending(ending, sys.stdout, sys.stdout.isatty())
        click.echo(f"\nResults: {outcome.folder}")
    for reason in outcome.verdict.reasons:
        output.say(output.styled("Gate:" if outcome.verdict.exit_code == 1 else "Ended:", "red") + f" {reason}")
