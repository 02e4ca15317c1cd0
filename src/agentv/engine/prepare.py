"""Prepare a run: find its project, resolve its targets, and check every case. Nothing is called."""

from __future__ import annotations

from collections.abc import Iterable

from agentv.engine.answers.carried import CarriedAnswers, carried
from agentv.engine.answers.probes import CannedAnswers, ProbeCases, ProbeJobs, probe_targets
from agentv.engine.answers.rescored import RescoredAnswers, StoredJobs
from agentv.engine.answers.stored import StoredAnswers
from agentv.engine.calls.open_targets import concurrency_of
from agentv.engine.calls.prices import why_unpriced
from agentv.engine.early_stop import EarlyStopping, StopRule, parse_rule
from agentv.engine.named_runs import open_run
from agentv.engine.preflight import ProjectFacts
from agentv.engine.run_options import EvalOptions, RescoreOptions
from agentv.engine.run_plan import Cases, LiveJobs, RunPlan, check, evaluators_of, files_of
from agentv.engine.run_project import Project
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.errors import UsageError
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.job import Job
from agentv.model.manifest import TargetEntry
from agentv.registry import EXECUTORS
from agentv.runs.store import RunStore
from agentv.targets.target import Target

JUDGEMENTS_AT_ONCE = 64

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
    _check_files(options, project, cases, written)
    checked = check(cases, source, facts, whole=not options.narrows)
    called = (*checked.jobs, *checked.users)
    _check_prices(options, project, (*called, *checked.embedders, *checked.judges))
    stop = options.stop_when
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
        early_stop=None if stop is None else EarlyStopping(parse_rule(stop), options.seed, cases, source),
    )


def prepare_rescore(
    options: RescoreOptions, cases: Cases, answers: StoredAnswers, evaluators: Evaluators = None
) -> RunPlan:
    """Prepare to score the answers of an earlier run again. Raises when no answer belongs to any of the cases."""
    project = Project(options, cases.sources, cases.sink.warning)
    source = StoredJobs(answers, from_folder=not cases.sources)
    rescored = RescoredAnswers(options, project, answers, source, evaluators)
    _check_files(options, project, cases, None)
    known = tuple(dict.fromkeys((*project.names, *answers.targets)))
    facts = ProjectFacts(
        known=known,
        may_judge=known,
        judge=options.judge,
        judge_target=rescored.judge_target,
        transform=rescored.transform,
        evaluators=evaluators,
    )
    checked = check(cases, source, facts, whole=not options.narrows)
    _check_prices(options, project, (*checked.embedders, *checked.judges))
    if not checked.total:
        known_datasets = f"The run has cases of: {', '.join(answers.datasets) or 'no dataset that it names'}"
        hint = "Name the datasets that were run: agentv rescore RUN PATHS…"
        raise UsageError(f"No answer in {options.run} belongs to a case of these datasets", known_datasets, hint)
    targets = project.reachable((), (*checked.judges, *checked.embedders))
    readable = {target.name for target in targets}
    stand_ins = (rescored.settings(name) for name in checked.jobs if name not in readable)
    return RunPlan(
        options=options,
        project=project,
        cases=cases,
        source=source,
        checked=checked,
        evaluators=evaluators,
        targets=(*targets, *(target for target in stand_ins if target is not None)),
        entry=rescored.entry,
        answers=rescored,
        rescored=rescored,
        early_stop=_early_stop_of(rescored, cases, source),
        most_given=_judgements_at_once(options, project, tuple(checked.judges)),
    )


def prepare_probes(
    options: EvalOptions, cases: Cases, kinds: tuple[str, ...], evaluators: Evaluators = None
) -> RunPlan:
    """Prepare to score canned answers that no judge should let through."""
    project = Project(options, cases.sources, cases.sink.warning)
    probed, source = ProbeCases(cases), ProbeJobs(kinds)
    probes = probe_targets(project, cases, kinds)
    _check_files(options, project, cases, None)
    facts = ProjectFacts(
        known=(*kinds, *(name for name in project.names if name not in kinds)),
        may_judge=tuple(name for name in project.names if name not in kinds),
        judge=options.judge,
        judge_target=lambda _: probes[0].judge_target,
        evaluators=evaluators,
    )
    checked = check(probed, source, facts, whole=not options.narrows)
    return RunPlan(
        options=options,
        project=project,
        cases=probed,
        source=source,
        checked=checked,
        evaluators=evaluators,
        targets=(*project.reachable((), (*checked.judges, *checked.embedders)), *probes),
        entry=lambda name: TargetEntry(name=name, provider="probe", fingerprint=""),
        answers=CannedAnswers(cases),
        most_given=JUDGEMENTS_AT_ONCE,
    )


def _check_files(options: EvalOptions, project: Project, cases: Cases, written: str | None) -> None:
    inputs = (file for source in cases.sources for file in files_of(source))
    project.refuse_to_overwrite(inputs, options.record, written)
    executor = options.executor
    if executor is not None and EXECUTORS.canonical(executor) is None:
        raise UsageError(f"Unknown executor '{executor}'", hint=EXECUTORS.suggestion(executor))


def _check_prices(options: EvalOptions, project: Project, names: Iterable[str]) -> None:
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


def _early_stop_of(rescored: RescoredAnswers, cases: Cases, source: StoredJobs) -> EarlyStopping | None:
    """Return the rule of a run that checked whether it may stop, and its order: intervals depend on both."""
    found = next((target.early_stop for target in rescored.early_stopped.values()), None)
    manifest = rescored.stored.manifest
    if found is None or manifest is None:
        return None
    rule = StopRule(found.rule, found.measure, found.value)
    if found.measure == "difference":
        try:
            rule = parse_rule(found.rule)
        except UsageError as error:
            message = f"The run was stopped by its difference from {found.rule}, which is not there"
            raise UsageError(message, error.detail, "Put that run back, or name it as it was named then") from None
    return EarlyStopping(rule, manifest.seed or 0, cases, source)


def _judgements_at_once(options: EvalOptions, project: Project, judges: tuple[str, ...]) -> int:
    if options.budget_usd is None:
        return JUDGEMENTS_AT_ONCE
    # With a budget, no more than the judges take at once: what waits for its turn would still be called afterwards.
    limits = (concurrency_of(project.target(name), options.workers, project.defaults.workers)[1] for name in judges)
    return min(JUDGEMENTS_AT_ONCE, sum(limits) or JUDGEMENTS_AT_ONCE)
