"""`agentv rescore`: score the stored answers of a run again and print what changed."""

import shlex
import sys
from contextlib import closing

import click

from agentv.cli import output
from agentv.cli.commands.eval import (
    chosen_entries,
    chosen_specs,
    gates_of,
    outcome_data,
    print_outcome,
    print_reasons,
    run_folder,
)
from agentv.cli.display import RunDisplay
from agentv.cli.evaluation_options import RescoreArguments
from agentv.cli.options import options_of
from agentv.engine.answers.rescored_answers import prepare_rescore
from agentv.engine.answers.stored_answers import StoredAnswers, cases_to_rescore
from agentv.engine.named_runs import existing_run
from agentv.engine.resume import folder_of, resumed
from agentv.engine.run import Outcome, open_executor, open_store, run
from agentv.engine.run_options import RescoreOptions
from agentv.errors import UsageError, plural
from agentv.report.run_tables import delta_lines
from agentv.runs.folder import short_path
from agentv.runs.run_figures import deltas
from agentv.runs.store import RunStore


def rescore(args: RescoreArguments) -> None:
    """Score the answers again, print the outcome and exit with the exit code of the run."""
    if args.quiet and args.verbose:
        raise UsageError("--quiet and --verbose cannot be combined")
    options, folder = _chosen(args)
    with closing(StoredAnswers(options.run)) as answers:
        warn, note = output.listeners(args.quiet)
        specs = chosen_specs(options, args.quiet)
        plan = prepare_rescore(options, cases_to_rescore(options, answers, warn, note), answers, specs)
        left_out = answers.records.jobs - plan.checked.total
        if left_out > 0:
            note(f"{left_out:,} of {plural(answers.records.jobs, 'answer')} skipped: their cases were not found")
        if plan.checked.without_jobs:
            missing = f"{plan.checked.without_jobs:,} of {plural(plan.checked.cases, 'case')}"
            note(f"{missing} skipped: the run has no answer")
        store = open_store(plan, folder, resume=args.resume)
        outcome = run(plan, store, open_executor(plan), RunDisplay(plan, args))
        _print(outcome, answers, args)
    sys.exit(outcome.verdict.exit_code)


def _chosen(args: RescoreArguments) -> tuple[RescoreOptions, str | None]:
    """Return the options and the run folder: those given, or those of the run that is resumed."""
    if args.run is None and not args.resume:
        raise click.UsageError("Missing argument 'RUN'")
    if args.paths and args.stored_cases:
        raise UsageError("--stored-cases and PATHS cannot be combined", hint="Remove one of them")
    options = options_of(
        RescoreOptions,
        args,
        run="" if args.run is None else existing_run(args.run),
        evaluators=chosen_entries(args),
        gates=gates_of(args),
    ).lasting()
    folder = run_folder(args.out)
    return resumed(options, folder, folder_of(args.paths)) if args.resume else (options, folder)


def _print(outcome: Outcome, answers: StoredAnswers, args: RescoreArguments) -> None:
    changed = deltas((answers.before(result), result) for result in RunStore.open(outcome.folder).records())
    folder = short_path(outcome.folder)
    if args.as_json:
        output.echo_json({**outcome_data(outcome), "rescored_from": answers.path, "delta": changed})
        return
    # Evaluators of this command would otherwise be known only from the run folder.
    trust = " --trust-run" if args.evaluators or args.trusts_run else ""
    commands = [f"agentv rescore --resume --out {shlex.quote(folder)}{trust}"] if outcome.stopped is not None else []
    if outcome.stopped == "budget":
        commands = [f"{commands[0]} --budget-usd USD"]
    if not args.quiet:
        print_outcome(outcome, [], commands)
        output.echo("\n".join(("", *delta_lines(changed, short_path(answers.path)), "", f"Results: {folder}")))
    print_reasons(outcome)
