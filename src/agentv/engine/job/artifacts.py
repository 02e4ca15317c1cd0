"""Files for inspection: the prompt, trace and log of each job."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from agentv.engine.job.answer import Answer
from agentv.engine.job.request import CaseRequest
from agentv.errors import UsageError, file_errors
from agentv.lazy_regex import lazy_regex
from agentv.model.job import Job
from agentv.model.message import message_to_data
from agentv.model.response import OpenLog, Responder, ResponderWrapper, StreamLog, TargetFailure
from agentv.model.result import Result
from agentv.model.values import digest, to_json
from agentv.runs.redaction import Redactor
from agentv.support.private_files import make_folder, open_file, write_file

PROMPTS, TRACES, WORKSPACES = "prompts", "traces", "workspaces"

_UNSAFE = lazy_regex(r"[^\w.-]+")
_MAX_NAME = 80


class JobFiles:
    """A folder with one file per job. File names are stable, so a resumed run adds the missing ones."""

    def __init__(self, folder: str, redactor: Redactor) -> None:
        self._folder = Path(folder)
        self._redactor = redactor
        self._exists = False

    def write_prompt(self, job: Job, request: CaseRequest, responder: Responder) -> None:
        """Write the prompt of a call before it is sent: as text, as messages, and as the request body."""
        turn = f"turn-{request.turn + 1}" if request.turn else ""
        self._write(job, turn, **_prompt_data(request, responder))

    def write_judge_prompt(self, job: Job, evaluator: str, request: CaseRequest, responder: Responder) -> None:
        """Write the prompt of a judge call before it is sent."""
        data = _prompt_data(request, responder)
        name = f"judge-{_UNSAFE.sub('_', evaluator)[:_MAX_NAME]}-{request.trial}.{digest(data['messages'])[:8]}"
        self._write(job, name, evaluator=evaluator, **data)

    def write_trace(self, job: Job, answer: Answer, result: Result) -> None:
        """Write all messages of a job, with its metrics and scores."""
        response = answer.response if answer.failure is None else None
        self._write(
            job,
            "",
            attempts=result.attempts,
            input_messages=[message_to_data(message) for message in answer.request.messages],
            output_messages=None if response is None else [message_to_data(message) for message in response.messages],
            model=None if response is None else response.model,
            stop_reason=None if response is None else response.stop_reason,
            trace_summary=result.trace_summary,
            execution_metrics=result.execution_metrics,
            evaluator_results=result.evaluator_results,
            status=result.status,
            score=result.score,
            error=result.error,
        )

    def _write(self, job: Job, part: str, **fields: Any) -> None:
        data = {
            "eval_id": job.case.id,
            "dataset": job.case.dataset,
            "target": job.target,
            "prompt": job.prompt,
            "trial": job.trial,
            **fields,
        }
        line = self._redactor.redact_line(to_json({key: value for key, value in data.items() if value is not None}))
        path = self._folder / f"{'.'.join(filter(None, (stem_of(job, self._redactor), part)))}.json"
        with file_errors(f"Cannot write {path}"):
            if not self._exists:
                make_folder(self._folder)
                self._exists = True
            write_file(path, msgspec.json.format(line, indent=2) + b"\n")


def _prompt_data(request: CaseRequest, responder: Responder) -> dict[str, Any]:
    payload: dict[str, Any] | None = None
    with suppress(TargetFailure):  # the call itself reports the failure
        payload = ResponderWrapper(responder).sends(request)
    messages = [message_to_data(message) for message in request.messages]
    return {"text": request.prompt, "messages": messages, "sent": payload}


def stem_of(job: Job, redactor: Redactor | None = None) -> str:
    """Return a readable file name that is unique to a job."""
    words = "-".join(filter(None, (job.case.id, job.target, job.prompt, str(job.trial))))
    words = words if redactor is None else redactor.redact_name(words)
    return f"{_UNSAFE.sub('_', words)[:_MAX_NAME]}.{digest(job.key)[:8]}"


def check_job_folder(folder: str, option: str) -> None:
    """Raise UsageError if the folder is not empty: a path after such an option may have been meant as a dataset."""
    try:
        entries = os.listdir(folder)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise UsageError(f"Not a folder: {folder}", hint=f"Put datasets before {option}") from None
    if entries:
        hint = f"Name a new or empty folder, and put datasets before {option}"
        raise UsageError(f"The folder for {option} is not empty: {folder}", hint=hint)


LOGS = "logs"
ANSWERS = "answers"
"""Answers that are not scored yet; removed when the run is complete."""
BATCHES = "batches"
"""The batches that targets in batch mode submitted."""


class StreamLogs:
    """The logs of a run, stored in `folder` unless a target names another."""

    def __init__(self, folder: str | None, redactor: Redactor) -> None:
        self._folder = folder
        self._redactor = redactor

    def opener(self, job: Job, request: CaseRequest) -> OpenLog | None:
        """Return a function that opens the log of an attempt; None if logs are not kept."""
        if self._folder is None:
            return None
        own = self._folder

        def open_log(folder: str | None, extension: str) -> StreamLog:
            turn = f".turn-{request.turn + 1}" if request.turn else ""
            attempt = f".attempt-{request.attempt}" if request.attempt > 1 else ""
            path = os.path.join(folder or own, f"{stem_of(job, self._redactor)}{turn}{attempt}.{extension}")
            with file_errors(f"Cannot write {path}"):
                make_folder(os.path.dirname(path))
                write_file(path, b"")
                return _Log(open(open_file(path, os.O_WRONLY), "wb", buffering=0), self._redactor)

        return open_log


class _Log:
    """Writes each line immediately, so the log of an agent that hangs can be read. Write errors are ignored."""

    def __init__(self, file: BinaryIO, redactor: Redactor) -> None:
        self._file = file
        self._redactor = redactor

    def write(self, line: bytes) -> None:
        with suppress(OSError, ValueError):
            self._file.write(self._redactor.redact_line(line) + b"\n")

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
