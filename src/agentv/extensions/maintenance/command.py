"""`agentv runs merge`, `check` and `repair`: merge shards, find damage in a run folder, and repair it."""

import shlex
import sys

from agentv.cli import output
from agentv.cli.options import PATH, Arguments, argument, declare, flag, option
from agentv.engine.named_runs import existing_run, run_name
from agentv.errors import EXIT_FINDINGS, plural
from agentv.extensions.maintenance.merge import merge_runs
from agentv.extensions.maintenance.repair import repair_run
from agentv.runs.catalogue import RunJournal
from agentv.runs.damage import check_run
from agentv.settings.project import project_root

_MOST_SHOWN = 20


class MergeArguments(Arguments):
    """Merge the runs of several shards into one run.

    SHARD is a run folder or run id, usually from `agentv eval --shard`. All shards must have the same datasets,
    targets, evaluators, options and versions. A merge can be repeated with further shards. If shards are missing or
    unfinished, the merged run is unfinished, and `agentv eval --resume --out DIR` runs the rest.

    \b
    Exit codes: 0 merged   1 merged, but shards are missing or unfinished   2 usage error, or runs that do not match
    """

    action = "agentv.extensions.maintenance.command:merge"
    examples = ("agentv runs merge shard-1 shard-2 --out whole",)

    shards: tuple[str, ...] = argument(nargs=-1, required=True, metavar="SHARD...", type=str)
    out: str = option("--out DIR", "Folder of the merged run.", PATH, required=True)


class CheckRunArguments(Arguments):
    """Find damage in a run: bad lines, duplicates, missing cases and records, and files that were changed.

    A run that was killed is not damaged: `agentv eval --resume` completes it.

    \b
    Exit codes: 0 no damage   1 damage   2 usage error
    """

    action = "agentv.extensions.maintenance.command:check"
    examples = ("agentv runs check latest", "agentv runs check shard-1 --json")

    run: str = argument(metavar="RUN", type=str)
    as_json: bool = flag("--json", "Print the result as one JSON object.")


class RepairArguments(Arguments):
    """Repair a damaged run: keep what is whole, and put the rest aside.

    Bad lines and second records of a job are moved to results.jsonl.damaged and cases.jsonl.damaged in the run folder.
    A damaged run.json is restored field by field, and the summary is computed again. Nothing is deleted. If cases or
    records were lost, the run becomes unfinished, and `agentv eval --resume --out RUN` runs the rest.

    \b
    Exit codes: 0 nothing was lost   1 repaired, but cases, records or fields of run.json were lost   2 usage error
    """

    action = "agentv.extensions.maintenance.command:repair"
    examples = ("agentv runs repair latest", "agentv eval --resume --out RUN")

    run: str = argument(metavar="RUN", type=str)
    as_json: bool = flag("--json", "Print the result as one JSON object.")


def merge(args: MergeArguments) -> None:
    """Merge the runs of shards into one."""
    merged = merge_runs([existing_run(shard) for shard in args.shards], args.out)
    RunJournal(project_root(".")).add_run(args.out)
    for missing in merged.missing:
        output.note(f"Shard {missing} is missing")
    for path in merged.unfinished:
        output.note(f"{run_name(path)} is unfinished")
    output.message(f"Merged {plural(merged.runs, 'run')} with {plural(merged.records, 'result')} into {args.out}")
    if merged.missing or merged.unfinished:
        output.note(f"The merged run is unfinished; run the rest with: agentv eval --resume --out {args.out}")
        sys.exit(EXIT_FINDINGS)


def check(args: CheckRunArguments) -> None:
    """Print the damage of a run. Exits with 1 if there is any."""
    path = existing_run(args.run)
    health, name = check_run(path), run_name(path)
    if args.as_json:
        output.echo_json(health)
    else:
        status = "no damage" if not health.problems else plural(len(health.problems), "problem")
        counts = f"{plural(health.cases, 'readable case')}, {plural(health.records, 'readable record')}"
        output.echo(f"{name}: {status} ({counts})")
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
    result, name = repair_run(path), run_name(path)
    if args.as_json:
        output.echo_json(result)
    elif not result.changes:
        output.echo(f"{name}: nothing to repair")
    else:
        output.echo(f"{name}: repaired")
        for change in result.changes:
            output.echo(f"  {change}")
    if not result.needs_resume and not result.lost_fields:
        return
    if result.obstacle:
        output.note(f"The run cannot be resumed. {result.obstacle}.")
    else:
        output.note(f"The run is incomplete; run the rest with: agentv eval --resume --out {shlex.quote(name)}")
    sys.exit(EXIT_FINDINGS)


merge_command = declare("merge", MergeArguments)
check_command = declare("check", CheckRunArguments)
repair_command = declare("repair", RepairArguments)
