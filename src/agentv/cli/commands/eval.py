"""`agentv eval`: run the cases and print the summary."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import structs

from agentv.cli import output
from agentv.cli.display import RunDisplay
from agentv.cli.evaluation_options import EvalArguments, EvaluatorsOption, GateOptions, dataset_paths
from agentv.cli.options import options_of
from agentv.datasets.case.header import evaluator_entries, specs_of
from agentv.engine.checks.settings_files import THRESHOLD_NOTE, unread_settings
from agentv.engine.gates.case_gates import suite_gates
from agentv.engine.gates.gate_options import Gates, parse_max_errors
from agentv.engine.job.artifacts import BATCHES, check_job_folder
from agentv.engine.prepare import prepare
from agentv.engine.resume import folder_of, options_of_earlier, resumed
from agentv.engine.run import Outcome, open_executor, open_store, run
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import RunPlan
from agentv.errors import EXIT_ERRORS, EXIT_FINDINGS, EXIT_UNDECIDED, UsageError, plural
from agentv.model.evaluator import EvaluatorSpec
from agentv.registry import service
from agentv.report.figures import one_line, usd
from agentv.report.services import Delivery, RunExport, open_export
from agentv.report.summary_text import headlines, span_notes
from agentv.report.terminal import Ending, print_ending
from agentv.runs.folder import export_records, output_paths, short_path
from agentv.runs.store import RunStore

if TYPE_CHECKING:
    from agentv.executors.budget_file import ShardSpending

PERMANENT = frozenset({"auth", "case", "invalid_response", "refused"})
"""Classes of errors that the same call would end in again."""
_FAILED = frozenset({"auth", "network", "errors", "judge_auth", "judge_network", "judge_server", "judge_verdict"})
"""The reasons of stopped runs whose errors are repeated after their cause is fixed."""
_BIAS = ", but the means are biased: the run stopped when they were far from the limit"
_LABELS = {EXIT_FINDINGS: "Gate", EXIT_UNDECIDED: "Can't tell"}


def evaluate(args: EvalArguments) -> None:
    """Run the cases, print the outcome and exit with the exit code of the run."""
    if args.watch:
        service("watch", "--watch")(args)
    _check(args)
    folder, file = output_paths(args.out, args.file_format)
    cli_options = options_of(EvalOptions, args, gates=gates_of(args), evaluators=chosen_entries(args))
    options, folder = _chosen(cli_options.lasting(), folder, args.resume)
    export_path = None if file is None else args.out
    specs = chosen_specs(options, args.quiet)
    plan = prepare(options, options.open_cases(*output.listeners(args.quiet)), evaluators=specs, written=export_path)
    _print_foreign_notes(plan, args)
    if not args.quiet:
        _warn_of_gated_mocks(plan)
    if args.dry_run:
        from agentv.cli.dry_run import print_plan  # late: rarely needed

        print_plan(plan, as_json=args.as_json)
        return
    if args.if_changed and _is_unchanged(plan):
        output.note("Nothing to run: no case, target or evaluator changed.")
        return
    export = None if args.otel is None else open_export(args.otel)
    store = open_store(plan, folder, resume=args.resume)
    outcome = run(plan, store, open_executor(plan), RunDisplay(plan, args, export))
    delivery = _end_export(export, plan, outcome)
    if file is not None:
        export_records(outcome.folder / "results.jsonl", *file)
    try:
        _print_outcome(outcome, args, delivery)
    except OSError:
        output.message(f"Results: {short_path(outcome.folder)}")
        raise
    sys.exit(outcome.verdict.exit_code)


def _print_foreign_notes(plan: RunPlan, args: EvalArguments) -> None:
    """Print what another tool would read or decide differently. Raises UsageError with `--strict`."""
    sources, gates = plan.cases.sources, plan.options.gates
    notes = [f"{path} {note}" for path, note in unread_settings(sources).items()]
    if gates is not None and gates.threshold is not None and suite_gates(sources):
        notes.append(THRESHOLD_NOTE)
    if notes and args.strict:
        raise UsageError("The run would differ from that of the files' own tool, and --strict is set", notes[0])
    for note in [] if args.quiet else notes:
        output.note(note)


def _warn_of_gated_mocks(plan: RunPlan) -> None:
    """Warn if a gate checks targets whose answers are fixed. promptfoo's `echo` returns the prompt by design."""
    names = [target.name for target in plan.targets if target.provider == "mock" and target.name in plan.called]
    if not names or not plan.is_gated:
        return
    own = (entry for source in plan.cases.sources for entry in source.format.targets(source))
    echoes = {entry["name"] for entry in own if entry.get("provider") == "mock"}
    if mocks := [f"'{name}'" for name in names if name not in echoes]:
        which = f"target {mocks[0]} is a mock" if len(mocks) == 1 else f"targets {', '.join(mocks)} are mocks"
        output.warn(f"The gate checks canned answers: {which}.")


