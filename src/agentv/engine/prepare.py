"""Prepare a run: find its project, resolve its targets, and check every case. Nothing is called."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agentv.datasets.stamps import files_of
from agentv.engine.answers.carried_answers import CarriedAnswers, carried
from agentv.engine.calls.prices import UnknownPrice, why_unpriced
from agentv.engine.cases.case_survey import CaseSurvey, program_uses, settle_trust, variable_uses
from agentv.engine.checks.project_facts import ProjectFacts
from agentv.engine.gates.case_gates import check_baseline
from agentv.engine.named_runs import open_run
from agentv.engine.run_defaults import first_given
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import Cases, ChangedCases, CheckResult, JobSource, LiveJobs, RunPlan, check, evaluators_of
from agentv.engine.run_project import Project
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.errors import UsageError
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.job import Job
from agentv.registry import EXECUTORS
from agentv.runs.store import RunStore
from agentv.support.user_code import may_import
from agentv.targets.apis.batch_api import batch_queue
from agentv.targets.target import Target
from agentv.trust.consent import check_policy, check_trust
from agentv.trust.inventory import Inventory

Evaluators = tuple[EvaluatorSpec, ...] | None


def prepare(
    options: EvalOptions,
    cases: Cases,
    *,
    given: Iterable[Target] = (),
    evaluators: Evaluators = None,
    written: str | None = None,
) -> RunPlan:
    """Prepare a run that calls targets. `given` are targets of the program, `written` is a file the run exports."""
    if options.skip_eval:
        evaluators = ()
    rule = None
    if options.stop_when is not None or options.until is not None:
        from agentv.engine.early_stop import EarlyStopping, draw_seed, rule_of  # late: few runs stop early

        rule = rule_of(options)
        seed = draw_seed(rule, first_given(options.seed, options.draw_seed))
        options = msgspec.structs.replace(options, draw_seed=seed)
    settle_trust(cases.sources, options.reading, evaluators)
    project = Project(options, cases.sources, cases.sink.warning, given)
    project.check_named(options.targets)
    facts = ProjectFacts(
        known=project.names,
        may_judge=project.names,
        judge=options.judge,
        judge_target=lambda name: project.target(name).judge_target,
        transform=lambda name: project.target(name).transform,
        evaluators=evaluators,
        is_sandboxed=project.is_sandboxed,
        is_batched=lambda name: options.batch or project.target(name).is_batched,
        survey=CaseSurvey(evaluators),
    )
    draw = None
    if options.cases_budget is not None:
        from agentv.engine.cases.case_budget import draw_cases  # late: few runs draw their cases

        draw = draw_cases(options, cases)
        cases = ChangedCases(cases, draw.keep, is_read=True)
    check_options(project, cases, written)
    source = LiveJobs(options, project)
    plan = plan_run(project, cases, source, facts, check(cases, source, facts, whole=not options.narrows))
    if rule is not None and plan.checked.dependencies.waits_for:
        option = "--stop-when" if options.until is None else "--until"
        raise UsageError(f"{option} cannot be used with cases that depend on others: it runs cases in random order")
    early_stop = None if rule is None else EarlyStopping(rule, seed, plan.cases, plan.source)
    if draw is not None and plan.checked.dependencies.waits_for:
        raise UsageError("--cases-budget cannot be used with cases that depend on others: it may not draw them")
    answers = _carried_over(options, project, evaluators)
    called = tuple(plan.checked.jobs)
    return msgspec.structs.replace(plan, called=called, answers=answers, early_stop=early_stop, draw=draw)


def check_options(project: Project, cases: Cases, export_path: str | None = None) -> None:
    """Check the options of a run that do not depend on its cases."""
    options = project.options
    project.refuse_to_overwrite(
        (file for dataset in cases.sources for file in files_of(dataset)), options.record, export_path
    )
    if options.gates is not None and options.cases_budget is None:
        check_baseline(options.gates, cases.sources)
    if options.executor is not None and EXECUTORS.canonical(options.executor) is None:
        raise UsageError(f"Unknown executor '{options.executor}'", hint=EXECUTORS.suggestion(options.executor))


def plan_run(project: Project, cases: Cases, source: JobSource, facts: ProjectFacts, checked: CheckResult) -> RunPlan:
    """Return the plan of a run whose cases were checked. With a budget, every target it calls must have a price."""
    options = project.options
    if checked.refusals:
        cases = ChangedCases(cases, checked.with_refusal)
    uses = Inventory() if facts.survey is None else facts.survey.inventory
    if may_import():
        check_trust(uses)
    if options.gates is not None and options.gates.decides_nothing(checked.thresholds):
        hint = "Pass --threshold or --min-pass-rate, or set `thresholds` in the dataset"
        raise UsageError("--gate-on interval has no gate to decide", hint=hint)
    answering = (*checked.jobs, *checked.users) if isinstance(source, LiveJobs) else ()
    by_evaluators = (*checked.judges, *checked.embedders)
    project.check_sandbox(project.with_fallbacks((*answering, *by_evaluators)))
    for name in project.with_fallbacks((*answering, *by_evaluators)) if options.budget_usd is not None else ():
        why = why_unpriced(project.target(name))
        if why is not None:
            message = f"--budget-usd cannot be enforced: the price of target '{name}' is unknown"
            raise UnknownPrice(
                message, why, "Set `prices` of the target, remove --budget-usd, or use a target with a known price"
            )
    for name in answering:
        _check_batch_mode(project, name)
    if facts.survey is not None and facts.survey.everything:
        uses.add(project.file.uses((*answering, *by_evaluators)))
        uses.add((*program_uses(cases.sources), *variable_uses(cases.sources)))
        check_policy(uses)
    return RunPlan(
        options=options,
        project=project,
        cases=cases,
        source=source,
        checked=checked,
        evaluators=facts.evaluators,
        targets=project.reachable(answering, by_evaluators),
        entry=project.entry,
        uses=uses,
    )


def _check_batch_mode(project: Project, name: str) -> None:
    """Raise UsageError if a target cannot answer in batches, but has to."""
    target, is_wanted = project.target(name), project.options.batch
    if is_wanted and "batch" not in target.__struct_fields__:
        hint = "Remove --batch, or use a target of openai, a compatible service, or anthropic"
        raise UsageError(f"Target '{name}' (provider '{target.provider}') has no batch mode", hint=hint)
    if not is_wanted and not target.is_batched:
        return
    batch_queue(target)
    for complaint in msgspec.structs.replace(target, batch=True).complaints():
        raise UsageError(f"Target '{name}': {complaint}")
    if project.is_remote:
        hint = "Use --executor local: a batch needs no other machines"
        raise UsageError(f"Target '{name}' is in batch mode, which does not run on other machines", hint=hint)


def _carried_over(options: EvalOptions, project: Project, evaluators: Evaluators) -> CarriedAnswers | None:
    """Open the run whose records are carried over, if any."""
    choice = carried(options)
    if choice is None:
        return None
    run, keep = choice
    files = EvaluatorFiles(own=evaluators is not None)

    def fingerprint(job: Job) -> str:
        return files.fingerprint(job.case, evaluators_of(job.case, evaluators))

    return CarriedAnswers(RunStore.open(open_run(run).path), keep, project.change, fingerprint, options.judge)
