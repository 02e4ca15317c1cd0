"""`agentv rescore`: evaluators over the answers that a run already has."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from agentv.cli import output
from agentv.cli.commands.eval import execute, gates_of, short
from agentv.cli.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    POSITIVE,
    evaluators_option,
    gate_options,
    judge_option,
    named_folder,
    reading_options,
    selection_of,
    selection_options,
    targets_option,
)
from agentv.errors import UsageError

if TYPE_CHECKING:
    from agentv.engine.answers.stored import StoredAnswers
    from agentv.engine.rescoring import RescoreSession
    from agentv.engine.run_options import RescoreOptions
    from agentv.engine.run_plan import Cases, Checked
    from agentv.engine.session import Outcome
    from agentv.runs.delta import Delta


@click.command(
    "rescore",
    epilog="Examples:  agentv rescore RUN  ·  agentv rescore RUN --judge better-judge  ·  "
    "agentv rescore RUN --evaluator '{type: contains, value: refund}'  ·  agentv rescore old.jsonl evals/dataset.yaml",
)
@click.argument("run", required=False, type=click.Path())
@click.argument("paths", nargs=-1, type=click.Path())
@evaluators_option("Score with")
@judge_option
@targets_option
@click.option("--all", "every_evaluator", is_flag=True, help="Run every evaluator, not only those that changed.")
@click.option("--stored-cases", is_flag=True, help="Take the cases from the run's folder, not from its datasets.")
@click.option("--workers", type=AT_LEAST_1, metavar="N", help="Calls to a judge at once.")
@click.option("--timeout", "timeout_s", type=POSITIVE, metavar="SECONDS", help="For one attempt of a judge.")
@click.option("--max-retries", type=AT_LEAST_0, metavar="N", help="After failures worth another try.")
@click.option("--cache", is_flag=True, help="Ask a judge nothing that it has answered before.")
@click.option("--budget-usd", type=POSITIVE, metavar="USD", help="Ask nothing new once judges have cost this much.")
@click.option(
    "--out", metavar="DIR", type=click.Path(file_okay=False), callback=named_folder, help="The folder of the new run."
)
@click.option("--resume", is_flag=True, help="Go on with the rescoring in --out, else with the last unfinished one.")
@click.option("--why", is_flag=True, help="Say for each answer what runs and why.")
@click.option("--verbose", "-v", is_flag=True, help="A line for each answer as it is scored.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary and the difference as JSON on stdout.")
@gate_options
@selection_options
@reading_options
def command(run: str | None, paths: tuple[str, ...], **given: Any) -> None:
    """Score the answers of RUN again, without calling a target.

    RUN is a run's folder or id, or a file of results, AgentV's own among them. The cases are read from PATHS, else from
    the datasets of the run as they are now, else from the run's folder. Only evaluators that changed are run: by their
    settings, the files they name, their judge, the case. Judges may be called. The new run says where its answers come
    from, and ends with what changed.

    \b
    Exit codes: 0 done, gates met   1 a gate missed   2 usage, configuration or dataset
                3 too many errors   4 budget used up  130 interrupted
    """
    if given["quiet"] and given["verbose"]:
        raise UsageError("--quiet and --verbose exclude each other")
    from agentv.engine.answers.stored import StoredAnswers

    options, folder = _chosen(run, paths, given)
    with StoredAnswers(options.run) as answers:
        session = _session(options, answers, given)
        checked = session.check()
        if not given["quiet"]:
            _tell(session, checked)
        outcome = execute(session, checked, folder, given)
        _print(outcome, session, given)
    sys.exit(outcome.verdict.exit_code)


def _chosen(run: str | None, paths: tuple[str, ...], given: dict[str, Any]) -> tuple[RescoreOptions, str | None]:
    """The options that hold and the folder: those given, or those of the rescoring that goes on."""
    from agentv.engine.named_runs import existing_run
    from agentv.engine.resume import folder_of, resumed

    if run is None and not given["resume"]:
        raise click.UsageError("Missing argument 'RUN'")
    options = _options("" if run is None else existing_run(run), paths, given)
    if given["resume"]:
        return resumed(options, given["out"], folder_of(paths))
    return options, given["out"]


def _options(run: str, paths: tuple[str, ...], given: dict[str, Any]) -> RescoreOptions:
    from agentv.datasets.case.evaluator_entries import given_entries
    from agentv.engine.run_options import RescoreOptions

    if paths and given["stored_cases"]:
        raise UsageError("--stored-cases takes the cases from the run, and PATHS name others", hint="Leave one out")
    return RescoreOptions(
        run=run,
        paths=paths,
        stored_cases=given["stored_cases"],
        evaluators=tuple(given_entries(given["evaluators"])) if given["evaluators"] else None,
        every_evaluator=given["every_evaluator"],
        judge=given["judge"],
        targets_file=given["targets_file"],
        workers=given["workers"],
        timeout_s=given["timeout_s"],
        max_retries=given["max_retries"],
        cache=given["cache"],
        budget_usd=given["budget_usd"],
        on_error=given["on_error"],
        allow_outside_files=given["allow_outside_files"],
        max_line_bytes=given["max_line_bytes"],
        gates=gates_of(given),
        **selection_of(given),
    )


def _session(options: RescoreOptions, answers: StoredAnswers, given: dict[str, Any]) -> RescoreSession:
    from agentv.datasets.case.evaluator_entries import specs_of
    from agentv.engine.rescoring import RescoreSession

    specs = None
    if options.evaluators is not None:
        specs, warned = specs_of(options.evaluators)
        for problem in [] if given["quiet"] else warned:
            output.say(f"Warning: {problem.message}")
    return RescoreSession(options, _cases(options, answers, given["quiet"]), answers, specs)


def _cases(options: RescoreOptions, answers: StoredAnswers, quiet: bool) -> Cases:
    """Where the cases come from: what is named, the run's datasets where they are still there, the run's folder."""
    from agentv.datasets.dataset import Options
    from agentv.datasets.loader import case_source
    from agentv.engine.answers.stored_cases import StoredCases

    warn, note = (output.silent, output.silent) if quiet else (output.warn, output.note)
    paths = options.paths or (() if options.stored_cases else _still_there(answers))
    if paths:
        reading = Options(options.allow_outside_files, options.max_line_bytes)
        return case_source(
            paths, warn=warn, note=note, on_error=options.on_error, options=reading, selection=options.selection
        )
    again = f"agentv rescore {shlex.quote(short_path(options.run))} PATHS…"
    kept = answers.kept_cases(f"Name the datasets that were run: {again}")
    if not options.stored_cases:
        note("The datasets of the run are not all there; its cases are taken from its folder")
    return StoredCases(kept, options.selection)


def _still_there(answers: StoredAnswers) -> tuple[str, ...]:
    """The datasets that the run read, when every one of them is there; not what a folder has got since."""
    manifest = answers.manifest
    if manifest is None or not manifest.paths:
        return ()
    paths = tuple(entry.path for entry in manifest.datasets)
    return paths if all(os.path.exists(path) or any(mark in path for mark in "*?[") for path in paths) else ()


def short_path(path: str) -> str:
    """A path as one would type it here."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _tell(session: RescoreSession, checked: Checked) -> None:
    left_out = session.left_out(checked)
    if left_out > 0:
        output.note(f"{left_out:,} of {session.answers.jobs:,} answers are left out: their cases are not here")
    if checked.without_jobs:
        output.note(f"{checked.without_jobs:,} of {checked.cases:,} cases have no answer in the run and are left out")


