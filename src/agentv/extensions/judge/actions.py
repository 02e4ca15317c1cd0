"""`agentv judge`: collect labels from people, calibrate a judge with them, and probe it."""

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentv.cli import output
from agentv.cli.commands.eval import run_folder
from agentv.cli.display import RunDisplay
from agentv.cli.options import options_of
from agentv.datasets.case.header import evaluator_entries, specs_of
from agentv.datasets.loader import case_source
from agentv.engine.gates.gate_options import number_of, parse_max_errors
from agentv.engine.named_runs import existing_run, run_path
from agentv.engine.run import open_executor, open_store, run
from agentv.engine.run_options import EvalOptions
from agentv.errors import EXIT_FINDINGS, EXIT_INTERRUPTED, UsageError, plural
from agentv.extensions.judge.calibrate import Calibration, answers_of, suggestions
from agentv.extensions.judge.calibrate import calibrate as calibrated
from agentv.extensions.judge.calibration_text import calibration_lines
from agentv.extensions.judge.command import CalibrateArguments, LabelArguments, ProbeArguments
from agentv.extensions.judge.label_file import LabelFile, read_labels
from agentv.extensions.judge.label_loop import LabelSession, PassedOver
from agentv.extensions.judge.labels import (
    LABELS_FILE,
    AnswerKey,
    Card,
    Drawn,
    Label,
    Labels,
    answer_key,
    cards,
    checked_labeller,
    draw_order,
    passed_over,
    stored_cases,
    with_cases,
)
from agentv.extensions.judge.probes import KINDS, ORACLE, ProbeSummary, chosen_kinds, prepare_probes, summarize_probes
from agentv.report.figures import number, one_line
from agentv.runs.folder import RunFolder
from agentv.runs.store import RunStore
from agentv.settings.project import project_root
from agentv.support.hashes import relative_path

_LONGEST_REASON = 100


def label(args: LabelArguments) -> None:
    """Show answers one by one and record the labels."""
    path = _labels_file(args.labels_file)
    run = RunStore.open(existing_run(args.run))
    if next(run.records(), None) is None:
        raise UsageError(f"Run {args.run} has no results")
    file, labeller = LabelFile(path), checked_labeller(args.labeller)
    answers = _cards(run, file.labels, args)
    datasets = case_source(args.paths, warn=output.discard, note=output.discard) if args.paths else None
    selection: Drawn = "suggested" if args.suggested or args.against is not None else "random"
    passed = _passed_over(run, file, args)
    session = LabelSession(file, labeller=labeller, drawn=selection, run_id=run.run_id, passed_over=passed)
    session.run(with_cases(answers, stored_cases(run).stream() if datasets is None else datasets.stream_lazily()))
    counts = file.labels.counts(labeller)
    totals = ", ".join(f"{counts[what]} {what}" for what in ("pass", "fail", "skip") if counts[what]) or "none yet"
    output.echo(f"\nLabels in {relative_path(path)}: {totals}")
    output.echo(f"Next: {_command('calibrate', args.run, args.labels_file, args.evaluator)}")


def calibrate(args: CalibrateArguments) -> None:
    """Compare the verdicts with the labels and print the figures."""
    file = args.labels_file
    if file is not None and not os.path.exists(file):
        raise UsageError(f"Labels file not found: {file}", hint=f"Create it with: {_command('label', args.run, file)}")
    calibration = _calibration(args)
    output.echo_result(calibration, calibration_lines(calibration), as_json=args.as_json)
    if not calibration.labelled:
        output.message(f"No answers of this run are labelled. Start with: {_command('label', args.run, file)}")
    if missed := _missed_gate(calibration, args.min_kappa):
        output.error(missed, "Gate")
        sys.exit(EXIT_FINDINGS)


def _missed_gate(calibration: Calibration, least: float | None) -> str:
    """Describe how the gate is missed; empty if it is met or there is none."""
    if least is None:
        return ""
    if calibration.kappa is None or calibration.kappa.ci95 is None:
        return f"not enough labels ({calibration.labelled}) to estimate kappa; required: {least}"
    low = calibration.kappa.ci95[0]
    return f"lower bound of kappa is {low:.3f} (n = {calibration.kappa.n}); required: {least}" if low < least else ""


def _command(command: str, run: str, labels: str | None, evaluator: str | None = None) -> str:
    """Return the next command for the same run and the same labels."""
    options = [("--labels", labels), ("--evaluator", evaluator)]
    words = [word for name, value in options if value is not None for word in (name, value)]
    return shlex.join(["agentv", "judge", command, run, *words])


def _labels_file(path: str | None) -> str:
    """Return the given file, else the labels file of the project."""
    return os.path.join(project_root("."), LABELS_FILE) if path is None else path


