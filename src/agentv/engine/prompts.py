"""Prompts on disk: for each job one file with what its target is asked, as text, as messages and as it is sent."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from agentv.engine.job import Job
from agentv.engine.layers import sent_or_none
from agentv.engine.question import Question
from agentv.errors import AgentvError, UsageError
from agentv.model.message import message_to_data
from agentv.model.response import Responder
from agentv.model.values import digest, to_json
from agentv.results.redact import Redactor

FOLDER = "prompts"

_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST_NAME = 80


class PromptFolder:
    """A folder of prompts. A job has the same file each time, so that a resumed run adds what is missing."""

    def __init__(self, folder: str, redactor: Redactor) -> None:
        self._folder = Path(folder)
        self._redactor = redactor
        self._is_there = False

    def write(self, job: Job, question: Question, responder: Responder) -> None:
        """The prompt of one job, before it is sent."""
        data: dict[str, Any] = {
            "eval_id": job.case.id,
            "dataset": job.case.dataset,
            "target": job.target,
            "prompt": job.prompt,
            "trial": job.trial,
            "text": question.prompt,
            "messages": [message_to_data(message) for message in question.messages],
            "sent": sent_or_none(responder, question),
        }
        line = self._redactor.redact_line(to_json({key: value for key, value in data.items() if value is not None}))
        path = self._folder / name_of(job)
        try:
            if not self._is_there:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._is_there = True
            path.write_bytes(msgspec.json.format(line, indent=2) + b"\n")
        except OSError as error:
            raise AgentvError(f"Cannot write {path}", error.strerror or str(error)) from error


def name_of(job: Job) -> str:
    """A name that says which job it is, and that no other job has."""
    words = "-".join(filter(None, (job.case.id, job.target, job.prompt, str(job.trial))))
    return f"{_UNSAFE.sub('_', words)[:_LONGEST_NAME]}.{digest(job.key)[:8]}.json"


def check_prompt_folder(folder: str) -> None:
    """Refuses a folder that has something in it: a path behind `--dump-prompts` may have been meant as a dataset."""
    try:
        taken = os.listdir(folder)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise UsageError(f"Not a folder: {folder}", hint="Write datasets before --dump-prompts") from None
    if taken:
        hint = "Name a new or empty folder, and write datasets before --dump-prompts"
        raise UsageError(f"The folder for prompts is not empty: {folder}", hint=hint)
