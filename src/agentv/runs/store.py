"""Runs read back: results from a run folder, from a file of records, or from what AgentV wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from agentv.errors import AgentvError, UsageError
from agentv.model.manifest import RunManifest
from agentv.model.result import SCHEMA_VERSION, Result, Share, Status, Verdict
from agentv.runs.folder import RESULTS_FOLDER, RunFolder
from agentv.runs.record import RecordError, decode_record, record_from_data
from agentv.support.hash_set import HashTable

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


Decoded = TypeVar("Decoded", bound=OfAJob)

LINES = (".jsonl", ".ndjson")
YAML = (".yaml", ".yml")

_RECORD_FILES = ("results.jsonl", "index.jsonl", ".internal/index.jsonl")
"""Where the records of a run folder are: ours first, then AgentV's of 4.x and 5.x."""


class FoundRun(msgspec.Struct, frozen=True):
    """A run on disk. AgentV's have no manifest."""

    path: Path
    run_id: str
    manifest: RunManifest | None = None


def read_run(path: Path | str) -> Iterator[Result]:
    """The results of a run, one at a time: `path` is its folder or a file of records. Looks at the path at once."""
    run_id, file = run_id_of(path), records_file(path)
    if file is None:
        return iter(())
    return _read_yaml(file, run_id) if file.suffix.lower() in YAML else _read_lines(file, run_id)


def run_id_of(path: Path | str) -> str:
    """What a run is called whose records do not say: as its folder or file."""
    path = Path(path)
    return path.name if path.is_dir() else path.name.removesuffix(path.suffix)


def records_file(path: Path | str) -> Path | None:
    """The file that the records of a run are in; None for a run that was stopped before its first one."""
    path = Path(path)
    if not path.exists():
        raise UsageError(f"No such run: {path}", hint=f"Runs are kept in {RESULTS_FOLDER}")
    file = _records_of(path) if path.is_dir() else path
    if file is None:
        return None
    if file.suffix.lower() not in LINES + YAML:
        raise UsageError(f"Not a run: {path}", f"Supported files: {', '.join(LINES + YAML)}")
    return file


def find_runs(root: Path | str) -> list[FoundRun]:
    """The runs that a project keeps, AgentV's among them, the newest first."""
    return runs_in(Path(root) / RESULTS_FOLDER)


def runs_in(folder: Path | str) -> list[FoundRun]:
    """The runs that a folder holds, AgentV's among them, the newest first."""
    folder = Path(folder)
    found = [_found(path) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((run for run in found if run), key=lambda run: run.run_id, reverse=True)


def _found(path: Path) -> FoundRun | None:
    if path.is_file():
        return FoundRun(path, path.stem) if path.name.startswith("eval_") and path.suffix in LINES + YAML else None
    folder = RunFolder(path)
    if folder.manifest_path.is_file():
        try:
            return FoundRun(path, path.name, folder.read_manifest())
        except AgentvError:
            return FoundRun(path, path.name)  # of another version; opening it says so
    return FoundRun(path, path.name) if any((path / name).is_file() for name in _RECORD_FILES) else None


def _records_of(folder: Path) -> Path | None:
    for name in _RECORD_FILES:
        if (folder / name).is_file():
            return folder / name
    run = RunFolder(folder)
    if not run.manifest_path.is_file():
        raise UsageError(f"Not a run folder: {folder}", "There are no results in it")
    if run.read_manifest().finished_at is not None:
        detail = f"{run.manifest_path.name} says that it finished, and there is no {run.results_path.name}"
        raise AgentvError(f"The results of {folder} are gone", detail, "Bring the file back, or run it again")
    return None  # stopped before its first result, and a run all the same


def _read_lines(path: Path, run_id: str) -> Iterator[Result]:
    for _, result in decoded_lines(path, lambda line: decode_record(line, run_id)):
        yield result


def decoded_lines(path: Path, decode: Callable[[bytes], Decoded]) -> Iterator[tuple[int, Decoded]]:
    """Each record of a file of lines, as `decode` gives it, with the byte that it starts at."""
    start, jobs = 0, JobsOnce(path, "line")
    try:
        with open(path, "rb", buffering=1 << 18) as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    try:
                        record = decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
                    except RecordError as error:
                        # The last line of a run that was killed, or is being written, can be half there.
                        if not line.endswith(b"\n") and path.name == _RECORD_FILES[0]:
                            break
                        raise refused(path, f"line {number}", error) from error
                    jobs.add(record, number)
                    yield start, record
                start += len(line)
        jobs.check()
    except OSError as error:
        raise AgentvError(f"Cannot read {path}", error.strerror or str(error)) from error


def _read_yaml(path: Path, run_id: str) -> Iterator[Result]:
    """A file of documents, one a result."""
    import yaml  # late: runs are hardly ever kept this way

    jobs = JobsOnce(path, "document")
    try:
        with open(path, "rb") as file:
            for number, data in enumerate(yaml.load_all(file, Loader=_plain_loader()), 1):
                if not isinstance(data, dict):
                    raise refused(path, f"document {number}", RecordError("Expected an object"))
                try:
                    record = record_from_data(data, run_id)
                except RecordError as error:
                    raise refused(path, f"document {number}", error) from error
                jobs.add(record, number)
                yield record
        jobs.check()
    except OSError as error:
        raise AgentvError(f"Cannot read {path}", error.strerror or str(error)) from error
    except yaml.YAMLError as error:
        raise AgentvError(f"Cannot read {path}", str(error)) from error


def _plain_loader() -> Any:
    """PyYAML's safe loader without its own ideas: times stay text, and only true and false are booleans."""
    import re

    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}

    scalars = {"null": "~nN", "bool": "tf", "int": "-0123456789", "float": "-.0123456789"}
    patterns = {
        "null": r"~|null",
        "bool": r"true|false",
        "int": r"-?(?:0|[1-9][0-9]*)",
        "float": r"-?(?:0|[1-9][0-9]*)?(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?",
    }
    for name, first in scalars.items():
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{patterns[name]})$"), list(first))
    return Loader


