"""HTML report: one page that works offline, with its scripts and the data of the run.

Data is never parsed as HTML: it is embedded as blocks of compressed JSON in base64, which the page unpacks on demand.
Blocks are written while results are read, so that memory does not grow with the size of the run.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from datetime import datetime
from html import escape
from typing import Any, BinaryIO

import msgspec

from agentv import __version__
from agentv.model.result import EvaluatorResult, ExecutionMetrics, Result
from agentv.report.failure_text import failure_headline, failure_lines
from agentv.report.figures import one_line
from agentv.report.formats import ReportFormat
from agentv.report.page_bundle import joined, page_file, page_style
from agentv.report.summary_text import early_stop_line, headlines, noise_shown
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore

_BLOCK_BYTES = 512 * 1024
_ROWS_A_BLOCK = 8192
_LEVEL = 9
_VERDICTS = ("pass", "borderline", "fail", "error", "unscored")
_IN_COLUMNS = (
    *("schema_version", "run_id", "eval_id", "dataset", "dataset_path", "target", "prompt", "trial", "tags"),
    *("status", "score", "verdict", "timestamp"),
)
_HASHES = ("fingerprint", "input_fingerprint", "evaluators_fingerprint", "evaluator_files")
"""Not useful to a reader, and they do not compress."""

_encode = msgspec.json.Encoder().encode


def write(run: RunStore, figures: Figures, stream: BinaryIO) -> None:
    """Write the page: the head, the data blocks and the script."""
    script = joined(page_file, "report.js")
    stream.write(_beginning(run, script).encode())
    table = _Table(stream, _write_cases(run, stream))
    for result in run.records():
        table.add(result)
    table.close()
    _write_block(stream, "head", _encode(_head(run, figures, table)))
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
        data = case.fields
        positions[hash((case.dataset_path, case.id))] = pile.count
        pile.add(_encode({key: value for key, value in data.items() if key not in _HASHES}))
    pile.flush()
    return positions


class _Names(dict[Any, int]):
    """Numbers for values that rows refer to; a new value gets the next number."""

    def __missing__(self, value: Any) -> int:
        self[value] = len(self)
        return self[value]


class _Table:
    """Writes results as columns of the table, and the rest of each record separately."""

    def __init__(self, stream: BinaryIO, positions: dict[int, int]) -> None:
        self._stream = stream
        self._positions = positions
        self.results = _Pile(stream, "results")
        self._rows: dict[str, list[Any]] = {}
        self._written = 0
        self._last = 0
        self.targets, self.datasets, self.prompts, self.errors = _Names(), _Names(), _Names(), _Names()
        self.tag_sets, self.evaluator_sets = _Names(), _Names()

    def add(self, result: Result) -> None:
        columns = self._columns(result)
        for name, value in columns.items():
            self._rows.setdefault(name, []).append(value)
        rest = _rest(result)
        if columns["ended"] is None:
            rest["timestamp"] = result.timestamp
        self.results.add(_encode(rest))
        if self.results.count - self._written == _ROWS_A_BLOCK:
            self._end()

    def close(self) -> None:
        self._end()
        self.results.flush()

    def _columns(self, result: Result) -> dict[str, Any]:
        metrics = result.execution_metrics or ExecutionMetrics()
        usage = metrics.token_usage
        error = result.error
        return {
            "id": result.eval_id,
            "case": self._positions.get(hash((result.dataset_path, result.eval_id)), -1),
            "verdict": _VERDICTS.index(result.verdict or ("error" if result.status == "error" else "unscored")),
            "score": result.score,
            "target": self.targets[result.target],
            "dataset": self.datasets[result.dataset, result.dataset_path],
            "prompt": -1 if result.prompt is None else self.prompts[result.prompt],
            "trial": result.trial,
            "duration": metrics.duration_ms,
            "cost": metrics.cost_usd,
            "input": usage.input if usage else None,
            "output": usage.output if usage else None,
            "cached": usage.cached if usage else None,
            "ended": self._since_last(result.timestamp),
            "error": -1 if error is None else self.errors[error.error_class],
            "tags": self.tag_sets[result.tags],
            "missed": self.evaluator_sets[_missed(result.evaluator_results)],
        }

    def _since_last(self, timestamp: str) -> int | None:
        """Return milliseconds since the previous result; since 1970 at the start of a block."""
        try:
            now = round(datetime.fromisoformat(timestamp).timestamp() * 1000)
        except ValueError:
            return None
        since, self._last = now - self._last, now
        return since

    def _end(self) -> None:
        """Write the columns of the buffered rows; a column with equal values is written as one value."""
        n = self.results.count - self._written
        if not n:
            return
        self._last = 0
        block: dict[str, Any] = {"n": n}
        for name, values in self._rows.items():
            same = n > 1 and values.count(values[0]) == n
            block[name] = values[0] if same else values
        _write_block(self._stream, "rows", _encode(block), self._written)
        self._written += n
        self._rows = {}


def _missed(results: tuple[EvaluatorResult, ...]) -> tuple[str, ...]:
    missed = (found.name for found in results if found.error is not None or found.verdict not in (None, "pass"))
    return tuple(dict.fromkeys(missed))


def _rest(result: Result) -> dict[str, Any]:
    """Return the fields of a record that are not in the columns or its evaluators; the page restores them."""
    data: dict[str, Any] = msgspec.to_builtins(result)
    for key in (*_IN_COLUMNS, *_HASHES):
        data.pop(key, None)
    durations = data.pop("execution_metrics", {}).get("tool_durations")
    if durations:
        data["tool_durations"] = durations
    found = result.evaluator_results
    together = {
        "hits": tuple(hit for each in found for hit in each.hits),
        "misses": tuple(miss for each in found for miss in each.misses),
        "reasoning": " | ".join(f"{each.name}: {each.reasoning}" for each in found if each.reasoning),
    }
    for key, value in together.items():
        if getattr(result, key) == value:
            data.pop(key, None)
    return data


def _head(run: RunStore, figures: Figures, table: _Table) -> dict[str, Any]:
    return {
        "run": {
            "id": run.run_id,
            **{name: getattr(run.manifest, name, None) for name in ("started_at", "finished_at", "git_commit")},
            "datasets": list(dict.fromkeys(name for name, _ in table.datasets if name)),
            "done": figures.done,
            "jobs": figures.jobs,
            "spared": figures.jobs_saved,
            "agentv": __version__,
        },
        "total": table.results.count,
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
        "targets": list(table.targets),
        "datasets": [{"name": name, "path": path} for name, path in table.datasets],
        "prompts": list(table.prompts),
        "errors": list(table.errors),
        "tagSets": list(table.tag_sets),
        "evaluatorSets": list(table.evaluator_sets),
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
