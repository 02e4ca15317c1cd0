"""The places of the cases of a run in `cases.jsonl`, read as far as rows need them."""

from __future__ import annotations

import os
from array import array
from pathlib import Path

import msgspec

from agentv.errors import AgentvError, file_errors
from agentv.runs.record import repair_hint
from agentv.support.hash_table import NumberTable

_READ_BYTES = 1 << 20


class _CaseName(msgspec.Struct, gc=False):
    id: str
    dataset_path: str = ""


_decode = msgspec.json.Decoder(_CaseName).decode


class CasePlaces:
    """Positions of cases by dataset path and id, in about 30 bytes each. A run may still add cases."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = NumberTable()
        self._offsets = array("q")
        self._read_bytes = 0
        self._has_more = True

    def look_again(self) -> None:
        """Check for new cases when the next unknown one is looked up."""
        self._has_more = True

    def position(self, dataset_path: str, id: str) -> int:
        """Return the position of a case in the file; -1 if the run did not store it."""
        code = hash((dataset_path, id))
        number = self._numbers.find(code)
        while number is None and self._has_more:
            self._read_more()
            number = self._numbers.find(code)
        return -1 if number is None else number

    def offset(self, position: int) -> int:
        """Return the offset of a case in the file."""
        return self._offsets[position]

    def _read_more(self) -> None:
        if not os.path.isfile(self._path):
            self._has_more = False
            return
        with file_errors(f"Cannot read {self._path}"), open(self._path, "rb") as file:
            file.seek(self._read_bytes)
            lines = file.readlines(_READ_BYTES)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        self._has_more = bool(lines)
        for line in lines:
            self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            case = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            headline = f"Invalid case at byte {self._read_bytes:,} of {self._path}"
            raise AgentvError(headline, str(error), repair_hint(self._path.parent)) from error
        if self._numbers.number(hash((case.dataset_path, case.id))) == len(self._offsets):
            self._offsets.append(self._read_bytes)
        self._read_bytes += len(line)
