"""The arguments of the commands that run cases: eval, bisect and rescore."""

import os

import click

from agentv.cli.options import FOLDER, PATH, Arguments, TrustOption, argument, declare, flag, option, with_help
from agentv.engine.gates.gate_options import Gates
from agentv.engine.run_options import EvalOptions, RescoreOptions
from agentv.errors import UsageError

_FOLDER = "evals"


def dataset_paths(paths: tuple[str, ...], command: str) -> tuple[str, ...]:
    """Return the paths that are passed to a command, or the folder `evals`. Raises UsageError without both."""
    if paths or os.path.isdir(_FOLDER):
        return paths or (_FOLDER,)
    raise UsageError(
        f"There is no dataset: no path is passed, and there is no folder '{_FOLDER}' here",
        hint=f"Pass a file or folder: agentv {command} FILE, or agentv {command} . for this folder. "
        "Or start with: agentv init",
    )


class TargetsFileOption(TrustOption):
    """The option for the targets file."""

    targets_file = EvalOptions.targets_file


class SelectionOptions(Arguments):
    """Options that select cases."""

    given_filters: tuple[str, ...] = option(
        "--filter -f FILTER",
        "Select cases by id glob, tag=x, tag!=x or metadata.k=v. Commas separate alternatives; repeat to require "
        "several.",
        group="Selection",
        multiple=True,
    )
    tags: tuple[str, ...] = option(
        "--tag TAG", "Select cases with this tag; same as --filter tag=TAG.", group="Selection", multiple=True
    )
    excluded_tags: tuple[str, ...] = option(
        "--exclude-tag TAG",
        "Leave out cases with this tag; same as --filter tag!=TAG.",
        group="Selection",
        multiple=True,
    )
    cases = EvalOptions.cases
    cases_from = EvalOptions.cases_from
    sample = EvalOptions.sample
    seed: int | None = option("--seed N", "Random seed for --sample and --split.", int, group="Selection", default=0)
    shard = EvalOptions.shard
    rows = EvalOptions.rows
    split = EvalOptions.split
    limit = EvalOptions.limit

    @property
    def filters(self) -> tuple[str, ...]:
        """All filters, including those from --tag and --exclude-tag."""
        tags = (f"tag={tag}" for tag in self.tags)
        return (*self.given_filters, *tags, *(f"tag!={tag}" for tag in self.excluded_tags))


class FileOptions(TrustOption):
    """Options for reading dataset files."""

    allow_outside_files = EvalOptions.allow_outside_files
    max_line_bytes = EvalOptions.max_line_bytes
    fields = EvalOptions.fields
    quiet: bool = flag("--quiet -q", "Hide warnings and notes.")


class ReadingOptions(FileOptions):
    """Options for reading dataset files, and for invalid cases."""

    on_error = EvalOptions.on_error
    strict = EvalOptions.strict


class JudgeOptions(TargetsFileOption):
    """Options for judges and their calls."""

    judge = EvalOptions.judge
    workers = EvalOptions.workers
    sandbox = EvalOptions.sandbox
    timeout_s = EvalOptions.timeout_s


class GateOptions(Arguments):
    """Conditions that fail the command."""

    threshold = Gates.threshold
    min_pass_rate = Gates.min_pass_rate
    min_score = Gates.min_score
    no_gate = Gates.no_gate
    baseline = Gates.baseline
    gate_on = Gates.gate_on
    max_errors: str | None = option(
        "--max-errors N|N%",
        "Fail if more than N (or N%) of jobs error, and start no new job then. Without this option, errors fail a run "
        "with another gate, but do not stop it.",
        group="Scoring",
    )
    keep_going = EvalOptions.keep_going


class EvaluatorsOption(Arguments):
    """The option that replaces the evaluators of the cases."""

    evaluators: tuple[str, ...] = option(
        "--evaluator -e TYPE|OBJECT|FILE",
        "Use this evaluator instead of the evaluators of the cases. Repeatable.",
        group="Scoring",
        multiple=True,
    )


class RunTrustOption(TrustOption):
    """The option for run folders."""

    trusts_run: bool = flag(
        "--trust-run",
        "Trust the run folder: run commands and write to files that only it names, not a dataset.",
        "Selection",
    )


