"""`agentv targets`: which targets there are, and whether they answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agentv.cli import output
from agentv.errors import EXIT_FINDINGS, AgentvError

if TYPE_CHECKING:
    from agentv.targets.catalog import Targets
    from agentv.targets.check import Check


_PLACES = ("base_url", "endpoint", "resource", "url", "command_template", "executable", "function", "from", "region")

_file_option = click.option("--targets", "file", metavar="FILE", type=click.Path(), help="The targets file to read.")
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")


@click.group(
    "targets",
    invoke_without_command=True,
    epilog="Examples:  agentv targets  ·  agentv targets --json  ·  agentv targets check  ·  "
    "agentv targets check gpt --targets ci/targets.yaml",
)
@_file_option
@_json_option
@click.pass_context
def command(context: click.Context, file: str | None, as_json: bool) -> None:
    """List the targets of a project; `check` calls them.

    The file is the nearest .agentv/targets.yaml or targets.yaml from here up to the project root. Nothing is called
    without `check`.

    \b
    agentv targets               name, provider, model and place of each target
    agentv targets check NAME…   one tiny call to each (all without a name); exit code 1 when one fails
    """
    context.obj = {"file": file, "as_json": as_json}
    if context.invoked_subcommand is not None:
        return
    from agentv.engine.calls.run_targets import open_targets

    targets = open_targets(".", file)
    if not targets.names:
        targets.pick()
    rows = [_row(targets, name) for name in targets.names]
    if as_json:
        _print_json(rows)
        return
    for warning in targets.warnings:
        output.say(output.styled("Warning:", "yellow") + f" {warning}")
    _print_columns([("name", "provider", "model", "where"), *map(_cells, rows)])
    for row in rows:
        if "problem" in row:
            output.note(row["problem"])


@command.command(
    "check",
    epilog="Examples:  agentv targets check  ·  agentv targets check gpt judge --json",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_file_option
@_json_option
@click.pass_context
def check(context: click.Context, names: tuple[str, ...], file: str | None, as_json: bool) -> None:
    """Make one tiny call to each target and report how it went.

    Exit code 0: all answered; 1: one did not; 2: wrong usage, or a targets file that is wrong.
    """
    import asyncio  # late: listing does without it

    from agentv.engine.calls.run_targets import open_targets
    from agentv.model.values import to_json
    from agentv.targets.check import check_targets

    targets = open_targets(".", file or context.obj["file"])
    if not targets.names:
        targets.pick()
    chosen = targets.pick(names) if names else targets.names
    checks = asyncio.run(check_targets(targets, chosen))
    width = max(len(name) for name in chosen)
    for each in checks:
        click.echo(to_json(each).decode() if as_json or context.obj["as_json"] else _line(each, width))
    if not all(each.ok for each in checks):
        sys.exit(EXIT_FINDINGS)


def _row(targets: Targets, name: str) -> dict[str, Any]:
    """What there is to say of a target. One whose variables are unset is listed as it is written."""
    row: dict[str, Any] = {"name": name, "provider": targets.raw(name)["provider"]}
    try:
        settings = targets.public(name)
        defaults = targets.get(name)
    except AgentvError as error:
        settings, defaults = targets.raw(name), None
        row["problem"] = error.detail or error.headline
    for key, places in {"model": ("model",), "where": _PLACES}.items():
        value = next((settings[place] for place in places if settings.get(place)), None)
        value = value or next((found for place in places if (found := getattr(defaults, place, None))), None)
        if value is not None:
            row[key] = str(value)
    return row


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return row["name"], row["provider"], row.get("model", "-"), row.get("where", "-")


def _line(each: Check, width: int) -> str:
    """One line for people, whatever a target said."""
    took = f"{each.duration_ms:,.0f} ms" if each.duration_ms is not None else ""
    if each.ok:
        usage = each.token_usage
        tokens = f"{usage.input} + {usage.output} tokens" if usage else ""
        said = "no text in the answer" if each.answer is not None and not each.answer.strip() else _short(each.answer)
        told = (click.style("ok ", fg="green"), each.name.ljust(width), took, tokens, said)
    else:
        told = (click.style("err", fg="red"), each.name.ljust(width), took, f"{each.error}:", _short(each.message, 500))
    note = f"({each.note})" if each.note else ""
    return "  ".join(filter(None, (*told, note))).rstrip()


def _short(text: str | None, most: int = 60) -> str:
    words = " ".join((text or "").split())
    return words if len(words) <= most else words[: most - 1] + "…"


def _print_columns(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_json(rows: list[dict[str, Any]]) -> None:
    from agentv.model.values import to_json

    for row in rows:
        click.echo(to_json(row).decode())
