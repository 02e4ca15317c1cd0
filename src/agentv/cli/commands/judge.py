"""`agentv judge`: collect labels from people, calibrate a judge with them, and probe it."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentv.calibration.calibrate import Calibration, answers_of, suggestions
from agentv.calibration.calibrate import calibrate as calibrated
from agentv.calibration.label_file import LabelFile, read_labels
from agentv.calibration.label_order import draw_order, passed_over
from agentv.calibration.labels import (
    LABELS_FILE,
    AnswerKey,
    Drawn,
    Label,
    Labels,
    answer_key,
    cards,
    checked_labeller,
    stored_cases,
    with_cases,
)
from agentv.calibration.probe_results import ProbeSummary, summarize_probes
from agentv.cli import output
from agentv.cli.commands.eval import run_folder
from agentv.cli.display import RunDisplay
from agentv.cli.judge_options import CalibrateArguments, LabelArguments, ProbeArguments
from agentv.cli.label_loop import LabelSession, PassedOver
from agentv.cli.options import options_of
from agentv.datasets.case.header import evaluator_entries, specs_of
from agentv.datasets.loader import case_source
from agentv.engine.answers.probes import KINDS, ORACLE, chosen_kinds, prepare_probes
from agentv.engine.gates.gate_options import number_of, parse_max_errors
from agentv.engine.named_runs import existing_run, run_path
from agentv.engine.run import open_executor, open_store, run
from agentv.engine.run_options import EvalOptions
from agentv.errors import EXIT_FINDINGS, EXIT_INTERRUPTED, UsageError, plural
from agentv.report.figures import number, one_line
from agentv.report.run_tables import calibration_lines
from agentv.runs.folder import RunFolder
from agentv.runs.store import RunStore
from agentv.settings.project import project_root

_LONGEST_REASON = 100


def label(args: LabelArguments) -> None:
    """Show answers one by one and record the labels."""
    path = _labels_file(args.labels_file)
    run = RunStore.open(existing_run(args.run))
    if next(run.records(), None) is None:
        raise UsageError(f"Run {args.run} has no results")
    file, labeller = LabelFile(path), checked_labeller(args.labeller)
    found = cards(run.records(), args.count, _order(run, file.labels, args))
    named = case_source(args.paths, warn=output.discard, note=output.discard) if args.paths else None
    drawn: Drawn = "suggested" if args.suggested else "random"
    passed = _passed_over(run, file, args)
    session = LabelSession(file, labeller=labeller, drawn=drawn, run_id=run.run_id, passed_over=passed)
    session.run(with_cases(found, stored_cases(run).stream() if named is None else named.stream_lazily()))
    counts = file.labels.counts(labeller)
    totals = ", ".join(f"{counts[what]} {what}" for what in ("pass", "fail", "skip") if counts[what]) or "none yet"
    output.echo(f"\nLabels in {os.path.relpath(path)}: {totals}")
    output.echo(f"Next: {_command('calibrate', args.run, args.labels_file, args.evaluator)}")


def calibrate(args: CalibrateArguments) -> None:
    """Compare the verdicts with the labels and print the figures."""
    file = args.labels_file
    if file is not None and not os.path.exists(file):
        raise UsageError(f"Labels file not found: {file}", hint=f"Create it with: {_command('label', args.run, file)}")
    found = _calibration(args)
    if args.as_json:
        output.echo_json(found)
    else:
        output.echo("\n".join(calibration_lines(found)))
    if not found.labelled:
        output.message(f"No answers of this run are labelled. Start with: {_command('label', args.run, file)}")
    missed = _missed_gate(found, args.min_kappa)
    if missed:
        output.error(missed, "Gate")
        sys.exit(EXIT_FINDINGS)


def _missed_gate(found: Calibration, least: float | None) -> str:
    """Describe how the gate is missed; empty if it is met or there is none."""
    if least is None:
        return ""
    if found.kappa is None or found.kappa.ci95 is None:
        return f"not enough labels ({found.labelled}) to estimate kappa; required: {least}"
    low = found.kappa.ci95[0]
    return f"lower bound of kappa is {low:.3f} (n = {found.kappa.n}); required: {least}" if low < least else ""


def _command(command: str, run: str, labels: str | None, evaluator: str | None = None) -> str:
    """Return the next command for the same run and the same labels."""
    options = [("--labels", labels), ("--evaluator", evaluator)]
    given = [word for name, value in options if value is not None for word in (name, value)]
    return shlex.join(["agentv", "judge", command, run, *given])


def _labels_file(named: str | None) -> str:
    """Return the given file, else the labels file of the project."""
    return os.path.join(project_root("."), LABELS_FILE) if named is None else named


def _order(run: RunStore, labels: Labels, args: LabelArguments) -> Callable[[AnswerKey], bytes | None]:
    """Return the sort key of answers; None skips those that this person has labelled or that are not selected."""
    if args.suggested:
        chosen = suggestions(answers_of(run.records(), args.evaluator).judged, labels, args.count, args.seed)
        places = {AnswerKey(each.dataset, each.eval_id, each.answer): place for place, each in enumerate(chosen)}
        return lambda key: places[key].to_bytes(8) if key in places and _is_due(labels.of(key, args.labeller)) else None
    return lambda key: None if labels.of(key, args.labeller) else draw_order(key, args.seed)


def _is_due(label: Label | None) -> bool:
    """Return whether to ask for a suggested answer: it is not labelled, or it was picked rather than drawn."""
    return label is None or label.drawn == "chosen"


def _passed_over(run: RunStore, file: LabelFile, args: LabelArguments) -> PassedOver:
    """Return the labels of answers that were picked before their turn; none in another order than the random one."""
    picked = {label.key for label in file.labels.all_by(args.labeller) if label.drawn == "chosen"}
    if args.suggested or not picked:
        return lambda _: []
    ranks = {
        key: draw_order(key, args.seed) for result in run.records() if (key := answer_key(result)) in picked and key
    }

    def found(drawn: AnswerKey) -> list[Label]:
        rank = draw_order(drawn, args.seed)
        return passed_over(file.labels, args.labeller, lambda key: key in ranks and ranks[key] < rank)

    return found


def _calibration(args: CalibrateArguments) -> Calibration:
    path = run_path(args.run)
    answers = answers_of(RunStore.open(path).records(), args.evaluator, args.target)
    if not answers.judged:
        named = sorted({found.name for result in RunStore.open(path).records() for found in result.evaluator_results})
        hint = f"Its evaluators: {', '.join(named)}" if named else ""
        raise UsageError(f"No answer in {args.run} has a verdict from this judge", hint=hint)
    name = args.evaluator or "overall verdict of all evaluators"
    labels = _labels(_labels_file(args.labels_file), args.labeller)
    return calibrated(answers, labels, name, args.count, _answers_of_run)


def _labels(path: str, labeller: str | None) -> Labels:
    """Read the labels: of one labeller if a name is given."""
    found = Labels(read_labels(path))
    if labeller is None:
        return found
    if labeller not in (names := found.labellers()):
        known = ", ".join(sorted(name or '""' for name in names)) or "none"
        raise UsageError(f"{path} has no labels of {labeller!r}", hint=f"Labellers in this file: {known}")
    return found.by(labeller)


def _answers_of_run(run_id: str) -> frozenset[AnswerKey] | None:
    """Return the answers of a run of the project; None if it does not exist."""
    path = run_path(run_id) if run_id else ""
    if not RunFolder(path).manifest_path.is_file():
        return None
    return frozenset(filter(None, map(answer_key, RunStore.open(path).records())))


def probe(args: ProbeArguments) -> None:
    """Run every probe, print the findings and exit with their exit code."""
    allowed = parse_max_errors(args.max_fooled, "--max-fooled")  # checked before any call
    options = options_of(EvalOptions, args, evaluators=None)
    specs = specs_of(evaluator_entries(args.evaluators))[0] if args.evaluators else None
    plan = prepare_probes(options, options.open_cases(*output.listeners(args.quiet)), chosen_kinds(args.kinds), specs)
    with _probe_folder(run_folder(args.out)) as folder:
        outcome = run(plan, open_store(plan, folder, listed=False), open_executor(plan), RunDisplay(plan, args))
        found = summarize_probes(RunStore.open(outcome.folder).records(), frozenset({ORACLE}))
    if outcome.stopped == "interrupted":
        output.message("Interrupted" if args.out is None else f"Interrupted. Finished probes are saved in {args.out}.")
        sys.exit(EXIT_INTERRUPTED)
    code = found.exit_code(number_of(*allowed, found.total.judged))
    _print_probes(found, code, args.as_json)
    sys.exit(code)


@contextmanager
def _probe_folder(out: str | None) -> Iterator[str]:
    """Yield the given run folder, else a temporary one."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="agentv-probe-") as folder:
        yield str(Path(folder) / "run")


