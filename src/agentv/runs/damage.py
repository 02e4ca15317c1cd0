"""Find damage in a run folder: unreadable files, bad lines, duplicates, and missing cases and records."""

import shlex
import warnings
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentv.errors import AgentvError, RunWarning, file_errors, plural
from agentv.model.manifest import RunManifest
from agentv.model.result import SCHEMA_VERSION, Result
from agentv.runs.folder import NewerVersionError, RunFolder, content_digest, imported_run, is_unchanged, short_path
from agentv.runs.folder_lock import is_locked
from agentv.support.hash_table import HashTable, NumberTable
from agentv.support.json_values import repair_json

DamageKind = Literal["unreadable", "bad_line", "duplicate", "incomplete", "missing", "changed"]

_READABLE: tuple[DamageKind, ...] = ("incomplete", "missing", "changed")
"""Kinds of damage after which the rest of a run can be used, with a warning."""

_NAMED = 5
"""How many missing cases a message names."""
_Identity = tuple[Any, ...]


class Damage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem of a run: its file, the line if there is one, and what is wrong."""

    file: str
    line: int | None = None
    kind: DamageKind
    message: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}  {self.message}"


class RunHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a run. `notes` describe what a resume completes, which is not damage."""

    path: str
    cases: int = 0
    records: int = 0
    problems: tuple[Damage, ...] = ()
    notes: tuple[str, ...] = ()
    is_finished: bool = False

    @property
    def needs_only_resume(self) -> bool:
        """Whether resuming the run is enough: it is unfinished, and everything in its files is whole."""
        is_whole = all(problem.kind == "missing" and problem.file != "run.json" for problem in self.problems)
        return not self.is_finished and is_whole


class ScannedLine(msgspec.Struct, frozen=True):
    """A line of a file. `identity` is that of its job or case; `problem` explains why the line cannot be used."""

    number: int
    data: bytes
    identity: _Identity = ()
    problem: str = ""
    kind: DamageKind = "bad_line"


def refuse_damage(path: Path) -> None:
    """Raise AgentvError for a damaged run, with the same message in every command that reads runs.

    Warns of a run that was changed or is incomplete, and accepts runs that a process is writing to.
    """
    folder = RunFolder(path)
    files = (folder.manifest_path, folder.cases_path, folder.results_path, folder.summary_path)
    if not folder.manifest_path.is_file() or is_locked(path):
        return
    states = tuple((status.st_mtime_ns, status.st_size) for file in files if file.exists() and (status := file.stat()))
    problems = _problems(path, states)
    worst = [item for item in problems if item.kind not in _READABLE and item.file != folder.summary_path.name]
    if not problems:
        return
    if worst:
        raise damage_error(path, worst)
    name = short_path(path)
    check, repair = f"agentv runs check {shlex.quote(name)}", f"agentv runs repair {shlex.quote(name)}"
    text = f"The run {name} is damaged: {problems[0]}\n  List the damage with: {check}\n  Repair it with: {repair}"
    warnings.warn(RunWarning(text), stacklevel=2)


def damage_error(path: Path, problems: Sequence[Damage]) -> AgentvError:
    """Build the error for a run that cannot be used before it is repaired."""
    name = shlex.quote(short_path(path))
    more = f" ({len(problems) - 1:,} more)" if len(problems) > 1 else ""
    hint = f"List the damage with: agentv runs check {name}\nKeep what is readable with: agentv runs repair {name}"
    return AgentvError(f"The run {short_path(path)} is damaged", f"{problems[0]}{more}", hint)


@lru_cache(maxsize=64)
def _problems(path: Path, states: tuple[tuple[int, int], ...]) -> tuple[Damage, ...]:  # noqa: ARG001  # of changed files
    """Return the damage of a run; none if all files have the hashes that it stored."""
    if _is_as_written(RunFolder(path)):
        return ()
    health = check_run(path)
    return () if health.needs_only_resume else health.problems  # a resume solves those


