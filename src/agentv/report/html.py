"""HTML report: one page that works offline, with its scripts and the data of the run.

Data is never parsed as HTML: it is embedded as blocks of compressed JSON in base64, which the page unpacks on demand.
Blocks are written while results are read, so that memory does not grow with the size of the run.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from html import escape
from typing import Any, BinaryIO

import msgspec

from agentv import __version__
from agentv.model.result import Result
from agentv.report.failure_text import failure_headline, failure_lines
from agentv.report.figures import one_line
from agentv.report.formats import ReportFormat
from agentv.report.page_bundle import joined, page_file, page_style
from agentv.report.row_blocks import RowColumns, case_fields, packed_columns, remaining_fields
from agentv.report.summary_text import early_stop_line, headlines, noise_shown
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore

_BLOCK_BYTES = 512 * 1024
_ROWS_A_BLOCK = 8192
_LEVEL = 9

_encode = msgspec.json.Encoder().encode


def write(run: RunStore, figures: Figures, stream: BinaryIO) -> None:
    """Write the page: the head, the data blocks and the script."""
    script = joined(page_file, "report.js")
    stream.write(_beginning(run, script).encode())
    table = _Table(stream, _write_cases(run, stream))
    for result in run.records():
        table.add(result)
    table.close()
    _write_block(stream, "head", _encode(page_head(run, figures, table.rows.names(), table.results.count)))
    stream.write(f'<script type="module">{script}</script>\n</body>\n</html>\n'.encode())


def _beginning(run: RunStore, script: str) -> str:
    style = page_style()
    # Allow only this script and this style, no network access, and no HTML from strings.
    policy = (
        f"default-src 'none'; script-src '{_hash_of(script)}'; style-src '{_hash_of(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    parts = {
        "policy": policy,
        "version": __version__,
        "title": escape(one_line(f"{run.run_id} · agentv", 120)),
        "style": style,
    }
    page = page_file("page.html")
    for name, text in parts.items():
        page = page.replace(f"{{{{ {name} }}}}", text, 1)
    return page


def _hash_of(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _write_block(stream: BinaryIO, kind: str, data: bytes, first: int = 0) -> None:
    """Compress JSON and write it as one element; `first` is the number of its first item."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
    packed = base64.b64encode(packer.compress(data) + packer.flush())
    head = f'<script type="text/plain" data-block="{kind}" data-first="{first}">'
    stream.write(head.encode() + packed + b"</script>\n")


class _Pile:
    """Items that are buffered until they fill a block."""

    def __init__(self, stream: BinaryIO, kind: str) -> None:
        self._stream = stream
        self._kind = kind
        self._items: list[bytes] = []
        self._bytes = 0
        self.count = 0

    def add(self, item: bytes) -> None:
        self._items.append(item)
        self._bytes += len(item)
        self.count += 1
        if self._bytes >= _BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._items:
            data = b"[" + b",".join(self._items) + b"]"
            _write_block(self._stream, self._kind, data, self.count - len(self._items))
        self._items, self._bytes = [], 0


def _write_cases(run: RunStore, stream: BinaryIO) -> dict[int, int]:
    """Write the cases and return the position of each by a hash of its dataset and id."""
    pile = _Pile(stream, "cases")
    positions: dict[int, int] = {}
    for case in run.cases():
        positions[hash((case.dataset_path, case.id))] = pile.count
        pile.add(_encode(case_fields(case.fields)))
    pile.flush()
    return positions


class _Table:
    """Writes results as columns of the table, and the rest of each record separately."""

    def __init__(self, stream: BinaryIO, positions: dict[int, int]) -> None:
        self._stream = stream
        self.results = _Pile(stream, "results")
        self.rows = RowColumns(lambda path, id: positions.get(hash((path, id)), -1))
        self._records: list[Result] = []
        self._written = 0

    def add(self, result: Result) -> None:
        self._records.append(result)
        self.results.add(_encode(remaining_fields(result)))
        if len(self._records) == _ROWS_A_BLOCK:
            self._end()

    def close(self) -> None:
        self._end()
        self.results.flush()

    def _end(self) -> None:
        """Write the columns of the buffered rows."""
        n = len(self._records)
        if n:
            block = {"n": n, **packed_columns(self.rows.columns(self._records))}
            _write_block(self._stream, "rows", _encode(block), self._written)
        self._written += n
        self._records = []


def page_head(run: RunStore, figures: Figures, names: dict[str, list[Any]], total: int) -> dict[str, Any]:
    """Return the run, its figures, the number of rows, and the names that rows refer to."""
    return {
        "run": {
            "id": run.run_id,
            **{name: getattr(run.manifest, name, None) for name in ("started_at", "finished_at", "git_commit")},
            "datasets": list(dict.fromkeys(dataset["name"] for dataset in names["datasets"] if dataset["name"])),
            "done": figures.done,
            "jobs": figures.jobs,
            "spared": figures.jobs_saved,
            "agentv": __version__,
        },
        "total": total,
        "headlines": headlines(figures.summary),
        "summary": figures.summary,
        "details": figures.details,
        "early": {
            name: " ".join(early_stop_line(target.early_stop).split())
            for name, target in figures.summary.targets.items()
            if target.early_stop is not None
        },
        "noise": {name: list(noise_shown(target)) for name, target in figures.summary.targets.items()},
        "failures": _failures(figures),
        **names,
    }


def _failures(figures: Figures) -> list[str]:
    """Return a headline and a line for each group of failures; nothing if all results passed."""
    found = figures.failures
    return [failure_headline(found), *failure_lines(found)] if found is not None and found.failures else []


HTML = ReportFormat(
    write=write,
    extensions=(".html", ".htm"),
    file_name="report.html",
    help="Write an HTML page that works offline.",
    is_text=False,
)
