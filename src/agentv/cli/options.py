"""Command-line options as typed classes: a field's default declares the click parameter that fills it."""

from __future__ import annotations

import math
import os
import shlex
from functools import cache, partial
from importlib import import_module
from inspect import cleandoc
from types import MemberDescriptorType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import click
from msgspec import Struct, structs

from agentv.cli import COMMANDS, finish_imports, output, unknown_command
from agentv.model import diagnostics
from agentv.model.diagnostics import Range
from agentv.registry import optional_service
from agentv.settings.command_option import GROUPS, Group, Reader, declared_options


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


AT_LEAST_0 = Number(Range(0, whole=True))
AT_LEAST_1 = Number(diagnostics.AT_LEAST_1)
PORT = Number(Range(0, 65535, whole=True))
SHARE = Number(diagnostics.SHARE)
PATH = click.Path()
FILE = click.Path(dir_okay=False)
FOLDER = click.Path(file_okay=False)
_PATHS = {"path": PATH, "file": FILE, "folder": FOLDER}


class _Declared(Struct, frozen=True):
    """A click parameter without a name; it gets the name of its field."""

    kind: type[click.Parameter]
    names: list[str]
    settings: dict[str, Any]
    group: Group = "Output"


def argument(**settings: Any) -> Any:
    """Declare a positional argument."""
    return _Declared(click.Argument, [], {"type": click.Path(), **settings})


def option(spec: str, text: str, type: Any = None, *, group: Group = "Output", **settings: Any) -> Any:
    """Declare an option of commands only. `spec` is its spelling, such as "--filter -f FILTER"; `text` is its help."""
    names = [word for word in spec.split() if word.startswith("-")]
    metavar = " ".join(word for word in spec.split() if word not in names) or None
    shows_default = settings.get("default", "") != ""
    described = {"metavar": metavar, "show_default": shows_default, "help": text, "type": type}
    return _Declared(click.Option, names, {**described, **settings}, group)


def flag(spec: str, text: str, group: Group = "Output") -> Any:
    """Declare an option without a value."""
    return option(spec, text, group=group, is_flag=True)


Value = TypeVar("Value")


def with_help(field: Value, text: str) -> Value:
    """Return the option of a field, such as `EvalOptions.trials`, with another help."""
    declared = _field_option(cast("MemberDescriptorType", field))
    return cast("Value", structs.replace(declared, settings={**declared.settings, "help": text}))


def _field_option(field: MemberDescriptorType) -> _Declared:
    """Return the option that sets a field of a struct, declared with `option_field`."""
    kind = field.__objclass__
    declared = declared_options(kind)[field.__name__]
    of_field = _hints(kind)[field.__name__]
    settings: dict[str, Any] = {"type": _click_type(of_field, declared.read), "group": declared.group}
    if of_field is bool:
        settings = {"is_flag": True, "group": declared.group}
    elif get_origin(of_field) is tuple and declared.read is None:
        settings |= {"multiple": True, "callback": lambda _context, _param, values: tuple(dict.fromkeys(values))}
    elif declared.default is not None:
        settings["default"] = declared.default
    if declared.value_is_optional:
        settings |= {"is_flag": False, "flag_value": ""}
    result: _Declared = option(declared.spec, declared.text, **settings)
    return result


_hints = cache(partial(get_type_hints, include_extras=True))


def _click_type(hint: Any, read: Reader | None) -> Any:
    """Return the type of an option: that of its field, unless `read` converts the text."""
    if read is not None:
        return _PATHS.get(read, read) if isinstance(read, str) else read
    if get_origin(hint) in (Union, UnionType):  # X | None
        hint = next(part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    if get_origin(hint) is tuple:
        return _click_type(get_args(hint)[0], None)
    if get_origin(hint) is Annotated:
        base, meta = get_args(hint)
        bounds = Range(
            meta.ge if meta.gt is None else meta.gt,
            math.inf if meta.le is None and meta.lt is None else meta.le if meta.lt is None else meta.lt,
            whole=base is int,
            exclusive=meta.gt is not None,
        )
        return Number(bounds)
    return None if hint is str else hint


class Arguments:
    """The read-only arguments of a command. The docstring of a subclass is the command's help.

    An attribute is declared with `option`, `flag` or `argument`, or is a field of a struct that was declared with
    `option_field`: `sample = EvalOptions.sample`.

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

    def __init_subclass__(cls) -> None:
        for name, value in list(vars(cls).items()):
            if isinstance(value, MemberDescriptorType):
                setattr(cls, name, _field_option(value))

    def __init__(self, values: dict[str, Any]) -> None:
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is read-only")


class TranslatedCommand(click.Command):
    """A command that understands the options of other tools, if an extension translates them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].isalpha() and not os.path.exists(args[0]):  # it may be a subcommand of another tool
            args = self._translate(ctx, args)
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption:
            if (translated := self._translate(ctx, args)) == args:
                raise
            return super().parse_args(ctx, translated)

    def _translate(self, ctx: click.Context, args: list[str]) -> list[str]:
        translate = optional_service("option-translation")
        translated: list[str] = translate(self.name, args) if translate else args
        if translated != args:
            output.note(f"Read as: {ctx.command_path} {shlex.join(translated)}")
        return translated