def _print(outcome: Outcome, session: RescoreSession, given: dict[str, Any]) -> None:
    from agentv.model.values import to_json
    from agentv.report.run_tables import delta_lines
    from agentv.report.terminal import Ending, print_ending

    changed = _deltas(outcome, session.answers)
    folder = short(outcome.folder)
    if given["as_json"]:
        data = {
            "run": str(outcome.folder),
            "rescored_from": session.answers.path,
            "exit_code": outcome.verdict.exit_code,
            "summary": outcome.summary,
            "delta": changed,
        }
        click.echo(to_json(data))
        return
    commands = [f"agentv rescore --resume --out {shlex.quote(folder)}"] if outcome.stopped is not None else []
    notes = []
    if outcome.stopped == "budget":
        commands = []  # the rescoring keeps its budget, and what it paid for is in a cache or nowhere
        notes = ["Rescore again with a larger budget to go on; with --cache nothing is paid for twice"]
    if not given["quiet"]:
        ending = Ending(
            summary=outcome.summary,
            details=outcome.details,
            duration_ms=outcome.duration_ms,
            notes=notes,
            commands=commands,
        )
        print_ending(ending, sys.stdout, sys.stdout.isatty())
        click.echo()
        click.echo("\n".join(delta_lines(changed, short_path(session.answers.path))))
        click.echo(f"\nResults: {folder}")
    for reason in outcome.verdict.reasons:
        output.say(output.styled("Gate:" if outcome.verdict.exit_code == 1 else "Ended:", "red") + f" {reason}")


def _deltas(outcome: Outcome, answers: StoredAnswers) -> dict[str, Delta]:
    from agentv.runs.delta import deltas
    from agentv.runs.store import read_run

    return deltas((answers.before(result), result) for result in read_run(outcome.folder))
