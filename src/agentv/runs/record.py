"""Records of a run: encode and decode them, completely or only their scores, and read files in any format."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from agentv.errors import AgentvError, UsageError, file_errors
from agentv.model.result import SCHEMA_VERSION, JobKey, Probability, Result, Share, Status, Verdict
from agentv.model.values import json_decoder
from agentv.registry import RESULT_FORMATS
from agentv.settings.format_choice import DEFAULT_STRENGTH, Candidate, strongest
from agentv.support.hash_table import HashTable
from agentv.support.json_values import repair_json

_DEEPEST = 200
_LARGEST = 2**63


class RecordError(ValueError):
    """An invalid record. The message gives the reason; readers add the file and the line."""


class RecordKey(msgspec.Struct, gc=False, kw_only=True):
    """The fields of a record that identify its job, in the order of the file, which decodes faster."""

    eval_id: str
    dataset_path: str
    target: str
    prompt: str | None = None
    trial: int

    @property
    def key(self) -> JobKey:
        """The job that the record belongs to."""
        return JobKey(self.dataset_path, self.eval_id, self.target, self.prompt, self.trial)


class CalledTarget(msgspec.Struct, gc=False):
    """A call of an evaluator to a judge or an embedder: the target, and the model that responded."""

    target: str | None = None
    model: str | None = None
    error: Any = None


class EvaluatorCalls(msgspec.Struct, gc=False):
    """The calls that an evaluator made."""

    calls: tuple[CalledTarget, ...] = ()


class EvaluatorScore(msgspec.Struct, gc=False):
    """The score of one evaluator, and the calls that it and its members made."""

    name: str
    score: Share | None = None
    evaluator_provider_request: EvaluatorCalls | None = None
    evaluator_results: tuple[EvaluatorScore, ...] = ()


class JobUsage(msgspec.Struct, gc=False):
    """Cost and duration of a job."""

    cost_usd: float | None = None
    duration_ms: float | None = None


class JobError(msgspec.Struct, gc=False, rename={"error_class": "class"}):
    """The class of an error."""

    error_class: str


class JobScore(msgspec.Struct, gc=False, kw_only=True):
    """The job of a record and its score. Records with a few fields decode faster than a Result."""

    schema_version: int
    eval_id: str
    dataset: str
    dataset_path: str
    target: str
    prompt: str | None = None
    trial: int
    status: Status
    score: Share | None
    verdict: Verdict | None
    error: JobError | None = None
    tags: tuple[str, ...] = ()

    @property
    def key(self) -> JobKey:
        """The job that the record belongs to."""
        return JobKey(self.dataset_path, self.eval_id, self.target, self.prompt, self.trial)


class ScoreRecord(JobScore, gc=False, kw_only=True):
    """The fields of a result that comparisons need. Decodes in a third of the time of a Result."""

    conversation_id: str | None = None
    cluster: str | None = None
    evaluator_results: tuple[EvaluatorScore, ...] = ()
    execution_metrics: JobUsage | None = None
    cached: bool = False
    carried_from: str | None = None
    fingerprint: str | None = None
    probability: Probability | None = None


class RecordFields(Protocol):
    """A record with at least its version and the fields of its job."""

    # fmt: off
    @property
    def schema_version(self) -> int: ...
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
    # fmt: on


Fields = TypeVar("Fields", bound=RecordFields)
_encode_lines = msgspec.json.Encoder().encode_lines


def encode_record(result: Result) -> bytes:
    """Encode a result as one line with its newline, like `encode_records`."""
    return encode_records([result])


def encode_records(results: list[Result]) -> bytes:
    """Encode results as lines. Never fails: a lone surrogate or a set from user code must not lose a paid answer."""
    try:
        return _encode_lines(results)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return b"".join(map(encode_record, results)) if len(results) > 1 else _encode_lines([_plain(results[0])])


def decode_record(line: bytes, run_id: str = "", needs_score: bool = True) -> Result:
    """Decode a record, or a row of AgentV (TypeScript), which gets `run_id`. Raises RecordError."""
    decode: Callable[[bytes], Result] = json_decoder(Result)
    try:
        try:
            result = decode(line)
        except msgspec.ValidationError:
            return record_from_data(msgspec.json.decode(line), run_id, needs_score)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        repaired = repair_json(line)  # JavaScript writes half a surrogate pair where it cuts a text
        if repaired != line:
            return decode_record(repaired, run_id, needs_score)
        raise RecordError(f"Invalid JSON - {error}") from error
    _check_version(result.schema_version)
    return result


def field_decoder(
    fields: type[Fields], run_id: str = "", needs_score: bool = True
) -> Callable[[bytes], Fields | Result]:
    """Return a decoder of some fields of our records. Rows of other tools and damaged lines are decoded completely."""
    decode_fields = json_decoder(fields)

    def decode(line: bytes) -> Fields | Result:
        try:
            record = decode_fields(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return decode_record(line, run_id, needs_score)
        return record if record.schema_version == SCHEMA_VERSION else decode_record(line, run_id, needs_score)

    return decode


def record_from_data(data: Any, run_id: str = "", needs_score: bool = True) -> Result:
    """Convert decoded JSON or YAML: a record, or a row of AgentV (TypeScript). Raises RecordError."""
    if not isinstance(data, dict):
        raise RecordError("Expected an object")
    if "schema_version" not in data and "agentv-jsonl" in RESULT_FORMATS.names():
        converted: Result = RESULT_FORMATS.find("agentv-jsonl").convert(data, run_id, needs_score)
        return converted
    _check_version(data.get("schema_version", "missing"))
    try:
        return msgspec.convert(data, Result)
    except msgspec.ValidationError as error:
        raise RecordError(str(error)) from error


def _check_version(version: object) -> None:
    if version != SCHEMA_VERSION:
        own = f"this version of agentv reads {SCHEMA_VERSION}"
        raise RecordError(f"schema_version is {version!r}, but {own}; it may be too old for this run")


def _plain(value: Any, depth: int = 0) -> Any:
    """Replace all values that JSON cannot represent."""
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -_LARGEST <= value < _LARGEST else str(value)
    if isinstance(value, dict):
        return {_plain(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, msgspec.Struct):
        fields = [(field, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
        defaults = [{} if field.default_factory is dict else field.default for field, _ in fields]
        pairs = (pair for pair, default in zip(fields, defaults, strict=True) if pair[1] != default)
        return {field.encode_name: _plain(item, depth + 1) for field, item in pairs}
    return _plain(repr(value))


RESULTS_FILE = "results.jsonl"
_MOST_CHECKED_BYTES = 64 << 20
_HEAD_BYTES = 64 * 1024
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_CHECKED_TOGETHER = 256


class ResultFormat(Protocol):
    """A file format for results. `unit` is the name of one record in it: a line, a document."""

    extensions: tuple[str, ...]
    unit: str

    def sniff(self, head: bytes, path: Path) -> bool:
        """Return whether a file that starts with `head` has this format."""

    def records(self, path: Path) -> Iterator[Result]:
        """Yield the results in a file. Raises AgentvError for an invalid record."""


class RecordLines:
    """Our own records, one JSON object per line."""

    extensions: tuple[str, ...] = (".jsonl", ".ndjson")
    unit = "line"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        from agentv.support.json_keys import top_level  # late: a run does not detect formats

        keys = top_level(first_line(head))  # reports of other tools have a version too, but no cases
        return keys.get("schema_version", b"")[:1].isdigit() and not keys.keys().isdisjoint(("eval_id", "test_id"))

    def records(self, path: Path) -> Iterator[Result]:
        return (record for _, record in decoded_lines(path, lambda line: decode_record(line, path.stem)))


def format_of(path: Path) -> ResultFormat:
    """Return the format of a file or folder of results, by its content, or else its extension. Raises UsageError."""
    head = b""
    if not path.is_dir():
        with file_errors(f"Cannot read {path}"), path.open("rb") as file:
            head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    if head.startswith(_LFS_POINTER):
        raise UsageError(f"Cannot read {path}", "It is a Git LFS pointer, not the file itself", "Run: git lfs pull")
    if (own := RecordLines()).sniff(head, path):  # without importing the formats of other tools
        return own
    formats: dict[str, ResultFormat] = {name: RESULT_FORMATS.find(name)() for name in RESULT_FORMATS.all_names()}
    name = strongest(str(path), (_candidate(name, fmt, head, path) for name, fmt in formats.items()))
    if name is not None:
        return formats[name]
    known_formats = list(formats.values())
    if path.is_dir():
        raise UsageError(f"Not a run folder: {path}", *_results_inside(path, known_formats))
    by_name = next((option for option in known_formats if path.suffix.lower() in option.extensions), None)
    if not head and (by_name is None or hasattr(by_name, "is_imported")):
        raise UsageError(f"Cannot read {path}", "The file is empty")
    if by_name is not None:
        return by_name
    extensions = dict.fromkeys(extension for fmt in known_formats for extension in fmt.extensions)
    tools = ", ".join(name for name, fmt in formats.items() if hasattr(fmt, "is_imported"))
    hint = f"Results of these tools are recognized by their content: {tools}"
    raise UsageError(f"Not a run: {path}", _json_problem(path) or f"Supported files: {', '.join(extensions)}", hint)


def _candidate(name: str, form: ResultFormat, head: bytes, path: Path) -> Candidate:
    strength: float = getattr(form, "strength", DEFAULT_STRENGTH)
    return Candidate(name, strength, lambda: strength * form.sniff(head, path))


def _json_problem(path: Path) -> str:
    """Return why a JSON file is not a known file of results; nothing for other files."""
    if path.suffix.lower() != ".json" or path.stat().st_size > _MOST_CHECKED_BYTES:
        return ""
    try:
        msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"It is not valid JSON: {error}"
    return "It is JSON, but not the results of a known tool"


def _results_inside(folder: Path, known_formats: list[ResultFormat]) -> tuple[str, str]:
    """Return a message and a hint for a folder that is not a run itself: the results in it."""
    for path in islice(sorted(folder.iterdir()), 100):
        head = b""
        if path.is_file():
            with suppress(OSError), path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
        if (path / RESULTS_FILE).is_file() or any(fmt.sniff(head, path) for fmt in known_formats):
            return f"It contains results: {path}", f"Name them instead of the folder: {path}"
    return "It contains no results", ""


def first_line(head: bytes) -> bytes:
    """Return the first line that is not blank."""
    return head.lstrip().partition(b"\n")[0]


Record = TypeVar("Record", bound=ScoreRecord | Result)


def decoded_lines(path: Path, decode: Callable[[bytes], Record]) -> Iterator[tuple[int, Record]]:
    """Yield each record of a file of lines, with its offset. Raises AgentvError for an invalid record."""
    start, jobs = 0, DuplicateCheck(path, "line")
    with file_errors(f"Cannot read {path}"), open(path, "rb", buffering=1 << 18) as file:
        for number, line in enumerate(file, 1):
            if not line.isspace():
                try:
                    record = decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
                except RecordError as error:
                    # The last line may be incomplete if the run was killed, or is still being written.
                    if not line.endswith(b"\n") and path.name == RESULTS_FILE:
                        break
                    raise damaged(path, f"line {number}", error) from error
                jobs.add(record, number)
                yield start, record
            start += len(line)
    jobs.finish()


def repair_hint(folder: Path) -> str:
    """Return the hint for a damaged file of a run."""
    command = f"agentv runs repair {shlex.quote(str(folder))}"
    return f"Restore the file from a backup, or keep what is readable with: {command}"


def damaged(path: Path, place: str, error: Exception) -> AgentvError:
    """Build the error for an invalid record."""
    hint = repair_hint(path.parent) if path.name == RESULTS_FILE else ""
    return AgentvError(f"Invalid record at {place} in {path}", str(error), hint)


class DuplicateCheck:
    """Rejects a second record of a job while a file is read, in 12 to 24 bytes per job.

    Rows of other tools may repeat a case: they have no dataset path and no trial numbers.
    """

    def __init__(self, path: Path, unit: str) -> None:
        self._path = path
        self._unit = unit
        self._seen = HashTable()
        self._pending: list[tuple[str, str, str, str, str | None, int]] = []
        self._numbers: list[int] = []

    def add(self, record: RecordFields, number: int) -> None:
        """Check a record, given its number in the file. A duplicate is reported with some delay."""
        if path := record.dataset_path:
            # Not `record.key`, which takes twice as long.
            self._pending.append((record.dataset, path, record.eval_id, record.target, record.prompt, record.trial))
            self._numbers.append(number)
            if len(self._pending) == _CHECKED_TOGETHER:
                self.finish()

    def add_all(self, records: Sequence[RecordFields], first: int) -> None:
        """Check records with consecutive numbers. Raises AgentvError for a duplicate."""
        jobs = [
            (item.dataset, item.dataset_path, item.eval_id, item.target, item.prompt, item.trial) for item in records
        ]
        self._pending += [job for job in jobs if job[1]]
        self._numbers += [number for number, job in enumerate(jobs, first) if job[1]]
        self.finish()

    def finish(self) -> None:
        """Check the pending records. Raises AgentvError for a duplicate."""
        for position in self._seen.add(list(map(hash, self._pending))):
            raise AgentvError(
                f"Duplicate record at {self._unit} {self._numbers[position]} in {self._path}",
                str(JobKey(*self._pending[position][1:])),
                repair_hint(self._path.parent) if self._path.name == RESULTS_FILE else "Remove one of the two records",
            )
        self._pending.clear()
        self._numbers.clear()