class GroupedCommand(TranslatedCommand):
    """A command whose help lists its options under headings."""

    def __init__(self, name: str, groups: dict[str, Group], **settings: Any) -> None:
        super().__init__(name, **settings)
        self._groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])

    def sections(self, ctx: click.Context) -> dict[str, list[click.Option]]:
        """Return the options under each heading; `--help`, whose name depends on click's version, is under Output."""
        sections: dict[str, list[click.Option]] = {title: [] for title in GROUPS}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option):
                sections[self._groups.get(param.name or "", "Output")].append(param)
        return {title: options for title, options in sections.items() if options}


class SeparatedCommand(GroupedCommand):
    """A command that accepts `--` anywhere, and options after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [arg for arg in args if arg != "--"])


class CommandGroup(click.Group):
    """A group of commands, to which extensions may add: the row `runs merge` adds `merge` to the group `runs`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        rows = (name.partition(" ") for name in COMMANDS.all_names())
        return sorted((*self.commands, *(name for group, _, name in rows if name and group == self.name)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.commands or cmd_name not in self.list_commands(ctx):
            return self.commands.get(cmd_name)
        command: click.Command = COMMANDS.find(f"{self.name} {cmd_name}")
        finish_imports()  # a plug-in may not call it
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise unknown_command(self, ctx, args[0], self.name, args[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.get_short_help_str(limit=200)) for name, entry in commands if entry])


def declare(name: str, arguments: type[Arguments], *commands: click.Command) -> click.Command:
    """Return the command that takes these arguments; with `commands`, a group of them."""
    declared = _declared(arguments)
    settings: dict[str, Any] = {
        "params": [entry.kind([*entry.names, field], **entry.settings) for field, entry in declared.items()],
        "callback": partial(_run, arguments),
        "help": "\n\n".join(filter(None, (COMMANDS.summary(name), cleandoc(arguments.__doc__ or "")))),
        "epilog": "\n".join(("\b", "Examples:", *(f"  {example}" for example in arguments.examples))),
    }
    if commands:
        return CommandGroup(name, list(commands), invoke_without_command=bool(arguments.action), **settings)
    if arguments.grouped:
        groups = {field: entry.group for field, entry in declared.items()}
        return (SeparatedCommand if arguments.has_separator else GroupedCommand)(name, groups, **settings)
    return TranslatedCommand(name, **settings)


def _declared(arguments: type[Arguments]) -> dict[str, _Declared]:
    """Return the parameters of a command by name, and an option that is declared again where its base declares it."""
    kinds = [
        {name: value for name, value in vars(kind).items() if isinstance(value, _Declared)}
        for kind in arguments.__mro__
    ]
    newest = {name: value for kind in reversed(kinds) for name, value in kind.items()}
    declared: dict[str, _Declared] = {}
    for position, kind in enumerate(kinds):
        bases = {name for base in kinds[position + 1 :] for name in base}
        declared |= {
            name: newest[name]
            for name, value in kind.items()
            if name not in declared and (name not in bases or value.kind is click.Argument)
        }
    return declared


def _run(arguments: type[Arguments], **values: Any) -> None:
    context = click.get_current_context()
    # Options of a group may be given before the name of its subcommand.
    before = vars(context.obj) if isinstance(context.obj, Arguments) else {}
    context.obj = arguments({name: value or before.get(name, value) for name, value in values.items()})
    if context.invoked_subcommand is not None:
        return
    module, _, function = arguments.action.partition(":")
    action = getattr(import_module(module), function)
    finish_imports()
    if not hasattr(context.obj, "trusted"):
        action(context.obj)
        return
    from agentv.cli.trust_question import importing_nothing, with_trust  # late: few commands need it

    with with_trust(context.obj.trusted, trusts_run=getattr(context.obj, "trusts_run", False)):
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
        group="Selection",
        multiple=True,
    )
