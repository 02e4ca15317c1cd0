"""The arguments of the commands that analyse finished runs: compare and runs."""

import click

from agentv.cli.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    FILE,
    PATH,
    SHARE,
    Arguments,
    Number,
    argument,
    declare,
    flag,
    option,
)
from agentv.model.diagnostics import Range


class CompareArguments(Arguments):
    """RUN is a run folder, a run id, or results of another tool. RUN:target selects one target, RUN:prompt one prompt.
    Cases are matched by dataset and id if their input is the same, and trials are averaged. A single run is split by
    target, or by prompt if it has one target. Three or more runs give a matrix and a ranking; the first run is the
    baseline. With --baseline, all runs are compared with it: several runs of the same target, cases and measure are one
    baseline with several trials of each case.

    \b
    Exit codes: 0 passed   1 the --fail-on condition is met   2 usage error, or a run cannot be read
                5 can't tell: references, evaluators or judges differ, errors decide, or the judge is not calibrated
    """

    action = "agentv.cli.commands.compare:compare"
    examples = (
        "agentv compare before after",
        "agentv compare RUN:old RUN:new --markdown",
        "agentv compare after --baseline monday --baseline tuesday",
        "agentv compare before after --margin 0.02",
        "agentv compare before after --case refund-3",
        "agentv compare inspect.eval promptfoo.json --json",
    )

    runs: tuple[str, ...] = argument(nargs=-1, required=True, metavar="RUN...", type=str)
    baselines: tuple[str, ...] = option(
        "--baseline RUN",
        "Run to compare with. Repeat it, or name an experiment or @BRANCH, to pool runs of the same target, cases and "
        "measure into one baseline.",
        multiple=True,
    )
    threshold: float = option("--threshold X", "Count smaller changes of a case as ties.", SHARE, default=0.1)
    margin: float | None = option("--margin M", "Test whether B is at most M worse than A (non-inferiority).", SHARE)
    fail_on: str | None = option(
        "--fail-on",
        "Exit with 1 if B is significantly worse (regression, the default), has a lower mean (worse), loses a case "
        "(any-loss). With inconclusive (the default with --margin), also exit with 5 if B is not shown to be better.",
        click.Choice(["regression", "worse", "any-loss", "inconclusive", "never"]),
    )
    max_errors: str | None = option(
        "--max-errors N|N%", "Exit with 1 if B has more errors than N, or N% of its results.", str
    )
    judge_must_agree: float | None = option(
        "--judge-must-agree K",
        "Exit with 5 unless the lower bound of kappa between judge and labels reaches K, or both runs are labelled.",
        Number(Range(-1, 1)),
    )
    all_pairs: bool = flag(
        "--all-pairs", "Of three or more runs, test all pairs instead of each run against the first."
    )
    allow_changed_measure: bool = flag(
        "--allow-changed-measure", "Give a verdict even if references, evaluators or judges differ between the runs."
    )
    changes: int = option("--changes N", "Number of changed cases to show with their answers.", AT_LEAST_0, default=5)
    cases: tuple[str, ...] = option(
        "--case ID",
        "Show the answers and aligned tool calls of this case instead of the largest changes. Repeatable.",
        multiple=True,
    )
    seed: int = option("--seed N", "Random seed of the permutation test.", int, default=0)
    as_json: bool = flag("--json", "Print the comparison as JSON.")
    as_markdown: bool = flag("--markdown", "Print the comparison as Markdown, for a pull request.")
    html: str | None = option("--html FILE", "Also write the comparison as an HTML page that opens offline.", FILE)


class RunFilters(Arguments):
    """Options that select runs of the project."""

    folder: str | None = option("--in DIR", "Folder to search for runs (default: all runs of the project).", PATH)
    dataset: str | None = option("--dataset GLOB", "Select runs of a dataset with this name.")
    target: str | None = option("--target GLOB", "Select runs of a target with this name.")
    experiment: str | None = option("--experiment GLOB", "Select runs with this --experiment.")
    since: str | None = option(
        "--since DATE|AGE", "Select runs started since a date (2026-11-01) or within an age (36h, 30d, 8w)."
    )
    state: str | None = option(
        "--state",
        "Select runs in this state; foreign runs are results of other tools.",
        click.Choice(["finished", "unfinished", "running", "foreign"]),
    )


