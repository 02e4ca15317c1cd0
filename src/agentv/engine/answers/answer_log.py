"""Answers that are not scored yet, kept so that a killed run does not ask and pay for them again.

Only answers whose evaluators wait for something, such as a judge, are stored. Each process has its own file. Workers on
other machines return answers whose judge is down to the driver, which stores them.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agentv.engine.job.answer import Answer, JobOutcome, make_record
from agentv.engine.job.artifacts import ANSWERS
from agentv.engine.scoring.grades import Grade
from agentv.model.job import GivenAnswer, Job
from agentv.model.result import JobKey, Result
from agentv.runs.writer import Redact, ResultWriter
from agentv.support.private_files import make_folder
from agentv.targets.recordings.recorder import StoredResponse, restored, stored


class LoggedAnswer(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename={"value": "text"}):
    """A line of the log: the answer after its transform, the response as it was, and a record without scores."""

    value: Any
    response: StoredResponse
    record: Result


class AnswerLog:
    """Writes the answers of one process."""

    def __init__(self, folder: str, redact: Redact) -> None:
        self._folder = folder
        self._redact = redact
        self._file: ResultWriter | None = None

    def write(self, line: bytes) -> None:
        """Store an answer before it is scored; see `encode_answer`."""
        if self._file is None:
            make_folder(self._folder)
            self._file = ResultWriter(os.path.join(self._folder, f"{os.getpid()}.jsonl"), self._redact)
        self._file.write(line)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def encode_answer(job: Job, answer: Answer, value: Any, run_id: str) -> tuple[bytes | None, float]:
    """Return the line of the log for an answer, and its cost; no line if JSON cannot represent the answer."""
    assert answer.response is not None
    record = make_record(job, JobOutcome(answer, Grade("unscored")), run_id)
    line = LoggedAnswer(value=value, response=stored(answer.response), record=record)
    try:
        return msgspec.json.encode(line) + b"\n", cost_of(record)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None, 0.0


class JobSet(Protocol):
    """A set of jobs, such as `agentv.runs.job_index.DoneJobs`."""

    def __contains__(self, key: JobKey, /) -> bool: ...


class UnscoredAnswers:
    """The stored answers of a resumed run whose jobs have no record."""

    def __init__(self, folder: Path, done_jobs: JobSet) -> None:
        self._folder = folder / ANSWERS
        self._places: dict[JobKey, tuple[Path, int]] = {}
        self.costs: dict[JobKey, float] = {}
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else ():
            for offset, line in _lines(path):
                if line.record.key not in done_jobs:
                    self._places[line.record.key] = path, offset
                    self.costs[line.record.key] = cost_of(line.record)

    def __len__(self) -> int:
        return len(self._places)

    def given_to(self, job: Job) -> Job:
        """Return the job with its stored answer, if there is one."""
        if job.key not in self._places:
            return job
        path, offset = self._places[job.key]
        with path.open("rb") as file:
            file.seek(offset)
            entry = msgspec.json.decode(file.readline(), type=LoggedAnswer)
        response = restored(entry.response)
        return msgspec.structs.replace(
            job, answer=GivenAnswer(response=response, value=entry.value, record=entry.record)
        )


def cost_of(record: Result) -> float:
    """Return what an answer cost, with the simulated user; 0 if that is unknown."""
    talk = record.conversation
    parts = (record.execution_metrics, None if talk is None else talk.user_metrics)
    return 0.0 if record.cached else sum(part.cost_usd or 0.0 for part in parts if part is not None)


def _lines(path: Path) -> Iterator[tuple[int, LoggedAnswer]]:
    """Yield the readable lines of a log with their offsets. The job of a damaged line runs again."""
    offset = 0
    with path.open("rb") as file:
        for line in file:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                entry = msgspec.json.decode(line, type=LoggedAnswer)
                if line.endswith(b"\n"):  # a writer removes an incomplete line
                    yield offset, entry
            offset += len(line)
