"""Command-line options as typed classes: a field's default declares the click parameter that fills it."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from inspect import cleandoc
from typing import Any, ClassVar, NamedTuple, TypeVar

import click
from msgspec import Struct

from agentv.cli import COMMANDS
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


def parse_sample(text: str) -> int | float:
    """`200` is a number of cases; `10%` and `0.1` are fractions."""
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise UsageError(f"--sample takes a number of cases or a share such as 10%, got {text!r}") from None


def parse_shard(text: str) -> tuple[int, int]:
    """`2/8` is the second of eight parts."""
    index, slash, count = text.partition("/")
    if not slash or not index.isdigit() or not count.isdigit():
        raise UsageError(f"--shard takes I/N, for example 2/8, got {text!r}")
    return int(index), int(count)


AT_LEAST_0 = Whole(min=0)
AT_LEAST_1 = Whole(min=1)
POSITIVE = Real(min=0, min_open=True)
SHARE = Real(0, 1)
PATH = click.Path()
FILE = click.Path(dir_okay=False)
FOLDER = click.Path(file_okay=False)


class _Declared(NamedTuple):
    """A click parameter that has no name yet: it gets that of its field."""

    kind: type[click.Parameter]
    names: list[str]
    settings: dict[str, Any]


def argument(**settings: Any) -> Any:
    """Declare a positional argument."""
    return _Declared(click.Argument, [], {"type": click.Path(), **settings})


def option(spec: str, shown: str, type: Any = None, **settings: Any) -> Any:
    """Declare an option. `spec` is how it is written, such as "--filter -f FILTER"; `shown` is its help."""
    names = [word for word in spec.split() if word.startswith("-")]
    metavar = " ".join(word for word in spec.split() if word not in names) or None
    shows_default = settings.get("default", "") != ""
    return _Declared(
        click.Option,
        names,
        {"metavar": metavar, "show_default": shows_default, "help": shown, "type": type, **settings},
    )


def flag(spec: str, shown: str) -> Any:
    """Declare an option without a value."""
    return option(spec, shown, is_flag=True)


class Arguments:
    """What a command was called with, read-only. The docstring of a subclass is the help of its command.

    `action` names the function that does the work ("module:function"); it is imported when the command runs.
    """

    action: ClassVar[str] = ""
    examples: ClassVar[tuple[str, ...]] = ()

    def __init__(self, given: dict[str, Any]) -> None:
        vars(self).update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is read-only")


def declare(name: str, arguments: type[Arguments], *commands: click.Command) -> click.Command:
    """The command that takes these arguments; with `commands`, a group of them."""
    text = "\n\n".join(filter(None, (COMMANDS.get(name), cleandoc(arguments.__doc__ or ""))))
    settings: dict[str, Any] = {
        "params": _parameters(arguments),
        "callback": partial(_run, arguments),
        "help": text,
        "epilog": f"{'Examples' if len(arguments.examples) > 1 else 'Example'}:  {'  ·  '.join(arguments.examples)}",
    }
    if commands:
        return click.Group(name, list(commands), invoke_without_command=bool(arguments.action), **settings)
    return click.Command(name, **settings)


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
    if context.invoked_subcommand is None:
        module, _, function = arguments.action.partition(":")
        getattr(import_module(module), function)(context.obj)


Options = TypeVar("Options", bound=Struct)


def options_of(kind: type[Options], args: Arguments, **further: Any) -> Options:
    """A struct of options: the arguments that have the same names as its fields, and `further` ones."""
    same = {name: getattr(args, name) for name in kind.__struct_fields__ if hasattr(args, name)}
    return kind(**{**same, **further})


class TargetsFileOption(Arguments):
    """The targets file to use."""

    targets_file: str | None = option("--targets FILE", "Targets file to read.", PATH)


class SelectionOptions(Arguments):
    """Which cases are wanted."""

    given_filters: tuple[str, ...] = option(
        "--filter -f FILTER", "An id glob, tag=x or metadata.k=v; all must match.", multiple=True
    )
    tags: tuple[str, ...] = option("--tag TAG", "The same as --filter tag=TAG.", multiple=True)
    cases: tuple[str, ...] = option("--case ID", "Only this case; repeatable.", multiple=True)
    sample: int | float | None = option(
        "--sample N|SHARE", "Random sample: a count or a share (10% or 0.1).", parse_sample
    )
    seed: int = option("--seed", "Random seed for --sample.", int, default=0)
    shard: tuple[int, int] | None = option("--shard I/N", "The I-th of N parts, by a hash of the id.", parse_shard)
    limit: int | None = option("--limit N", "Maximum number of cases.", AT_LEAST_1)

    @property
    def filters(self) -> tuple[str, ...]:
        """All filters, those on tags included."""
        return (*self.given_filters, *(f"tag={tag}" for tag in self.tags))


class FileOptions(Arguments):
    """How dataset files are read."""

    allow_outside_files: bool = flag("--allow-outside-files", "Let datasets read files outside their project.")
    max_line_bytes: int = option(
        "--max-line-bytes", "Longest JSONL line to accept.", AT_LEAST_1, default=MAX_LINE_BYTES
    )
    quiet: bool = flag("--quiet -q", "Hide warnings and notes.")


class ReadingOptions(FileOptions):
    """How dataset files are read, and what a bad case does."""

    on_error: str = option(
        "--on-error",
        "What to do about an invalid case: stop, or skip it with a warning.",
        click.Choice(["stop", "skip"]),
        default="stop",
    )