def _cards(run: RunStore, labels: Labels, args: LabelArguments) -> list[Card]:
    """Return the answers to label, of one run or of two."""
    if args.against is None:
        return cards(run.records(), args.count, _order(run, labels, args))
    from agentv.extensions.judge.judge_labels import pair_cards  # late: imports numpy

    return pair_cards((args.against, args.run), labels, args.labeller, args.count // 2, args.seed)


def _order(run: RunStore, labels: Labels, args: LabelArguments) -> Callable[[AnswerKey], bytes | None]:
    """Return the sort key of answers; None skips those that this person has labelled or that are not selected."""
    if args.suggested:
        picks = suggestions(answers_of(run.records(), args.evaluator).judged, labels, args.count, args.seed)
        places = {AnswerKey(answer.dataset, answer.eval_id, answer.answer): place for place, answer in enumerate(picks)}
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

    def found(answer: AnswerKey) -> list[Label]:
        rank = draw_order(answer, args.seed)
        return passed_over(file.labels, args.labeller, lambda key: key in ranks and ranks[key] < rank)

    return found


def _calibration(args: CalibrateArguments) -> Calibration:
    path = run_path(args.run)
    answers = answers_of(RunStore.open(path).records(), args.evaluator, args.target)
    if not answers.judged:
        names = sorted({entry.name for result in RunStore.open(path).records() for entry in result.evaluator_results})
        hint = f"Its evaluators: {', '.join(names)}" if names else ""
        raise UsageError(f"No answer in {args.run} has a verdict from this judge", hint=hint)
    name = args.evaluator or "overall verdict of all evaluators"
    labels = _labels(_labels_file(args.labels_file), args.labeller)
    return calibrated(answers, labels, name, args.count, _answers_of_run)


def _labels(path: str, labeller: str | None) -> Labels:
    """Read the labels: of one labeller if a name is given."""
    labels = Labels(read_labels(path))
    if labeller is None:
        return labels
    if labeller not in (names := labels.labellers()):
        labellers = ", ".join(sorted(name or '""' for name in names)) or "none"
        raise UsageError(f"{path} has no labels of {labeller!r}", hint=f"Labellers in this file: {labellers}")
    return labels.by(labeller)


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
        summary = summarize_probes(RunStore.open(outcome.folder).records(), frozenset({ORACLE}))
    if outcome.stopped == "interrupted":
        output.message("Interrupted" if args.out is None else f"Interrupted. Finished probes are saved in {args.out}.")
        sys.exit(EXIT_INTERRUPTED)
    code = summary.exit_code(number_of(*allowed, summary.total.judged))
    _print_probes(summary, code, args.as_json)
    sys.exit(code)


@contextmanager
def _probe_folder(out: str | None) -> Iterator[str]:
    """Yield the given run folder, else a temporary one."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="agentv-probe-") as folder:
        yield str(Path(folder) / "run")


def _print_probes(summary: ProbeSummary, code: int, as_json: bool) -> None:
    if as_json:
        data = {"judged": summary.total.judged, "misjudged": summary.total.misjudged, "errors": summary.total.errors}
        further = {"kinds": summary.kinds, "evaluators": summary.evaluators, "examples": summary.misjudged}
        output.echo_json({"exit_code": code, **data, **further})
        return
    output.echo("\n".join(_probe_lines(summary)))
    if code == EXIT_FINDINGS:
        output.error(f"{summary.total.misjudged} of {plural(summary.total.judged, 'probe')} misjudged", "Gate")
    elif code:
        output.error(f"no probe was scored. First error: {one_line(summary.first_error, 200)}", "Failed")


def _probe_lines(summary: ProbeSummary) -> Iterator[str]:
    width = max(map(len, KINDS))
    yield f"{'probe':<{width}}  {'an answer that':<37}  misjudged  not scored"
    for kind, (what, _) in KINDS.items():
        if (counts := summary.kinds.get(kind)) is not None:
            wrong = f"{counts.misjudged} of {counts.judged}"
            yield f"{kind:<{width}}  {what:<37}  {wrong:>9}  {counts.errors + counts.unscored or '':>10}".rstrip()
    for name, kinds in summary.evaluators.items():
        misjudged = ", ".join(f"{kind} {wrong} of {judged}" for kind, (wrong, judged) in kinds.items() if wrong)
        if misjudged:
            yield f"\nEvaluator {one_line(name, 60)} misjudged: {misjudged}"
    if summary.misjudged:
        yield "\nMisjudged"
    for example in summary.misjudged:
        what = "fails" if example.kind == ORACLE else "accepts"
        by = ", ".join(example.by) or "the overall verdict"
        reason = one_line(example.reason, _LONGEST_REASON)
        line = f"  {one_line(example.eval_id, 40)}: {by} {what} {example.kind}, score {number(example.score)}"
        yield f"{line}: {reason}" if reason else line
    hidden = summary.total.misjudged - len(summary.misjudged)
    if hidden > 0:
        yield f"  and {hidden} more"
    if summary.total.errors and summary.total.judged:
        first = one_line(summary.first_error, _LONGEST_REASON)
        yield f"\n{plural(summary.total.errors, 'error')} (not scored). First error: {first}"
