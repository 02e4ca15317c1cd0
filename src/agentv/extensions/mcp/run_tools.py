"""Tools that read runs: list them, read their figures, failures and results, and compare two of them."""

import os
from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice, takewhile
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.comparison.comparison_json import comparison_data
from agentv.comparison.run_comparison import CompareOptions, compare_runs
from agentv.comparison.scores import RunScores
from agentv.engine.named_runs import run_name
from agentv.errors import UsageError, plural
from agentv.extensions.mcp.served_project import ServedProject
from agentv.extensions.mcp.served_tool import CallInProgress, ServedTool, ToolAnswer, ToolArguments
from agentv.extensions.mcp.text_limit import MOST_CHARACTERS
from agentv.report.comparisons.comparison_text import comparison_lines
from agentv.report.figures import number
from agentv.report.summary_text import failure_headline, failure_lines, headlines
from agentv.runs.catalogue import RunEntry, State, project_runs, read_entry
from agentv.runs.store import RunStore
from agentv.runs.target_summary import TargetSummary
from agentv.trust.roots import in_project, own_root

GivenRunName = Annotated[
    str, Meta(description="A run: its id or the beginning of one, latest, latest~1, @tag, or a path in the project")
]
PageSize = Annotated[int, Meta(ge=1, le=100)]
Offset = Annotated[int, Meta(ge=0, description="Number of items to skip: `next_offset` of the answer before")]

_SHOWN_CHANGES = 20
_MOST_TARGETS = 50


class ListRunsArguments(ToolArguments, frozen=True, kw_only=True):
    """List the runs of the project, newest first, with the mean score, pass rate and errors of each target."""

    dataset: Annotated[str, Meta(description="Only runs of the dataset with this name")] | None = None
    target: Annotated[str, Meta(description="Only runs of this target")] | None = None
    state: State | None = None
    limit: PageSize = 20
    offset: Offset = 0


class TargetRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one target. `scored`, `errors`, `unscored` and `skipped` jobs add up to `jobs`."""

    jobs: int
    scored: int
    errors: int
    unscored: int
    skipped: int
    mean: float | None = None
    ci95: tuple[float, float] | None = None
    pass_rate: float | None = None
    cost_usd: float | None = None


class RunRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run. `name` is what other tools accept as `run`. Of many targets, the first are listed."""

    name: str
    state: State
    started_at: str | None = None
    experiment: str | None = None
    tags: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    targets: dict[str, TargetRow] = {}
    more_targets: int = 0


class ListRunsAnswer(ToolAnswer, frozen=True, kw_only=True):
    """The runs that match, of `total`."""

    REST = "Read one run with read_run, or fewer with `limit`"

    total: int
    runs: list[RunRow] = []
    next_offset: int | None = None

    def lines(self) -> Iterator[str]:
        yield f"{plural(self.total, 'run')}"
        for run in self.runs:
            means = (f"{name} {number(figures.mean)} of {figures.scored}" for name, figures in run.targets.items())
            yield f"{run.name}  {run.state}  {', '.join(run.datasets)}  {'; '.join(means)}"


def list_runs(project: ServedProject, args: ListRunsArguments, _: CallInProgress) -> ListRunsAnswer:  # noqa: ARG001
    """Return the runs inside the project that match."""
    entries = project_runs(own_root(), figures=False)
    matches = [entry for entry in entries if in_project(os.path.realpath(entry.path)) and _matches(entry, args)]
    runs: list[RunRow] = []
    size = 0
    for entry in matches[args.offset : args.offset + args.limit]:
        run = _listed(_with_figures(entry))
        size += len(msgspec.json.encode(run))
        if runs and size > MOST_CHARACTERS:
            break
        runs.append(run)
    return ListRunsAnswer(total=len(matches), runs=runs, next_offset=next_offset(args.offset + len(runs), len(matches)))


def _matches(entry: RunEntry, args: ListRunsArguments) -> bool:
    if args.dataset not in (None, *entry.datasets) or args.state not in (None, entry.state):
        return False
    return args.target is None or args.target in _with_figures(entry).targets


def _with_figures(entry: RunEntry) -> RunEntry:
    return msgspec.structs.replace(read_entry(Path(entry.path)), tags=entry.tags)


def next_offset(end: int, total: int) -> int | None:
    """Return where the next page begins; None after the last one."""
    return end if end < total else None


def _listed(entry: RunEntry) -> RunRow:
    return RunRow(
        name=run_name(entry.path),
        state=entry.state,
        started_at=entry.started_at,
        experiment=entry.experiment,
        tags=entry.tags,
        datasets=entry.datasets,
        targets={name: target_figures(summary) for name, summary in islice(entry.targets.items(), _MOST_TARGETS)},
        more_targets=max(0, len(entry.targets) - _MOST_TARGETS),
    )


def target_figures(summary: TargetSummary) -> TargetRow:
    """Return the main figures of a target."""
    return msgspec.convert(summary, TargetRow, from_attributes=True)


class ReadRunArguments(ToolArguments, frozen=True, kw_only=True):
    """Read the figures of a run: means with intervals, pass rates, cost, each evaluator, and its failures in groups."""

    run: GivenRunName