def _is_as_written(folder: RunFolder) -> bool:
    """Whether all files of a run have the hashes in its manifest. False if the run was killed."""
    try:
        manifest = folder.read_manifest()
    except NewerVersionError:
        raise
    except AgentvError:
        return False
    if not is_unchanged(folder.manifest_path.read_bytes()):
        return False
    if not manifest.digests:
        return manifest.finished_at is not None  # written by an earlier version, or restored
    return all(
        (folder.path / name).is_file() and content_digest(folder.path / name) == expected
        for name, expected in manifest.digests.items()
    )


def check_run(path: Path | str) -> RunHealth:
    """Check every file of a run folder. Raises UsageError if there is no run."""
    folder = RunFolder(path)
    if not folder.manifest_path.exists() and not folder.results_path.exists():
        folder = imported_run(Path(path))
    check = _Check(folder)
    check.manifest_file()
    check.lines(folder.cases_path, scan_cases(folder.cases_path))
    check.lines(folder.results_path, scan_records(folder.results_path))
    check.missing()
    check.summary_file()
    return RunHealth(
        path=str(path),
        cases=check.counts[folder.cases_path.name],
        records=check.counts[folder.results_path.name],
        problems=tuple(check.problems),
        notes=tuple(check.notes),
        is_finished=check.is_finished,
    )


