"""The arguments of `agentv eval` and `agentv rescore`."""

from __future__ import annotations

import click

from agentv.cli.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    FILE,
    POSITIVE,
    Arguments,
    GateOptions,
    JudgeOptions,
    ReadingOptions,
    SelectionOptions,
    TargetsFileOption,
    argument,
    declare,
    flag,
    option,
)


class RunArguments(GateOptions, SelectionOptions, ReadingOptions):
    """What every command that runs jobs takes."""

    paths: tuple[str, ...] = argument(nargs=-1)
    max_retries: int | None = option(
        "--max-retries", type=AT_LEAST_0, metavar="N", help="Maximum retries after failures worth another attempt."
    )
    resume: bool = flag("--resume", help="Resume the run in --out, or else the last unfinished one.")
    verbose: bool = flag("--verbose", "-v", help="Print a line for each job as it ends, and what targets log.")
    why: bool = flag("--why", help="Say for each job why it runs or is carried over.")


class CallOptions(Arguments):
    """Earlier runs to use, and what is kept of calls."""

    only: str | None = option(
        "--only",
        type=click.Choice(["failed", "borderline", "errors"]),
        help="Run only cases that failed, were borderline or errored in the run given by --from.",
    )
    only_from: str | None = option(
        "--from", metavar="RUN", type=click.Path(), help="Earlier run that --only refers to."
    )
    cache: bool = flag("--cache", help="Reuse answers that a model gave before; see .agentv/cache.")
    record: str | None = option("--record", metavar="FILE", type=FILE, help="Append every answer to this recording.")
    replay: str | None = option(
        "--replay",
        metavar="FILE|RUN",
        type=click.Path(),
        help="Answer every call from a recording or an earlier run; nothing is called.",
    )
    dump_prompts: str | None = option(
        "--dump-prompts",
        metavar="[DIR]",
        is_flag=False,
        flag_value="",
        help="Write what each job sends to a file, in the run folder or in DIR.",
    )
    dump_traces: str | None = option(
        "--dump-traces",
        metavar="[DIR]",
        is_flag=False,
        flag_value="",
        help="Write the whole exchange of each job to a file, in the run folder or in DIR.",
    )
    include_trace: bool = flag("--include-trace", help="Always store the full message list in each record.")
    executor: str | None = option(
        "--executor",
        metavar="NAME",
        help="Where jobs run: local (this process, the default), process (all cores) or ray (a cluster).",
    )
    processes: int | None = option(
        "--processes", type=AT_LEAST_1, metavar="N", help="Number of worker processes (default: one for each core)."
    )
    ray_address: str | None = option(
        "--ray-address", metavar="ADDRESS", help="Ray cluster to run on (default: a Ray on this machine)."
    )


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
        "--target",
        "-t",
        multiple=True,
        metavar="NAME",
        callback=lambda _context, _param, names: tuple(dict.fromkeys(names)),
        help="Target to evaluate. Repeat to evaluate several.",
    )
    judge: str | None = option(
        "--judge", metavar="NAME", help="Target to judge with, instead of those that files name."
    )
    workers: int | None = option(
        "--workers", type=AT_LEAST_1, metavar="N", help="Maximum concurrent calls (default: adaptive)."
    )
    trials: int | None = option("--trials", type=AT_LEAST_1, metavar="N", help="Number of times each case is run.")
    timeout_s: float | None = option(
        "--timeout", type=POSITIVE, metavar="SECONDS", help="Time limit for one attempt of a call."
    )
    out: str | None = option(
        "--out",
        metavar="DIR|FILE",
        type=click.Path(),
        help="The run folder, or a .jsonl or .yaml file to also write the records to.",
    )
    file_format: str | None = option(
        "--format", type=click.Choice(["jsonl", "yaml"]), help="Format of the file given by --out, whatever its name."
    )
    retry_errors: str | None = option(
        "--retry-errors", metavar="RUN", type=click.Path(), help="New run of the jobs that errored in RUN."
    )
    changed_since: str | None = option(
        "--changed-since", metavar="RUN", type=click.Path(), help="New run of the jobs that changed since RUN."
    )
    budget_usd: float | None = option(
        "--budget-usd", type=POSITIVE, metavar="USD", help="Start no new job once this much is spent."
    )
    stop_when: str | None = option(
        "--stop-when",
        metavar="X|pass-rate=X|RUN",
        help="Stop once it is known on which side of a mean or pass rate a target is, or whether it beats a run.",
    )
    fail_fast: bool = flag("--fail-fast", help="Stop at the first failure or error.")
    dry_run: bool = flag("--dry-run", help="Check and render everything, call nothing, print the plan.")
    as_json: bool = flag("--json", help="Print the summary as JSON on stdout.")


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
        "--evaluator",
        "-e",
        multiple=True,
        metavar="TYPE|OBJECT|FILE",
        help="Score with this instead of the cases' own evaluators; repeatable.",
    )
    every_evaluator: bool = flag("--all", help="Run every evaluator, not only those that changed.")
    stored_cases: bool = flag("--stored-cases", help="Take the cases from the run's folder, not from its datasets.")
    cache: bool = flag("--cache", help="Reuse replies that a judge gave before.")
    budget_usd: float | None = option(
        "--budget-usd", type=POSITIVE, metavar="USD", help="Call no judge once judges have cost this much."
    )
    out: str | None = option("--out", metavar="DIR", type=click.Path(file_okay=False), help="Folder of the new run.")
    as_json: bool = flag("--json", help="Print the summary and the difference as JSON on stdout.")


eval_command = declare("eval", EvalArguments)
rescore_command = declare("rescore", RescoreArguments)
