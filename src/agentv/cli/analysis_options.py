"""The arguments of the commands that look at finished runs: compare, plan and runs."""

from __future__ import annotations

import click

from agentv.cli.options import AT_LEAST_0, AT_LEAST_1, PATH, SHARE, Arguments, Real, argument, declare, flag, option

_FRACTION = Real(0, 1, min_open=True, max_open=True)


class CompareArguments(Arguments):
    """RUN is a run's folder or id, or a file of results, AgentV's too; RUN:target picks one target, and RUN:prompt one
    prompt. Cases are joined by dataset and id, and trials are averaged. A single run is split by its targets, or by its
    prompts where it has one target; more than two runs give a matrix and a ranking, in which the first is the one that
    others must not be worse than.

    \b
    Exit codes: 0 fine   1 what --fail-on names   2 usage, or files that cannot be read
    """

    action = "agentv.cli.commands.compare:compare"
    examples = (
        "agentv compare before after",
        "agentv compare RUN:old RUN:new --markdown",
        "agentv compare before after --margin 0.02",
        "agentv compare a.jsonl b.jsonl --json",
    )

    runs: tuple[str, ...] = argument(nargs=-1, required=True, metavar="RUN...", type=str)
    threshold: float = option("--threshold", "Smaller changes of a case are ties.", SHARE, default=0.1)
    margin: float | None = option("--margin M", "Test whether B is worse than A by less than M.", SHARE)
    fail_on: str | None = option(
        "--fail-on",
        "Exit 1 when B is shown to be worse (regression, the default), has a lower mean (worse), lost a case "
        "(any-loss), or is not shown to be better (inconclusive, the default with --margin).",
        click.Choice(["regression", "worse", "any-loss", "inconclusive", "never"]),
    )
    changes: int = option("--changes", "Number of cases shown with answers.", AT_LEAST_0, default=5)
    seed: int = option("--seed", "Random seed of the permutation test.", int, default=0)
    as_json: bool = flag("--json", "Print everything as JSON.")
    as_markdown: bool = flag("--markdown", "Print Markdown, for a pull request.")


class PlanArguments(Arguments):
    """RUN is an earlier run, from which the variance is taken: of its cases, and of trials where it has several of
    each. Two runs also show how far they are correlated, which is otherwise a guess. Nothing is called.
    """

    action = "agentv.cli.commands.compare:print_plan"
    examples = (
        "agentv plan RUN --difference 0.03",
        "agentv plan before after --power 0.9",
        "agentv plan RUN --trials 1 --trials 5 --json",
    )

    runs: tuple[str, ...] = argument(nargs=-1, required=True, metavar="RUN...", type=str)
    differences: tuple[float, ...] = option(
        "--difference -d X", "Difference to detect; repeatable.", _FRACTION, multiple=True
    )
    trials: tuple[int, ...] = option("--trials N", "Trials of each case; repeatable.", AT_LEAST_1, multiple=True)
    power: float = option("--power", "Chance to detect it, if it is there.", _FRACTION, default=0.8)
    alpha: float = option("--alpha", "Chance to see one that is not there.", _FRACTION, default=0.05)
    correlation: float = option(
        "--correlation",
        "With one run: expected correlation of the scores of the same case in the next.",
        Real(-1, 1),
        default=0.5,
    )
    as_json: bool = flag("--json", "Print it as JSON.")


class RunFilters(Arguments):
    """Which runs of the project are wanted."""

    folder: str | None = option("--in DIR", "Folder of the runs (default: .agentv/results).", PATH)
    dataset: str | None = option("--dataset GLOB", "Runs of a dataset with this name.")
    target: str | None = option("--target GLOB", "Runs of a target with this name.")
    since: str | None = option("--since DATE|AGE", "Started since 2026-11-01, or within 36h, 30d, 8w.")
    state: str | None = option(
        "--state",
        "State of the run; foreign ones are AgentV's.",
        click.Choice(["finished", "unfinished", "running", "foreign"]),
    )


class RunsArguments(RunFilters):
    """The newest first; those under .agentv/results of the project, AgentV's among them.

    \b
    agentv runs          id, time, state, datasets, and each target's mean with its interval
    agentv runs trend    the means of the same datasets and target over time, and where their level changed
    agentv runs prune    remove old runs; asks first, and never touches one that is running
    agentv runs merge    join the runs of shards into one
    """

    action = "agentv.cli.commands.runs:list_runs"
    examples = (
        "agentv runs",
        "agentv runs --dataset support --since 30d",
        "agentv runs trend",
        "agentv runs prune --keep 20 --older-than 30d",
    )

    limit: int = option("--limit", "Maximum number of runs.", AT_LEAST_1, default=20)
    as_json: bool = flag("--json", "Print one JSON object per line.")


class TrendArguments(RunFilters):
    """Show means over time, and where their level changed.

    Runs of the same datasets and the same target make a series. A change is one that the intervals of the runs show at
    5 %, all places tried; to find out whether two runs differ, use `agentv compare`, which goes case by case.
    """

    action = "agentv.cli.commands.runs:print_trend"
    examples = ("agentv runs trend", "agentv runs trend --dataset support --json")

    as_json: bool = flag("--json", "Print one JSON object per series.")


class PruneArguments(RunFilters):
    """Remove old runs: those beyond --keep, and older than --older-than, both where both are given.

    It asks first; without a terminal to ask on, it needs --yes. Runs that a process is writing to, runs of AgentV's and
    links are never removed.

    \b
    Exit codes: 0 done   2 usage, or some could not be removed
    """

    action = "agentv.cli.commands.runs:prune"
    examples = (
        "agentv runs prune --keep 20",
        "agentv runs prune --older-than 30d --dry-run",
        "agentv runs prune --keep 5 --state unfinished --yes",
    )

    keep: int | None = option("--keep N", "Keep the newest N of those that match.", AT_LEAST_0)
    older_than: str | None = option("--older-than AGE", "Only runs started longer ago: 36h, 30d, 8w.")
    dry_run: bool = flag("--dry-run", "Print what would be removed, and remove nothing.")
    yes: bool = flag("--yes -y", "Do not ask.")


class MergeArguments(Arguments):
    """Merge the runs of several shards into one run, as if one machine had run them all.

    SHARD is the folder or id of a run, usually one of `agentv eval --shard`. All of them must have the same datasets,
    targets, evaluators, options and versions. A merge can be repeated, also with further shards. If shards are missing
    or unfinished, the merged run is unfinished, and `agentv eval --resume --out DIR` runs the rest.

    \b
    Exit codes: 0 merged   1 merged, but shards are missing or unfinished   2 usage, or runs that do not belong together
    """

    action = "agentv.cli.commands.runs:merge"
    examples = ("agentv runs merge shard-1 shard-2 --out whole",)

    shards: tuple[str, ...] = argument(nargs=-1, required=True, metavar="SHARD...", type=str)
    out: str = option("--out DIR", "Folder of the merged run.", PATH, required=True)


compare_command = declare("compare", CompareArguments)
plan_command = declare("plan", PlanArguments)
runs_command = declare(
    "runs",
    RunsArguments,
    declare("trend", TrendArguments),
    declare("prune", PruneArguments),
    declare("merge", MergeArguments),
)
