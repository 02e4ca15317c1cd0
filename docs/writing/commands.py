"""The page of the commands, from the commands themselves."""

from __future__ import annotations

import inspect

import click

from agentv.cli import cli
from writing.markup import Lines, cell, code


def page() -> Lines:
    """Every command with its options, and the exit codes."""
    commands = _commands()
    yield from ("# Commands", "", str(cli.help), "", *_options(cli), "", "| command | what it does |", "|---|---|")
    for name, command in commands.items():
        yield f"| [`agentv {name}`](#agentv-{name}) | {_sentence(command)} |"
    yield from ("", "Data goes to standard output, messages to standard error. Exit codes:", "")
    yield from ("| code | meaning |", "|---|---|", "| 0 | all went well |")
    yield (
        "| 1 | `agentv validate` has findings, `agentv eval` missed a gate, `agentv compare` found what `--fail-on` "
        "names, `agentv targets check` got no answer |"
    )
    yield "| 2 | wrong usage, configuration or targets, or a dataset that cannot be loaded |"
    yield from ("| 3, 4 | `agentv eval`: too many errors; budget used up |", "| 130 | interrupted |")
    for name, command in commands.items():
        yield from ("", f"## agentv {name}", "", *_command(name, command))


def _commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def _command(name: str, command: click.Command) -> Lines:
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    yield from (f"`{' '.join(['agentv', name, '[OPTIONS]', *map(_argument, arguments)])}`", "")
    for paragraph in inspect.cleandoc(str(command.help)).split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.split("\n")[1:], "```", "")
        else:
            yield from (*paragraph.split("\n"), "")
    for argument in arguments:
        if isinstance(argument.type, click.Choice):
            yield from (f"`{_argument(argument)}` is {code(argument.type.choices, ' or ')}.", "")
    yield from _options(command)
    if command.epilog:
        text = command.epilog.removeprefix("\b\n").removeprefix("Examples:").removeprefix("Example:")
        lines = [part.strip() for line in text.split("\n") for part in line.split("  ·  ")]
        yield from ("", "```text", *lines, "```")


def _argument(argument: click.Argument) -> str:
    name = str(argument.name).upper() + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _options(command: click.Command) -> Lines:
    yield from ("| option | value | meaning |", "|---|---|---|")
    for param in command.params:
        if isinstance(param, click.Option):
            meaning = str(param.help or _help_elsewhere(param))
            if param.show_default and not param.is_flag:
                meaning += f" Default: `{param.default}`."
            yield f"| {code(sorted(param.opts, key=len))} | {_option_value(param)} | {cell(meaning)} |"
    yield "| `-h`, `--help` |  | Show the help and exit. |"


def _help_elsewhere(option: click.Option) -> str:
    """An option that one command leaves out of its help says what it means at another command."""
    for command in _commands().values():
        for param in command.params:
            if isinstance(param, click.Option) and param.name == option.name and param.help:
                return param.help
    raise ValueError(f"{option.opts[0]} has no help")


def _option_value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return code(option.type.choices, " or ")
    if option.metavar:
        return cell(f"`{option.metavar}`")
    if isinstance(option.type, click.IntRange):
        return f"integer ≥ {option.type.min}"
    return "integer" if option.type is click.INT else "text"


def _sentence(command: click.Command) -> str:
    return inspect.cleandoc(str(command.help)).split("\n", 1)[0].split(". ", 1)[0].rstrip(".") + "."
