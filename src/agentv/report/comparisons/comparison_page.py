"""Pages of comparisons, each one file: the view of `agentv view` with the cases that changed, or a Markdown report."""

from collections.abc import Iterable
from html import escape
from typing import Any, BinaryIO

import msgspec

from agentv.comparison.behaviour.case_pairs import CasePairs
from agentv.comparison.comparison import Comparison, Matrix
from agentv.comparison.joined_cases import JoinedCases
from agentv.errors import plural
from agentv.report.comparisons.comparison_view import ROWS_A_BLOCK, ComparedRuns, matrix_head
from agentv.report.figures import one_line
from agentv.report.page_bundle import (
    BlockPile,
    filled_page,
    hash_of,
    joined,
    page_beginning,
    page_end,
    page_file,
    write_block,
)

MOST_LISTED = 200_000
"""Cases in the list of a file."""
MOST_OPENED = 5_000
"""Cases of a file that can be opened."""
MOST_BYTES = 48 * 1024 * 1024
"""Size of the records of those cases, before they are compressed."""

_encode = msgspec.json.Encoder().encode
_CASE_FIELDS = ("input", "expected_output", "expected_outcome")


def write_comparison(comparison: Comparison, cases: JoinedCases, exit_code: int, stream: BinaryIO) -> None:
    """Write two compared runs as a page."""
    compared = ComparedRuns(comparison, cases)
    head = compared.head(exit_code)
    labels = [side.label for side in comparison.sides]
    script = joined(page_file, "comparison.js")
    stream.write(page_beginning(" → ".join(labels), script))
    row_count = min(len(compared.pairs), MOST_LISTED)
    for first in range(0, row_count, ROWS_A_BLOCK):
        write_block(stream, "rows", _encode(compared.block(first, min(ROWS_A_BLOCK, row_count - first))), first)
    opened = _write_pairs(compared, row_count, stream)
    head |= {"listed": row_count, "opened": opened, "limits": list(_limits(compared, row_count, opened))}
    write_block(stream, "head", _encode(head))
    stream.write(page_end(script))


def write_matrix(matrix: Matrix, exit_code: int, stream: BinaryIO) -> None:
    """Write the comparison of three or more runs as a page."""
    script = joined(page_file, "comparison.js")
    stream.write(page_beginning("Comparison", script))
    write_block(stream, "head", _encode(matrix_head(matrix, exit_code)))
    stream.write(page_end(script))


def _limits(compared: ComparedRuns, row_count: int, opened: int) -> Iterable[str]:
    """State what the file does not contain."""
    total, changed = len(compared.pairs), compared.pairs.changed
    if row_count < total:
        which = "all that changed" if changed <= row_count else f"the largest of {changed:,} changes"
        yield f"{row_count:,} of {plural(total, 'case')} are listed: {which}"
    if opened < row_count:
        which = f"{opened:,} of {plural(row_count, 'listed case')}"
        yield f"The answers of {which} are in this file, the largest changes first; `agentv view` shows all"


def _write_pairs(compared: ComparedRuns, row_count: int, stream: BinaryIO) -> int:
    """Write the records of the first cases, as many as fit, and return their number."""
    pile = BlockPile(stream, "pairs")
    size = 0
    most = min(row_count, MOST_OPENED)
    runs = [side.run.run for side in compared.pairs.sides]
    with runs[0], runs[1]:
        for row, case in enumerate(_stored_cases(compared.pairs, most)):
            item = _encode({**compared.case(row), "case": case})
            size += len(item)
            if size > MOST_BYTES and row:
                break
            pile.add(item)
    pile.flush()
    return pile.count


def _stored_cases(pairs: CasePairs, count: int) -> list[dict[str, Any] | None]:
    """Return the inputs and references of the first cases, from the run that has them; B if both do."""
    keys = [_case_key(pairs, row) for row in range(count)]
    stored: dict[tuple[str, str], dict[str, Any] | None] = dict.fromkeys(keys)
    for side in reversed(pairs.sides):
        for case in side.run.run.cases():
            key = case.dataset_path, case.id
            if stored.get(key, ...) is None:
                stored[key] = {name: value for name, value in case.fields.items() if name in _CASE_FIELDS}
    return [stored[key] for key in keys]


def _case_key(pairs: CasePairs, row: int) -> tuple[str, str]:
    place = 1 if pairs.rows[row, 1] >= 0 else 0
    side = pairs.sides[place]
    case = int(side.first[pairs.rows[row, place]])
    return list(side.run.path_names)[side.run.paths[case]], side.run.cases.id(case)


def markdown_page(title: str, text: str) -> str:
    """Return a page with a report, whose user text is escaped for Markdown. The policy of the page blocks scripts."""
    from markdown_it import MarkdownIt  # late: only `--html` needs it

    style = "\n" + page_file("markdown.css")
    parts = {
        "policy": f"default-src 'none'; style-src '{hash_of(style)}'; base-uri 'none'; form-action 'none'",
        "style": style,
        "body": MarkdownIt("commonmark", {"html": True}).enable("table").render(text),
        "title": escape(one_line(title, 120)),  # last: a title may look like a part
    }
    return filled_page("markdown.html", parts)
