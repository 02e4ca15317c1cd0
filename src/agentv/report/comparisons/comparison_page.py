"""The page of a comparison as one file: the same view that `agentv view` serves, with the cases that changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec

from agentv.comparison.comparison import Matrix
from agentv.comparison.scores import RunScores
from agentv.errors import plural
from agentv.report.comparisons.comparison_view import ROWS_A_BLOCK, ComparedRuns, matrix_head
from agentv.report.page_bundle import BlockPile, joined, page_beginning, page_end, page_file, write_block

MOST_LISTED = 200_000
"""Cases in the list of a file."""
MOST_OPENED = 5_000
"""Cases of a file that can be opened."""
MOST_BYTES = 48 * 1024 * 1024
"""Size of the records of those cases, before they are compressed."""

_encode = msgspec.json.Encoder().encode
_CASE_FIELDS = ("input", "expected_output", "expected_outcome")


def write_comparison(compared: ComparedRuns, exit_code: int, stream: BinaryIO) -> None:
    """Write two compared runs as a page."""
    head = compared.head(exit_code)
    labels = [side.label for side in compared.comparison.sides]
    script = joined(page_file, "comparison.js")
    stream.write(page_beginning(" → ".join(labels), script))
    listed = min(len(compared.pairs), MOST_LISTED)
    for first in range(0, listed, ROWS_A_BLOCK):
        write_block(stream, "rows", _encode(compared.block(first, min(ROWS_A_BLOCK, listed - first))), first)
    opened = _write_pairs(compared, listed, stream)
    head |= {"listed": listed, "opened": opened, "limits": list(_limits(compared, listed, opened))}
    write_block(stream, "head", _encode(head))
    stream.write(page_end(script))


def write_matrix(matrix: Matrix, exit_code: int, stream: BinaryIO) -> None:
    """Write the comparison of three or more runs as a page."""
    script = joined(page_file, "comparison.js")
    stream.write(page_beginning("Comparison", script))
    write_block(stream, "head", _encode(matrix_head(matrix, exit_code)))
    stream.write(page_end(script))


def _limits(compared: ComparedRuns, listed: int, opened: int) -> Iterable[str]:
    """State what the file does not contain."""
    total, changed = len(compared.pairs), compared.pairs.changed
    if listed < total:
        which = "all that changed" if changed <= listed else f"the largest of {changed:,} changes"
        yield f"{listed:,} of {plural(total, 'case')} are listed: {which}"
    if opened < listed:
        which = f"{opened:,} of {plural(listed, 'listed case')}"
        yield f"The answers of {which} are in this file, the largest changes first; `agentv view` shows all"


def _write_pairs(compared: ComparedRuns, listed: int, stream: BinaryIO) -> int:
    """Write the records of the first cases, as many as fit, and return their number."""
    pile = BlockPile(stream, "pairs")
    size = 0
    most = min(listed, MOST_OPENED)
    stored = _StoredCases(compared, most)
    runs = [side.run.run for side in compared.pairs.sides]
    with runs[0], runs[1]:
        for row in range(most):
            item = _encode({**compared.case(row), "case": stored.of(row)})
            size += len(item)
            if size > MOST_BYTES and row:
                break
            pile.add(item)
    pile.flush()
    return pile.count


class _StoredCases:
    """The inputs and references of some cases, from the run that has them; B if both do."""

    def __init__(self, compared: ComparedRuns, most: int) -> None:
        self._pairs = compared.pairs
        self._found: dict[tuple[str, str], dict[str, Any]] = {}
        wanted = {self._key(row) for row in range(most)}
        for side in reversed(compared.pairs.sides):
            self._read(side.run, wanted)

    def of(self, row: int) -> dict[str, Any] | None:
        return self._found.get(self._key(row))

    def _key(self, row: int) -> tuple[str, str]:
        place = 1 if self._pairs.rows[row, 1] >= 0 else 0
        side = self._pairs.sides[place]
        case = int(side.first[self._pairs.rows[row, place]])
        return list(side.run.path_names)[side.run.paths[case]], side.run.cases.id(case)

    def _read(self, run: RunScores, wanted: set[tuple[str, str]]) -> None:
        for case in run.run.cases():
            key = case.dataset_path, case.id
            if key in wanted and key not in self._found:
                self._found[key] = {name: value for name, value in case.fields.items() if name in _CASE_FIELDS}
