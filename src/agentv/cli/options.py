"""Command-line options as typed classes: a field's default declares the click parameter that fills it."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from inspect import cleandoc
from typing import Any, ClassVar, NamedTuple, TypeVar

import click
from msgspec import Struct

from agentv.cli import COMMANDS
from agentv.errors import UsageError
from agentv.model import diagnostics
from agentv.model.diagnostics import Range
from agentv.support.lines import MAX_LINE_BYTES

GROUPS = {
    "Selection": "given_filters tags excluded_tags cases cases_from sample seed shard rows split limit "
    "on_error "
    "allow_outside_files trusted trusts_run max_line_bytes fields strict",
    "Search": "into_merges changed_paths kept_paths own_dataset setup alpha",
    "Targets": "target targets targets_file previous prompt file mcp against trials batch "
    "cache no_cache record replay transcript trace_port",
    "Scoring": "judge old_judge new_judge evaluators skip_eval kinds every_evaluator stored_cases threshold "
    "margin fail_on no_rescore max_flip_rate min_pass_rate min_score no_gate baseline gate_on "
    "max_errors keep_going max_fooled",
    "Limits": "workers timeout_s max_retries max_outage_s budget_usd deadline_s stop_when fail_fast "
    "sandbox executor processes ray_address",
    "Output": "out experiment file_format as_json as_markdown html md changes quiet verbose why dry_run include_trace "
    "dump_prompts dump_traces otel",
    "Resume": "resume reset retry_errors changed_since only only_from watch if_changed",
}
"""The headings of the options in the help of commands with many of them, and the order of the options."""


class Number(click.ParamType):  # type: ignore[type-arg]  # generic only in recent versions of click
    """A number in a range."""

    name = "number"

    def __init__(self, allowed: Range) -> None:
        self._allowed = allowed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return self._allowed.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_sample(text: str) -> int | float:
    """Read `200` as a number of cases, `10%` and `0.1` as fractions."""
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise UsageError(f"--sample takes a number of cases or a percentage such as 10%, got {text!r}") from None


def parse_shard(text: str) -> tuple[int, int]:
    """Read `2/8` as the second of eight parts."""
    index, slash, count = text.partition("/")
    if not slash or not index.isdigit() or not count.isdigit():
        raise UsageError(f"--shard takes I/N, for example 2/8, got {text!r}")
    return int(index), int(count)


def parse_rows(text: str) -> tuple[tuple[int, int], ...]:
    """Read `0,3-5` as the first and last positions of ranges."""
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise UsageError(f"--rows takes positions and ranges such as 0,3-5,9, got {text!r}")
        ranges.append((int(first), int(last if dash else first)))
    return tuple(ranges)


def parse_split(text: str) -> tuple[str, float]:
    """Read `train:80` as a part and the fraction of cases for training."""
    part, _, percent = text.partition(":")
    if part not in ("train", "test") or not percent.isdigit() or not 0 < int(percent) < 100:
        raise UsageError(f"--split takes train:PERCENT or test:PERCENT, for example train:80, got {text!r}")
    return part, int(percent) / 100


AT_LEAST_0 = Number(Range(0, whole=True))
AT_LEAST_1 = Number(diagnostics.AT_LEAST_1)
POSITIVE = Number(Range(0, exclusive=True))
PORT = Number(Range(0, 65535, whole=True))
SHARE = Number(diagnostics.SHARE)
PATH = click.Path()
FILE = click.Path(dir_okay=False)
FOLDER = click.Path(file_okay=False)


class _Declared(NamedTuple):
    """A click parameter without a name; it gets the name of its field."""

    kind: type[click.Parameter]
    names: list[str]
    settings: dict[str, Any]


def argument(**settings: Any) -> Any:
    """Declare a positional argument."""
    return _Declared(click.Argument, [], {"type": click.Path(), **settings})


def option(spec: str, text: str, type: Any = None, **settings: Any) -> Any:
    """Declare an option. `spec` is its spelling, such as "--filter -f FILTER"; `text` is its help."""
    names = [word for word in spec.split() if word.startswith("-")]
    metavar = " ".join(word for word in spec.split() if word not in names) or None
    shows_default = settings.get("default", "") != ""
    described = {"metavar": metavar, "show_default": shows_default, "help": text, "type": type}
    return _Declared(click.Option, names, {**described, **settings})


def flag(spec: str, text: str) -> Any:
    """Declare an option without a value."""
    return option(spec, text, is_flag=True)


class Arguments:
    """The read-only arguments of a command. The docstring of a subclass is the command's help.

    `action` names the function to call ("module:function"); it is imported when the command runs. If `grouped`, help
    lists the options under the headings of `GROUPS`.
    """

    action: ClassVar[str] = ""
    examples: ClassVar[tuple[str, ...]] = ()
    grouped: ClassVar[bool] = False
    only_checks: ClassVar[bool] = False
    """Whether the command runs nothing and imports no user code. So does `--dry-run`."""
    has_separator: ClassVar[bool] = False
    """Whether `--` may precede the paths, with options after it."""

    def __init__(self, given: dict[str, Any]) -> None:
        vars(self).update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is read-only")


class GroupedCommand(click.Command):
    """A command whose help lists its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])

    def sections(self, ctx: click.Context) -> dict[str, list[click.Option]]:
        """Return the options under each heading; `--help`, whose name depends on click's version, is under Output."""
        known = {param.name: param for param in self.get_params(ctx) if isinstance(param, click.Option)}
        found = {title: [known.pop(name) for name in names.split() if name in known] for title, names in GROUPS.items()}
        found["Output"] += known.values()
        return {title: options for title, options in found.items() if options}


