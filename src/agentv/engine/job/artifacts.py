"""Files for looking at: one for each job, with what its target is asked or with all that was said."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from agentv.engine.job.answer import Answer
from agentv.engine.job.request import Question
from agentv.errors import UsageError, file_errors
from agentv.model.job import Job
from agentv.model.message import message_to_data
from agentv.model.response import OpenLog, Responder, ResponderWrapper, StreamLog, TargetFailure
from agentv.model.result import Result
from agentv.model.values import digest, to_json
from agentv.runs.redaction import Redactor

PROMPTS, TRACES, WORKSPACES = "prompts", "traces", "workspaces"

_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST_NAME = 80


class JobFiles:
    """A folder of them. A job has the same file each time, so that a resumed run adds what is missing."""

    def __init__(self, folder: str, redactor: Redactor) -> None:
        self._folder = Path(folder)
        self._redactor = redactor
        self._is_there = False

    def write_prompt(self, job: Job, question: Question, responder: Responder) -> None:
        """What a job asks, as text, as messages and as it is sent; before it is sent."""
        sent = _sent_by(responder, question)
        turn = f"turn-{question.turn + 1}" if question.turn else ""
        self._write(job, turn, text=question.prompt, messages=_data_of(question), sent=sent)

    def write_judge_prompt(self, job: Job, evaluator: str, question: Question, responder: Responder) -> None:
        """What an evaluator of a job asks a judge, likewise."""
        sent = _sent_by(responder, question)
        asked = _data_of(question)
        part = f"judge-{_UNSAFE.sub('_', evaluator)[:_LONGEST_NAME]}-{question.trial}.{digest(asked)[:8]}"
        self._write(job, part, evaluator=evaluator, text=question.prompt, messages=asked, sent=sent)

    def write_trace(self, job: Job, answer: Answer, result: Result) -> None:
        """Write what was said in a job, from the first message to the last, and what came of it."""
        response = answer.response if answer.failure is None else None
        self._write(
            job,
            "",
            attempts=result.attempts,
            input_messages=_data_of(answer.request),
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

    def _write(self, job: Job, part: str, **known: Any) -> None:
        data = {
            "eval_id": job.case.id,
            "dataset": job.case.dataset,
            "target": job.target,
            "prompt": job.prompt,
            "trial": job.trial,
            **known,
        }
        line = self._redactor.redact_line(to_json({key: value for key, value in data.items() if value is not None}))
        path = self._folder / f"{'.'.join(filter(None, (stem_of(job), part)))}.json"
        with file_errors(f"Cannot write {path}"):
            if not self._is_there:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._is_there = True
            path.write_bytes(msgspec.json.format(line, indent=2) + b"\n")


def _sent_by(responder: Responder, question: Question) -> dict[str, Any] | None:
    """Return the request body; None where none can be made, which the call itself will report."""
    with suppress(TargetFailure):
        return ResponderWrapper(responder).sends(question)
    return None


def _data_of(question: Question) -> list[dict[str, Any]]:
    return [message_to_data(message) for message in question.messages]


def stem_of(job: Job) -> str:
    """A name for files that says which job it is, and that no other job has."""
    words = "-".join(filter(None, (job.case.id, job.target, job.prompt, str(job.trial))))
    return f"{_UNSAFE.sub('_', words)[:_LONGEST_NAME]}.{digest(job.key)[:8]}"


def check_job_folder(folder: str, option: str) -> None:
    """Refuses a folder that has something in it: a path behind such an option may have been meant as a dataset."""
    try:
        taken = os.listdir(folder)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise UsageError(f"Not a folder: {folder}", hint=f"Write datasets before {option}") from None
    if taken:
        hint = f"Name a new or empty folder, and write datasets before {option}"
        raise UsageError(f"The folder for {option} is not empty: {folder}", hint=hint)


LOGS = "logs"


class StreamLogs:
    """The logs of a run. `folder` is theirs unless a target names another."""

    def __init__(self, folder: str | None, redactor: Redactor) -> None:
        self._folder = folder
        self._redactor = redactor

    def opener(self, job: Job, question: Question) -> OpenLog | None:
        """What opens the log of a job's attempt; None where there is no place for logs."""
        if self._folder is None:
            return None
        own = self._folder

        def open_log(folder: str | None, extension: str) -> StreamLog:
            turn = f".turn-{question.turn + 1}" if question.turn else ""
            attempt = f".attempt-{question.attempt}" if question.attempt > 1 else ""
            path = os.path.join(folder or own, f"{stem_of(job)}{turn}{attempt}.{extension}")
            with file_errors(f"Cannot write {path}"):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                return _Log(open(path, "wb", buffering=0), self._redactor)

        return open_log


class _Log:
    """Lines, each in the file as soon as it is written: an agent that hangs is looked at while it does.

    On a full disk the log ends, and nothing else does.
    """

    def __init__(self, file: BinaryIO, redactor: Redactor) -> None:
        self._file = file
        self._redactor = redactor

    def write(self, line: bytes) -> None:
        with suppress(OSError, ValueError):
            self._file.write(self._redactor.redact_line(line) + b"\n")

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
