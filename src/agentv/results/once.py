"""Each job once: records in which a job stands twice are refused, because which of them counts cannot be told."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from agentv.errors import AgentvError
from agentv.hashes import HashTable

_AT_ONCE = 256

Job = tuple[str, str, str, str, str | None, int]


class OfAJob(Protocol):
    """What tells a record's job."""

    @property
    def dataset(self) -> str: ...
    @property
    def dataset_path(self) -> str: ...
    @property
    def eval_id(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def prompt(self) -> str | None: ...
    @property
    def trial(self) -> int: ...


class JobsOnce:
    """The jobs of a file while it is read, in 12 to 24 bytes each.

    Rows of other tools name no dataset's path and do not number their trials: they may repeat a case.
    """

    def __init__(self, path: Path, each: str) -> None:
        """`each` is what a record is in this kind of file: a line, a document."""
        self._path = path
        self._each = each
        self._seen = HashTable()
        self._waiting: list[Job] = []
        self._numbers: list[int] = []

    def add(self, record: OfAJob, number: int) -> None:
        """One more record, with its number in the file. A job that was there is refused a little later."""
        if record.dataset_path:
            job = (record.dataset, record.dataset_path, record.eval_id, record.target, record.prompt, record.trial)
            self._waiting.append(job)
            self._numbers.append(number)
            if len(self._waiting) == _AT_ONCE:
                self.check()

    def check(self) -> None:
        """Looks at those that wait: at the end of the file."""
        for position in self._seen.add(list(map(hash, self._waiting))):
            _, dataset_path, eval_id, target, prompt, trial = self._waiting[position]
            asked = "" if prompt is None else f", prompt {prompt}"
            raise AgentvError(
                f"A job is twice in {self._path}, again at {self._each} {self._numbers[position]}",
                f"{eval_id} of {dataset_path}, target {target}{asked}, trial {trial}",
                "Take one of its records out: which one counts cannot be told",
            )
        self._waiting.clear()
        self._numbers.clear()
