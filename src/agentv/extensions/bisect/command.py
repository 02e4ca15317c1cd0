"""`agentv bisect`: find the commit that changed the scores."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from agentv.cli import output
from agentv.cli.evaluation_options import EvaluatedTargets, JudgeOptions, ReadingOptions, SelectionOptions
from agentv.cli.options import AT_LEAST_1, PATH, Number, argument, declare, flag, option, options_of
from agentv.engine.prepare import prepare
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import RunPlan
from agentv.errors import EXIT_OK, EXIT_UNDECIDED, UsageError, plural
from agentv.extensions.bisect.evaluations import CommitPlan, Evaluations, draw_order
from agentv.extensions.bisect.fixed_measure import measure_of
from agentv.extensions.bisect.search import (
    Listener,
    ScoreChange,
    Search,
    SearchProgress,
    SearchResult,
    SearchSettings,
    SearchStep,
)
from agentv.extensions.bisect.state import SearchRequest, SearchState, StateFolder, refuse_other, shares_answers
from agentv.model.diagnostics import Range
from agentv.model.values import cluster_of
from agentv.report.figures import number, one_line, p_equals, signed, signed_interval, usd
from agentv.runs.folder_lock import FolderLock
from agentv.settings.git_repository import Commit, GitRepository


class BisectArguments(EvaluatedTargets, SelectionOptions, ReadingOptions, JudgeOptions):
    """GOOD and BAD are commits, tags or branches; the change is searched between them. Commits are evaluated in
    temporary worktrees: the checkout is not touched. Datasets, evaluators and judges come from the working tree, so
    that every commit is measured alike; targets, their code, and prompts in files come from the commit.

    Each step evaluates only as many cases as it takes to tell whether the commit scores like GOOD or like BAD. After an
    interruption, the same command continues, or --resume without arguments.

    \b
    Exit codes: 0 found   2 usage, configuration or dataset error   3 every call failed authentication
                5 cannot tell: GOOD and BAD do not differ, or several commits are left   130 interrupted
    """

    grouped = has_separator = True
    action = "agentv.extensions.bisect.command:bisect"
    examples = (
        "agentv bisect v1.2 HEAD -- evals/dataset.yaml",
        "agentv bisect HEAD~30 HEAD -- evals --target gpt --trials 3",
        "agentv bisect --resume",
    )

    good: str | None = argument(metavar="[GOOD BAD", required=False, type=str)
    bad: str | None = argument(metavar="--", required=False, type=str)
    paths: tuple[str, ...] = argument(nargs=-1, metavar="PATHS...]")
    trials: int = option(
        "--trials N", "Maximum number of trials of each case at one commit.", AT_LEAST_1, group="Targets", default=5
    )
    no_cache: bool = flag("--no-cache", "Call model APIs again for requests that were answered before.", "Targets")
    max_retries = EvalOptions.max_retries
    into_merges: bool = flag(
        "--into-merges", "Test commits of merged branches too (default: first parents only).", "Search"
    )
    changed_paths: tuple[str, ...] = option(
        "--path PATH",
        "Test only commits that changed this file or folder. Repeatable.",
        PATH,
        group="Search",
        multiple=True,
    )
    kept_paths: tuple[str, ...] = option(
        "--keep PATH",
        "Take this file or folder from the working tree as well. Repeatable.",
        PATH,
        group="Search",
        multiple=True,
    )
    own_dataset: bool = flag(
        "--own-datasets", "Use each commit's own datasets, evaluators and judges; cases are matched by id.", "Search"
    )
    setup: str | None = option(
        "--setup COMMAND", "Run this shell command in each worktree first; skip commits where it fails.", group="Search"
    )
    alpha: float = option(
        "--alpha X",
        "Probability of naming a wrong commit.",
        Number(Range(0, 1, exclusive=True)),
        group="Search",
        default=0.05,
    )
    resume: bool = flag("--resume", "Continue the search in progress.", "Resume")
    reset: bool = flag("--reset", "Discard the search in progress and its results.", "Resume")
    as_json: bool = flag("--json", "Print the result as JSON on stdout.")


def bisect(args: BisectArguments) -> None:
    """Search, print the result and exit with its exit code."""
    repository = GitRepository(".")
    folder = StateFolder(repository)
    if args.reset:
        folder.clear()
        if args.good is None:
            return
    request = _request(args, repository, folder)
    folder.create()
    with FolderLock(folder.path), _terminable():
        finding = _search(args, repository, folder, request)
    code = EXIT_OK if finding.outcome == "found" else EXIT_UNDECIDED
    output.echo_result(_data(finding, code), _lines(finding), as_json=args.as_json)
    sys.exit(code)


def _request(args: BisectArguments, repository: GitRepository, folder: StateFolder) -> SearchRequest:
    if args.good is None:
        if (state := folder.read()) is None:
            hint = "For example: agentv bisect v1.2 HEAD -- evals"
            raise UsageError("No search is in progress: name GOOD, BAD and the datasets", hint=hint)
        return state.request
    if args.bad is None or not args.paths:
        raise click.UsageError("Name two commits and the datasets: agentv bisect GOOD BAD -- PATHS...")
    good, bad = repository.commit(args.good), repository.commit(args.bad)
    repository.check_order(good, bad)
    below = tuple(repository.below(path) or path for path in args.changed_paths)
    options = options_of(EvalOptions, args, cache=not args.no_cache, trials=1)
    return SearchRequest(
        good=good.sha,
        bad=bad.sha,
        options=msgspec.structs.replace(
            options,
            paths=tuple(map(os.path.abspath, options.paths)),
            targets_file=options.targets_file and os.path.abspath(options.targets_file),
            cases_from=options.cases_from and os.path.abspath(options.cases_from),
        ),
        settings=options_of(SearchSettings, args, paths=below),
        kept=tuple(map(os.path.abspath, args.kept_paths)),
        setup=args.setup,
        own_dataset=args.own_dataset,
    )


def _search(
    args: BisectArguments, repository: GitRepository, folder: StateFolder, request: SearchRequest
) -> SearchResult:
    options = request.options
    prepared = prepare(options, options.open_cases(*output.listeners(args.quiet)))
    plan = _plan(prepared, repository, request)
    state = _opened(folder, request, plan.measure.fingerprint)
    listener = _Messages(args.quiet)
    if state.progress.direction is not None and not state.is_finished:
        listener.say(f"Continuing after {plural(len(state.progress.steps), 'step')}")
    ends = repository.commit(request.good), repository.commit(request.bad)

    def save(progress: SearchProgress) -> None:
        folder.write(msgspec.structs.replace(state, progress=progress))

    with Evaluations(repository, plan, folder.path) as evaluations:
        result = Search(repository, evaluations, ends, request.settings, state.progress).run(listener, save)
    folder.write(msgspec.structs.replace(state, is_finished=True))
    return result


def _opened(folder: StateFolder, request: SearchRequest, measure: str) -> SearchState:
    """Return the stored search if it is this one, else a new one. Raises UsageError for another one in progress."""
    state = folder.read()
    if state is not None and state.is_finished and (state.request, state.measure) != (request, measure):
        folder.clear(keep_runs=shares_answers(state, request, measure))
        state = None
    if state is None:
        state = SearchState(request=request, measure=measure, progress=SearchProgress())
    refuse_other(state, request)
    if state.measure != measure:
        hint = "Restore the files, or start again with --reset"
        raise UsageError("Cannot continue: datasets, evaluators or judges have changed", hint=hint)
    folder.write(state)
    return state


def _plan(prepared: RunPlan, repository: GitRepository, request: SearchRequest) -> CommitPlan:
    """Return how to evaluate a commit, with the cases of the working tree in random order."""
    options, sources = request.options, prepared.cases.sources
    # Only the selected cases are named in each batch, so the selection itself is left out.
    plain = options.for_all_cases()
    files = [path for source in sources for path in ([source.path] if os.path.exists(source.path) else source.files)]
    return CommitPlan(
        options=plain if request.own_dataset else msgspec.structs.replace(plain, paths=tuple(files)),
        measure=measure_of(prepared, repository, kept=request.kept, own_dataset=request.own_dataset),
        variables=prepared.project.file.environment.file,
        cases=draw_order(
            (
                (repository.below(case.path) or os.path.abspath(case.path), case.id, cluster_of(case))
                for case in prepared.cases.stream_again()
            ),
            options.seed or 0,
        ),
        setup=request.setup,
        own_dataset=request.own_dataset,
    )


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into Ctrl-C, so that worktrees are removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Messages(Listener):
    """Prints a line for each step on stderr."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def say(self, text: str) -> None:
        """Print a line."""
        if not self._quiet:
            output.message(text)

    def confirming(self, commits: int) -> None:
        self.say(f"Comparing GOOD with BAD, {plural(commits, 'commit')} apart")

    def confirmed(self, change: ScoreChange, p_value: float, cases: int) -> None:
        moved = f"{number(change.before)} → {number(change.after)}"
        self.say(f"GOOD and BAD differ: {moved} ({p_equals(p_value)}) after {plural(cases, 'case')} each")

    def testing(self, number: int, about: int, commit: Commit) -> None:
        if not self._quiet:
            output.echo(f"Step {number} of about {about}: {one_line(str(commit), 90)} … ", err=True, nl=False)

    def tested(self, step: SearchStep, direction: int) -> None:
        cases = plural(step.cases, "case")
        if step.outcome == "skipped":
            self.say(f"skipped: {step.reason}")
        elif step.outcome == "undecided":
            self.say(f"undecided after {cases} ({p_equals(step.p_value)})")
        else:
            changed = "worse" if direction < 0 else "better"
            self.say(f"{changed if step.outcome == 'bad' else 'as good'} ({p_equals(step.p_value)}) after {cases}")


