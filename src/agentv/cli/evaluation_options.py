"""The arguments of the commands that run cases: eval, bisect and rescore."""

from __future__ import annotations

import click

from agentv.cli.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    FILE,
    FOLDER,
    PATH,
    PORT,
    POSITIVE,
    SHARE,
    Arguments,
    Number,
    ReadingOptions,
    SelectionOptions,
    TargetsFileOption,
    argument,
    declare,
    flag,
    option,
)
from agentv.model.diagnostics import MOST_TRIALS, Range
from agentv.model.sandbox_settings import ENGINES

TRIALS = Number(Range(1, MOST_TRIALS, whole=True))
NOT_NEGATIVE = Number(Range(0))


class JudgeOptions(TargetsFileOption):
    """Options for judges and their calls."""

    judge: str | None = option("--judge NAME", "Use this target as the judge instead of the configured ones.")
    workers: int | None = option("--workers N", "Maximum concurrent calls (default: adaptive).", AT_LEAST_1)
    sandbox: str | None = option(
        "--sandbox",
        "Isolate commands, agents, hooks, tools and code judges with this engine; auto is Landlock or bubblewrap.",
        click.Choice(ENGINES),
    )
    timeout_s: float | None = option("--timeout SECONDS", "Time limit for one attempt of a call.", POSITIVE)


class GateOptions(Arguments):
    """Conditions that fail the command."""

    threshold: float | None = option("--threshold X", "Fail if the mean score of a target is below X (0 to 1).", SHARE)
    min_pass_rate: float | None = option(
        "--min-pass-rate X", "Fail if the pass rate of the scored jobs is below X (0 to 1).", SHARE
    )
    min_score: float | None = option(
        "--min-score X", "Fail if the mean score of any case over its trials is below X (0 to 1).", SHARE
    )
    no_gate: bool = flag(
        "--no-gate",
        "Ignore the gates of files: thresholds of datasets, and that every test of a promptfoo configuration has to "
        "pass.",
    )
    baseline: str | None = option(
        "--baseline RUN",
        "Earlier run to check `regression_tolerance` of AgentMark's prompt files against.",
        PATH,
    )
    gate_on: str = option(
        "--gate-on",
        "Decide --threshold, --min-pass-rate and thresholds of evaluators by the value itself (point) or by its whole "
        "95 % interval, with errors counted against it (interval). Exit code 5 if the interval includes the limit.",
        click.Choice(["point", "interval"]),
        default="point",
    )
    max_errors: str | None = option(
        "--max-errors N|N%",
        "Fail if more than N (or N%) of jobs error, and start no new job then. Without this option, errors fail a run "
        "with another gate, but do not stop it.",
    )
    keep_going: bool = flag(
        "--keep-going",
        "Run all jobs even if more of them have errored than --max-errors allows, or judges give no usable verdict.",
    )


class EvaluatorsOption(Arguments):
    """The option that replaces the evaluators of the cases."""

    evaluators: tuple[str, ...] = option(
        "--evaluator -e TYPE|OBJECT|FILE",
        "Use this evaluator instead of the evaluators of the cases. Repeatable.",
        multiple=True,
    )


class JobArguments(SelectionOptions, ReadingOptions, JudgeOptions):
    """The arguments of every command that runs jobs."""

    grouped = True

    paths: tuple[str, ...] = argument(nargs=-1)
    seed: int | None = option(
        "--seed N",
        "Random seed for --sample (default: 0) and for the order of --stop-when (default: a new one for each run).",
        int,
    )
    max_retries: int | None = option("--max-retries N", "Maximum retries of a failed call.", AT_LEAST_0)
    max_outage_s: float | None = option(
        "--max-outage SECONDS",
        "Longest time to wait for an endpoint that has stopped answering before its jobs are left unfinished (default: "
        "600). 0 never waits. A server that never accepted a connection gets at most 10 s.",
        NOT_NEGATIVE,
    )
    budget_usd: float | None = option(
        "--budget-usd USD",
        "Stop when all calls together have cost this much, judges and errors included. Shards on this machine share "
        "one budget.",
        POSITIVE,
    )
    deadline_s: float | None = option(
        "--deadline SECONDS",
        "Stop after this time, like Ctrl-C. Finished jobs are kept.",
        POSITIVE,
    )
    resume: bool = flag("--resume", "Resume the named run, the run in --out, or the latest unfinished run.")
    trusts_run: bool = flag(
        "--trust-run", "Trust the run folder: run commands and write to files that only it names, not a dataset."
    )
    verbose: bool = flag("--verbose -v", "Print a line for each finished job, and the log of targets.")
    why: bool = flag("--why", "Print for each job why it runs or is carried over.")
    as_json: bool = flag("--json", "Print the summary as JSON on stdout.")
    experiment: str | None = option(
        "--experiment NAME", "Name that groups runs; @NAME is the newest of them wherever a RUN is expected."
    )


class RunArguments(GateOptions, JobArguments):
    """The arguments of the commands that make one run."""


class EarlierRunOptions(Arguments):
    """Options that build on an earlier run."""

    retry_errors: str | None = option(
        "--retry-errors RUN", "Start a new run that repeats the errors of RUN and carries over the rest.", PATH
    )
    changed_since: str | None = option(
        "--changed-since RUN", "Start a new run that repeats what changed since RUN and carries over the rest.", PATH
    )
    only: str | None = option(
        "--only",
        "Run only cases that failed, were borderline or errored in the run given by --from.",
        click.Choice(["failed", "borderline", "errors"]),
    )
    only_from: str | None = option("--from RUN", "Earlier run that --only refers to.", PATH)


