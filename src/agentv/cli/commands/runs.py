"""`agentv runs`: which runs there are, how they went over time, and which of them go."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from agentv.cli import output
from agentv.cli.options import AT_LEAST_0, AT_LEAST_1
from agentv.errors import EXIT_USAGE, AgentvError, UsageError

if TYPE_CHECKING:
    from agentv.runs.catalogue import RunEntry


STATES = ["finished", "unfinished", "running", "foreign"]
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}

_FILTERS = (
    click.option("--in", "folder", metavar="DIR", type=click.Path(), help="Where the runs are: .agentv/results."),
    click.option("--dataset", metavar="GLOB", help="Runs of a dataset of this name."),
    click.option("--target", metavar="GLOB", help="Runs of a target of this name."),
    click.option("--since", metavar="DATE|AGE", help="Begun since 2026-11-01, or within 36h, 30d, 8w."),
    click.option("--state", type=click.Choice(STATES), help="How a run stands; foreign ones are AgentV's."),
)


def _with_filters(command: Any) -> Any:
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group(
    "runs",
    invoke_without_command=True,
    epilog="Examples:  agentv runs  ·  agentv runs --dataset support --since 30d  ·  agentv runs trend  ·  "
    "agentv runs prune --keep 20 --older-than 30d",
)
@_with_filters
@click.option("--limit", type=AT_LEAST_1, default=20, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
@click.pass_context
def command(context: click.Context, /, limit: int, as_json: bool, **wanted: Any) -> None:
    """List runs, show their trend, remove old ones.

    The newest first; those under .agentv/results of the project, AgentV's among them.

    \b
    agentv runs          id, time, state, datasets, and each target's mean with its interval
    agentv runs trend    the means of the same datasets and target over time, and where their level changed
    agentv runs prune    remove old runs; asks first, and never touches one that is running
    """
    context.obj = wanted
    if context.invoked_subcommand is not None:
        return
    from agentv.model.values import to_json

    found = list(_found(wanted))
    for entry in found[:limit] if as_json else ():
        click.echo(to_json(entry).decode())
    if as_json:
        return
    if not found:
        output.note("There are no runs, or none that match")
        return
    from agentv.report.run_tables import run_list
    from agentv.report.terminal import width_of

    table = run_list(found[:limit], width_of(sys.stdout))
    for line in table.lines:
        click.echo(line)
    if table.left_out:
        output.note(f"There is no room for {', '.join(table.left_out)}; a wider terminal or --json shows them")
    if len(found) > limit:
        output.note(f"{len(found) - limit:,} older runs are not shown; --limit shows more")


@command.command("trend", epilog="Examples:  agentv runs trend  ·  agentv runs trend --dataset support --json")
@_with_filters
@click.option("--json", "as_json", is_flag=True, help="One JSON object a series, for programs.")
@click.pass_obj
def trend(before: dict[str, Any], /, as_json: bool, **wanted: Any) -> None:
    """Show means over time, and where their level changed.

    Runs of the same datasets and the same target make a series. A change is one that the intervals of the runs show at
    5 %, all places tried; whether two runs differ is better asked of `agentv compare`, which goes case by case.
    """
    from agentv.model.values import to_json
    from agentv.report.figures import can_show_bars
    from agentv.report.run_tables import series_of, trend_lines

    found = series_of(list(_found(wanted, before)))
    if not found:
        output.note("There are no runs with scores, or none that match")
    for number, series in enumerate(found):
        if as_json:
            click.echo(to_json(_series_data(series)).decode())
            continue
        if number:
            click.echo()
        for line in trend_lines(series, can_show_bars(sys.stdout.encoding)):
            click.echo(line)


@command.command(
    "prune",
    epilog="Examples:  agentv runs prune --keep 20  ·  agentv runs prune --older-than 30d --dry-run  ·  "
    "agentv runs prune --keep 5 --state unfinished --yes",
)
@_with_filters
@click.option("--keep", type=AT_LEAST_0, metavar="N", help="Keep the newest N of those that match.")
@click.option("--older-than", metavar="AGE", help="Only runs begun longer ago: 36h, 30d, 8w.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and remove nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def prune(
    before: dict[str, Any], /, keep: int | None, older_than: str | None, dry_run: bool, yes: bool, **wanted: Any
) -> None:
    """Remove old runs: those beyond --keep, and older than --older-than, both where both are given.

    It asks first; without a terminal to ask on, it needs --yes. Runs that a process is writing to, runs of AgentV's and
    links are never removed.

    \b
    Exit codes: 0 done   2 usage, or some could not be removed
    """
    from agentv.runs.catalogue import removable

    if keep is None and older_than is None:
        raise UsageError("Nothing says which runs are old", hint="Give --keep N, --older-than 30d, or both")
    ours = [entry for entry in _found(wanted, before) if removable(entry)]
    old = ours[keep or 0 :]
    if older_than is not None:
        limit = datetime.now(UTC) - _age(older_than, "--older-than")
        old = [entry for entry in old if entry.began is not None and entry.began < limit]
    if not old:
        output.say("Nothing to remove")
        return
    for entry in old:
        click.echo(f"{entry.name}  {_day(entry)}  {entry.state}")
    if dry_run:
        output.say(f"{_runs(len(old))} would be removed, {len(ours) - len(old):,} kept")
        return
    if not yes and not _agreed(len(old)):
        output.say("Nothing was removed")
        return
    removed = _removed(old)
    output.say(f"{_runs(removed)} removed, {len(ours) - removed:,} kept")
    if removed < len(old):
        sys.exit(EXIT_USAGE)


def _agreed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(f"{_runs(count)} would be removed, and there is nobody to ask", hint="Say so with --yes")
    return click.confirm(f"Remove {_runs(count)} for good?", err=True)


def _removed(entries: list[RunEntry]) -> int:
    from agentv.runs.catalogue import remove

    removed = 0
    for entry in entries:
        try:
            remove(entry)
            removed += 1
        except AgentvError as error:
            output.say(output.styled("Warning:", "yellow") + f" {error}")
    return removed


def _found(wanted: dict[str, Any], before: dict[str, Any] | None = None) -> Iterator[RunEntry]:
    """The runs that all filters let through, the newest first. Filters may stand before a subcommand's name too."""
    import msgspec

    from agentv.datasets.files import project_root
    from agentv.engine.named_runs import run_name
    from agentv.runs.catalogue import entries
    from agentv.runs.folder import RESULTS_FOLDER

    wanted = {key: (before or {}).get(key) if value is None else value for key, value in wanted.items()}
    folder = wanted["folder"] or os.path.join(project_root("."), RESULTS_FOLDER)
    if wanted["folder"] and not os.path.isdir(folder):
        raise UsageError(f"No such folder: {folder}")
    since = None if wanted["since"] is None else _moment(wanted["since"])
    for entry in entries(folder):
        if wanted["state"] not in (None, entry.state):
            continue
        if since is not None and (entry.began is None or entry.began < since):
            continue
        names = {"dataset": entry.datasets, "target": tuple(entry.targets)}
        if all(_matches(wanted[key], values) for key, values in names.items()):
            yield msgspec.structs.replace(entry, name=run_name(entry.path))


def _matches(glob: str | None, names: tuple[str, ...]) -> bool:
    return glob is None or any(fnmatchcase(name, glob) for name in names)


def _moment(text: str) -> datetime:
    """A date, a moment, or how long ago."""
    if re.fullmatch(r"\d+[hdw]", text):
        return datetime.now(UTC) - _age(text, "--since")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--since takes a date such as 2026-11-01, or an age such as 30d, got {text!r}") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _age(text: str, option: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if found is None:
        raise UsageError(f"{option} takes hours, days or weeks such as 36h, 30d or 8w, got {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _series_data(series: Any) -> dict[str, Any]:
    runs = [
        {"run_id": run.run_id, "name": run.name, "started_at": run.started_at, "git_commit": run.git_commit,
         "mean": target.mean, "ci95": target.ci95, "scored": target.scored, "errors": target.errors}
        for run, target in series.runs
    ]  # fmt: skip
    changes = [{"run_id": series.runs[change.position][0].run_id, **change._asdict()} for change in series.changes]
    return {"datasets": series.datasets, "target": series.target, "runs": runs, "changes": changes}


def _day(entry: RunEntry) -> str:
    return (entry.started_at or "")[:16].replace("T", " ")


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"
