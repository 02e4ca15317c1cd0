"""Which jobs of a run are done: one pass over `results.jsonl` that decodes the keys only and keeps hashes of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.errors import AgentvError
from agentv.model.result import Result, Status
from agentv.support.hash_set import HashTable

_BATCH_BYTES = 512 * 1024
_MOST_SHOWN = 10


class JobKey(NamedTuple):
    """What a job is known by inside its run."""

    dataset_path: str
    eval_id: str
    target: str
    prompt: str | None
    trial: int


class _Keys(msgspec.Struct, gc=False):
    dataset_path: str
    eval_id: str
    target: str
    trial: int
    status: Status
    prompt: str | None = None


_decode = msgspec.json.Decoder(_Keys).decode


class DoneJobs:
    """The jobs that have a record, and which of those are errors, in 12 to 24 bytes a job.

    A hash stands for each key; among a million jobs the chance that two share one is about one in thirty million.
    """

    def __init__(self) -> None:
        self.counts: dict[Status, int] = {"ok": 0, "unscored": 0, "error": 0}
        self.repeated: list[JobKey] = []
        self.repeats = 0
        self._done = HashTable()
        self._failed = HashTable()

    def __len__(self) -> int:
        return sum(self.counts.values()) - self.repeats

    def __contains__(self, key: tuple[str, str, str, str | None, int]) -> bool:
        return hash(key) in self._done

    def failed(self, key: tuple[str, str, str, str | None, int]) -> bool:
        """Whether a record of the job is an error."""
        return hash(key) in self._failed

    def expect(self, count: int) -> None:
        """Makes room for so many jobs at once."""
        self._done.expect(count)

    def add(self, result: Result) -> None:
        self._add(
            [_Keys(result.dataset_path, result.eval_id, result.target, result.trial, result.status, result.prompt)]
        )

    def _add(self, records: list[_Keys]) -> None:
        codes = [hash((key.dataset_path, key.eval_id, key.target, key.prompt, key.trial)) for key in records]
        repeated = self._done.add(codes)
        others = [position for position, key in enumerate(records) if key.status != "ok"]
        self.counts["ok"] += len(records) - len(others)
        for position in others:
            self.counts[records[position].status] += 1
        self._failed.add([codes[position] for position in others if records[position].status == "error"])
        self.repeats += len(repeated)
        for position in repeated[: _MOST_SHOWN - len(self.repeated)]:
            key = records[position]
            self.repeated.append(JobKey(key.dataset_path, key.eval_id, key.target, key.prompt, key.trial))


def scan(path: Path | str) -> DoneJobs:
    """The done jobs of a `results.jsonl`; a last line without its newline counts as not written."""
    done = DoneJobs()
    first = 1
    for lines, share in _batches(Path(path)):
        try:
            records = list(map(_decode, lines))
        except (msgspec.DecodeError, UnicodeDecodeError):
            records = list(_one_by_one(lines, first, path))
        done.expect(int((len(done) + len(records)) / share))
        done._add(records)
        first += len(lines)
    return done


def _batches(path: Path) -> Iterator[tuple[list[bytes], float]]:
    """The lines in batches, each with the share of the file that was read so far."""
    try:
        with open(path, "rb", buffering=_BATCH_BYTES) as file:
            size = os.fstat(file.fileno()).st_size
            while lines := file.readlines(_BATCH_BYTES):
                if not lines[-1].endswith(b"\n"):
                    lines.pop()
                yield lines, min(1.0, file.tell() / size)
    except FileNotFoundError:
        return
    except OSError as error:
        raise AgentvError(f"Cannot read {path}", error.strerror or str(error)) from error


def _one_by_one(lines: list[bytes], first: int, path: Path | str) -> Iterator[_Keys]:
    """A batch with something else among its records: blank lines are passed over, the first other one is an error."""
    for number, line in enumerate(lines, first):
        if line.isspace():
            continue
        try:
            yield _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            hint = "Take the line out to have its job run again"
            raise AgentvError(f"Not a result record at line {number} in {path}", str(error), hint) from error
