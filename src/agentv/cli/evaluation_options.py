"""The arguments of the commands that run cases or judges: eval, rescore and judge."""

from __future__ import annotations

import click

from agentv.cli.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    FILE,
    FOLDER,
    PATH,
    POSITIVE,
    SHARE,
    Arguments,
    ReadingOptions,
    Real,
    SelectionOptions,
    TargetsFileOption,
    argument,
    declare,
    flag,
    option,
)


class JudgeOptions(TargetsFileOption):
    """The judge to use, and how its calls are made."""

    judge: str | None = option("--judge NAME", "Target to judge with, instead of all others.")
    workers: int | None = option("--workers N", "Maximum concurrent judge calls.", AT_LEAST_1)
    timeout_s: float | None = option("--timeout SECONDS", "Time limit for one attempt of a judge.", POSITIVE)


class GateOptions(Arguments):
    """What a run must reach."""

    threshold: float | None = option("--threshold X", "Fail if the mean of a target is below this.", SHARE)
    min_pass_rate: float | None = option(
        "--min-pass-rate P", "Fail if a smaller share of the scored jobs passes.", SHARE
    )
    max_errors: str | None = option(
        "--max-errors N|N%", "Fail if more than N (or N%) of jobs error. Defaults to 0 when another gate is set."
    )


class RunArguments(GateOptions, SelectionOptions, ReadingOptions):
    """What every command that runs jobs takes."""

    paths: tuple[str, ...] = argument(nargs=-1)
    max_retries: int | None = option(
        "--max-retries N", "Maximum retries after failures worth another attempt.", AT_LEAST_0
    )
    resume: bool = flag("--resume", "Resume the run in --out, or else the last unfinished one.")
    verbose: bool = flag("--verbose -v", "Print a line for each job as it ends, and what targets log.")
    why: bool = flag("--why", "Say for each job why it runs or is carried over.")


class CallOptions(Arguments):
    """Earlier runs to use, and what is kept of calls."""

    only: str | None = option(
        "--only",
        "Run only cases that failed, were borderline or errored in the run given by --from.",
        click.Choice(["failed", "borderline", "errors"]),
    )
    only_from: str | None = option("--from RUN", "Earlier run that --only refers to.", PATH)
    cache: bool = flag("--cache", "Reuse answers that a model gave before; see .agentv/cache.")
    record: str | None = option("--record FILE", "Append every answer to this recording.", FILE)
    replay: str | None = option(
        "--replay FILE|RUN", "Answer every call from a recording or an earlier run; nothing is called.", PATH
    )
    dump_prompts: str | None = option(
        "--dump-prompts [DIR]",
        "Write what each job sends to a file, in the run folder or in DIR.",
        is_flag=False,
        flag_value="",
    )
    dump_traces: str | None = option(
        "--dump-traces [DIR]",
        "Write the whole exchange of each job to a file, in the run folder or in DIR.",
        is_flag=False,
        flag_value="",
    )
    include_trace: bool = flag("--include-trace", "Always store the full message list in each record.")
    executor: str | None = option(
        "--executor NAME", "Where jobs run: local (this process, the default), process (all cores) or ray (a cluster)."
    )
    processes: int | None = option(
        "--processes N", "Number of worker processes (default: one for each core).", AT_LEAST_1
    )
    ray_address: str | None = option("--ray-address ADDRESS", "Ray cluster to run on (default: a Ray on this machine).")


class EvalArguments(CallOptions, RunArguments, TargetsFileOption):
    """PATHS are dataset files, folders or globs. Everything is read and checked before the first call. Results are on
    disk the moment they exist: after a crash, `agentv eval --resume` continues without repeating a call.

    \b
    Exit codes: 0 done, gates met   1 a gate missed   2 usage, configuration or dataset
                3 too many errors   4 budget used up  130 interrupted
    """

    action = "agentv.cli.commands.eval:evaluate"
    examples = (
        "agentv eval evals",
        "agentv eval evals/dataset.yaml --target gpt --trials 3",
        "agentv eval evals --threshold 0.8 --max-errors 1%",
        "agentv eval --resume",
    )

    targets: tuple[str, ...] = option(
        "--target -t NAME",
        "Target to evaluate. Repeat to evaluate several.",
        multiple=True,
        callback=lambda _context, _param, names: tuple(dict.fromkeys(names)),
    )
    judge: str | None = option("--judge NAME", "Target to judge with, instead of those that files name.")
    workers: int | None = option("--workers N", "Maximum concurrent calls (default: adaptive).", AT_LEAST_1)
    trials: int | None = option("--trials N", "Number of times each case is run.", AT_LEAST_1)
    timeout_s: float | None = option("--timeout SECONDS", "Time limit for one attempt of a call.", POSITIVE)
    out: str | None = option(
        "--out DIR|FILE", "The run folder, or a .jsonl or .yaml file to also write the records to.", PATH
    )
    file_format: str | None = option(
        "--format", "Format of the file given by --out, whatever its name.", click.Choice(["jsonl", "yaml"])
    )
    retry_errors: str | None = option("--retry-errors RUN", "New run of the jobs that errored in RUN.", PATH)
    changed_since: str | None = option("--changed-since RUN", "New run of the jobs that changed since RUN.", PATH)
    budget_usd: float | None = option("--budget-usd USD", "Start no new job once this much is spent.", POSITIVE)
    stop_when: str | None = option(
        "--stop-when X|pass-rate=X|RUN",
        "Stop once it is known on which side of a mean or pass rate a target is, or whether it beats a run.",
    )
    fail_fast: bool = flag("--fail-fast", "Stop at the first failure or error.")
    dry_run: bool = flag("--dry-run", "Check and render everything, call nothing, print the plan.")
    as_json: bool = flag("--json", "Print the summary as JSON on stdout.")