class ReadRunAnswer(ToolAnswer, frozen=True, kw_only=True):
    """The figures of a run. `summary` is that of the command `agentv report RUN --json`, by target."""

    REST = "The command `agentv report RUN --json` prints all figures"

    run: RunRow
    headlines: list[str]
    summary: dict[str, Any]
    failures: dict[str, Any] = {}
    notes: list[str] = []

    def lines(self) -> Iterator[str]:
        yield f"{self.run.name} ({self.run.state}): {', '.join(self.run.datasets)}"
        yield from self.headlines
        yield from self.notes


def read_run(project: ServedProject, args: ReadRunArguments, _: CallInProgress) -> ReadRunAnswer:
    """Return the figures of a run, computed from its records."""
    store = open_whole(project, args.run)
    figures = store.figures()
    groups = figures.failures
    texts = [] if groups is None or not groups.groups else [failure_headline(groups), *failure_lines(groups)]
    return ReadRunAnswer(
        run=_listed(msgspec.structs.replace(_entry_of(str(store.path)), targets=figures.summary.targets)),
        headlines=headlines(figures.summary)[:_MOST_TARGETS],
        summary=msgspec.to_builtins(figures.summary.targets),
        failures=msgspec.to_builtins(groups) or {},
        notes=[*store.notes, *texts],
    )


def _entry_of(path: str) -> RunEntry:
    """Return the entry of a run in the list of the project; results of other tools may not be listed."""
    entries = project_runs(own_root(), figures=False)
    same = (entry for entry in entries if os.path.realpath(entry.path) == os.path.realpath(path))
    return next(same, RunEntry(run_id=os.path.basename(path), path=path, state="foreign"))


def open_whole(project: ServedProject, run: str) -> RunStore:
    """Open a run of the project. Raises UsageError for `RUN:target`."""
    path, name = project.run(run)
    if name is not None:
        raise UsageError(f"'{run}' names a part of a run", hint="Only compare_runs accepts RUN:target and RUN:prompt")
    return RunStore.open(path)


class CompareRunsArguments(ToolArguments, frozen=True, kw_only=True):
    """Compare two runs case by case and test whether the difference is real. Returns the verdict about `after`
    (better, worse or cannot tell), and the cases that changed, with both answers for the largest changes."""

    before: Annotated[str, Meta(description="The first run; RUN:target selects one target, RUN:prompt one prompt")]
    after: Annotated[str, Meta(description="The second run; RUN:target selects one target, RUN:prompt one prompt")]
    margin: Annotated[float, Meta(gt=0, lt=1, description="Test whether `after` is at most this much worse")] | None = (
        None
    )
    cases: Annotated[list[str], Meta(description="Show the answers of these cases instead of the largest changes")] = []
    allow_changed_measure: Annotated[
        bool, Meta(description="Give a verdict even if references, evaluators or judges differ")
    ] = False
    limit: Annotated[int, Meta(ge=0, le=1000, description="Number of changed cases to list")] = 50


class CompareRunsAnswer(ToolAnswer, frozen=True, kw_only=True):
    """A comparison. `answer` is null if no case can be compared, or if the measure changed; `verdict` explains it.

    `comparison` is that of `agentv compare --json`, without the cases that did not change; `changed` are those that
    did, largest change first, out of `changed_total`.
    """

    REST = "The command `agentv compare BEFORE AFTER --json` prints everything"

    answer: str | None
    verdict: str
    changed_total: int
    changed: list[dict[str, Any]] = []
    comparison: dict[str, Any] = {}

    def lines(self) -> Iterator[str]:
        yield self.verdict
        yield plural(self.changed_total, "changed case")
        for case in self.changed[:_SHOWN_CHANGES]:
            yield f"{case.get('eval_id')}: {number(case.get('score1'))} → {number(case.get('score2'))}"


def compare(project: ServedProject, args: CompareRunsArguments, _: CallInProgress) -> CompareRunsAnswer:
    """Compare two runs of the project."""
    sides = [RunScores(path, name, part) for name in (args.before, args.after) for path, part in [project.run(name)]]
    options = CompareOptions(
        margin=args.margin, cases=tuple(args.cases), allow_changed_measure=args.allow_changed_measure
    )
    comparison = compare_runs(sides[0], sides[1], options)
    moved = [pair for pair in comparison.pairs if pair.outcome != "tie"]
    largest = nsmallest(args.limit, moved, key=lambda pair: -abs(pair.delta))
    code = comparison.exit_code("regression" if args.margin is None else "inconclusive")
    data = comparison_data(comparison, code, as_list=False)
    del data["matched"]
    return CompareRunsAnswer(
        answer=data["summary"]["answer"],
        verdict="\n".join(takewhile(bool, (line for line, _style in comparison_lines(comparison)))),
        changed_total=len(moved),
        changed=msgspec.to_builtins(largest),
        comparison=data,
    )


TOOLS = (
    ServedTool("list_runs", "List runs", ListRunsArguments, ListRunsAnswer, list_runs),
    ServedTool("read_run", "Read the figures of a run", ReadRunArguments, ReadRunAnswer, read_run),
    ServedTool("compare_runs", "Compare two runs", CompareRunsArguments, CompareRunsAnswer, compare),
)
