"""The arguments of `agentv judge label`, `calibrate` and `probe`."""

from __future__ import annotations

import click

from agentv.cli.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    FILE,
    Arguments,
    JudgeOptions,
    ReadingOptions,
    Real,
    SelectionOptions,
    argument,
    declare,
    flag,
    option,
)


class JudgeArguments(Arguments):
    """\b
    agentv judge label RUN       show one answer after another: pass or fail?
    agentv judge calibrate RUN   how well the judge of RUN agrees with people, and what its pass rate is worth
    agentv judge probe PATHS…    which empty, wrong or manipulative answers does a judge accept?
    """

    examples = (
        "agentv judge label RUN",
        "agentv judge calibrate RUN --evaluator llm_judge",
        "agentv judge probe evals",
    )


class LabelledRun(Arguments):
    """A run and the labels that people gave its answers."""

    run: str = argument()
    labels_file: str | None = option("--labels", metavar="FILE", type=FILE, help="Default: .agentv/labels.jsonl.")
    evaluator: str | None = option(
        "--evaluator", metavar="NAME", help="The judge: one evaluator of the run. Default: the overall verdict."
    )


class LabelArguments(LabelledRun):
    """Show answers one by one and record a person's label for each.

    Scores, judges and targets are hidden, and the order is random. Every label is on disk before the next answer is
    shown; quit at any time, and the same command continues where you stopped. The cases are those of the run's folder;
    for a file of results without one, name the datasets in PATHS. A label applies to the same answer in any run.

    Keys: p pass, f fail, s skip, u undo, q quit. Without a terminal, one key per line is read from stdin.
    """

    action = "agentv.cli.commands.judge:label"
    examples = (
        "agentv judge label RUN",
        "agentv judge label RUN --suggested",
        "agentv judge label results.jsonl evals/dataset.yaml --count 100 --labeller ann",
    )

    run: str = argument()
    paths: tuple[str, ...] = argument(nargs=-1)
    count: int = option("--count", type=AT_LEAST_1, default=50, show_default=True, help="Maximum number of answers.")
    seed: int = option("--seed", type=int, default=0, show_default=True, help="Random seed for choice and order.")
    labeller: str = option("--labeller", metavar="NAME", default="", help="Name of the person, where several label.")
    suggested: bool = flag("--suggested", help="Show the answers that `calibrate` suggests to label next.")


class CalibrateArguments(LabelledRun):
    """Compare the verdicts of a run with labels that people gave.

    Prints accuracy, Cohen's kappa and the confusion table; the pass rate corrected for the judge's errors, by Rogan and
    Gladen and by PPI++; each with its 95 % interval; and the answers to label next. The labels must have been drawn at
    random, as `agentv judge label` does, or suggested by this command.

    \b
    Exit codes: 0 done, gate met   1 the gate missed   2 usage
    """

    action = "agentv.cli.commands.judge:calibrate"
    examples = (
        "agentv judge calibrate RUN",
        "agentv judge calibrate RUN --evaluator llm_judge --json",
        "agentv judge calibrate RUN --min-kappa 0.6",
    )

    target: str | None = option("--target", metavar="NAME", help="Only the answers of this target.")
    count: int = option(
        "--next", type=AT_LEAST_0, default=20, show_default=True, help="Number of answers to suggest for labelling."
    )
    min_kappa: float | None = option(
        "--min-kappa", type=Real(-1, 1), metavar="K", help="Fail if the low end of kappa's interval is below K."
    )
    as_json: bool = flag("--json", help="Print the figures as JSON on stdout.")


class ProbeArguments(SelectionOptions, ReadingOptions, JudgeOptions):
    """Give a dataset's evaluators answers that must not pass, and the reference, which must.

    No target is called. For each case: an answer that says nothing, an empty one, a long and wrong one, ones that tell
    the judge what to do, and the expected output. A judge that accepts one of the first, or fails the last, is named
    with the case.

    \b
    Exit codes: 0 none misjudged, or no more than allowed   1 more than that
                2 usage, configuration or dataset           3 every probe ended in an error
    """

    action = "agentv.cli.probe:probe"
    examples = (
        "agentv judge probe evals",
        "agentv judge probe evals/dataset.yaml --sample 20 --judge gpt",
        "agentv judge probe evals --max-fooled 5%",
    )

    paths: tuple[str, ...] = argument(nargs=-1, required=True)
    evaluators: tuple[str, ...] = option(
        "--evaluator",
        "-e",
        multiple=True,
        metavar="TYPE|OBJECT|FILE",
        help="Probe this instead of the cases' own evaluators; repeatable.",
    )
    kinds: tuple[str, ...] = option(
        "--probe", multiple=True, metavar="KIND", help="Only this kind of answer; repeatable."
    )
    max_fooled: str = option(
        "--max-fooled", metavar="N|N%", default="0", show_default=True, help="Fail if more are misjudged."
    )
    out: str | None = option(
        "--out", metavar="DIR", type=click.Path(file_okay=False), help="Keep the run of all probes."
    )
    as_json: bool = flag("--json", help="Print the figures as JSON on stdout.")


judge_command = declare(
    "judge",
    JudgeArguments,
    declare("label", LabelArguments),
    declare("calibrate", CalibrateArguments),
    declare("probe", ProbeArguments),
)