def refused(path: Path, place: str, error: RecordError) -> AgentvError:
    """What is said of a record that is none."""
    return AgentvError(f"Not a result at {place} in {path}", str(error))


class BriefEvaluator(msgspec.Struct, gc=False):
    """What one evaluator found."""

    name: str
    score: Share | None = None


class BriefMetrics(msgspec.Struct, gc=False):
    """What a job used."""

    cost_usd: float | None = None
    duration_ms: float | None = None


class BriefError(msgspec.Struct, gc=False, rename={"error_class": "class"}):
    """Of which class a failure was."""

    error_class: str


class BriefRecord(msgspec.Struct, gc=False, kw_only=True):
    """The fields of a result that comparisons are made of, under the same names."""

    schema_version: int
    eval_id: str
    dataset: str
    dataset_path: str
    target: str
    status: Status
    score: Share | None
    verdict: Verdict | None
    trial: int = 1
    prompt: str | None = None
    conversation_id: str | None = None
    evaluator_results: tuple[BriefEvaluator, ...] = ()
    execution_metrics: BriefMetrics | None = None
    error: BriefError | None = None
    cached: bool = False
    tags: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(BriefRecord).decode


def brief_records(path: Path | str) -> Iterator[tuple[int | None, BriefRecord | Result]]:
    """The records of a run with the byte at which each starts, None in YAML. Rows of AgentV's come whole."""
    file, run_id = records_file(path), run_id_of(path)
    if file is None:
        return iter(())
    if file.suffix.lower() in YAML:
        return ((None, result) for result in read_run(path))

    def decode(line: bytes) -> BriefRecord | Result:
        try:
            record = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return decode_record(line, run_id)  # another tool's row, another version, or a mistake that it can name
        return record if record.schema_version == SCHEMA_VERSION else decode_record(line, run_id)

    return decoded_lines(file, decode)


def whole_record(path: Path | str, start: int) -> Result:
    """The record that starts at a byte of a run's file."""
    file = records_file(path)
    assert file is not None
    with open(file, "rb") as stream:
        stream.seek(start)
        line = stream.readline().removeprefix(b"\xef\xbb\xbf")
        try:
            return decode_record(line, run_id_of(path))
        except RecordError as error:  # its texts are looked at here for the first time
            stream.seek(0)
            number = stream.read(start).count(b"\n") + 1
            raise refused(file, f"line {number}", error) from error