def _end_export(export: RunExport | None, plan: RunPlan, outcome: Outcome) -> Delivery | None:
    """Export what is left, and return how many spans were exported."""
    if export is None:
        return None
    if plan.answers is not None:
        export.add_carried(RunStore.open(outcome.folder))
    return export.close()


def _is_unchanged(plan: RunPlan) -> bool:
    """Whether every job has a record that is carried over."""
    return plan.answers is not None and all(plan.answers.decide(job).record is not None for job in plan.jobs())


def _check(args: EvalArguments) -> None:
    """Raise UsageError for conflicting options."""
    if args.quiet and args.verbose:
        raise UsageError("--quiet and --verbose cannot be combined")
    if args.out is None and args.file_format is not None:
        hint = f"For example: --out records.{args.file_format}"
        raise UsageError("--format needs a file, but --out is not set", hint=hint)
    if args.record and args.replay and os.path.realpath(args.record) == os.path.realpath(args.replay):
        raise UsageError("--record and --replay cannot use the same file", hint="Pass another file to --record")
    for name, folder in (("--dump-prompts", args.dump_prompts), ("--dump-traces", args.dump_traces)):
        if folder and not args.resume:
            check_job_folder(folder, name)


def run_folder(out: str | None) -> str | None:
    """Return the folder given by `--out`. Raise UsageError if it is the name of a file."""
    folder, file = output_paths(out)
    if file is not None:
        raise UsageError(
            f"--out must be a folder, got {out}", hint="The folder will contain the records in results.jsonl"
        )
    return folder


def _chosen(options: EvalOptions, folder: str | None, resume: bool) -> tuple[EvalOptions, str | None]:
    """Return the options and the run folder: those given, or those of the run that is resumed or carried over."""
    if resume:
        return resumed(options, folder, folder_of(options.paths))
    if options.paths:
        return options, folder
    if (options.retry_errors, options.changed_since, options.only_from) != (None, None, None):
        return options_of_earlier(options), folder
    return structs.replace(options, paths=dataset_paths(options.paths, "eval")), folder


def chosen_entries(args: EvaluatorsOption) -> tuple[Any, ...] | None:
    """Return the entries of `--evaluator`; None if there are none."""
    return tuple(evaluator_entries(args.evaluators)) if args.evaluators else None


def chosen_specs(options: EvalOptions, quiet: bool) -> tuple[EvaluatorSpec, ...] | None:
    """Return the evaluators that replace those of the cases, and print warnings about them."""
    if options.evaluators is None:
        return None
    specs, warned = specs_of(options.evaluators)
    for problem in [] if quiet else warned:
        output.warn(problem.message)
    return specs


def gates_of(args: GateOptions) -> Gates | None:
    """Return the gates of a run; None if there are none."""
    errors, is_share = (None, False) if args.max_errors is None else parse_max_errors(args.max_errors)
    gates = options_of(Gates, args, max_errors=errors, errors_are_share=is_share)
    return None if gates == Gates() else gates