class EvaluatedTargets(Arguments):
    """The option for the targets to evaluate."""

    targets: tuple[str, ...] = option(
        "--target -t NAME",
        "Target to evaluate. Repeat to evaluate several.",
        multiple=True,
        callback=lambda _context, _param, names: tuple(dict.fromkeys(names)),
    )


class ExecutorOptions(Arguments):
    """Options for where jobs run."""

    executor: str | None = option(
        "--executor NAME",
        "Run jobs in this process (local, the default), on all cores (process) or on a cluster (ray).",
    )
    processes: int | None = option(
        "--processes N", "Number of worker processes (default: one for each core).", AT_LEAST_1
    )
    ray_address: str | None = option("--ray-address ADDRESS", "Ray cluster to use (default: Ray on this machine).")


class CallOptions(EvaluatedTargets, ExecutorOptions):
    """Options for targets, their calls and where jobs run."""

    trials: int | None = option("--trials N", "Number of times to run each case.", TRIALS)
    batch: bool = flag("--batch", "Send requests through the provider's batch API: half the price, up to 24 hours.")
    cache: bool = flag("--cache", "Reuse cached responses; the cache is in .agentv/cache.")
    record: str | None = option("--record FILE", "Append every response to this recording.", FILE)
    replay: str | None = option(
        "--replay FILE|RUN", "Answer every call from a recording or an earlier run; no target is called.", PATH
    )
    trace_port: int | None = option(
        "--trace-port N",
        "Port on which spans of targets with `traces` are received (default: AGENTV_TRACE_PORT, else 4318).",
        PORT,
    )
    transcript: str | None = option(
        "--transcript FILE|DIR",
        "Score recorded sessions of a coding agent, or traces, instead of calling a target. Without PATHS, each "
        "session is a case.",
        PATH,
    )


class EvalArguments(CallOptions, EvaluatorsOption, RunArguments, EarlierRunOptions):
    """PATHS are dataset files, folders or globs. All inputs are read and checked before the first call. Every result is
    written to disk as soon as it exists: after a crash, `agentv eval --resume` continues without repeating a call.

    \b
    Exit codes: 0 done, gates met   1 gate missed     2 usage, configuration or dataset error
                3 too many errors   4 budget reached  5 can't tell (--gate-on interval)   130 interrupted
    """

    action = "agentv.cli.commands.eval:evaluate"
    examples = (
        "agentv eval evals",
        "agentv eval evals/dataset.yaml --target gpt --trials 3",
        "agentv eval evals --threshold 0.8 --max-errors 1%",
        "agentv eval evals --watch",
        "agentv eval --transcript ~/.claude/projects/my-project --evaluator '{type: execution_metrics, "
        "max_tool_calls: 30}'",
        "agentv eval --resume",
    )

    out: str | None = option(
        "--out DIR|FILE", "Run folder, or a .jsonl or .yaml file to write the records to as well.", PATH
    )
    file_format: str | None = option(
        "--format", "Format of the --out file, whatever its extension.", click.Choice(["jsonl", "yaml"])
    )
    stop_when: str | None = option(
        "--stop-when X|pass-rate=X|RUN",
        "Stop as soon as the mean or pass rate is known to be above or below X, or above or below that of RUN.",
    )
    fail_fast: bool = flag("--fail-fast", "Stop at the first failure or error.")
    skip_eval: bool = flag("--skip-eval", "Record answers without scoring them; agentv rescore can score them later.")
    watch: bool = flag("--watch", "After the run, wait until a file is saved and run what it changed. Ctrl-C stops.")
    if_changed: bool = flag("--if-changed", "Start no run if --changed-since would carry over everything.")
    dry_run: bool = flag("--dry-run", "Check the inputs, render the prompts and print the plan; call nothing.")
    include_trace: bool = flag("--include-trace", "Store the full message list in every record.")
    otel: str | None = option(
        "--otel ENDPOINT",
        "Export the run as OpenTelemetry traces to this OTLP endpoint, such as http://localhost:4318.",
    )
    dump_prompts: str | None = option(
        "--dump-prompts [DIR]",
        "Write the prompt of each job to a file in the run folder, or in DIR.",
        is_flag=False,
        flag_value="",
    )
    dump_traces: str | None = option(
        "--dump-traces [DIR]",
        "Write the messages of each job to a file in the run folder, or in DIR.",
        is_flag=False,
        flag_value="",
    )


class RescoreArguments(EvaluatorsOption, RunArguments):
    """RUN is a run folder, a run id, or results of another tool. Cases are read from PATHS, else from the current
    datasets of the run, else from the run folder. Only evaluators that changed run again: their settings, the files
    they name, their judge or the case. Judges may be called. The changes are printed last.

    \b
    Exit codes: 0 done, gates met   1 gate missed     2 usage, configuration or dataset error
                3 too many errors   4 budget reached  5 can't tell (--gate-on interval)   130 interrupted
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
    every_evaluator: bool = flag("--all", "Run every evaluator, not only those that changed.")
    stored_cases: bool = flag("--stored-cases", "Read the cases from the run folder instead of the datasets.")
    cache: bool = flag("--cache", "Reuse cached judge responses.")
    out: str | None = option("--out DIR", "Folder of the new run.", FOLDER)


eval_command = declare("eval", EvalArguments)
rescore_command = declare("rescore", RescoreArguments)
