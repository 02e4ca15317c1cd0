"""The answers of an earlier run, found by case. Holds where the records are, not the records."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agentv.engine.named_runs import existing_run
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.job import Job
from agentv.model.message import Message
from agentv.model.response import Response, TargetFailure, answer
from agentv.model.result import JobKey, Result
from agentv.runs.job_index import AnswerIndex
from agentv.runs.store import RunStore, StoredCase
from agentv.targets.programs.answers import message_from_data


class StoredAnswer(msgspec.Struct, frozen=True):
    """One record of the earlier run. Ours leave out no message that says more than the answer's text."""

    record: Result
    ours: bool

    @property
    def is_scorable(self) -> bool:
        """Whether there is an answer: a target that failed has left none."""
        error = self.record.error
        has_text = self.record.candidate_answer is not None or bool(self.record.output_messages)
        return has_text and (error is None or error.stage == "evaluator")

    @property
    def has_trace(self) -> bool:
        """Whether every message and tool call of the answer is there, or there are known to be none."""
        if self.record.output_messages:
            return True
        trace = self.record.trace_summary
        return self.ours if trace is None else trace.event_count == 0

    @property
    def response(self) -> Response:
        """Return the answer as the target gave it. Raises TargetFailure where its messages cannot be read."""
        record = self.record
        metrics = record.execution_metrics
        response = answer(record.candidate_answer or "")
        if record.output_messages:
            response = Response(messages=tuple(_messages(record)))
        if metrics is None:
            return response
        return msgspec.structs.replace(
            response, usage=metrics.token_usage, cost_usd=metrics.cost_usd, duration_ms=metrics.duration_ms
        )


class StoredAnswers:
    """The records of a run by the cases they belong to; of several records of one job the last counts."""

    def __init__(self, run: str) -> None:
        self.path = existing_run(run)
        self.store = RunStore.open(self.path)
        self.records = AnswerIndex(self.store)
        if not self.records:
            raise UsageError(f"The run has no results: {run}")
        self.manifest, self.run_id, self.digest = self.store.manifest, self.store.run_id, self.store.digest()
        cases = self.store.cases() if self.manifest is not None else ()
        self._cases = {(case.dataset_path, case.id): msgspec.structs.replace(case, data=b"") for case in cases}

    @property
    def jobs(self) -> int:
        """Return how many jobs have a record."""
        return self.records.jobs

    @property
    def datasets(self) -> tuple[str, ...]:
        """Return the names of the datasets that records belong to."""
        return self.records.datasets

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the targets that answered."""
        return self.records.targets

    def jobs_of(self, case: EvalCase) -> list[JobKey]:
        """Return the jobs of a case that have an answer."""
        return [key for key, _ in self.records.places(case.dataset, case.id, case.path)]

    def before(self, result: Result) -> Result:
        """Return the record that a record of a rescoring comes from."""
        found = self.records.find(result.dataset, result.key)
        assert found is not None
        return found

    def of(self, job: Job) -> StoredAnswer:
        """Return the answer to a job that `jobs_of` its case has named."""
        found = self.records.find(job.case.dataset, job.key)
        assert found is not None
        return StoredAnswer(found, self.store.is_ours)

    def stored_case(self, case: EvalCase) -> StoredCase | None:
        """Return a case as the run folder has it; None for files of records, which have no cases."""
        key = next(iter(self.jobs_of(case)), None)
        return None if key is None else self._cases.get((key.dataset_path, case.id))

    def close(self) -> None:
        """Close the run's files."""
        self.store.close()

    def __enter__(self) -> StoredAnswers:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


def _messages(record: Result) -> Iterator[Message]:
    for index, data in enumerate(record.output_messages):
        try:
            yield message_from_data(data, f"output_messages[{index}]")
        except TargetFailure as failure:
            raise TargetFailure("invalid_response", f"The stored answer cannot be read: {failure}") from None