class RescoreArguments(RunArguments, JudgeOptions):
    """RUN is a run's folder or id, or a file of results, AgentV's own among them. The cases are read from PATHS, else
    from the datasets of the run as they are now, else from the run's folder. Only evaluators that changed are run: by
    their settings, the files they name, their judge or the case. Judges may be called. The new run records where its
    answers come from, and ends with what changed.

    \b
    Exit codes: 0 done, gates met   1 a gate missed   2 usage, configuration or dataset
                3 too many errors   4 budget used up  130 interrupted
    """

    action = "agentv.cli.commands.rescore:rescore"
    examples = (
        "agentv rescore RUN",
        "agentv rescore RUN --judge better-judge",
        "agentv rescore RUN --evaluator '{type: contains, value: refund}'",
        "agentv rescore old.jsonl evals/dataset.yaml",
    )

    run: str | None = argument(required=False)
    paths: tuple[str, ...] = argument(nargs=-1)
    evaluators: tuple[str, ...] = option(
        "--evaluator -e TYPE|OBJECT|FILE",
        "Score with this instead of the cases' own evaluators; repeatable.",
        multiple=True,
    )
    every_evaluator: bool = flag("--all", "Run every evaluator, not only those that changed.")
    stored_cases: bool = flag("--stored-cases", "Take the cases from the run's folder, not from its datasets.")
    cache: bool = flag("--cache", "Reuse replies that a judge gave before.")
    budget_usd: float | None = option("--budget-usd USD", "Call no judge once judges have cost this much.", POSITIVE)
    out: str | None = option("--out DIR", "Folder of the new run.", FOLDER)
    as_json: bool = flag("--json", "Print the summary and the difference as JSON on stdout.")


eval_command = declare("eval", EvalArguments)
rescore_command = declare("rescore", RescoreArguments)


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
    labels_file: str | None = option("--labels FILE", "Default: .agentv/labels.jsonl.", FILE)
    evaluator: str | None = option(
        "--evaluator NAME", "The judge: one evaluator of the run. Default: the overall verdict."
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
    count: int = option("--count", "Maximum number of answers.", AT_LEAST_1, default=50)
    seed: int = option("--seed", "Random seed for choice and order.", int, default=0)
    labeller: str = option("--labeller NAME", "Name of the person, where several label.", default="")
    suggested: bool = flag("--suggested", "Show the answers that `calibrate` suggests to label next.")


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

    target: str | None = option("--target NAME", "Only the answers of this target.")
    count: int = option("--next", "Number of answers to suggest for labelling.", AT_LEAST_0, default=20)
    min_kappa: float | None = option(
        "--min-kappa K", "Fail if the low end of kappa's interval is below K.", Real(-1, 1)
    )
    as_json: bool = flag("--json", "Print the figures as JSON on stdout.")


class ProbeArguments(SelectionOptions, ReadingOptions, JudgeOptions):
    """Give a dataset's evaluators answers that must not pass, and the reference, which must.

    No target is called. For each case: an answer that says nothing, an empty one, a long and wrong one, ones that tell
    the judge what to do, and the expected output. A judge that accepts one of the first, or fails the last, is named
    with the case.

    \b
    Exit codes: 0 none misjudged, or no more than allowed   1 more than that
                2 usage, configuration or dataset           3 every probe ended in an error
    """

    action = "agentv.cli.commands.judge:probe"
    examples = (
        "agentv judge probe evals",
        "agentv judge probe evals/dataset.yaml --sample 20 --judge gpt",
        "agentv judge probe evals --max-fooled 5%",
    )

    paths: tuple[str, ...] = argument(nargs=-1, required=True)
    evaluators: tuple[str, ...] = option(
        "--evaluator -e TYPE|OBJECT|FILE", "Probe this instead of the cases' own evaluators; repeatable.", multiple=True
    )
    kinds: tuple[str, ...] = option("--probe KIND", "Only this kind of answer; repeatable.", multiple=True)
    max_fooled: str = option("--max-fooled N|N%", "Fail if more are misjudged.", default="0")
    out: str | None = option("--out DIR", "Keep the run of all probes.", FOLDER)
    as_json: bool = flag("--json", "Print the figures as JSON on stdout.")


judge_command = declare(
    "judge",
    JudgeArguments,
    declare("label", LabelArguments),
    declare("calibrate", CalibrateArguments),
    declare("probe", ProbeArguments),
)
