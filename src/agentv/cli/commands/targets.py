"""`agentv targets`: list the targets of a project, or check them with a call."""

import asyncio
import sys
from typing import Any

from agentv.cli import output
from agentv.cli.project_options import CheckArguments, TargetsArguments
from agentv.engine.run_project import open_targets
from agentv.errors import EXIT_FINDINGS, AgentvError, TargetsError
from agentv.report.figures import aligned, one_line
from agentv.targets.catalog import Targets
from agentv.targets.check import TargetCheck, check_targets
from agentv.trust.consent import check_policy

_PLACES = ("base_url", "endpoint", "resource", "url", "command_template", "executable", "function", "from", "region")

_FORMAT_NOTES = {
    "json_object": "no JSON Schema support: as a judge, it is called with json_object",
    "text": "no JSON Schema support: as a judge, it is called without a response format",
}


def list_targets(args: TargetsArguments) -> None:
    """Print name, provider, model and location of each target."""
    targets = _opened(args.targets_file)
    rows = [_row(targets, name) for name in targets.names]
    if args.as_json:
        for row in rows:
            output.echo_json(row)
        return
    for warning in targets.warnings:
        output.warn(warning)
    cells = [[row["name"], row["provider"], row.get("model", "-"), row.get("where", "-")] for row in rows]
    output.echo("\n".join(aligned([["name", "provider", "model", "where"], *cells])))
    for row in rows:
        if "problem" in row:
            output.note(row["problem"])


def check(args: CheckArguments) -> None:
    """Call each target and print the result."""
    targets = _opened(args.targets_file)
    names = targets.pick(args.names) if args.names else targets.names
    check_policy(targets.uses(names))
    checks = asyncio.run(check_targets(targets, names))
    width = max(len(name) for name in names)
    for result in checks:
        if args.as_json:
            output.echo_json(result)
        else:
            _print_check(result, width)
    if not all(result.ok for result in checks):
        sys.exit(EXIT_FINDINGS)


def _opened(file: str | None) -> Targets:
    targets = open_targets(".", file)
    if not targets.names:
        targets.pick()
    return targets


def _row(targets: Targets, name: str) -> dict[str, Any]:
    """Describe a target. If its variables are unset, its settings are listed as written."""
    row: dict[str, Any] = {"name": name, "provider": targets.raw(name)["provider"]}
    try:
        settings = targets.public(name)
        defaults = targets.get(name)
    except AgentvError as error:
        settings, defaults = targets.raw(name), None
        row["problem"] = error.detail or error.headline
        if isinstance(error, TargetsError):
            line = f", line {error.line}" if error.line and not error.detail.startswith("Line ") else ""
            row["problem"] = f"{error.path}{line}: {row['problem']}"
    for key, places in {"model": ("model",), "where": _PLACES}.items():
        value = next((settings[place] for place in places if settings.get(place)), None)
        value = value or next((default for place in places if (default := getattr(defaults, place, None))), None)
        if value is not None:
            row[key] = str(value)
    return row


def _print_check(result: TargetCheck, width: int) -> None:
    """Print the result of a check as one line."""
    took = f"{result.duration_ms:,.0f} ms" if result.duration_ms is not None else ""
    if result.ok:
        usage = result.token_usage
        tokens = f"{usage.input} + {usage.output} tokens" if usage else ""
        text = "empty response" if result.answer is not None and not result.answer.strip() else result.answer or ""
        parts = (took, tokens, one_line(text, 60))
    else:
        reason = one_line(result.message or "", 500)
        parts = (took, f"{result.error}:", reason)
    notes = [note for note in (result.note, _FORMAT_NOTES.get(result.response_format or "")) if note]
    line = "  ".join(filter(None, (result.name.ljust(width), *parts, f"({'; '.join(notes)})" if notes else "")))
    output.echo(output.Styled("ok " if result.ok else "err", fg="green" if result.ok else "red"), "  ", line.rstrip())
