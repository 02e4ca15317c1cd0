"""`agentv runs`: list and tag runs, show their trend, remove old ones."""

import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

import click
import msgspec

from agentv.cli import output
from agentv.cli.analysis_options import PruneArguments, RunFilters, RunsArguments, TagArguments, TrendArguments
from agentv.engine.named_runs import check_run_name, existing_run, run_name
from agentv.errors import EXIT_USAGE, AgentvError, UsageError, plural
from agentv.report.figures import can_show_bars
from agentv.report.run_tables import run_list, trend_lines
from agentv.report.terminal import width_of
from agentv.runs.catalogue import RunEntry, RunJournal, find_runs, is_removable, project_runs, remove_run
from agentv.runs.folder import RESULTS_FOLDER
from agentv.settings.project import project_root

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def list_runs(args: RunsArguments) -> None:
    """Print the runs that match."""
    entries = list(_found(args))
    for entry in entries[: args.limit] if args.as_json else ():
        output.echo_json(entry)
    if args.as_json:
        return
    if not entries:
        filters = (args.dataset, args.target, args.experiment, args.since, args.state, args.folder)
        output.note("No matching runs" if any(filters) else "This project has no runs yet. `agentv eval` starts one.")
        return
    table = run_list(entries[: args.limit], width_of(sys.stdout))
    output.echo("\n".join(table.lines))
    if table.left_out:
        output.note(f"Columns that do not fit: {', '.join(table.left_out)}. Use a wider terminal or --json.")
    if len(entries) > args.limit:
        output.note(f"{plural(len(entries) - args.limit, 'older run')} not shown; use --limit to show more")


def print_trend(args: TrendArguments) -> None:
    """Print means over time."""
    from agentv.comparison.trend import series_data, series_of  # late: it imports numpy

    if not (all_series := series_of(_found(args))):
        output.note("No matching runs with scores")
    for number, series in enumerate(all_series):
        if args.as_json:
            output.echo_json(series_data(series))
            continue
        if number:
            output.echo()
        output.echo("\n".join(trend_lines(series, can_show_bars(sys.stdout.encoding))))


def tag(args: TagArguments) -> None:
    """Let a tag name a run, or remove the tag."""
    if (args.name is None) != args.remove:
        raise click.UsageError("Pass a RUN and a TAG, or --remove and a TAG")
    name = check_run_name(args.run if args.name is None else args.name, "tag")
    journal = RunJournal(project_root("."))
    before = journal.tags.get(name)
    if args.remove and before is None:
        raise UsageError(f"No run has the tag '{name}'", hint="`agentv runs` lists the runs of the project")
    path = None if args.remove else existing_run(args.run)
    journal.tag(name, path)
    if path is None:
        output.echo(f"Removed the tag {name}")
        return
    moved = "" if before is None or before == path else f", before: {run_name(before)}"
    output.echo(f"Tagged {run_name(path)} as {name}{moved}")


def prune(args: PruneArguments) -> None:
    """Remove old runs after a confirmation."""
    if args.keep is None and args.older_than is None:
        raise UsageError("prune needs to know which runs are old", hint="Pass --keep N, --older-than 30d, or both")
    results = os.path.realpath(args.folder or os.path.join(project_root("."), RESULTS_FOLDER))
    inside = (entry for entry in _found(args) if os.path.realpath(os.path.dirname(entry.path)) == results)
    ours = [entry for entry in inside if is_removable(entry)]
    old = ours[args.keep or 0 :]
    if args.older_than is not None:
        limit = datetime.now(UTC) - _age(args.older_than, "--older-than")
        old = [entry for entry in old if entry.began is not None and entry.began < limit]
    if not old:
        output.message("Nothing to remove")
        return
    for entry in old:
        output.echo(f"{entry.name}  {(entry.started_at or '')[:16].replace('T', ' ')}  {entry.state}")
    if args.dry_run:
        output.message(f"Would remove {plural(len(old), 'run')} and keep {len(ours) - len(old):,}")
        return
    if not args.yes and not _agreed(len(old)):
        output.message("Nothing was removed")
        return
    removed = _removed(old)
    output.message(f"Removed {plural(removed, 'run')}, kept {len(ours) - removed:,}")
    if removed < len(old):
        sys.exit(EXIT_USAGE)


def _agreed(count: int) -> bool:
    if not sys.stdin.isatty():
        hint = "Pass --yes to remove without confirmation"
        raise UsageError(f"Cannot ask for confirmation to remove {plural(count, 'run')}: no terminal", hint=hint)
    return click.confirm(f"Permanently remove {plural(count, 'run')}?", err=True)


def _removed(entries: list[RunEntry]) -> int:
    removed = 0
    for entry in entries:
        try:
            remove_run(entry)
            removed += 1
        except AgentvError as error:
            output.warn(error)
    return removed


def _found(args: RunFilters) -> Iterator[RunEntry]:
    """Yield the runs that match all filters, newest first."""
    if args.folder and not os.path.isdir(args.folder):
        raise UsageError(f"No such folder: {args.folder}")
    since = None if args.since is None else _moment(args.since)
    for entry in find_runs(args.folder) if args.folder else project_runs(project_root(".")):
        if args.state not in (None, entry.state):
            continue
        if since is not None and (entry.began is None or entry.began < since):
            continue
        if not _matches(args.experiment, (entry.experiment or "",)):
            continue
        if _matches(args.dataset, entry.datasets) and _matches(args.target, tuple(entry.targets)):
            yield msgspec.structs.replace(entry, name=run_name(entry.path))


def _matches(glob: str | None, names: tuple[str, ...]) -> bool:
    return glob is None or any(fnmatchcase(name, glob) for name in names)


def _moment(text: str) -> datetime:
    """Parse a date, a timestamp or an age."""
    if re.fullmatch(r"\d+[hdw]", text):
        return datetime.now(UTC) - _age(text, "--since")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--since takes a date such as 2026-11-01, or an age such as 30d, got {text!r}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _age(text: str, option: str) -> timedelta:
    if (match := re.fullmatch(r"(\d{1,5})([hdw])", text)) is None:
        raise UsageError(f"{option} takes hours, days or weeks such as 36h, 30d or 8w, got {text!r}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
