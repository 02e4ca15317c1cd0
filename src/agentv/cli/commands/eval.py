"""`agentv eval`: cases go in, results come out: answered, scored and written one by one."""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentv.cli import output
from agentv.cli.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    CALL_OPTIONS,
    POSITIVE,
    call_options,
    check_call_options,
    gate_options,
    reading_options,
    selection_of,
    selection_options,
    targets_option,
)
from agentv.errors import UsageError

if TYPE_CHECKING:
    from agentv.engine.run_options import EvalOptions, Gates
    from agentv.engine.run_plan import Checked
    from agentv.engine.session import Outcome, Session


@click.command(
    "eval",
    epilog="Examples:  agentv eval evals  ·  agentv eval evals/dataset.yaml --target gpt --trials 3  ·  "
    "agentv eval evals --threshold 0.8 --max-errors 1%  ·  agentv eval --resume",
)
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--target", "-t", "targets", multiple=True, metavar="NAME", help="Who answers; several make a matrix.")
@targets_option
@click.option("--judge", metavar="NAME", help="The target that judges, in the place of those that files name.")
@click.option("--workers", type=AT_LEAST_1, metavar="N", help="Calls at once; without it, adapted.")
@click.option("--trials", type=AT_LEAST_1, metavar="N", help="How often each case is asked.")
@click.option("--timeout", "timeout_s", type=POSITIVE, metavar="SECONDS", help="For one attempt.")
@click.option("--max-retries", type=AT_LEAST_0, metavar="N", help="After failures worth another try.")
@click.option(
    "--out",
    metavar="DIR|FILE",
    type=click.Path(),
    help="The run folder, or a .jsonl or .yaml file to write the records to besides.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["jsonl", "yaml"]),
    help="How a file named by --out is written, whatever its name.",
)
@click.option("--resume", is_flag=True, help="Go on with the run in --out, else with the last unfinished one.")
@click.option("--retry-errors", metavar="RUN", type=click.Path(), help="A new run of what ended in errors in RUN.")
@click.option("--changed-since", metavar="RUN", type=click.Path(), help="A new run of what changed since RUN.")
@click.option("--why", is_flag=True, help="Say for each job why it is run or carried over.")
@gate_options
@click.option("--budget-usd", type=POSITIVE, metavar="USD", help="Start nothing new once this much is spent.")
@click.option(
    "--stop-when",
    metavar="X|pass-rate=X|RUN",
    help="Stop once it is known on which side of a mean or pass rate a target is, or whether it beats an earlier run.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure or error.")
@click.option("--dry-run", is_flag=True, help="Check and render everything, call nothing, print the plan.")
@click.option("--verbose", "-v", is_flag=True, help="A line for each job as it ends, and what targets log.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on stdout.")
@call_options
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
    from agentv.datasets.dataset import Options
    from agentv.datasets.loader import case_source
    from agentv.engine.session import Session
    from agentv.runs.writer import export_records, places_of

    check_call_options(given)
    if given["out"] is None and (said := given["file_format"]) is not None:
        raise UsageError("--format is about a file, and --out names none", hint=f"For example: --out records.{said}")
    folder, file = places_of(given["out"], given["file_format"])
    options, folder = _chosen(_options(paths, given), folder, given["resume"])
    quiet = given["quiet"]
    warn, note = (output.silent, output.silent) if quiet else (output.warn, output.note)
    reading = Options(options.allow_outside_files, options.max_line_bytes)
    cases = case_source(
        options.paths, warn=warn, note=note, on_error=options.on_error, options=reading, selection=options.selection
    )
    session = Session(options, cases)
    session.keep_inputs(None if file is None else file[0])
    checked = session.check()
    if given["dry_run"]:
        from agentv.cli.dry_run import print_plan

        print_plan(session, checked)
        return
    outcome = execute(session, checked, folder, given)
    if file is not None:
        export_records(outcome.folder / "results.jsonl", *file)
    try:
        _print_outcome(outcome, given)
    except OSError:
        output.say(f"Results: {short(outcome.folder)}")
        raise
    sys.exit(outcome.verdict.exit_code)


def _chosen(given: EvalOptions, folder: str | None, resume: bool) -> tuple[EvalOptions, str | None]:
    """The options that hold and the run folder: those given, or those of the run that goes on or is carried over."""
    from agentv.engine.resume import folder_of, options_of_earlier, resumed

    if resume:
        return resumed(given, folder, folder_of(given.paths))
    if given.paths:
        return given, folder
    if (given.retry_errors, given.changed_since, given.only_from) != (None, None, None):
        return options_of_earlier(given), folder
    raise click.UsageError("Missing argument 'PATHS...'")


