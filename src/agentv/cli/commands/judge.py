"""`agentv judge`: people label answers, a judge is held against them, and attempts are made to fool it."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from agentv.cli import output
from agentv.cli.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    POSITIVE,
    Real,
    evaluators_option,
    judge_option,
    named_folder,
    reading_options,
    selection_of,
    selection_options,
    targets_option,
)
from agentv.errors import EXIT_FINDINGS, UsageError

if TYPE_CHECKING:
    from agentv.calibration.calibrate import Calibration
    from agentv.calibration.labels import AnswerKey, Labels
    from agentv.engine.answers.stored import StoredAnswers


_labels_option = click.option(
    "--labels", "file", metavar="FILE", type=click.Path(dir_okay=False), help="Default: .agentv/labels.jsonl."
)
_evaluator_option = click.option(
    "--evaluator", metavar="NAME", help="The judge: one evaluator of the run; without it, the verdict over all."
)
_target_option = click.option("--target", metavar="NAME", help="Only the answers of this target.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON on stdout.")


@click.group(
    "judge",
    epilog="Examples:  agentv judge label RUN  ·  agentv judge calibrate RUN --evaluator llm_judge  ·  "
    "agentv judge probe evals",
)
def command() -> None:
    """Label answers, hold a judge against the labels, try to fool it.

    \b
    agentv judge label RUN       one answer after the other: pass or fail?
    agentv judge calibrate RUN   how far the judge of RUN agrees, and what its pass rate is worth
    agentv judge probe PATHS…    empty, wrong and scheming answers: which does a judge let through?
    """


@command.command(
    "label",
    epilog="Examples:  agentv judge label RUN  ·  agentv judge label RUN --suggested  ·  "
    "agentv judge label results.jsonl evals/dataset.yaml --count 100 --labeller ann",
)
@click.argument("run", type=click.Path())
@click.argument("paths", nargs=-1, type=click.Path())
@_labels_option
@click.option("--count", type=AT_LEAST_1, default=50, show_default=True, help="So many answers at most.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which answers, and in which order.")
@click.option("--labeller", metavar="NAME", default="", help="Who labels, where several do.")
@click.option("--suggested", is_flag=True, help="Those that `calibrate` would have labelled next.")
@_evaluator_option
def label(run: str, paths: tuple[str, ...], file: str | None, **given: Any) -> None:
    """Show answers one by one and write down what a person says of each.

    Scores, judges and targets are hidden, and the order is random. Every label is on disk before the next answer is
    shown; quit at any time, and the same command goes on where you stopped. The cases are those of the run's folder;
    for a file of results without one, name the datasets in PATHS. A label holds for the same answer in any run.

    Keys: p pass, f fail, s skip, u undo, q quit. Where there is no terminal, one key a line is read from stdin.
    """
    from agentv.calibration.label_cards import cards, stored_cases, with_cases
    from agentv.calibration.labels import LabelFile
    from agentv.cli.label_loop import Labelling
    from agentv.engine.answers.stored import StoredAnswers
    from agentv.runs.store import read_run

    path = _labels_file(file)
    with StoredAnswers(run) as answers, LabelFile(path) as labels:
        wanted = _suggested(answers, labels.labels, given) if given["suggested"] else None
        found = cards(read_run(answers.path), labels.labels, given["labeller"], given["count"], wanted, given["seed"])
        cases = _named_cases(paths) if paths else stored_cases(answers).stream()
        labelling = Labelling(
            labels,
            labeller=given["labeller"],
            drawn="suggested" if given["suggested"] else "random",
            run_id=answers.run_id,
        )
        labelling.run(with_cases(found, cases))
        counts = labels.labels.counts(given["labeller"])
    told = ", ".join(f"{counts[what]} {what}" for what in ("pass", "fail", "skip") if counts[what]) or "none yet"
    click.echo(f"\nLabels in {os.path.relpath(path)}: {told}")
    click.echo(f"Next: {_typed('calibrate', run, file, given['evaluator'])}")


@command.command(
    "calibrate",
    epilog="Examples:  agentv judge calibrate RUN  ·  agentv judge calibrate RUN --evaluator llm_judge --json  ·  "
    "agentv judge calibrate RUN --min-kappa 0.6",
)
@click.argument("run", type=click.Path())
@_labels_option
@_evaluator_option
@_target_option
@click.option("--next", "count", type=AT_LEAST_0, default=20, show_default=True, help="To label next.")
@click.option("--min-kappa", type=Real(-1, 1), metavar="K", help="Gate: the low end of kappa's interval must reach K.")
@_json_option
def calibrate(run: str, file: str | None, **given: Any) -> None:
    """Hold the verdicts of a run against labels that people gave.

    Prints accuracy, Cohen's kappa and the confusion table; the pass rate corrected for what the judge gets wrong, by
    Rogan and Gladen and by PPI++; each with its 95 % interval; and the answers to label next. The labels must have been
    drawn at random, as `agentv judge label` does, or suggested by this command.

    \b
    Exit codes: 0 done, gate met   1 the gate missed   2 usage
    """
    from agentv.model.values import to_json
    from agentv.report.run_tables import calibration_lines

    if file is not None and not os.path.exists(file):
        raise UsageError(f"No such file of labels: {file}", hint=f"Make it with: {_typed('label', run, file)}")
    found = _calibration(run, _labels_file(file), given)
    if given["as_json"]:
        click.echo(to_json(found))
    else:
        click.echo("\n".join(calibration_lines(found)))
    if not found.labelled:
        output.say(f"No answer of this run is labelled; begin with: {_typed('label', run, file)}")
    missed = _gate_missed(found, given["min_kappa"])
    if missed:
        output.say(output.styled("Gate:", "red") + f" {missed}")
        sys.exit(EXIT_FINDINGS)


@command.command(
    "probe",
    epilog="Examples:  agentv judge probe evals  ·  agentv judge probe evals/dataset.yaml --sample 20 --judge gpt  ·  "
    "agentv judge probe evals --max-fooled 5%",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@judge_option
@targets_option
@evaluators_option("Probe")
@click.option("--probe", "kinds", multiple=True, metavar="KIND", help="Only this kind of answer; may be repeated.")
@click.option("--workers", type=AT_LEAST_1, metavar="N", help="Calls to a judge at once.")
@click.option("--timeout", "timeout_s", type=POSITIVE, metavar="SECONDS", help="For one attempt of a judge.")
@click.option("--max-fooled", metavar="N|N%", default="0", show_default=True, help="Gate: so many may be misjudged.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False),
    callback=named_folder,
    help="Keep the run of all probes there.",
)
@_json_option
@selection_options
@reading_options
def probe(paths: tuple[str, ...], **given: Any) -> None:
    """Give a dataset's evaluators answers that must not pass, and the reference, which must.

    Nothing is asked of targets. For each case: an answer that says nothing, an empty one, a long and wrong one, ones
    that tell the judge what to do, and the expected output. A judge that lets one of the first through, or fails the
    last, is named with the case.

    \b
    Exit codes: 0 none misjudged, or no more than allowed   1 more than that
                2 usage, configuration or dataset           3 every probe ended in an error
    """
    from agentv.cli.probe import print_probing, probing

    found = probing(paths, given, selection_of(given))
    sys.exit(print_probing(found, given))


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


def _labels_file(given: str | None) -> str:
    """The file that is named, else the one of the project."""
    from agentv.calibration.labels import LABELS_FILE
    from agentv.datasets.files import project_root

    return os.path.join(project_root("."), LABELS_FILE) if given is None else given


def _named_cases(paths: tuple[str, ...]) -> Any:
    from agentv.datasets.loader import case_source

    return case_source(paths, warn=output.silent, note=output.silent).stream_lazily()


def _suggested(answers: StoredAnswers, labels: Labels, given: dict[str, Any]) -> list[AnswerKey]:
    from agentv.calibration.calibrate import answers_of, suggestions
    from agentv.calibration.labels import AnswerKey
    from agentv.runs.store import read_run

    judged = answers_of(read_run(answers.path), given["evaluator"]).judged
    chosen = suggestions(judged, labels, given["count"], given["seed"])
    return [AnswerKey(each.dataset, each.eval_id, each.answer) for each in chosen]


def _calibration(run: str, file: str, given: dict[str, Any]) -> Calibration:
    from agentv.calibration import calibrate as calibration
    from agentv.calibration.labels import Labels, read_labels
    from agentv.engine.named_runs import run_path
    from agentv.runs.store import read_run

    path = run_path(run)
    answers = calibration.answers_of(read_run(path), given["evaluator"], given["target"])
    if not answers.judged:
        named = sorted({found.name for result in read_run(path) for found in result.evaluator_results})
        hint = f"Its evaluators: {', '.join(named)}" if named else ""
        raise UsageError(f"No answer in {run} has a verdict of this judge", hint=hint)
    name = given["evaluator"] or "the verdict over all evaluators"
    return calibration.calibrate(answers, Labels(read_labels(file)), name, given["count"])