class SeparatedCommand(GroupedCommand):
    """A command that accepts `--` anywhere, and options after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [each for each in args if each != "--"])


def declare(name: str, arguments: type[Arguments], *commands: click.Command) -> click.Command:
    """Return the command that takes these arguments; with `commands`, a group of them."""
    settings: dict[str, Any] = {
        "params": _parameters(arguments),
        "callback": partial(_run, arguments),
        "help": "\n\n".join(filter(None, (COMMANDS.summary(name), cleandoc(arguments.__doc__ or "")))),
        "epilog": "\n".join(("\b", "Examples:", *(f"  {example}" for example in arguments.examples))),
    }
    if commands:
        return click.Group(name, list(commands), invoke_without_command=bool(arguments.action), **settings)
    if arguments.has_separator:
        return SeparatedCommand(name, **settings)
    return (GroupedCommand if arguments.grouped else click.Command)(name, **settings)


def _parameters(arguments: type[Arguments]) -> list[click.Parameter]:
    found: dict[str, click.Parameter] = {}
    for base in arguments.__mro__:
        for name, value in vars(base).items():
            if isinstance(value, _Declared) and name not in found:
                found[name] = value.kind([*value.names, name], **value.settings)
    return list(found.values())


def _run(arguments: type[Arguments], **given: Any) -> None:
    context = click.get_current_context()
    # Options of a group may be given before the name of its subcommand.
    before = vars(context.obj) if isinstance(context.obj, Arguments) else {}
    context.obj = arguments({name: value or before.get(name, value) for name, value in given.items()})
    if context.invoked_subcommand is not None:
        return
    module, _, function = arguments.action.partition(":")
    action = getattr(import_module(module), function)
    if not hasattr(context.obj, "trusted"):
        action(context.obj)
        return
    from agentv.cli.trust_question import ask_on_terminal, command_with_trust  # late: few commands need it
    from agentv.support.user_code import importing_nothing
    from agentv.trust.roots import trust_runs, trusting

    with trusting(context.obj.trusted, ask_on_terminal(), command_with_trust):
        if getattr(context.obj, "trusts_run", False):
            trust_runs()
        if arguments.only_checks or getattr(context.obj, "dry_run", False):
            with importing_nothing():
                action(context.obj)
        else:
            action(context.obj)


Options = TypeVar("Options", bound=Struct)


def options_of(kind: type[Options], args: Arguments, **further: Any) -> Options:
    """Build a struct from the arguments with the same names as its fields, and `further` values."""
    same = {name: getattr(args, name) for name in kind.__struct_fields__ if hasattr(args, name)}
    return kind(**{**same, **further})


class TrustOption(Arguments):
    """The option for folders outside the project."""

    trusted: tuple[str, ...] = option(
        "--trust PATH",
        "Trust a file or folder outside the project: run its programs, import its code and let it read variables. "
        "Remembered until one of its files changes. Repeatable.",
        PATH,
        multiple=True,
    )


class TargetsFileOption(TrustOption):
    """The option for the targets file."""

    targets_file: str | None = option("--targets FILE", "Read targets from this file.", PATH)


class SelectionOptions(Arguments):
    """Options that select cases."""

    given_filters: tuple[str, ...] = option(
        "--filter -f FILTER",
        "Select cases by id glob, tag=x, tag!=x or metadata.k=v. Commas separate alternatives; repeat to require "
        "several.",
        multiple=True,
    )
    tags: tuple[str, ...] = option("--tag TAG", "Select cases with this tag; same as --filter tag=TAG.", multiple=True)
    excluded_tags: tuple[str, ...] = option(
        "--exclude-tag TAG", "Leave out cases with this tag; same as --filter tag!=TAG.", multiple=True
    )
    cases: tuple[str, ...] = option("--case ID", "Select the case with this id. Repeatable.", multiple=True)
    cases_from: str | None = option(
        "--cases-from FILE", "Select the cases listed in FILE, for example by agentv plan --subset.", PATH
    )
    sample: int | float | None = option(
        "--sample N|N%", "Select a random sample: a count (200) or a percentage (10%).", parse_sample
    )
    seed: int | None = option("--seed N", "Random seed for --sample and --split.", int, default=0)
    shard: tuple[int, int] | None = option(
        "--shard I/N", "Select the I-th of N parts of the cases, split by a hash of the id.", parse_shard
    )
    rows: tuple[tuple[int, int], ...] | None = option(
        "--rows ROWS", "Select cases by position, counted from 0: 0,3-5,9.", parse_rows
    )
    split: tuple[str, float] | None = option(
        "--split PART:PERCENT", "Select a random part (train:80) or all other cases (test:80).", parse_split
    )
    limit: int | None = option("--limit N", "Select at most N cases.", AT_LEAST_1)

    @property
    def filters(self) -> tuple[str, ...]:
        """All filters, including those from --tag and --exclude-tag."""
        tags = (f"tag={tag}" for tag in self.tags)
        return (*self.given_filters, *tags, *(f"tag!={tag}" for tag in self.excluded_tags))


class FileOptions(TrustOption):
    """Options for reading dataset files."""

    allow_outside_files: bool = flag(
        "--allow-outside-files", "Allow datasets to read files outside their project, and hidden files."
    )
    max_line_bytes: int = option(
        "--max-line-bytes N", "Maximum length of a JSONL line.", AT_LEAST_1, default=MAX_LINE_BYTES
    )
    fields: str | None = option(
        "--map KEY=FIELD,…", "Read records of any shape: input=question,expected_output=answers[0],metadata.*=*."
    )
    quiet: bool = flag("--quiet -q", "Hide warnings and notes.")


class ReadingOptions(FileOptions):
    """Options for reading dataset files, and for invalid cases."""

    on_error: str = option(
        "--on-error",
        "Stop at an invalid case, or skip it with a warning.",
        click.Choice(["stop", "skip"]),
        default="stop",
    )
    strict: bool = flag("--strict", "Fail if another tool's file is not read exactly as by that tool.")