def _options(paths: tuple[str, ...], given: dict[str, Any]) -> EvalOptions:
    from agentv.engine.run_options import EvalOptions

    return EvalOptions(
        paths=paths,
        targets=tuple(dict.fromkeys(given["targets"])),
        targets_file=given["targets_file"],
        judge=given["judge"],
        workers=given["workers"],
        trials=given["trials"],
        timeout_s=given["timeout_s"],
        max_retries=given["max_retries"],
        on_error=given["on_error"],
        allow_outside_files=given["allow_outside_files"],
        max_line_bytes=given["max_line_bytes"],
        budget_usd=given["budget_usd"],
        fail_fast=given["fail_fast"],
        stop_when=given["stop_when"],
        gates=gates_of(given),
        **selection_of(given),
        **{name: given[name] for name in ("retry_errors", "changed_since", *CALL_OPTIONS)},
    )


def gates_of(given: dict[str, Any]) -> Gates | None:
    """What a run must reach; None when nothing is asked."""
    from agentv.engine.run_options import Gates, parse_max_errors

    errors, is_share = (None, False) if given["max_errors"] is None else parse_max_errors(given["max_errors"])
    gates = Gates(
        threshold=given["threshold"], min_pass_rate=given["min_pass_rate"], max_errors=errors, errors_are_share=is_share
    )
    return None if gates == Gates() else gates


def execute(session: Session, checked: Checked, folder: str | None, given: dict[str, Any]) -> Outcome:
    """Runs a session, with its progress shown unless the user wants quiet. What functions print goes to stderr."""
    with redirect_stdout(sys.stderr):  # stdout is for what the command itself says
        return _executed(session, checked, folder, given)


def _executed(session: Session, checked: Checked, folder: str | None, given: dict[str, Any]) -> Outcome:
    from agentv.engine.session import unwatched
    from agentv.runs.redaction import Redactor

    quiet = given["quiet"] or given["as_json"]
    if quiet and not given["why"] and not given["verbose"]:
        from agentv.engine.run import Observer

        return session.execute(checked, folder, given["resume"], Observer(), unwatched)
    from agentv.cli.display import Shown

    shown = Shown(Redactor(session.secrets), why=given["why"], verbose=given["verbose"], quiet=quiet)
    return session.execute(checked, folder, given["resume"], shown, shown)


def _print_outcome(outcome: Outcome, given: dict[str, Any]) -> None:
    from agentv.model.values import to_json
    from agentv.report.terminal import Ending, print_ending

    if given["as_json"]:
        data = {"run": str(outcome.folder), "exit_code": outcome.verdict.exit_code, "summary": outcome.summary}
        click.echo(to_json(data))
        return
    if not given["quiet"]:
        notes = [f"{outcome.skipped_cases:,} bad cases were skipped"] if outcome.skipped_cases else []
        if outcome.stopped_early:
            notes.append("Partial: stopped early, because what was asked is known. Intervals hold whenever a run stops")
        ending = Ending(
            summary=outcome.summary,
            details=outcome.details,
            duration_ms=outcome.duration_ms,
            notes=notes,
            commands=_next_commands(outcome),
        )
        print_ending(ending, sys.stdout, sys.stdout.isatty())
        click.echo(f"\nResults: {short(outcome.folder)}")
    for reason in outcome.verdict.reasons:
        output.say(output.styled("Gate:" if outcome.verdict.exit_code == 1 else "Ended:", "red") + f" {reason}")
    if outcome.stopped == "interrupted" and given["quiet"]:
        output.say(f"Go on with: {_next_commands(outcome)[0]}")


def short(folder: Path) -> str:
    """A folder as one would type it here."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def _next_commands(outcome: Outcome) -> list[str]:
    """What to type next: to go on with a run that was stopped, to ask again what ended in errors."""
    folder = shlex.quote(short(outcome.folder))
    if outcome.stopped == "budget":
        # The run itself keeps its budget; a new one takes over what is paid for.
        return [f"agentv eval --changed-since {folder} --budget-usd USD"]
    if outcome.stopped == "auth":
        return [f"agentv eval --retry-errors {folder}"]
    if outcome.stopped not in (None, "decided"):
        return [f"agentv eval --resume --out {folder}"]
    errors = sum(target.errors for target in outcome.summary.targets.values())
    return [f"agentv eval --retry-errors {folder}"] if errors else []
