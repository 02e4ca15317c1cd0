"""What an earlier run leaves to do: which of its records still hold, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentv.engine.job.spec import Job, JobKey
from agentv.engine.run_options import EvalOptions
from agentv.errors import UsageError
from agentv.model.manifest import TargetEntry
from agentv.model.result import EvaluatorResult, Result
from agentv.runs.folder import RunFolder
from agentv.runs.record import decode_record

Keep = Literal["all but errors", "what still holds"]


class Decision(msgspec.Struct, frozen=True):
    """A record that is kept, or None; and why the job is run, or that it need not be."""

    record: Result | None
    why: str


class Earlier:
    """A run that ended or not, looked at from a new one. Holds where its records are, not the records.

    `change` says what changed about a target since then, `evaluators_fingerprint` what holds now, to be held against
    what held then; `judge` is the one that the command names now.
    """

    def __init__(
        self,
        folder: RunFolder,
        keep: Keep,
        change: Callable[[TargetEntry], str],
        evaluators_fingerprint: Callable[[Job], str],
        judge: str | None = None,
    ) -> None:
        self._keep = keep
        self._evaluators_fingerprint = evaluators_fingerprint
        manifest = folder.read_manifest()
        self.run_id = manifest.run_id
        self._targets = {entry.name: change(entry) for entry in manifest.targets}
        self._other_judges = {entry.name for entry in manifest.judges if change(entry)}
        self._other_judge = manifest.options.get("judge") != judge
        self._offsets = _offsets(folder.results_path)
        self._evaluators = _evaluators(folder.cases_path) if keep == "what still holds" else {}
        self._records = folder.results_path.open("rb")

    def decide(self, job: Job) -> Decision:
        """What becomes of a job."""
        offset = self._offsets.get(job.key)
        if offset is None:
            return Decision(None, "not in the earlier run")
        self._records.seek(offset)
        record = decode_record(self._records.readline())
        if record.status == "error":
            error = record.error
            return Decision(None, f"ended in an error ({error.error_class if error else 'unknown'})")
        changed = self._changed(job, record) if self._keep == "what still holds" else ""
        if changed:
            return Decision(None, changed)
        carried_from = record.carried_from or self.run_id
        return Decision(msgspec.structs.replace(record, carried_from=carried_from), f"carried over from {carried_from}")

    def close(self) -> None:
        """Lets go of the file."""
        self._records.close()

    def _changed(self, job: Job, record: Result) -> str:
        if other := self._targets.get(job.target, f"the target {job.target} changed"):
            return other
        if record.fingerprint != (job.fingerprint or job.case.fingerprint):
            return "the case changed"
        before = self._evaluators.get((job.case.path, job.case.id))
        if before != self._evaluators_fingerprint(job):
            return "its evaluators changed"
        asked = Asked.by(record.evaluator_results)
        if asked.judges and self._other_judge:
            return "another judge is named"
        changed = sorted(asked.all & self._other_judges)
        return f"the judge {changed[0]} changed" if changed else ""


class Asked(msgspec.Struct, frozen=True):
    """The targets that evaluators asked, as records keep their calls: all of them, and those that judged."""

    all: frozenset[str]
    judges: frozenset[str]

    @classmethod
    def by(cls, results: tuple[EvaluatorResult, ...]) -> Asked:
        """Those that evaluators and their members asked."""
        calls = [call for call in _calls_in(results) if isinstance(call.get("target"), str)]
        judging = [call for call in calls if "embeddings" not in call]
        return cls(frozenset(call["target"] for call in calls), frozenset(call["target"] for call in judging))


def _calls_in(results: tuple[EvaluatorResult, ...]) -> Iterator[dict[str, Any]]:
    """The calls in records, ours or another tool's."""
    for result in results:
        request = result.evaluator_provider_request
        calls = request.get("calls") if isinstance(request, dict) else None
        yield from (call for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ()
        yield from _calls_in(result.evaluator_results)


def carried(options: EvalOptions) -> tuple[str, Keep] | None:
    """The run whose records are carried over, and which of them; None for a run that begins from nothing."""
    if options.retry_errors is not None and options.changed_since is not None:
        raise UsageError("--retry-errors and --changed-since exclude each other")
    if options.retry_errors is not None:
        return options.retry_errors, "all but errors"
    return None if options.changed_since is None else (options.changed_since, "what still holds")


class _Key(msgspec.Struct):
    dataset_path: str
    eval_id: str
    target: str
    trial: int
    prompt: str | None = None


class _Case(msgspec.Struct):
    id: str
    dataset_path: str = ""
    evaluators_fingerprint: str = ""


def _offsets(path: Path) -> dict[JobKey, int]:
    """Where the record of each job begins; of several, the last."""
    if not path.is_file():
        raise UsageError(f"The run has no results: {path}")
    found: dict[JobKey, int] = {}
    decoder = msgspec.json.Decoder(_Key)
    offset = 0
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                key = decoder.decode(line)
                found[key.dataset_path, key.eval_id, key.target, key.prompt, key.trial] = offset
            offset += len(line)
    return found


def _evaluators(path: Path) -> dict[tuple[str, str], str]:
    decoder = msgspec.json.Decoder(_Case)
    with path.open("rb") as lines:
        cases = (decoder.decode(line) for line in lines if line.endswith(b"\n"))
        return {(case.dataset_path, case.id): case.evaluators_fingerprint for case in cases}
