"""The answers of an earlier run, found by case: what is scored again without asking anybody. Holds places only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from agentv.engine.job.spec import Job
from agentv.engine.named_runs import existing_run
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.execution import Verdicts
from agentv.model.manifest import RunManifest
from agentv.model.message import Message
from agentv.model.response import Response, TargetFailure, answer
from agentv.model.result import Result
from agentv.runs.folder import RunFolder
from agentv.runs.record import decode_record
from agentv.runs.store import read_run, records_file
from agentv.support.file_hashes import add_file
from agentv.targets.programs.answers import message_from_data


class Place(NamedTuple):
    """Where an answer stands, and which job it belongs to inside its case."""

    dataset_path: str
    target: str
    prompt: str | None
    trial: int
    offset: int


class StoredCase(msgspec.Struct, frozen=True):
    """What a run folder says of a case: the hashes of what was asked and of each evaluator, and its limits."""

    id: str
    dataset_path: str = ""
    input_fingerprint: str = ""
    fingerprint: str = ""
    evaluator_fingerprints: dict[str, str] = {}
    execution: _Execution | None = None

    @property
    def verdicts(self) -> Verdicts | None:
        """The case's own limits, where it had some."""
        return self.execution.verdicts if self.execution is not None else None


class _Execution(msgspec.Struct, frozen=True):
    verdicts: Verdicts | None = None


class StoredAnswer(msgspec.Struct, frozen=True):
    """One record of the earlier run. `ours` are those of this program, which leave out no message that says more."""

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
        """Whether every message and tool call of the answer is there, or it is known that there were none."""
        if self.record.output_messages:
            return True
        trace = self.record.trace_summary
        return self.ours if trace is None else trace.event_count == 0

    @property
    def response(self) -> Response:
        """The answer as the target gave it. Raises TargetFailure where its messages are none."""
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
    """The records of a run by the cases they belong to. Of several for one job the last holds."""

    def __init__(self, run: str) -> None:
        self.path = existing_run(run)
        file = records_file(self.path)
        if file is None:
            raise UsageError(f"The run has no results: {run}", "It was stopped before its first one")
        self._file = file
        self.digest = _digest(file)
        folder = RunFolder(self.path)
        self.manifest: RunManifest | None = folder.read_manifest() if folder.manifest_path.is_file() else None
        self.cases_path = folder.cases_path if self.manifest is not None and folder.cases_path.is_file() else None
        self._places: dict[tuple[str, str], list[Place]] = {}
        self._records: list[Result] = []
        self._stream: BinaryIO | None = None
        self.run_id = self.manifest.run_id if self.manifest is not None else os.path.basename(self.path)
        self.records = 0
        try:
            self._index()
            self.stored_cases = self._read_cases()
        except BaseException:
            self.close()
            raise
        if not self.records:
            self.close()
            raise UsageError(f"The run has no results: {run}")

    def kept_cases(self, hint: str) -> Path:
        """The file of the cases that were answered. Raises UsageError where there is none, with the way out."""
        if self.cases_path is not None:
            return self.cases_path
        folder = RunFolder(self.path)
        detail = f"No {folder.cases_path.name} beside {self.path}"
        if folder.cases_path.is_file():
            missing = folder.manifest_path.name
            detail = f"There is no {missing} in {self.path}, without which its {folder.cases_path.name} is not read"
        raise UsageError("There are results and no cases with them", detail, hint)

    @property
    def jobs(self) -> int:
        """How many jobs have a record."""
        keys = {(*case, place.dataset_path, *place[1:4]) for case, places in self._places.items() for place in places}
        return len(keys)

    @property
    def datasets(self) -> list[str]:
        """The names of the datasets that records belong to."""
        return list(dict.fromkeys(dataset for dataset, _ in self._places if dataset))

    @property
    def targets(self) -> tuple[str, ...]:
        """Who answered."""
        return tuple(dict.fromkeys(place.target for places in self._places.values() for place in places))

    def places_of(self, case: EvalCase) -> list[Place]:
        """Where the answers to a case stand, one a job."""
        return self._places_at(case.dataset, case.id, case.path)

    def before(self, result: Result) -> Result:
        """The record that a record of a rescoring comes from."""
        places = self._places_at(result.dataset, result.eval_id, result.dataset_path)
        return self._read(_chosen(places, result.target, result.prompt, result.trial)).record

    def _places_at(self, dataset: str, id: str, path: str) -> list[Place]:
        """One place a job. AgentV leaves the dataset out of some files."""
        for name in (dataset, ""):
            places = self._places.get((name, id))
            if places:
                same = [place for place in places if place.dataset_path == path]
                return _last_of_each(same or places)
        return []

    def of(self, job: Job) -> StoredAnswer:
        """The answer that a job is about, which `places_of` its case has named."""
        return self._read(_chosen(self.places_of(job.case), job.target, job.prompt, job.trial))

    def stored_case(self, case: EvalCase) -> StoredCase | None:
        """What the run folder says of a case; None for files of records, which say nothing of cases."""
        place = next(iter(self.places_of(case)), None)
        return None if place is None else self.stored_cases.get((place.dataset_path, case.id))

    def close(self) -> None:
        """Lets go of the file."""
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> StoredAnswers:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def _index(self) -> None:
        if self._file.suffix.lower() in (".yaml", ".yml"):
            self._records = list(read_run(self._file))
            found: Iterator[tuple[Result, int]] = ((record, index) for index, record in enumerate(self._records))
        else:
            self._stream = open(self._file, "rb")  # noqa: SIM115  # closed by close
            found = self._lines(self._stream)
        for record, offset in found:
            place = Place(record.dataset_path, record.target, record.prompt, record.trial, offset)
            self._places.setdefault((record.dataset, record.eval_id), []).append(place)
            self.records += 1

    def _lines(self, stream: BinaryIO) -> Iterator[tuple[Result, int]]:
        """Records with their offsets. What is no record has its error from the reader that knows places."""
        offset = 0
        records = read_run(self.path)
        for line in stream:
            if line.strip():
                record = next(records, None)
                if record is None:
                    return  # half a line, which a run that was killed may leave behind
                yield record, offset
            offset += len(line)

    def _read(self, place: Place) -> StoredAnswer:
        if self._stream is None:
            return StoredAnswer(self._records[place.offset], ours=False)
        self._stream.seek(place.offset)
        line = self._stream.readline().removeprefix(b"\xef\xbb\xbf")
        record = decode_record(line, self.run_id)
        return StoredAnswer(record, "schema_version" in msgspec.json.decode(line))

    def _read_cases(self) -> dict[tuple[str, str], StoredCase]:
        if self.cases_path is None:
            return {}
        decoder = msgspec.json.Decoder(StoredCase)
        with self.cases_path.open("rb") as lines:
            cases = (decoder.decode(line) for line in lines if line.endswith(b"\n"))
            return {(case.dataset_path, case.id): case for case in cases}


def _chosen(places: list[Place], target: str, prompt: str | None, trial: int) -> Place:
    return next(each for each in places if (each.target, each.prompt, each.trial) == (target, prompt, trial))


def _last_of_each(places: list[Place]) -> list[Place]:
    return list({(place.target, place.prompt, place.trial): place for place in places}.values())


def _messages(record: Result) -> Iterator[Message]:
    for index, data in enumerate(record.output_messages):
        try:
            yield message_from_data(data, f"output_messages[{index}]")
        except TargetFailure as failure:
            raise TargetFailure("invalid_response", f"The stored answer cannot be read: {failure}") from None


def _digest(path: os.PathLike[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    add_file(digest, os.fspath(path))
    return digest.hexdigest()