class _Check:
    """The state of a check."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._manifest: RunManifest | None = None
        self._cases = HashTable()
        self._without_case: dict[tuple[str, str], None] = {}
        self.counts = dict.fromkeys((folder.cases_path.name, folder.results_path.name), 0)
        self.problems: list[Damage] = []
        self.notes: list[str] = []

    def manifest_file(self) -> None:
        """Read the manifest, and compare it with its checksum."""
        path = self._folder.manifest_path
        if not path.exists():
            self._add(path, "missing", "The file is missing")
            return
        try:
            self._manifest = self._folder.read_manifest()
        except AgentvError as error:
            if isinstance(error, NewerVersionError) and is_unchanged(path.read_bytes()):
                raise
            self._add(path, "unreadable", error.detail)
            return
        if not is_unchanged(path.read_bytes()):
            self._add(path, "changed", "The file was changed after the run wrote it")

    def lines(self, path: Path, scanned: Iterator[ScannedLine]) -> None:
        """Check the lines of a file, and its hash if the lines show no damage."""
        if not path.exists():
            if self.is_finished or (path == self._folder.cases_path and self._folder.results_path.exists()):
                self._add(path, "missing", "The file is missing")
            return
        if self._is_odd(path):
            return
        is_records, before = path == self._folder.results_path, len(self.problems)
        has_cases = self._folder.cases_path.exists()
        for line in scanned:
            if line.problem:
                self._bad_line(path, line)
                continue
            self.counts[path.name] += 1
            if not is_records:
                self._cases.add([hash(line.identity)])
            elif has_cases and hash(line.identity[:2]) not in self._cases:
                self._without_case[line.identity[:2]] = None
        self._compare_digest(path, before)

    def missing(self) -> None:
        """Compare the cases with the records, and the records with the manifest."""
        if self._without_case:
            names = [name for _, name in self._without_case]
            text = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            message = f"{plural(len(names), 'case')} with records {'is' if len(names) == 1 else 'are'} missing: {text}"
            self._add(self._folder.cases_path, "missing", message)
        counts = self._manifest.counts if self._manifest is not None and self.is_finished else None
        total = 0 if counts is None else counts.records
        lost = total - self.counts[self._folder.results_path.name]
        if lost > 0 and self._folder.results_path.exists():
            verb = "is" if lost == 1 else "are"
            self._add(self._folder.results_path, "missing", f"{plural(lost, 'record')} of {total:,} {verb} missing")

    def summary_file(self) -> None:
        """Check the summary, which a finished run has."""
        path = self._folder.summary_path
        if not path.exists():
            if self.is_finished:
                self._add(path, "missing", "The file is missing")
            return
        if self._is_odd(path):
            return
        try:
            self._folder.read_summary()
        except AgentvError as error:
            self._add(path, "unreadable", error.detail)
            return
        self._compare_digest(path, len(self.problems))

    @property
    def is_finished(self) -> bool:
        """Whether the manifest marks the run as finished."""
        return self._manifest is not None and self._manifest.finished_at is not None

    def _is_odd(self, path: Path) -> bool:
        """Whether a path is not a file, such as a pipe, which would block its reader. That is a problem."""
        if not path.is_file():
            self._add(path, "unreadable", "It is not a regular file")
        return not path.is_file()

    def _bad_line(self, path: Path, line: ScannedLine) -> None:
        if not line.data.endswith(b"\n") and not self.is_finished:
            self.notes.append(f"{path.name}:{line.number}  The last line is incomplete; --resume removes it")
        else:
            kind = line.kind if line.data.endswith(b"\n") else "incomplete"
            self.problems.append(Damage(file=path.name, line=line.number, kind=kind, message=line.problem))

    def _compare_digest(self, path: Path, problems_before: int) -> None:
        expected = None if self._manifest is None else self._manifest.digests.get(path.name)
        if expected is None or len(self.problems) > problems_before:
            return
        if content_digest(path) != expected:
            self._add(path, "changed", "The file was changed after the run wrote it; all its lines are readable")

    def _add(self, path: Path, kind: DamageKind, message: str) -> None:
        self.problems.append(Damage(file=path.name, kind=kind, message=message))


def scan_records(path: Path) -> Iterator[ScannedLine]:
    """Yield the lines of a `results.jsonl`, each with its job, whose first two fields identify the case."""
    return _scan(path, _identity_of_record, "record of this job")


def scan_cases(path: Path) -> Iterator[ScannedLine]:
    """Yield the lines of a `cases.jsonl`, each with its dataset path and id."""
    return _scan(path, _identity_of_case, "line with this case")


def _scan(path: Path, identify: Callable[[bytes], _Identity], noun: str) -> Iterator[ScannedLine]:
    identities, first_lines = NumberTable(), array("q")
    if not path.is_file():  # a pipe would block
        return
    with file_errors(f"Cannot read {path}"), path.open("rb", buffering=1 << 18) as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                yield ScannedLine(number, line, problem="The line is blank")
                continue
            try:
                identity = identify(line)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                yield ScannedLine(number, line, problem=f"The line cannot be read: {error}")
                continue
            if not line.endswith(b"\n"):
                yield ScannedLine(number, line, identity, "The last line is incomplete")
                continue
            if (index := identities.number(hash(identity))) == len(first_lines):
                first_lines.append(number)
            first = first_lines[index]
            repeated = "" if first == number else f"Line {first} is another {noun}"
            yield ScannedLine(number, line, identity, repeated, "duplicate" if repeated else "bad_line")


_decode_record = msgspec.json.Decoder(Result).decode


def _identity_of_record(line: bytes) -> _Identity:
    try:
        record = _decode_record(line)
    except msgspec.DecodeError:
        record = _decode_record(repair_json(line))  # half a surrogate pair, as the reader accepts it
    if record.schema_version != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {record.schema_version}")
    return record.key


def _identity_of_case(line: bytes) -> _Identity:
    case = check_case_line(line)
    msgspec.json.decode(line)  # also the fields that are not checked
    return case.dataset_path, case.id


class _Evaluator(msgspec.Struct):
    name: str
    type: str


class _Part(msgspec.Struct):
    type: str | None = None
    value: Any = None
    text: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part | str | int | float | list[Any] | None] | _Part | int | float | None = None


class _Turn(msgspec.Struct):
    input: list[_Message]
    evaluators: list[_Evaluator] = []
    expected_output: list[Any] = []


class _Prompt(msgspec.Struct):
    id: str
    input: list[_Message]


class CaseLine(msgspec.Struct):
    """The structure of a line of `cases.jsonl`, as far as readers depend on it."""

    id: str
    dataset_path: str
    evaluators: list[_Evaluator] = []
    dataset: str = ""
    input: list[_Message] = []
    expected_output: list[dict[str, Any]] = []
    turns: list[_Turn] = []
    prompts: list[_Prompt] = []
    variables: dict[str, Any] | None = None


def check_case_line(line: bytes) -> CaseLine:
    """Check the structure of a line of `cases.jsonl`. Raises msgspec.DecodeError or UnicodeDecodeError."""
    return msgspec.json.decode(line, type=CaseLine)