def _lines(finding: SearchResult) -> list[str]:
    change, usage = finding.change, finding.usage
    cost = f", {usd(usage.cost_usd)}" if usage.cost_usd else ""
    cached = f", {usage.cached:,} of them cached" if usage.cached else ""
    errors = f"; {plural(usage.errors, 'error')} (not scored)" if usage.errors else ""
    full = f"a full evaluation of the same {plural(finding.commits, 'commit')} takes {finding.full_answers:,}"
    if finding.trials > 1:
        full += f" ({plural(finding.trials, 'trial')})"
    rows = [f"Answers: {usage.answers:,}{cached}{cost}{errors}; {full}"]
    if change is not None:
        interval = f"{signed(change.difference)} (95 % interval {signed_interval(change.ci95)})"
        moved = f"{number(change.before)} → {number(change.after)}, {interval}"
        rows.insert(0, f"Score:   {moved}, {plural(change.cases, 'shared case')}")
    return [*_headline(finding), *(f"  {row}" for row in rows), *_advice(finding)]


def _headline(finding: SearchResult) -> list[str]:
    ends = f"{finding.good.short} and {finding.bad.short}"
    if finding.outcome == "no_difference":
        return [f"Can't tell: {ends} do not differ measurably in {plural(finding.cases, 'case')}"]
    moved = "lowered" if finding.change is not None and finding.change.difference < 0 else "raised"
    if finding.outcome == "undecided":
        lines = [f"  {commit.short}  {one_line(commit.subject, 80)}" for commit in finding.suspects]
        return [f"Can't tell which of {plural(len(lines), 'commit')} {moved} the score:", *lines, ""]
    culprit = finding.suspects[0]
    return [
        f"{culprit.short} {moved} the score",
        f"  Subject: {one_line(culprit.subject, 200)}",
        f"  Author:  {one_line(culprit.author, 200)}",
        f"  Date:    {culprit.date}",
    ]


def _advice(finding: SearchResult) -> list[str]:
    if finding.outcome == "no_difference":
        trials = finding.trials
        return ["", f"Add cases, or repeat each case more than {plural(trials, 'time')} with --trials"]
    if finding.outcome == "undecided":
        return ["", "Add cases, raise --trials, or make the skipped commits work with --setup"]
    culprit = finding.suspects[0]
    lines = ["", f"Show the change: git show {culprit.short}"]
    if culprit.is_merge:
        inside = f"agentv bisect {finding.last_good.short} {culprit.short} --into-merges -- {shlex.quote('PATHS')}"
        lines.append(f"The commit is a merge. Search the merged branch: {inside}")
    return lines


def _data(finding: SearchResult, code: int) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(finding)
    usage = data.pop("usage")
    commit = data["suspects"][0] if finding.outcome == "found" else None
    return {"outcome": data.pop("outcome"), "commit": commit, **data, **usage, "exit_code": code}


bisect_command = declare("bisect", BisectArguments)
