"""Prepare a run: find its project, resolve its targets, and check every case. Nothing is called."""

from __future__ import annotations

from collections.abc import Iterable

from agentv.engine.answers.carried import CarriedAnswers, carried
from agentv.engine.calls.prices import why_unpriced
from agentv.engine.named_runs import open_run
from agentv.engine.preflight import ProjectFacts
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import Cases, LiveJobs, RunPlan, check, evaluators_of, files_of
from agentv.engine.run_project import Project
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.errors import UsageError
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.job import Job
from agentv.registry import EXECUTORS
from agentv.runs.store import RunStore
from agentv.targets.target import Target

Evaluators = tuple[EvaluatorSpec, ...] | None


def prepare(
    options: EvalOptions,
    cases: Cases,
    *,
    given: Iterable[Target] = (),
    evaluators: Evaluators = None,
    written: str | None = None,
) -> RunPlan:
    """Prepare a run that calls targets. `given` are targets of the program, `written` a file the run exports to."""
    project = Project(options, cases.sources, cases.sink.warning, given)
    project.check_named(options.targets)
    source = LiveJobs(options, project)
    facts = ProjectFacts(
        known=project.names,
        may_judge=project.names,
        judge=options.judge,
        judge_target=lambda name: project.target(name).judge_target,
        transform=lambda name: project.target(name).transform,
        evaluators=evaluators,
    )
    check_files(options, project, cases, written)
    checked = check(cases, source, facts, whole=not options.narrows)
    called = (*checked.jobs, *checked.users)
    check_prices(options, project, (*called, *checked.embedders, *checked.judges))
    early_stop = None
    if options.stop_when is not None:
        from agentv.engine.early_stop import EarlyStopping, parse_rule  # late: few runs stop early

        early_stop = EarlyStopping(parse_rule(options.stop_when), options.seed, cases, source)
    return RunPlan(
        options=options,
        project=project,
        cases=cases,
        source=source,
        checked=checked,
        evaluators=evaluators,
        called=tuple(checked.jobs),
        targets=project.reachable(called, (*checked.judges, *checked.embedders)),
        entry=project.entry,
        answers=_carried_over(options, project, evaluators),
        early_stop=early_stop,
    )


def check_files(options: EvalOptions, project: Project, cases: Cases, written: str | None) -> None:
    """Raise UsageError for a file that the run would overwrite, and for an unknown executor."""
    inputs = (file for source in cases.sources for file in files_of(source))
    project.refuse_to_overwrite(inputs, options.record, written)
    executor = options.executor
    if executor is not None and EXECUTORS.canonical(executor) is None:
        raise UsageError(f"Unknown executor '{executor}'", hint=EXECUTORS.suggestion(executor))


def check_prices(options: EvalOptions, project: Project, names: Iterable[str]) -> None:
    """Raise unless every target that is called has a price: a budget is enforced by what calls cost."""
    for name in dict.fromkeys(names) if options.budget_usd is not None else ():
        why = why_unpriced(project.target(name))
        if why is not None:
            message = f"No price is known for target '{name}', so --budget-usd cannot be held"
            raise UsageError(message, why, "Leave --budget-usd out, or use a target with a price")


def _carried_over(options: EvalOptions, project: Project, evaluators: Evaluators) -> CarriedAnswers | None:
    """Open the run whose records are carried over, when there is one."""
    chosen = carried(options)
    if chosen is None:
        return None
    run, keep = chosen
    files = EvaluatorFiles()

    def fingerprint(job: Job) -> str:
        return files.fingerprint(job.case, evaluators_of(job.case, evaluators))

    return CarriedAnswers(RunStore.open(open_run(run).path), keep, project.change, fingerprint, options.judge)
