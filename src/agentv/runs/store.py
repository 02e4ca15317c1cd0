"""A run on disk: read its records, cases and figures, and append to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, overload

import msgspec

from agentv.errors import AgentvError, UsageError, file_errors
from agentv.model.evaluator import Verdicts
from agentv.model.manifest import RunManifest
from agentv.model.result import JobKey, Result
from agentv.model.values import hash_bytes, json_decoder
from agentv.runs.folder import RESULTS_FOLDER, RunFolder, content_digest, records_in, run_folder
from agentv.runs.folder_lock import lock_records
from agentv.runs.job_index import DoneJobs, keyed_lines
from agentv.runs.record import (
    RESULTS_FILE,
    DuplicateCheck,
    RecordError,
    RecordLines,
    ScoreRecord,
    damaged,
    decode_record,
    decoded_lines,
    encode_record,
    encode_records,
    field_decoder,
    format_of,
    repair_hint,
)
from agentv.runs.summary import RunSummary
from agentv.runs.writer import Redact, ResultWriter

if TYPE_CHECKING:
    from agentv.runs.run_figures import Figures

CallSoon = Callable[[Callable[[], None]], object]
Written = Callable[[list[Result]], object]
"""Receives records as written, without secrets."""

MOST_PENDING, PENDING_S = 256, 0.005
"""How many records are written together, and how long they wait. A killed process can lose this much."""


def _ignore(results: list[Result]) -> None:
    """Ignore records that were written."""


CHECK_HINT = "Find all damage with: agentv runs check RUN"

_FINGERPRINTS = (
    "input_fingerprint",
    "fingerprint",
    "evaluators_fingerprint",
    "evaluator_fingerprints",
    "evaluator_files",
)
_RUN_FIELDS = ("dataset", "dataset_path", "line", "prompts", "variables", *_FINGERPRINTS)


class StoredExecution(msgspec.Struct, frozen=True):
    """The execution settings of a stored case that are read back."""

    verdicts: Verdicts | None = None


class StoredCase(msgspec.Struct, frozen=True, gc=False):
    """A line of `cases.jsonl`. `line` is the line of the case in its dataset, `data` the whole case as JSON."""

    id: str
    dataset_path: str = ""
    line: int | None = None
    input_fingerprint: str = ""
    fingerprint: str = ""
    evaluators_fingerprint: str = ""
    evaluator_fingerprints: dict[str, str] = {}
    execution: StoredExecution | None = None
    data: bytes = b""

    @property
    def verdicts(self) -> Verdicts | None:
        """The verdict limits of the case, if it sets any."""
        return self.execution.verdicts if self.execution is not None else None

    @property
    def fields(self) -> dict[str, Any]:
        """All fields of the line. Raises AgentvError for a damaged line."""
        from agentv.runs.damage import check_case_line  # late: it reads runs too

        try:
            check_case_line(self.data)
            fields: dict[str, Any] = msgspec.json.decode(self.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise AgentvError(f"Cannot read case '{self.id}' in cases.jsonl", str(error), CHECK_HINT) from error
        return fields

    @property
    def row(self) -> dict[str, Any]:
        """The fields as in a dataset, without those that the run added."""
        return {key: value for key, value in self.fields.items() if key not in _RUN_FIELDS}


def read_case(lines: BinaryIO, offset: int) -> StoredCase:
    """Read the case at an offset in an open `cases.jsonl`."""
    lines.seek(offset)
    line = lines.readline()
    case: StoredCase = json_decoder(StoredCase)(line)
    return msgspec.structs.replace(case, data=line)


class RunStore(AbstractContextManager["RunStore"]):
    """A run folder, or a file of results, possibly from another tool.

    Records are read one at a time. A run may be read while it is written: an incomplete last line is ignored. Writing
    requires the folder's lock and `start_writing`; `close` sets the `digests` of the written files.
    """

    def __init__(self, folder: RunFolder, file: Path | None = None, needs_scores: bool = True) -> None:
        self.folder = folder
        self.path = folder.path
        self.file = file
        self._format = None if file is None else format_of(file)
        self.is_lines = isinstance(self._format, RecordLines)
        name = self.name
        self.decode: Callable[[bytes], Result] = lambda line: decode_record(line, name, needs_scores)
        self._score_decoder = partial(field_decoder, ScoreRecord, name, needs_scores)
        self._stream: BinaryIO | None = None
        self._results: ResultWriter | None = None
        self._cases: ResultWriter | None = None
        self._flush_soon: CallSoon | None = None
        self._pending: list[Result] = []
        self._receivers: list[tuple[int, Written]] = []
        self.digests: dict[str, str] = {}

    @classmethod
    def open(
        cls, path: Path | str, redact: Redact | None = None, *, needs_scores: bool = True, checks_damage: bool = True
    ) -> RunStore:
        """Open a run folder or a result file. Raises UsageError for anything else, and AgentvError for a damaged run.

        Without `needs_scores`, rows of other tools may have answers only. Without `checks_damage`, which reads all
        files, damage is found when its place is read.
        """
        path = Path(path)
        if not path.exists():
            detail = "There is no such file" if path.suffix else ""
            raise UsageError(f"No such run: {path}", detail, f"Runs are in {RESULTS_FOLDER}")
        folder = run_folder(path, redact)
        if checks_damage and (folder.path.is_dir() or path.name == RESULTS_FILE):
            from agentv.runs.damage import refuse_damage  # late: it reads runs too

            refuse_damage(folder.path if folder.path.is_dir() else path.parent)
        run = cls(folder, records_in(folder) if folder.path.is_dir() else path, needs_scores)
        run.path = path  # of another tool's results, whose folder is an import
        return run

    @cached_property
    def manifest(self) -> RunManifest | None:
        """The manifest; None for files and other tools' folders. Raises AgentvError for another version."""
        return self.folder.read_manifest() if self.folder.manifest_path.is_file() else None

    @cached_property
    def _decode_scores(self) -> Callable[[bytes], ScoreRecord | Result]:
        return self._score_decoder()

    @property
    def name(self) -> str:
        """The name of the folder, or of the file without its extension."""
        return self.path.name if self.path.is_dir() else self.path.name.removesuffix(self.path.suffix)

    @property
    def run_id(self) -> str:
        """The run id from the manifest, or the name."""
        return self.manifest.run_id if self.manifest is not None else self.name

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of imported results should know, such as scores that are not from 0 to 1."""
        imported = self.manifest.imported_from if self.manifest is not None else None
        if imported is None:
            return ()
        is_copy = self.folder.path == self.path
        origin = f"{self.name} was imported from" if is_copy else f"Read {self.path} as"
        return f"{origin} {imported.format}", *imported.notes

    @property
    def is_ours(self) -> bool:
        """Whether the records were written by agentv itself."""
        return type(self._format) is RecordLines

    @overload
    def records(self) -> Iterator[Result]: ...
    @overload
    def records(self, fields: type[ScoreRecord]) -> Iterator[ScoreRecord | Result]: ...
    def records(self, fields: type[ScoreRecord] | None = None) -> Iterator[ScoreRecord | Result]:
        """Yield the records in the order in which jobs ended: complete, or much faster as `ScoreRecord`.

        Records of other tools are always complete. Raises AgentvError for a damaged record or a job with two records.
        """
        return (record for _, record in (self.entries() if fields is None else self.entries(fields)))

    @overload
    def entries(self) -> Iterator[tuple[int, Result]]: ...
    @overload
    def entries(self, fields: type[ScoreRecord]) -> Iterator[tuple[int, ScoreRecord | Result]]: ...
    def entries(self, fields: type[ScoreRecord] | None = None) -> Iterator[tuple[int, ScoreRecord | Result]]:
        """Yield the records, each with its offset for `read`."""
        if self.file is None:
            return iter(())
        if not self.is_lines:
            return enumerate(self._checked())
        if fields is None:
            return decoded_lines(self.file, self.decode)
        return decoded_lines(self.file, self._decode_scores)

    @overload
    def read(self, offset: int) -> Result: ...
    @overload
    def read(self, offset: int, fields: type[ScoreRecord]) -> ScoreRecord | Result: ...
    def read(self, offset: int, fields: type[ScoreRecord] | None = None) -> ScoreRecord | Result:
        """Return the record at an offset from `entries` or `index`."""
        if not self.is_lines:
            return self._held[offset]
        assert self.file is not None
        if self._stream is None:
            self._stream = open(self.file, "rb")  # noqa: SIM115  # closed by close
        self._stream.seek(offset)
        line = self._stream.readline().removeprefix(b"\xef\xbb\xbf")
        try:
            return self.decode(line) if fields is None else self._decode_scores(line)
        except RecordError as error:  # decoding as a ScoreRecord did not check all fields
            self._stream.seek(0)
            number = self._stream.read(offset).count(b"\n") + 1
            raise damaged(self.file, f"line {number}", error) from error

    @cached_property
    def index(self) -> dict[JobKey, int]:
        """The offset of the last record of each job."""
        if self.file is None:
            return {}
        if self.file.name == RESULTS_FILE:
            return {key: offset for key, offset, _ in keyed_lines(self.file)}
        return {record.key: offset for offset, record in self.entries(ScoreRecord)}

    def get(self, key: JobKey) -> Result | None:
        """Return the last record of a job."""
        offset = self.index.get(key)
        return None if offset is None else self.read(offset)

    def done_jobs(self) -> DoneJobs:
        """Return the set of jobs that have a record, fast and compact enough for millions of jobs."""
        return DoneJobs.read(self.folder.results_path)

    def cases(self) -> Iterator[StoredCase]:
        """Yield the cases that the run stored; none for a file of results."""
        path = self.folder.cases_path
        if not path.is_file():
            return
        with file_errors(f"Cannot read {path}"), path.open("rb", buffering=1 << 18) as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    return  # the run was killed, or is still being written
                try:
                    case = json_decoder(StoredCase)(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    headline = f"Invalid case at line {number} in {path}"
                    raise AgentvError(headline, str(error), repair_hint(self.path)) from error
                yield msgspec.structs.replace(case, data=line)

    def cases_at(self, offsets: Iterable[int]) -> Iterator[StoredCase | None]:
        """Yield the cases at some offsets in `cases.jsonl`; None for a negative one."""
        path = self.folder.cases_path
        with file_errors(f"Cannot read {path}"), path.open("rb") as lines:
            for offset in offsets:
                yield None if offset < 0 else read_case(lines, offset)

    def check_cases(self, hint: str) -> None:
        """Raise UsageError with this hint if the run has no readable cases."""
        folder = self.folder
        if self.manifest is not None and folder.cases_path.is_file():
            return
        if folder.cases_path.is_file():
            detail = f"{self.path} has no {folder.manifest_path.name}, which is needed to read its cases"
            raise UsageError("This run has results but no manifest", detail, hint)
        raise UsageError("This run has results but no cases", f"No {folder.cases_path.name} in {self.path}", hint)

    def digest(self) -> str:
        """Return a hash of the file of records."""
        return hash_bytes(b"") if self.file is None else content_digest(self.file)

    def case_lines(self) -> dict[tuple[str, str], int]:
        """Return the line of each case in its dataset, by dataset path and id."""
        return {(case.dataset_path, case.id): case.line for case in self.cases() if case.line}

    def summary(self) -> RunSummary | None:
        """Return the stored summary; None before the run ends, or if it cannot be read."""
        try:
            return self.folder.read_summary()
        except AgentvError:
            return None

    def figures(self) -> Figures:
        """Compute the figures from the records, in one pass."""
        from agentv.runs.run_figures import run_figures  # late: a run adds up its own figures

        return run_figures(self)

    def start_writing(self, flush_soon: CallSoon | None = None, stop_soon: CallSoon | None = None) -> bool:
        """Open the files for appending. Return whether an incomplete last record was removed.

        With `flush_soon`, which must call its argument shortly, records that follow quickly are written together.
        `stop_soon` is called in another thread with a function that raises AgentvError, if the files were deleted or
        cannot be synced.
        """
        self._flush_soon = flush_soon
        failed = None if stop_soon is None else partial(stop_soon, self._check_files)
        self._results = ResultWriter(self.folder.results_path, lock=lambda file: lock_records(file, self.path))
        self._results.watch(failed)  # before the next file, which may be unusable: closing needs the hash
        self._cases = ResultWriter(self.folder.cases_path, self.folder.redact)
        self._cases.watch(failed)
        return self._results.cut_bytes > 0

    def _check_files(self) -> None:
        for writer in filter(None, (self._results, self._cases)):
            writer.check()

    def append(self, result: Result, on_write: Written = _ignore) -> None:
        """Write a record, together with others that follow quickly; `on_write` receives it then, with others."""
        pending, results, receivers = self._pending, self._results, self._receivers
        if not receivers or receivers[-1][1] != on_write:
            receivers.append((len(pending), on_write))
        pending.append(result)
        assert results is not None
        if self._flush_soon is None or len(pending) == MOST_PENDING or monotonic() - results.written_at >= PENDING_S:
            self.flush()
        elif len(pending) == 1:
            self._flush_soon(self.flush)

    def flush(self) -> None:
        """Write the pending records with one system call. Raises AgentvError on failure."""
        if not self._pending:
            return
        results, receivers = self._pending, self._receivers
        self._pending, self._receivers = [], []
        redact = self.folder.redact
        block = encode_records(results)
        if redact is not None and redact(block) is not block:  # one of them contains a secret
            lines = list(map(encode_record, results))
            redacted = list(map(redact, lines))
            results = [
                result if line is safe else decode_record(safe)
                for result, line, safe in zip(results, lines, redacted, strict=True)
            ]
            block = b"".join(redacted)
        assert self._results is not None
        self._results.write(block)
        ends = [start for start, _ in receivers[1:]] + [len(results)]
        for (start, on_write), end in zip(receivers, ends, strict=True):
            on_write(results[start:end])

    def append_cases(self, lines: list[bytes]) -> None:
        """Write the lines of several cases, without secrets."""
        assert self._cases is not None
        self._cases.write_all(lines)

    def close(self) -> None:
        """Close all files, with everything written to disk."""
        if self._stream is not None:
            self._stream.close()
        try:
            self.flush()
        finally:
            for writer in (self._results, self._cases):
                if writer is not None:
                    writer.close()
                    self.digests[writer.path.name] = writer.digest()
            self._stream = self._results = self._cases = None

    def __exit__(self, *ended: object) -> None:
        self.close()

    @cached_property
    def _held(self) -> list[Result]:
        """All records of a file in a format without offsets."""
        return list(self.records())

    def _checked(self) -> Iterator[Result]:
        assert self.file is not None and self._format is not None
        jobs = DuplicateCheck(self.file, self._format.unit)
        for number, record in enumerate(self._format.records(self.file), 1):
            jobs.add(record, number)
            yield record
        jobs.finish()
