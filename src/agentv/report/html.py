"""HTML report: one page that works offline, with its scripts and the data of the run.

Blocks are written while results are read, so that memory does not grow with the size of the run.
"""

from typing import Any, BinaryIO

import msgspec

from agentv.model.result import Result
from agentv.report.comparisons.frontier_text import frontier_data, run_frontier
from agentv.report.formats import ReportFormat
from agentv.report.page_bundle import BlockPile, joined, page_beginning, page_end, page_file, write_block
from agentv.report.row_blocks import RowColumns, case_fields, packed_columns, remaining_fields
from agentv.report.summary_text import answer_notes, early_stop_line, failure_headline, failure_lines, noise_notes
from agentv.report.target_facts import card_facts
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore

_ROWS_A_BLOCK = 8192

_REPEATED = {
    "targets_file": "--targets",
    "judge": "--judge",
    "evaluators": "--evaluator",
    "replay": "--replay",
    "transcript": "--transcript",
    "skip_eval": "--skip-eval",
    "stored_cases": "--stored-cases",
    "fields": "--map",
    "on_error": "--on-error",
    "allow_outside_files": "--allow-outside-files",
    "max_line_bytes": "--max-line-bytes",
    "sandbox": "--sandbox",
    "timeout_s": "--timeout",
    "trace_port": "--trace-port",
}
"""The options that affect what a case asks and how it is scored."""

_encode = msgspec.json.Encoder().encode


def write(run: RunStore, figures: Figures, stream: BinaryIO) -> None:
    """Write the page: the head, the data blocks and the script."""
    script = joined(page_file, "report.js")
    stream.write(page_beginning(run.run_id, script))
    table = _Table(stream, _write_cases(run, stream))
    for result in run.records():
        table.add(result)
    table.close()
    head = page_head(run, figures, table.rows.names(), table.results.count)
    write_block(stream, "head", _encode({**head, "frontier": page_frontier(run, figures)}))
    stream.write(page_end(script))


def page_frontier(run: RunStore, figures: Figures) -> dict[str, Any] | None:
    """Return the cost and quality of three or more targets; it reads the scores again."""
    if len(figures.summary.targets) < 3:
        return None

    return frontier_data(run_frontier(run, figures), list(figures.summary.targets))


def _write_cases(run: RunStore, stream: BinaryIO) -> dict[int, int]:
    """Write the cases and return the position of each by a hash of its dataset and id."""
    pile = BlockPile(stream, "cases")
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
        self.results = BlockPile(stream, "results")
        self.rows = RowColumns()
        self._positions = positions
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
        if n := len(self._records):
            keys = [hash((record.dataset_path, record.eval_id)) for record in self._records]
            cases = [self._positions.get(key, -1) for key in keys]
            block = {"n": n, **packed_columns({"case": cases, **self.rows.columns(self._records)})}
            write_block(self._stream, "rows", _encode(block), self._written)
        self._written += n
        self._records = []


def page_head(run: RunStore, figures: Figures, names: dict[str, list[Any]], total: int) -> dict[str, Any]:
    """Return the run, its figures, the number of rows, and the names that rows refer to."""
    lost = _lost_records(run, total)
    return {
        "run": {
            "id": run.run_id,
            **{name: getattr(run.manifest, name, None) for name in ("started_at", "finished_at", "git_commit")},
            "datasets": list(dict.fromkeys(dataset["name"] for dataset in names["datasets"] if dataset["name"])),
            "done": figures.done,
            "jobs": figures.jobs,
            "not_needed": figures.jobs_saved,
            "lost": lost,
        },
        "total": total,
        "summary": figures.summary,
        "facts": {
            name: card_facts(target, figures.details.get(name), is_damaged=bool(lost))
            for name, target in figures.summary.targets.items()
        },
        "early": {
            name: " ".join(early_stop_line(target.early_stop).split())
            for name, target in figures.summary.targets.items()
            if target.early_stop is not None
        },
        "remarks": {
            name: [*answer_notes(target), *noise_notes(target)] for name, target in figures.summary.targets.items()
        },
        "failures": _failures(figures),
        "settings": _settings(run),
        "again": _again(run),
        **names,
    }


def _lost_records(run: RunStore, total: int) -> int:
    """Return how many records of a finished run are missing."""
    manifest = run.manifest
    if manifest is None or manifest.counts is None or manifest.finished_at is None:
        return 0
    return max(0, manifest.counts.records - total)


def _settings(run: RunStore) -> dict[str, dict[str, Any]]:
    """Return the provider and settings of each target, which the run stores without secrets."""
    targets = run.manifest.targets if run.manifest is not None else ()
    return {target.name: {"provider": target.provider, "settings": target.settings} for target in targets}


def _again(run: RunStore) -> dict[str, Any]:
    """Return the words of the command that runs a case again, without the dataset, the case and the target.

    If there is no such command, `reason` explains why. Targets without settings were passed by a program.
    """
    manifest = run.manifest
    if not run.is_ours or (manifest is not None and manifest.imported_from is not None):
        return {"reason": "another tool wrote it"}
    if manifest is None:
        return {"command": ["agentv", "eval"], "options": []}
    options = manifest.options
    words = [word for name, option in _REPEATED.items() if options.get(name) for word in _words(option, options[name])]
    if rescored := options.get("run"):
        return {"command": ["agentv", "rescore", rescored], "options": words, "is_rescored": True}
    if options.get("variants"):
        return {"reason": "the target is a variant that a command made"}
    if options.get("transcript") is None and not all(target.settings for target in manifest.targets):
        return {"reason": "a program passed the target"}
    return {"command": ["agentv", "eval"], "options": words}


def _words(option: str, value: Any) -> list[str]:
    if isinstance(value, list):  # of evaluators
        return [word for item in value for word in (option, _encode(item).decode())]
    return [option] if value is True else [option, f"{value:g}" if isinstance(value, float) else str(value)]


def _failures(figures: Figures) -> list[str]:
    """Return a headline and a line for each group of failures; nothing if all results passed."""
    summary = figures.failures
    return [failure_headline(summary), *failure_lines(summary)] if summary is not None and summary.failures else []


HTML = ReportFormat(
    write=write,
    extensions=(".html", ".htm"),
    file_name="report.html",
    help="Write an HTML page that works offline.",
    is_text=False,
)
