"""The answers of an earlier run, found by case. Holds where the records are, not the records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from agentv.engine.named_runs import existing_run
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.job import Job
from agentv.model.message import Message
from agentv.model.response import Response, TargetFailure, answer
from agentv.model.result import JobKey, Result
from agentv.runs.record import ScoreRecord
from agentv.runs.store import RunStore, StoredCase
from agentv.support.file_hashes import add_file
from agentv.targets.programs.answers import message_from_data


class StoredPlace(NamedTuple):
    """Where the record of a job is. Other tools' records may leave out messages (not `ours`)."""

    key: JobKey
    offset: int
    ours: bool

    @property
    def in_case(self) -> tuple[str, str | None, int]:
        """Return what tells the jobs of one case apart."""
        return self.key.target, self.key.prompt, self.key.trial


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
        if self.store.file is None:
            raise UsageError(f"The run has no results: {run}", "It was stopped before its first one")
        self.manifest, self.run_id = self.store.manifest, self.store.run_id
        digest = hashlib.blake2b(digest_size=16)
        add_file(digest, str(self.store.file))
        self.digest = digest.hexdigest()
        self._places: dict[tuple[str, str], list[StoredPlace]] = {}
        for offset, record in self.store.entries(ScoreRecord):
            place = StoredPlace(record.key, offset, isinstance(record, ScoreRecord))
            self._places.setdefault((record.dataset, record.eval_id), []).append(place)
        if not self._places:
            raise UsageError(f"The run has no results: {run}")
        cases = self.store.cases() if self.manifest is not None else ()
        self._cases = {(case.dataset_path, case.id): msgspec.structs.replace(case, data=b"") for case in cases}

    def check_cases(self, hint: str) -> None:
        """Raise UsageError where the run has no cases that could be read, with the way out."""
        folder = self.store.folder
        if self.manifest is not None and folder.cases_path.is_file():
            return
        detail = f"No {folder.cases_path.name} beside {self.path}"
        if folder.cases_path.is_file():
            missing = folder.manifest_path.name
            detail = f"There is no {missing} in {self.path}, without which its {folder.cases_path.name} is not read"
        raise UsageError("This run has results but no cases.jsonl", detail, hint)

    @property
    def jobs(self) -> int:
        """Return how many jobs have a record."""
        return len({(name, place.key) for name, places in self._places.items() for place in places})

    @property
    def datasets(self) -> list[str]:
        """Return the names of the datasets that records belong to."""
        return list(dict.fromkeys(dataset for dataset, _ in self._places if dataset))

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the targets that answered."""
        return tuple(dict.fromkeys(place.key.target for places in self._places.values() for place in places))

    def places_of(self, case: EvalCase) -> list[StoredPlace]:
        """Return where the answers to a case are, one for each job."""
        return self._places_at(case.dataset, case.id, case.path)

    def before(self, result: Result) -> Result:
        """Return the record that a record of a rescoring comes from."""
        places = self._places_at(result.dataset, result.eval_id, result.dataset_path)
        return self._read(places, (result.target, result.prompt, result.trial)).record

    def of(self, job: Job) -> StoredAnswer:
        """Return the answer to a job that `places_of` its case has named."""
        return self._read(self.places_of(job.case), (job.target, job.prompt, job.trial))

    def stored_case(self, case: EvalCase) -> StoredCase | None:
        """Return a case as the run folder has it; None for files of records, which have no cases."""
        place = next(iter(self.places_of(case)), None)
        return None if place is None else self._cases.get((place.key.dataset_path, case.id))

    def close(self) -> None:
        """Close the run's files."""
        self.store.close()

    def __enter__(self) -> StoredAnswers:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def _places_at(self, dataset: str, id: str, path: str) -> list[StoredPlace]:
        """AgentV (TypeScript) leaves the dataset out of some files."""
        for name in (dataset, ""):
            places = self._places.get((name, id))
            if places:
                same = [place for place in places if place.key.dataset_path == path]
                return list({place.in_case: place for place in same or places}.values())
        return []

    def _read(self, places: list[StoredPlace], in_case: tuple[str, str | None, int]) -> StoredAnswer:
        place = next(place for place in places if place.in_case == in_case)
        return StoredAnswer(self.store.read(place.offset), place.ours)


def _messages(record: Result) -> Iterator[Message]:
    for index, data in enumerate(record.output_messages):
        try:
            yield message_from_data(data, f"output_messages[{index}]")
        except TargetFailure as failure:
            raise TargetFailure("invalid_response", f"The stored answer cannot be read: {failure}") from None