class JobArguments(SelectionOptions, ReadingOptions, JudgeOptions, RunTrustOption):
    """The arguments of every command that runs jobs."""

    grouped = True

    paths: tuple[str, ...] = argument(nargs=-1)
    seed = EvalOptions.seed
    max_retries = EvalOptions.max_retries
    max_outage_s = EvalOptions.max_outage_s
    budget_usd = EvalOptions.budget_usd
    deadline_s = EvalOptions.deadline_s
    resume: bool = flag("--resume", "Resume the named run, the run in --out, or the latest unfinished run.", "Resume")
    verbose: bool = flag("--verbose -v", "Print a line for each finished job, and the log of targets.")
    why: bool = flag("--why", "Print for each job why it runs or is carried over.")
    as_json: bool = flag("--json", "Print the summary as JSON on stdout.")
    experiment = EvalOptions.experiment


class RunArguments(GateOptions, JobArguments):
    """The arguments of the commands that make one run."""


class EarlierRunOptions(Arguments):
    """Options that build on an earlier run."""

    retry_errors = EvalOptions.retry_errors
    changed_since = EvalOptions.changed_since
    only = EvalOptions.only
    only_from = EvalOptions.only_from


class EvaluatedTargets(Arguments):
    """The option for the targets to evaluate."""

    targets = EvalOptions.targets


class ExecutorArguments(Arguments):
    """Options for where jobs run."""

    executor = EvalOptions.executor
    processes = EvalOptions.processes
    ray_address = EvalOptions.ray_address


class CallOptions(ExecutorArguments):
    """Options for targets, their calls and where jobs run."""

    targets = EvalOptions.targets
    trials = EvalOptions.trials
    batch = EvalOptions.batch
    cache = EvalOptions.cache
    record = EvalOptions.record
    replay = EvalOptions.replay
    trace_port = EvalOptions.trace_port
    transcript = EvalOptions.transcript


class EvalArguments(CallOptions, EvaluatorsOption, RunArguments, EarlierRunOptions):
    """PATHS are dataset files, folders or globs; without PATHS, the folder `evals` is evaluated. All inputs are read
    and checked before the first call. Every result is written to disk as soon as it exists: after a crash,
    `agentv eval --resume` continues without repeating a call.

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
    stop_when = EvalOptions.stop_when
    until = EvalOptions.until
    cases_budget = EvalOptions.cases_budget
    fail_fast = EvalOptions.fail_fast
    skip_eval = EvalOptions.skip_eval
    watch: bool = flag(
        "--watch", "After the run, wait until a file is saved and run what it changed. Ctrl-C stops.", "Resume"
    )
    if_changed: bool = flag("--if-changed", "Start no run if --changed-since would carry over everything.", "Resume")
    dry_run: bool = flag("--dry-run", "Check the inputs, render the prompts and print the plan; call nothing.")
    include_trace = EvalOptions.include_trace
    otel: str | None = option(
        "--otel ENDPOINT",
        "Export the run as OpenTelemetry traces to this OTLP endpoint (http://localhost:4318) or file (traces.json).",
    )
    dump_prompts = EvalOptions.dump_prompts
    dump_traces = EvalOptions.dump_traces


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
    every_evaluator = RescoreOptions.every_evaluator
    stored_cases = RescoreOptions.stored_cases
    cache = with_help(EvalOptions.cache, "Reuse cached judge responses.")
    out: str | None = option("--out DIR", "Folder of the new run.", FOLDER)


eval_command = declare("eval", EvalArguments)
rescore_command = declare("rescore", RescoreArguments)


class SeriesOptions(ExecutorArguments, JobArguments):
    """Options for several runs of the same cases."""

    seed = with_help(EvalOptions.seed, "Random seed for --sample (default: 0).")
    trials = with_help(EvalOptions.trials, "Number of times to run each case in each run.")
    out: str | None = option("--out DIR", "Folder of the runs (default: a new one in .agentv/results).", FOLDER)
    dry_run: bool = flag("--dry-run", "Check the inputs and print the plan of one run; call nothing.")
    resume: bool = flag("--resume", "Continue in the folder given by --out, or in the latest one.", "Resume")
    as_json: bool = flag("--json", "Print the figures as JSON on stdout.")