def print_outcome(outcome: Outcome, notes: list[str], commands: list[str]) -> None:
    """Print the summary of a run with notes and the commands to run next."""
    ending = Ending(
        summary=outcome.summary,
        details=outcome.details,
        duration_ms=outcome.duration_ms,
        notes=notes,
        commands=commands,
    )
    print_ending(ending, sys.stdout, sys.stdout.isatty())


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome of a run as printed by `--json`."""
    spans = outcome.manifest.spans
    return {
        "run": str(outcome.folder),
        "headlines": headlines(outcome.summary),
        "exit_code": outcome.verdict.exit_code,
        "reasons": outcome.verdict.reasons,
        "summary": outcome.summary,
        **({} if spans is None else {"spans": spans}),
    }


def print_reasons(outcome: Outcome) -> None:
    """Print the reasons for the exit code on stderr."""
    label = _LABELS.get(outcome.verdict.exit_code, "Failed")
    for reason in outcome.verdict.reasons:
        cause, _, rest = reason.partition(": ")
        if cause in ("Interrupted", "Stopped"):
            output.error(rest, cause)
        else:
            output.error(reason, label)


def _print_outcome(outcome: Outcome, args: EvalArguments, delivery: Delivery | None) -> None:
    if args.as_json:
        output.echo_json(outcome_data(outcome) | ({} if delivery is None else {"otel": structs.asdict(delivery)}))
        return
    if args.quiet:
        _print_losses(outcome, delivery)
    else:
        exported = [] if delivery is None else [delivery.note()]
        print_outcome(outcome, [*_notes(outcome), *exported], _next_commands(outcome))
        output.echo(f"\nResults: {short_path(outcome.folder)}")
    print_reasons(outcome)
    if outcome.stopped in ("interrupted", "deadline", "judge_outage", "outage") and args.quiet:
        output.message(f"Resume with: {_next_commands(outcome)[0]}")


def _print_losses(outcome: Outcome, delivery: Delivery | None) -> None:
    """Print what --quiet does not hide: errors, unless a gate failed for another reason, and spans that were lost."""
    errors = sum(target.errors for target in outcome.summary.targets.values())
    if errors and (not outcome.verdict.reasons or outcome.verdict.exit_code == EXIT_ERRORS):
        output.message(f"{plural(errors, 'error')} (not scored): {short_path(outcome.folder)}")
    if errors and outcome.verdict.exit_code == EXIT_ERRORS:
        first = next(note for target in outcome.details.values() for note in target.errors.values())
        output.message(f"First error in {first.eval_id}: {one_line(first.reason or '', 200)}")
    for note in outcome.notes:
        output.message(note)
    if delivery is not None and delivery.lost:
        output.message(delivery.note())


def _notes(outcome: Outcome) -> list[str]:
    notes = [f"Skipped {plural(outcome.skipped_cases, 'invalid case')}"] if outcome.skipped_cases else []
    if outcome.manifest.stopped_early:
        option, bias = ("--until", "") if "until" in outcome.manifest.options else ("--stop-when", _BIAS)
        notes.append(f"Stopped early: the {option} condition is met. Intervals are valid at any stopping time{bias}.")
    if permanent := PERMANENT.intersection(chain(*(details.error_classes for details in outcome.details.values()))):
        label = "class" if len(permanent) == 1 else "classes"
        notes.append(f"Errors of the {label} {', '.join(sorted(permanent))} recur until their cause is fixed.")
    unrecorded, stored_usd = outcome.manifest.unrecorded_cost_usd, outcome.manifest.stored_cost_usd
    if unrecorded:
        part = f"; {usd(stored_usd)} of it for stored answers, which --resume scores" if stored_usd else ""
        notes.append(f"{usd(unrecorded)} was paid for jobs without a record, and is not in the cost{part}.")
    if outcome.shards is not None:
        notes.append(_spending_note(outcome.shards, outcome.manifest.options))
    notes += span_notes(outcome.manifest.spans)
    notes += outcome.notes
    if outcome.stopped is not None and (outcome.folder / BATCHES).is_dir():
        notes.append("Submitted batches keep running at the provider. Resume the run to collect their results.")
    return notes


def _spending_note(spending: ShardSpending, options: Mapping[str, Any]) -> str:
    total, budget = options["shard"][1], options["budget_usd"]
    subject = "The only shard so far has" if spending.shards == 1 else f"{spending.shards} of {total} shards have"
    return (
        f"{subject} spent {usd(spending.usd)} of the budget of {usd(budget)}, which all shards on this machine share. "
        "Shards on other machines have a budget of their own."
    )


def _next_commands(outcome: Outcome) -> list[str]:
    """Return the command to resume a stopped run or to retry errors."""
    folder = shlex.quote(short_path(outcome.folder))
    if outcome.stopped == "budget":
        return [f"agentv eval --resume --out {folder} --budget-usd USD"]
    if outcome.stopped in _FAILED:
        return [f"agentv eval --retry-errors {folder}"]
    if outcome.stopped not in (None, "decided"):
        return [f"agentv eval --resume --out {folder}"]
    targets = outcome.details.values()
    recurring = sum(details.recurring for details in targets)
    passing = sum(sum(details.error_classes.values()) for details in targets) - recurring
    passing -= sum(count for details in targets for name, count in details.error_classes.items() if name in PERMANENT)
    retry = [f"agentv eval --retry-errors {folder}"] if passing > 0 else []
    # The answers exist: once the evaluators are fixed, only they have to run again.
    return retry + ([f"agentv rescore {folder}  # after fixing the evaluators"] if recurring else [])
