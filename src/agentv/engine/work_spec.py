"""The data from which the workers of a run are built."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from agentv.engine.job.spec import MAX_OUTAGE_S, RunSpec
from agentv.engine.run_defaults import first_given
from agentv.engine.run_plan import RunPlan
from agentv.errors import UsageError
from agentv.executors.budget import BudgetTerms
from agentv.executors.executor import WorkSpec
from agentv.model.call_trace import ReceiverAddress, SpanReceiver, is_traced
from agentv.registry import service
from agentv.targets.cli import Cli
from agentv.targets.target import Target


class _OpenReceiver(Protocol):
    def __call__(self, port: int | None, *, may_be_any: bool) -> AbstractContextManager[SpanReceiver]: ...


def receiver_of(plan: RunPlan) -> AbstractContextManager[SpanReceiver | None]:
    """Return a context that receives the spans of targets with `traces`; None if there are no such targets."""
    traced = [target for target in plan.targets if is_traced(target)]
    if not traced or not plan.called or plan.project.replay is not None:
        return nullcontext()
    if plan.project.is_remote:
        message = f"Target '{traced[0].name}' has `traces`, which are received on this machine only"
        raise UsageError(message, hint="Use --executor local or --executor process, or remove `traces`")
    are_commands = all(isinstance(target, Cli) for target in traced)
    open_receiver: _OpenReceiver = service("span-receiver", f"Target '{traced[0].name}' with `traces`")
    return open_receiver(plan.options.trace_port, may_be_any=are_commands)


def work_spec(
    plan: RunPlan, run_id: str, folder: Path, budget: BudgetTerms | None, receiver: ReceiverAddress | None
) -> WorkSpec:
    """Return the spec of a run whose files are in `folder`; `budget` is what is left of its budget."""
    spec = msgspec.structs.replace(_spec(plan, run_id, folder), receiver=receiver)
    if not all(target.is_free for target in plan.targets):
        spec = msgspec.structs.replace(spec, budget=budget)
    if not plan.project.is_remote:
        return spec
    from agentv.engine.job.portable_spec import portable  # late: most runs stay on this machine

    return portable(spec, plan.project.file)


def _spec(plan: RunPlan, run_id: str, folder: Path) -> RunSpec:
    options, project, checked = plan.options, plan.project, plan.checked
    return RunSpec(
        run_id=run_id,
        targets=tuple(map(partial(_batched, plan), plan.targets)) if options.batch else plan.targets,
        answering=plan.called,
        users=checked.users if plan.called else (),
        judges=tuple(checked.judges),
        embedders=checked.embedders,
        home=project.home,
        folders=project.folders,
        secrets=project.secrets,
        judge=options.judge,
        evaluators=plan.evaluators,
        workers=first_given(options.workers, checked.workers),
        timeout_s=options.timeout_s,
        max_retries=options.max_retries,
        max_outage_s=MAX_OUTAGE_S if options.max_outage_s is None else options.max_outage_s,
        stops_at_outage=options.max_outage_s != 0 and not options.keep_going,
        defaults=project.defaults,
        files=project.run_files(options, folder),
        replay=project.replay,
        include_trace=options.include_trace,
        jobs=checked.total,
        most_given=plan.most_given,
    )


def _batched(plan: RunPlan, target: Target) -> Target:
    """Return a target in batch mode, if it answers jobs."""
    return msgspec.structs.replace(target, batch=True) if target.name in plan.called else target