class RunsArguments(RunFilters):
    """Lists the runs of the project, newest first, including those made with --out and those of AgentV (TypeScript).
    RUN is a path, an id or the beginning of one, `latest`, `latest~1` for the run before, `@tag`, or `@experiment` for
    the newest run of an experiment.

    \b
    agentv runs          list id, time, state, datasets, and the mean of each target with its interval
    agentv runs trend    show means over time for the same datasets and target, and where they changed
    agentv runs tag      name a run, so that commands find it as @NAME
    agentv runs prune    remove old runs, after a confirmation; never removes a run in progress
    agentv runs merge    merge the runs of shards into one run
    agentv runs check    find damage in a run
    agentv runs repair   keep what is whole in a damaged run, and put the rest aside
    agentv runs import   keep results of another tool as a run
    agentv runs export   write a run in the format of Every Eval Ever
    """

    action = "agentv.cli.commands.runs:list_runs"
    examples = (
        "agentv runs",
        "agentv runs --dataset support --since 30d",
        "agentv runs trend",
        "agentv runs tag latest baseline",
        "agentv runs prune --keep 20 --older-than 30d",
    )

    limit: int = option("--limit N", "Maximum number of runs to list.", AT_LEAST_1, default=20)
    as_json: bool = flag("--json", "Print one JSON object per line.")


class TrendArguments(RunFilters):
    """Show means over time, and where they changed.

    Runs of the same datasets and target form a series. Each run is compared with the earlier ones case by case. A flat
    series shows a change with a probability of at most 5 %, however many runs it has and however often you look.
    """

    action = "agentv.cli.commands.runs:print_trend"
    examples = ("agentv runs trend", "agentv runs trend --dataset support --json")

    as_json: bool = flag("--json", "Print one JSON object per series.")


class TagArguments(Arguments):
    """Name a run, so that commands find it as @TAG.

    A tag names one run of the project: tagging another run moves the tag. Tagged runs are never pruned.
    """

    action = "agentv.cli.commands.runs:tag"
    examples = (
        "agentv runs tag latest baseline",
        "agentv compare @baseline latest",
        "agentv runs tag --remove baseline",
    )

    run: str = argument(metavar="[RUN]", type=str)
    name: str | None = argument(metavar="TAG", type=str, required=False)
    remove: bool = flag("--remove", "Remove the tag.")


class PruneArguments(RunFilters):
    """Remove old runs.

    Removes the runs beyond --keep, the runs older than --older-than, or with both options the runs that are both. Asks
    for confirmation; without a terminal, --yes is required. Only runs in .agentv/results, or in --in, are removed; runs
    in progress, tagged runs, runs of AgentV (TypeScript) and symbolic links never are.

    \b
    Exit codes: 0 done   2 usage error, or some runs could not be removed
    """

    action = "agentv.cli.commands.runs:prune"
    examples = (
        "agentv runs prune --keep 20",
        "agentv runs prune --older-than 30d --dry-run",
        "agentv runs prune --keep 5 --state unfinished --yes",
    )

    keep: int | None = option("--keep N", "Keep the newest N runs that match.", AT_LEAST_0)
    older_than: str | None = option("--older-than AGE", "Remove only runs older than this: 36h, 30d, 8w.")
    dry_run: bool = flag("--dry-run", "List the runs that would be removed; remove nothing.")
    yes: bool = flag("--yes -y", "Remove without confirmation.")


compare_command = declare("compare", CompareArguments)
runs_command = declare(
    "runs",
    RunsArguments,
    declare("trend", TrendArguments),
    declare("tag", TagArguments),
    declare("prune", PruneArguments),
)
