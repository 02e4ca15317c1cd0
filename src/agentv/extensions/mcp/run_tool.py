"""The tool that runs cases, within the budget that the user set when the server was started."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.datasets.loader import ignore
from agentv.engine.calls.prices import UnknownPrice
from agentv.engine.cost import CostUnknown, costs_so_far
from agentv.engine.gates.exit_code import Stop
from agentv.engine.named_runs import Ended, run_name
from agentv.engine.prepare import prepare
from agentv.engine.resume import options_of_earlier, resumed
from agentv.engine.run import Outcome, open_executor, open_store, run
from agentv.engine.run_in_progress import Observer, RunInProgress
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import RunPlan
from agentv.engine.run_project import is_remote
from agentv.errors import UsageError, plural
from agentv.extensions.mcp.dataset_tools import CaseFilters, CaseIds
from agentv.extensions.mcp.run_budget import BudgetState, CountedJobs
from agentv.extensions.mcp.run_tools import TargetRow, target_figures
from agentv.extensions.mcp.served_project import ServedProject, check_path
from agentv.extensions.mcp.served_tool import CallInProgress, ServedTool, ToolAnswer, ToolArguments
from agentv.model.result import Result
from agentv.report.summary_text import headlines
from agentv.runs.store import RunStore
from agentv.runs.summary import RunSummary, SummaryBuilder
from agentv.support.user_code import importing_nothing

_LOCK_TIMEOUT_S = 0.2
_SAME_OPTIONS = ("limit", "trials", "only", "only_from", "deadline_s", "experiment")
_STORED_PATHS = ("targets_file", "cases_from", "record", "replay", "transcript", "dump_prompts", "dump_traces")
_STORED_RUNS = ("retry_errors", "changed_since", "only_from", "stop_when")


class RunCasesArguments(ToolArguments, frozen=True, kw_only=True):
    """Run cases against targets, score the answers and store the run. Costs money and may take minutes: validate the
    datasets first, and select few cases. The budget is set by the user. With `resume`, finishes a run that was
    cancelled or stopped; with `only` and `only_from`, runs the cases that failed in an earlier run again."""

    datasets: Annotated[list[str], Meta(description="Files, folders or globs of datasets in the project")] = []
    cases: CaseIds = []
    filters: CaseFilters = []
    targets: Annotated[list[str], Meta(description="Targets to evaluate; without any, those of the cases")] = []
    limit: Annotated[int, Meta(ge=1, description="Run at most this many cases")] | None = None
    trials: Annotated[int, Meta(ge=1, le=100, description="Repetitions of each case")] | None = None
    only: Annotated[Ended, Meta(description="Only the cases that ended like this in the run `only_from`")] | None = None
    only_from: Annotated[str, Meta(description="The earlier run; its datasets and targets are the default")] | None = (
        None
    )
    deadline_s: (
        Annotated[float, Meta(gt=0, description="Stop after this many seconds; `resume` continues the run")] | None
    ) = None
    experiment: Annotated[str, Meta(description="A name that groups runs")] | None = None
    resume: (
        Annotated[str, Meta(description="The unfinished run to continue; pass nothing else but `deadline_s`")] | None
    ) = None


class RunCasesAnswer(ToolAnswer, frozen=True, kw_only=True):
    """What a run ended with. `stopped` is why it ended before its last job; `resume` then continues it."""

    REST = "Read the figures of the run with read_run"

    run: str
    headlines: list[str]
    exit_code: int
    reasons: list[str] = []
    stopped: str | None = None
    targets: dict[str, TargetRow] = {}
    budget: BudgetState
    notes: list[str] = []

    def lines(self) -> Iterator[str]:
        yield f"Run {self.run}"
        yield from self.headlines
        yield from self.reasons
        yield from self.notes
        yield str(self.budget)


class _Events(Observer):
    """Passes the run to the call, notes to the answer, and the rest to a display."""

    def __init__(self, call: CallInProgress, display: Observer) -> None:
        self.notes: list[str] = []
        self.spent_before_usd = 0.0
        self.running: RunInProgress | None = None
        self._call = call
        self._display = display

    @contextmanager
    def watch(self, running: RunInProgress) -> Iterator[None]:
        self.running = running
        self.spent_before_usd = running.costs.spent_usd
        self._call.started(running)
        with self._display.watch(running):
            yield

    def result(self, result: Result) -> None:
        self._display.result(result)

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._display.note(text)


def run_cases(project: ServedProject, args: RunCasesArguments, call: CallInProgress) -> RunCasesAnswer:
    """Run cases. One run at a time, so that the budget of the next one is known."""
    project.budget.check()
    while not project.run_lock.acquire(timeout=_LOCK_TIMEOUT_S):
        if call.is_cancelled:
            raise UsageError("Cancelled before the run started")
    try:
        project.budget.check()
        with project.snapshot.enforced():
            options, folder = _chosen(project, args)
            with importing_nothing():  # what the run would use is known before any of it is used
                done_count = 0 if folder is None else sum(1 for _ in RunStore.open(folder).records())
                open_jobs = max(0, _prepared(project, options).checked.total - done_count)
                project.budget.check_jobs(open_jobs, is_resumed=folder is not None)
            return _ran(project, _prepared(project, options), folder, call)
    finally:
        project.run_lock.release()


def _chosen(project: ServedProject, args: RunCasesArguments) -> tuple[EvalOptions, str | None]:
    """Return the options of the run, and the folder of a run that is resumed. All their paths are in the project."""
    several: dict[str, Any] = {name: tuple(getattr(args, name)) for name in ("cases", "filters", "targets")}
    single: dict[str, Any] = {name: getattr(args, name) for name in _SAME_OPTIONS}
    options = EvalOptions(
        paths=project.dataset_paths(args.datasets) if args.datasets else (),
        budget_usd=project.budget.left_usd,
        targets_file=None if args.resume else project.targets_file,
        workers=project.workers,
        sandbox=None if args.resume else project.sandbox,
        **several,
        **single,
    )
    for name in (args.resume, args.only_from):
        if name is not None:
            project.run(name)
    folder: str | None = None
    if args.resume is not None:
        options, folder = resumed(options, project.run(args.resume)[0], ".")
    elif options.only_from is not None and not options.paths:
        options = options_of_earlier(options.lasting())
    elif not options.paths:
        raise UsageError("No dataset given", hint="Pass `datasets`, or `resume` with an unfinished run")
    _check_stored(project, options)
    return options.lasting(), folder


def _check_stored(project: ServedProject, options: EvalOptions) -> None:
    """Raise UsageError if options that come from a run folder would use more than the server may.

    That is a file or run outside the project, another sandbox than the user chose, or other machines.
    """
    if project.sandbox is not None and options.sandbox != project.sandbox:
        headline = f"The run was not started with --sandbox {project.sandbox}, which the user chose for this server"
        raise UsageError(headline, hint="Start a new run with `datasets`")
    if is_remote(options.executor):
        raise UsageError("The run was started on other machines", hint="Start a new run with `datasets`")
    for path in options.paths:
        check_path(path)
    for name in _STORED_PATHS:
        if (value := getattr(options, name)) != project.targets_file:
            check_path(value)
    for name in _STORED_RUNS:
        run = getattr(options, name)
        if run is not None and not (name == "stop_when" and run.isdigit()):
            project.run(run)


def _prepared(project: ServedProject, options: EvalOptions) -> RunPlan:
    cases = options.open_cases(ignore, ignore)
    project.check_sources(cases.sources)
    project.snapshot.check_sources(cases.sources)
    try:
        plan = prepare(options, cases)
        if options.budget_usd is not None:
            _check_prices(plan)
        return plan
    except UnknownPrice as error:
        hint = "Ask the user to set `prices` of the target, or to start `agentv mcp` with --max-jobs N only"
        raise UsageError(error.headline, error.detail, hint) from None


def _check_prices(plan: RunPlan) -> None:
    """Raise UnknownPrice for `TARGET:MODEL` if the target has prices, which are for another model."""
    file, options = plan.project.file, plan.options
    for name in (*options.targets, *((options.judge,) if options.judge else ())):
        base, _, model = name.partition(":")
        settings = file.raw(base) if model and base in file.names else {}
        if settings.get("prices") is not None and settings.get("model") != model:
            detail = f"The `prices` of target '{base}' are for the model '{settings.get('model')}'"
            raise UnknownPrice(f"The price of '{name}' is unknown", detail)


def _ran(project: ServedProject, plan: RunPlan, folder: str | None, call: CallInProgress) -> RunCasesAnswer:
    budget = project.budget
    store = open_store(plan, folder, resume=folder is not None)
    if folder is not None and plan.options.budget_usd is not None:  # the budget of a run includes what it cost before
        total = plan.options.budget_usd + costs_so_far(plan, store).spent_usd
        plan = msgspec.structs.replace(plan, options=msgspec.structs.replace(plan.options, budget_usd=total))
    before = SummaryBuilder("").add_all(() if folder is None else RunStore.open(folder).records()).build()
    events = _Events(call, project.display(plan))
    outcome: Outcome | None = None
    try:
        outcome = run(plan, store, CountedJobs(open_executor(plan), budget), events)
    except CostUnknown as error:  # another run would spend an unknown amount again
        budget.is_cost_unknown = True
        hint = "Ask the user to restart `agentv mcp` with --max-jobs N instead of --budget-usd"
        raise UsageError(error.headline, error.detail, hint) from None
    finally:
        budget.spent_usd += _cost(events, outcome, before)
    return _answer(outcome, budget.state, events.notes)


def _cost(events: _Events, outcome: Outcome | None, before: RunSummary) -> float:
    """Return what a run cost since it was started or resumed with the records `before`, as far as it is known."""
    if (running := events.running) is None:
        return 0.0
    if running.costs.has_budget:
        unrecorded = 0.0 if outcome is None else outcome.manifest.stored_cost_usd
        return max(0.0, running.costs.spent_usd + unrecorded - events.spent_before_usd)
    return 0.0 if outcome is None else max(0.0, _total_usd(outcome.summary) - _total_usd(before))


def _total_usd(summary: RunSummary) -> float:
    return sum((target.cost_usd or 0.0) + (target.judge_cost_usd or 0.0) for target in summary.targets.values())


def _answer(outcome: Outcome, budget: BudgetState, notes: list[str]) -> RunCasesAnswer:
    stopped: Stop | None = None if outcome.stopped == "decided" else outcome.stopped
    name = run_name(str(outcome.folder))
    more = [f"Skipped {plural(outcome.skipped_cases, 'invalid case')}"] if outcome.skipped_cases else []
    if stopped is not None:
        more.append(f"Stopped: {stopped}. Continue the run with run_cases and `resume`: {name}")
    return RunCasesAnswer(
        run=name,
        headlines=headlines(outcome.summary),
        exit_code=outcome.verdict.exit_code,
        reasons=list(outcome.verdict.reasons),
        stopped=stopped,
        targets={name: target_figures(summary) for name, summary in outcome.summary.targets.items()},
        budget=budget,
        notes=[*notes, *more],
    )


TOOLS = (ServedTool("run_cases", "Run cases", RunCasesArguments, RunCasesAnswer, run_cases, only_reads=False),)