def _print_probes(found: ProbeSummary, code: int, as_json: bool) -> None:
    if as_json:
        data = {"judged": found.total.judged, "misjudged": found.total.misjudged, "errors": found.total.errors}
        further = {"kinds": found.kinds, "evaluators": found.evaluators, "examples": found.misjudged}
        output.echo_json({"exit_code": code, **data, **further})
        return
    output.echo("\n".join(_probe_lines(found)))
    if code == EXIT_FINDINGS:
        output.error(f"{found.total.misjudged} of {plural(found.total.judged, 'probe')} misjudged", "Gate")
    elif code:
        output.error(f"no probe was scored. First error: {one_line(found.first_error, 200)}", "Failed")


def _probe_lines(found: ProbeSummary) -> Iterator[str]:
    width = max(map(len, KINDS))
    yield f"{'probe':<{width}}  {'an answer that':<37}  misjudged  not scored"
    for kind, (what, _) in KINDS.items():
        counts = found.kinds.get(kind)
        if counts is not None:
            wrong = f"{counts.misjudged} of {counts.judged}"
            yield f"{kind:<{width}}  {what:<37}  {wrong:>9}  {counts.errors + counts.unscored or '':>10}".rstrip()
    for name, kinds in found.evaluators.items():
        misjudged = ", ".join(f"{kind} {wrong} of {judged}" for kind, (wrong, judged) in kinds.items() if wrong)
        if misjudged:
            yield f"\nEvaluator {one_line(name, 60)} misjudged: {misjudged}"
    if found.misjudged:
        yield "\nMisjudged"
    for each in found.misjudged:
        what = "fails" if each.kind == ORACLE else "accepts"
        by = ", ".join(each.by) or "the overall verdict"
        reason = one_line(each.reason, _LONGEST_REASON)
        line = f"  {one_line(each.eval_id, 40)}: {by} {what} {each.kind}, score {number(each.score)}"
        yield f"{line}: {reason}" if reason else line
    hidden = found.total.misjudged - len(found.misjudged)
    if hidden > 0:
        yield f"  and {hidden} more"
    if found.total.errors and found.total.judged:
        first = one_line(found.first_error, _LONGEST_REASON)
        yield f"\n{plural(found.total.errors, 'error')} (not scored). First error: {first}"
