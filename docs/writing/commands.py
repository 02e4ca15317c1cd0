"""The reference page of the commands, generated from the commands."""

from __future__ import annotations

import inspect

import click

from agentv.cli import cli
from agentv.cli.options import GroupedCommand
from writing.markup import Lines, cell, code


def names() -> list[str]:
    """Return the names of all commands."""
    return list(_commands())


def index() -> Lines:
    """List the commands and the exit codes."""
    commands = _commands()
    yield from ("# Commands", "", str(cli.help), "", *_options(cli), "", "| command | description |", "|---|---|")
    for name, command in commands.items():
        yield f"| [`agentv {name}`](cli/{name}.md) | {_sentence(command)} |"
    yield from ("", "Data goes to standard output, messages to standard error. Exit codes:", "")
    yield from ("| code | meaning |", "|---|---|", "| 0 | success |")
    yield (
        "| 1 | findings in `agentv validate`, a missed gate in `agentv eval`, the `--fail-on` condition of "
        "`agentv compare`, or a failed target in `agentv targets check` |"
    )
    yield "| 2 | usage, configuration or targets error, or a dataset that cannot be loaded |"
    yield from (
        "| 3, 4 | `agentv eval`: too many errors; budget reached |",
        "| 5 | can't tell: the results do not decide |",
    )
    yield "| 130 | interrupted |"


def page(name: str) -> Lines:
    """Describe one command with its options."""
    yield from (f"# agentv {name}", "", *_command(name, _commands()[name]))


def _commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def _command(name: str, command: click.Command) -> Lines:
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    summary, *paragraphs = inspect.cleandoc(str(command.help)).split("\n\n")
    yield from (summary, "")
    if command.epilog:
        lines = command.epilog.removeprefix("\b\nExamples:\n").split("\n")
        yield from ("```text", *(line.strip() for line in lines), "```", "")
    yield from (f"Usage: `{' '.join(['agentv', name, '[OPTIONS]', *map(_argument, arguments)])}`", "")
    for paragraph in paragraphs:
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.split("\n")[1:], "```", "")
        else:
            yield from (*paragraph.split("\n"), "")
    for argument in arguments:
        if isinstance(argument.type, click.Choice):
            yield from (f"`{_argument(argument)}` is {code(argument.type.choices, ' or ')}.", "")
    if isinstance(command, GroupedCommand):
        for title, options in command.sections(click.Context(command)).items():
            yield from (f"**{title}**", "", *_table(options[:-1] if title == "Output" else options), "")
    else:
        yield from (*_options(command), "")


def _argument(argument: click.Argument) -> str:
    name = str(argument.name).upper() + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _options(command: click.Command) -> Lines:
    yield from _table([param for param in command.params if isinstance(param, click.Option)])
    yield "| `-h`, `--help` |  | Show the help and exit. |"


def _table(options: list[click.Option]) -> Lines:
    yield from ("| option | value | meaning |", "|---|---|---|")
    for option in options:
        default = f" Default: `{option.default}`." if option.show_default and not option.is_flag else ""
        meaning = cell(f"{option.help}{default}")
        yield f"| {code(sorted(option.opts, key=len))} | {_option_value(option)} | {meaning} |"


def _option_value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return code(option.type.choices, " or ")
    return cell(f"`{option.metavar}`") if option.metavar else "text"


def _sentence(command: click.Command) -> str:
    return inspect.cleandoc(str(command.help)).split("\n", 1)[0].split(". ", 1)[0].rstrip(".") + "."
