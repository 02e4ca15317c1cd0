"""`agentv runs check` and `agentv runs repair`: find damage in a run folder, and repair it."""

from __future__ import annotations

import shlex
import sys

from agentv.cli import output
from agentv.cli.analysis_options import CheckArguments, RepairArguments
from agentv.engine.named_runs import existing_run, run_name
from agentv.errors import EXIT_FINDINGS, plural
from agentv.runs.maintenance.damage import check_run
from agentv.runs.maintenance.repair import repair_run

_MOST_SHOWN = 20


def check(args: CheckArguments) -> None:
    """Print the damage of a run. Exits with 1 if there is any."""
    path = existing_run(args.run)
    health, name = check_run(path), run_name(path)
    if args.as_json:
        output.echo_json(health)
    else:
        found = "no damage" if not health.problems else plural(len(health.problems), "problem")
        counts = f"{plural(health.cases, 'readable case')}, {plural(health.records, 'readable record')}"
        output.echo(f"{name}: {found} ({counts})")
        for problem in health.problems[:_MOST_SHOWN]:
            output.echo(f"  {problem}")
        if len(health.problems) > _MOST_SHOWN:
            output.echo(f"  … and {len(health.problems) - _MOST_SHOWN:,} more; --json lists all")
        for note in health.notes:
            output.note(note)
    if health.problems:
        if not args.as_json and health.needs_only_resume:
            output.note(f"Complete the run with: agentv eval --resume --out {shlex.quote(name)}")
        elif not args.as_json:
            output.note(f"Repair the run with: agentv runs repair {shlex.quote(name)}")
        sys.exit(EXIT_FINDINGS)


def repair(args: RepairArguments) -> None:
    """Repair a run. Exits with 1 if cases or records were lost."""
    path = existing_run(args.run)
    done, name = repair_run(path), run_name(path)
    if args.as_json:
        output.echo_json(done)
    elif not done.changes:
        output.echo(f"{name}: nothing to repair")
    else:
        output.echo(f"{name}: repaired")
        for change in done.changes:
            output.echo(f"  {change}")
    if not done.needs_resume and not done.lost_fields:
        return
    if done.obstacle:
        output.note(f"The run cannot be resumed. {done.obstacle}.")
    else:
        output.note(f"The run is incomplete; run the rest with: agentv eval --resume --out {shlex.quote(name)}")
    sys.exit(EXIT_FINDINGS)
