"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from agentv.datasets.formats.lines import MAX_LINE_BYTES
from agentv.errors import UsageError
from agentv.settings.diagnostics import Range


class Whole(click.IntRange):
    """A whole number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return Range(self.min, self.max, whole=True).read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Real(click.FloatRange):
    """A number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return Range(self.min, self.max, above=self.min_open, below=self.max_open).read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


AT_LEAST_0 = Whole(min=0)
AT_LEAST_1 = Whole(min=1)
POSITIVE = Real(min=0, min_open=True)
SHARE = Real(0, 1)


Command = TypeVar("Command", bound=Callable[..., Any])


targets_option = click.option(
    "--targets", "targets_file", metavar="FILE", type=click.Path(), help="The targets file to read."
)
judge_option = click.option("--judge", metavar="NAME", help="The target that judges, in place of all others.")


def evaluators_option(verb: str) -> Callable[[Command], Command]:
    """`--evaluator`: what is scored with, or otherwise done with, in the place of what files say."""
    return click.option(
        "--evaluator",
        "-e",
        "evaluators",
        multiple=True,
        metavar="TYPE|OBJECT|FILE",
        help=f"{verb} this, in place of the cases' own evaluators; may be repeated.",
    )


def selection_options(command: Command) -> Command:
    """`--filter --tag --case --sample --seed --shard --limit`: which cases are wanted."""
    for option in reversed(
        (
            click.option(
                "--filter",
                "-f",
                "filters",
                multiple=True,
                metavar="FILTER",
                help="An id glob, tag=x or metadata.k=v; all must hold.",
            ),
            click.option("--tag", "tags", multiple=True, metavar="TAG", help="The same as --filter tag=TAG."),
            click.option(
                "--case", "cases", multiple=True, metavar="ID", help="Only the case with this id; may be repeated."
            ),
            click.option("--sample", metavar="N|SHARE", help="So many cases, or a share such as 10% or 0.1."),
            click.option("--seed", type=int, default=0, show_default=True, help="Which sample."),
            click.option("--shard", metavar="I/N", help="The I-th of N parts, by a hash of the id."),
            click.option("--limit", type=AT_LEAST_1, metavar="N", help="At most so many cases."),
        )
    ):
        command = option(command)
    return command


def selection_of(given: dict[str, Any]) -> dict[str, Any]:
    """What these options come to, by the names that options of a run have."""
    return {
        "filters": (*given["filters"], *(f"tag={tag}" for tag in given["tags"])),
        "cases": given["cases"],
        "sample": parse_sample(given["sample"]),
        "seed": given["seed"],
        "shard": parse_shard(given["shard"]),
        "limit": given["limit"],
    }


def reading_options(command: Command) -> Command:
    """`--on-error --allow-outside-files --max-line-bytes --quiet`: how datasets are read."""
    for option in reversed(
        (
            click.option(
                "--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True,
                help="What a bad case does: end the command, or be skipped with a warning.",
            ),
            click.option(
                "--allow-outside-files", is_flag=True, help="Let datasets read files outside their project."
            ),
            click.option(
                "--max-line-bytes", type=AT_LEAST_1, default=MAX_LINE_BYTES, show_default=True,
                help="The longest line of JSONL that is read.",
            ),
            click.option("--quiet", "-q", is_flag=True, help="Hide warnings and notes."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def named_folder(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001
    """What `--out` names where it can only be a folder: a name that looks like a file's was meant as one."""
    from agentv.runs.writer import places_of  # late: help needs none of it

    folder, file = places_of(value)
    if file is not None:
        raise UsageError(f"Cannot write {value}", "Here --out names the folder of a run", "Its records are in it")
    return folder


def gate_options(command: Command) -> Command:
    """`--threshold --min-pass-rate --max-errors`: what a run must reach."""
    for option in reversed(
        (
            click.option("--threshold", type=SHARE, metavar="X", help="Gate: the mean of each target must reach this."),
            click.option(
                "--min-pass-rate", type=SHARE, metavar="P", help="Gate: of the scored jobs, this share must pass."
            ),
            click.option(
                "--max-errors", metavar="N|N%", help="Gate: so many jobs may end in errors; 0 beside another gate."
            ),
        )
    ):
        command = option(command)
    return command


CALL_OPTIONS = (
    "only",
    "only_from",
    "cache",
    "record",
    "replay",
    "dump_prompts",
    "dump_traces",
    "include_trace",
    "executor",
)
"""What `call_options` adds, by the names that options of a run have."""


def call_options(command: Command) -> Command:
    """`--only --from --cache --record --replay` and their like: earlier runs, and what is kept of calls."""
    for option in reversed(
        (
            click.option(
                "--only",
                type=click.Choice(["failed", "borderline", "errors"]),
                help="Cases that ended so in the run of --from.",
            ),
            click.option(
                "--from", "only_from", metavar="RUN", type=click.Path(), help="The earlier run that --only is about."
            ),
            click.option(
                "--cache", is_flag=True, help="Ask a model nothing that it has answered before: see .agentv/cache."
            ),
            click.option(
                "--record", metavar="FILE", type=click.Path(dir_okay=False), help="Add every answer to this recording."
            ),
            click.option(
                "--replay",
                metavar="FILE|RUN",
                type=click.Path(),
                help="Answer from a recording or an earlier run; call nobody.",
            ),
            click.option(
                "--dump-prompts",
                metavar="[DIR]",
                is_flag=False,
                flag_value="",
                help="Write what each job sends to a file, in the run folder or in DIR.",
            ),
            click.option(
                "--dump-traces",
                metavar="[DIR]",
                is_flag=False,
                flag_value="",
                help="Write all that was said in each job to a file, in the run folder or in DIR.",
            ),
            click.option(
                "--include-trace", is_flag=True, help="Keep the messages of every answer in its record, one text too."
            ),
            click.option("--executor", default="local", metavar="NAME", help="Where jobs run: local, in this process."),
        )
    ):
        command = option(command)
    return command


def check_call_options(given: dict[str, Any]) -> None:
    """Raises UsageError for options that contradict each other."""
    if given["quiet"] and given["verbose"]:
        raise UsageError("--quiet and --verbose exclude each other")
    if given["record"] and given["replay"] and os.path.realpath(given["record"]) == os.path.realpath(given["replay"]):
        raise UsageError("A recording cannot be added to while it is replayed", hint="Give --record another file")
    for name in ("dump_prompts", "dump_traces"):
        if given[name] and not given["resume"]:
            from agentv.engine.job.artifacts import check_job_folder  # late: most runs dump nothing

            check_job_folder(given[name], "--" + name.replace("_", "-"))


def parse_sample(text: str | None) -> int | float | None:
    """`200` is a number of cases; `10%` and `0.1` are shares."""
    if text is None:
        return None
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise UsageError(f"--sample takes a number of cases or a share such as 10%, got {text!r}") from None


def parse_shard(text: str | None) -> tuple[int, int] | None:
    """`2/8` is the second of eight parts."""
    if text is None:
        return None
    index, slash, count = text.partition("/")
    if not slash or not index.isdigit() or not count.isdigit():
        raise UsageError(f"--shard takes I/N, for example 2/8, got {text!r}")
    return int(index), int(count)
