"""Decide which records of an earlier run are carried over, and why the other jobs run again."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from agentv.engine.run_options import EvalOptions
from agentv.errors import UsageError
from agentv.model.job import Decision, Job
from agentv.model.manifest import TargetEntry
from agentv.model.result import EvaluatorResult, Result
from agentv.runs.store import RunStore

Keep = Literal["all but errors", "unchanged"]


class CarriedAnswers:
    """The records of an earlier run, complete or not; read from disk when needed.

    `change` describes how a target changed since then, `evaluators_fingerprint` returns the current hash of a job's
    evaluators; `judge` is the judge named by the command.
    """

    def __init__(
        self,
        store: RunStore,
        keep: Keep,
        change: Callable[[TargetEntry], str],
        evaluators_fingerprint: Callable[[Job], str],
        judge: str | None = None,
    ) -> None:
        self._keep = keep
        self._evaluators_fingerprint = evaluators_fingerprint
        manifest = store.folder.read_manifest()
        self._store = store
        self.run_id = manifest.run_id
        self._targets = {entry.name: change(entry) for entry in manifest.targets}
        self._other_judges = {entry.name for entry in manifest.judges if change(entry)}
        self._other_judge = manifest.options.get("judge") != judge
        if store.file is None:
            raise UsageError(f"The run has no results: {store.folder.results_path}")
        cases = store.cases() if keep == "unchanged" else ()
        self._evaluators = {(case.dataset_path, case.id): case.evaluators_fingerprint for case in cases}

    def decide(self, job: Job) -> Decision:
        """Decide whether the earlier record of a job is carried over."""
        if (record := self._store.get(job.key)) is None:
            return Decision("not in the earlier run", job)
        if record.status == "error":
            error = record.error
            return Decision(f"errored ({error.error_class if error else 'unknown'})", job)
        changed = self._changed(job, record) if self._keep == "unchanged" else ""
        if changed:
            return Decision(changed, job)
        carried_from = record.carried_from or self.run_id
        carried_record = msgspec.structs.replace(record, carried_from=carried_from)
        return Decision(f"carried over from {carried_from}", job, carried_record)

    def close(self) -> None:
        """Close the earlier run."""
        self._store.close()

    def _changed(self, job: Job, record: Result) -> str:
        if other := self._targets.get(job.target, f"the target {job.target} changed"):
            return other
        if record.fingerprint != (job.fingerprint or job.case.fingerprint):
            return "the case changed"
        before = self._evaluators.get((job.case.path, job.case.id))
        if before != self._evaluators_fingerprint(job):
            return "its evaluators changed"
        called, judges = called_targets(record.evaluator_results)
        if judges and self._other_judge:
            return "the command names a different judge"
        changed = sorted(called & self._other_judges)
        return f"the judge {changed[0]} changed" if changed else ""


def called_targets(results: tuple[EvaluatorResult, ...]) -> tuple[set[str], set[str]]:
    """Return all targets called by evaluators and their members, and those called as judges."""
    calls = [call for call in _calls_in(results) if isinstance(call.get("target"), str)]
    return {call["target"] for call in calls}, {call["target"] for call in calls if "embeddings" not in call}


def _calls_in(results: tuple[EvaluatorResult, ...]) -> Iterator[dict[str, Any]]:
    """Yield the calls in evaluator results, including those of other tools."""
    for result in results:
        request = result.evaluator_provider_request
        calls = request.get("calls") if isinstance(request, dict) else None
        yield from (call for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ()
        yield from _calls_in(result.evaluator_results)


def carried(options: EvalOptions) -> tuple[str, Keep] | None:
    """Return the run to carry records over from, and which ones to keep; None if there is none."""
    if options.retry_errors is not None and options.changed_since is not None:
        raise UsageError("--retry-errors and --changed-since cannot be combined")
    if options.retry_errors is not None:
        return options.retry_errors, "all but errors"
    return None if options.changed_since is None else (options.changed_since, "unchanged")
