"""The arguments of `agentv judge`: label answers, calibrate a judge and probe it."""

from agentv.cli.evaluation_options import EvaluatorsOption, JudgeOptions, ReadingOptions, SelectionOptions
from agentv.cli.options import AT_LEAST_0, AT_LEAST_1, FILE, FOLDER, Arguments, Number, argument, declare, flag, option
from agentv.model.diagnostics import Range

CORRELATION = Number(Range(-1, 1))


class JudgeArguments(Arguments):
    """\b
    agentv judge label RUN       show answers one by one and label each as pass or fail
    agentv judge calibrate RUN   measure how well the judge agrees with the labels, and correct its pass rate
    agentv judge probe PATHS…    find empty, wrong or manipulative answers that the judge accepts
    """

    examples = (
        "agentv judge label RUN",
        "agentv judge calibrate RUN --evaluator llm_judge",
        "agentv judge probe evals",
    )


class LabelledRunArguments(Arguments):
    """A run and its labels."""

    run: str = argument()
    labels_file: str | None = option("--labels FILE", "File of labels (default: .agentv/labels.jsonl).", FILE)
    evaluator: str | None = option(
        "--evaluator NAME", "Evaluator of the run to use as the judge (default: the overall verdict)."
    )


class LabelArguments(LabelledRunArguments):
    """Show answers one by one and record a person's label for each.

    Scores, judges and targets are hidden, and the order is random. Every label is written to disk before the next
    answer is shown; quit at any time, and the same command continues where you stopped. Cases are read from the run
    folder; for a results file without one, name the datasets in PATHS. A label applies to the same answer in any run.

    Keys: p pass, f fail, s skip, u undo, q quit. Without a terminal, one key per line is read from stdin.
    """

    action = "agentv.extensions.judge.actions:label"
    examples = (
        "agentv judge label RUN",
        "agentv judge label RUN --suggested",
        "agentv judge label after --against before --count 100",
        "agentv judge label results.jsonl evals/dataset.yaml --count 100 --labeller ann",
    )

    run: str = argument()
    paths: tuple[str, ...] = argument(nargs=-1)
    count: int = option("--count N", "Maximum number of answers to label.", AT_LEAST_1, default=50)
    seed: int = option("--seed N", "Random seed for the selection and order of answers.", int, default=0)
    labeller: str = option("--labeller NAME", "Name of the person who labels, when there are several.", default="")
    suggested: bool = flag("--suggested", "Show the answers that `calibrate` suggests labelling next.")
    against: str | None = option(
        "--against RUN", "Show the answers of both runs to the cases that help most to compare them."
    )


class CalibrateArguments(LabelledRunArguments):
    """Compare the verdicts of a run with labels from people.

    Prints accuracy, Cohen's kappa, the confusion table, and the pass rate corrected for the judge's errors
    (Rogan-Gladen and PPI++), each with its 95 % interval, and suggests the answers to label next. The labels must be a
    random sample, as drawn by `agentv judge label`, or suggested by this command. With several labellers, the majority
    decides, ties are left out, and the agreement of every two labellers is printed.

    \b
    Exit codes: 0 done, gate met   1 gate missed   2 usage error
    """

    action = "agentv.extensions.judge.actions:calibrate"
    examples = (
        "agentv judge calibrate RUN",
        "agentv judge calibrate RUN --evaluator llm_judge --json",
        "agentv judge calibrate RUN --min-kappa 0.6 --labeller ann",
    )

    target: str | None = option("--target NAME", "Use only the answers of this target.")
    labeller: str | None = option("--labeller NAME", "Use only the labels of this person (default: the majority).")
    count: int = option("--next N", "Number of answers to suggest for labelling.", AT_LEAST_0, default=20)
    min_kappa: float | None = option(
        "--min-kappa K", "Fail if the lower bound of the kappa interval is below K.", CORRELATION
    )
    as_json: bool = flag("--json", "Print the figures as JSON on stdout.")


class ProbeArguments(EvaluatorsOption, SelectionOptions, ReadingOptions, JudgeOptions):
    """Score answers that must fail, and the reference answer, which must pass, with a dataset's evaluators.

    No target is called. The answers for each case: an evasive one, an empty one, a long and wrong one, some that give
    the judge instructions, and the expected output. Every misjudged answer is listed with its case.

    \b
    Exit codes: 0 none misjudged, or within --max-fooled   1 more than --max-fooled
                2 usage, configuration or dataset error    3 every probe ended in an error
    """

    grouped = True
    action = "agentv.extensions.judge.actions:probe"
    examples = (
        "agentv judge probe evals",
        "agentv judge probe evals/dataset.yaml --sample 20 --judge gpt",
        "agentv judge probe evals --max-fooled 5%",
    )

    paths: tuple[str, ...] = argument(nargs=-1, required=True)
    kinds: tuple[str, ...] = option(
        "--probe KIND", "Use only this kind of probe. Repeatable.", group="Scoring", multiple=True
    )
    max_fooled: str = option(
        "--max-fooled N|N%", "Fail if more than N (or N%) of probes are misjudged.", group="Scoring", default="0"
    )
    out: str | None = option("--out DIR", "Keep the run of all probes in this folder.", FOLDER)
    as_json: bool = flag("--json", "Print the figures as JSON on stdout.")


judge_command = declare(
    "judge",
    JudgeArguments,
    declare("label", LabelArguments),
    declare("calibrate", CalibrateArguments),
    declare("probe", ProbeArguments),
)
