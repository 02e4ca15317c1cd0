"""`agentv judge label` and `calibrate`: collects labels from people, and compares a judge with them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable

import click

from agentv.calibration.calibrate import Calibration, answers_of, draw_order, suggestions
from agentv.calibration.calibrate import calibrate as calibrated
from agentv.calibration.labels import (
    LABELS_FILE,
    AnswerKey,
    LabelFile,
    Labels,
    cards,
    read_labels,
    stored_cases,
    with_cases,
)
from agentv.cli import output
from agentv.cli.evaluation_options import CalibrateArguments, LabelArguments
from agentv.cli.label_loop import Labelling
from agentv.datasets.files import project_root
from agentv.datasets.loader import case_source
from agentv.engine.named_runs import existing_run, run_path
from agentv.errors import EXIT_FINDINGS, UsageError
from agentv.model.values import to_json
from agentv.report.run_tables import calibration_lines
from agentv.runs.store import RunStore


def label(args: LabelArguments) -> None:
    """Show answers one by one and write down the labels."""
    path = _labels_file(args.labels_file)
    run = RunStore.open(existing_run(args.run))
    if next(run.records(), None) is None:
        raise UsageError(f"The run has no results: {args.run}")
    with LabelFile(path) as labels:
        found = cards(run.records(), args.count, _order(run, labels.labels, args))
        named = case_source(args.paths, warn=output.silent, note=output.silent) if args.paths else None
        labelling = Labelling(
            labels,
            labeller=args.labeller,
            drawn="suggested" if args.suggested else "random",
            run_id=run.run_id,
        )
        labelling.run(with_cases(found, stored_cases(run).stream() if named is None else named.stream_lazily()))
        counts = labels.labels.counts(args.labeller)
    told = ", ".join(f"{counts[what]} {what}" for what in ("pass", "fail", "skip") if counts[what]) or "none yet"
    click.echo(f"\nLabels in {os.path.relpath(path)}: {told}")
    click.echo(f"Next: {_typed('calibrate', args.run, args.labels_file, args.evaluator)}")


def calibrate(args: CalibrateArguments) -> None:
    """Compare the verdicts with the labels and print the figures."""
    file = args.labels_file
    if file is not None and not os.path.exists(file):
        raise UsageError(f"No such file of labels: {file}", hint=f"Make it with: {_typed('label', args.run, file)}")
    found = _calibration(args)
    if args.as_json:
        click.echo(to_json(found))
    else:
        click.echo("\n".join(calibration_lines(found)))
    if not found.labelled:
        output.say(f"No answer of this run is labelled; begin with: {_typed('label', args.run, file)}")
    missed = _gate_missed(found, args.min_kappa)
    if missed:
        output.say(output.styled("Gate:", "red") + f" {missed}")
        sys.exit(EXIT_FINDINGS)


def _gate_missed(found: Calibration, least: float | None) -> str:
    """How far the gate is missed; empty when it is met or there is none."""
    if least is None:
        return ""
    if found.kappa is None:
        return f"kappa cannot be told from {found.labelled} labels, and is to reach {least}"
    low = found.kappa.ci95[0]
    return f"the low end of kappa's interval is {low:.3f} (n = {found.kappa.n}), below {least}" if low < least else ""


def _typed(command: str, run: str, labels: str | None, evaluator: str | None = None) -> str:
    """The command that goes on with the same run and the same labels."""
    options = [("--labels", labels), ("--evaluator", evaluator)]
    given = [word for name, value in options if value is not None for word in (name, value)]
    return shlex.join(["agentv", "judge", command, run, *given])


def _labels_file(named: str | None) -> str:
    """The file that is named, else the one of the project."""
    return os.path.join(project_root("."), LABELS_FILE) if named is None else named


def _order(run: RunStore, labels: Labels, args: LabelArguments) -> Callable[[AnswerKey], bytes | None]:
    """The order in which answers are shown; None for those that this person has labelled, or that are not wanted."""
    if args.suggested:
        chosen = suggestions(answers_of(run.records(), args.evaluator).judged, labels, args.count, args.seed)
        places = {AnswerKey(each.dataset, each.eval_id, each.answer): place for place, each in enumerate(chosen)}
        return lambda key: places[key].to_bytes(8) if key in places and not labels.of(key, args.labeller) else None
    return lambda key: None if labels.of(key, args.labeller) else draw_order(key, args.seed)


def _calibration(args: CalibrateArguments) -> Calibration:
    path = run_path(args.run)
    answers = answers_of(RunStore.open(path).records(), args.evaluator, args.target)
    if not answers.judged:
        named = sorted({found.name for result in RunStore.open(path).records() for found in result.evaluator_results})
        hint = f"Its evaluators: {', '.join(named)}" if named else ""
        raise UsageError(f"No answer in {args.run} has a verdict of this judge", hint=hint)
    name = args.evaluator or "the verdict over all evaluators"
    return calibrated(answers, Labels(read_labels(_labels_file(args.labels_file))), name, args.count)
