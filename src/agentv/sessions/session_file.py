"""Files that may contain sessions: their first records, their lines and documents, and the files of a folder."""

import json
import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import msgspec

from agentv.errors import UsageError
from agentv.registry import SESSION_FORMATS
from agentv.sessions.session import ReadLog, Session, SessionFormat
from agentv.settings.format_choice import Candidate, strongest
from agentv.support.json_values import json_or

MAX_DOCUMENT_BYTES = 128 * 1024 * 1024
"""The largest file that is parsed as one JSON document."""

MAX_LINE_BYTES = 64 * 1024 * 1024
_HEAD_BYTES = 64 * 1024
_FIRST_RECORDS = 30
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".traj", ".db")
_BOM = b"\xef\xbb\xbf"
_NOT_SESSIONS = frozenset({"node_modules", "__pycache__", ".git", "venv", "site-packages"})
_OPENCODE_PARTS = frozenset({"message", "part", "session_diff", "session_share", "todo", "permission", "snapshot"})


class SessionFile:
    """A file that may contain sessions."""

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def stem(self) -> str:
        """The name of the file without its extension."""
        return os.path.splitext(os.path.basename(self.path))[0]

    @cached_property
    def head(self) -> bytes:
        """The first bytes; empty if the file cannot be read."""
        try:
            with open(self.path, "rb") as stream:
                return stream.read(_HEAD_BYTES).removeprefix(_BOM)
        except OSError:
            return b""

    @cached_property
    def first(self) -> list[dict[str, Any]]:
        """The first records of a file of JSON lines that are objects; empty for any other file."""
        records: list[dict[str, Any]] = []
        has_lines = self.path.lower().endswith((".jsonl", ".ndjson"))
        if not has_lines and not self.head.lstrip().startswith(b"{"):
            return records
        with open(self.path, "rb") as stream:
            for _ in range(_FIRST_RECORDS):
                line = stream.readline(MAX_LINE_BYTES)
                data = json_or(line.removeprefix(_BOM), None) if line.strip() else None
                if isinstance(data, dict):
                    records.append(data)
                elif data is None and not records and line.strip() and not has_lines:
                    return []
        return records

    @property
    def is_lines(self) -> bool:
        """Whether the file has one JSON object per line."""
        return bool(self.first) and (len(self.first) > 1 or self.path.lower().endswith((".jsonl", ".ndjson")))

    @cached_property
    def document(self) -> Any:
        """The file as one JSON document; None if it is not one or too large."""
        try:
            if os.path.getsize(self.path) > MAX_DOCUMENT_BYTES:
                return None
            with open(self.path, "rb") as stream:
                return json_or(stream.read().removeprefix(_BOM), None)
        except OSError:
            return None

    def records(self, log: ReadLog) -> Iterator[dict[str, Any]]:
        """Yield the records of a file of JSON lines. Broken lines are counted."""
        for number, line in enumerate(self._lines(), 1):
            if line is None or not line.strip():
                if line is None:
                    log.meet_broken(self.path, number)
                continue
            try:
                data = msgspec.json.decode(line.removeprefix(_BOM) if number == 1 else line)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                data = None
            if isinstance(data, dict):
                yield data
            else:
                log.meet_broken(self.path, number)

    def _lines(self) -> Iterator[bytes | None]:
        """Yield the lines; None for one that is too long."""
        with open(self.path, "rb") as stream:
            while line := stream.readline(MAX_LINE_BYTES):
                if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
                    yield line
                    continue
                while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                yield None


def format_of(file: SessionFile) -> SessionFormat | None:
    """Return the format that fits a file best."""
    if not file.head or not file.path.lower().endswith(_SUFFIXES):
        return None
    formats: dict[str, SessionFormat] = {name: SESSION_FORMATS.find(name) for name in SESSION_FORMATS.all_names()}
    marked = {name: form for name, form in formats.items() if any(mark in file.head for mark in form.marks)}
    name = strongest(file.path, (_candidate(name, form, file) for name, form in marked.items()))
    return None if name is None else marked[name]


def _candidate(name: str, form: SessionFormat, file: SessionFile) -> Candidate:
    return Candidate(name, form.strength, lambda: form.strength * form.fits(file))


def session_files(path: str) -> Iterator[str]:
    """Yield the files that may contain sessions, in path order: the file itself, or those below a folder."""
    if not os.path.isdir(path):
        yield path
        return
    for parent, folders, names in os.walk(path):
        is_storage = os.path.basename(parent) in ("storage", "session") and "message" in folders
        left_out = _NOT_SESSIONS | (_OPENCODE_PARTS if is_storage else frozenset())
        folders[:] = sorted(name for name in folders if name not in left_out)
        yield from (os.path.join(parent, name) for name in sorted(names) if name.lower().endswith(_SUFFIXES))


def read_sessions(paths: Iterable[str], log: ReadLog) -> Iterator[Session]:
    """Yield the sessions in files and folders, one at a time. Raises UsageError for a path that does not exist."""
    for path in paths:
        if not os.path.exists(path):
            raise UsageError(f"No such file or folder: {path}")
        for name in session_files(path):
            file = SessionFile(name)
            file_format = format_of(file)
            log.files += 1
            if file_format is None:
                log.skip(*_why_unknown(file))
                continue
            try:
                yield from file_format.read(file, log)
            except OSError as error:
                log.skip(f"cannot be read: {error.strerror or error}", name)
            except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
                log.skip("values of unexpected types: the rest of the file is not read", name)


def _why_unknown(file: SessionFile) -> tuple[str, str]:
    """Return why no format recognizes a file, and the place: the file, or where its JSON is broken."""
    if not file.head:
        return "an empty or unreadable file", file.path
    if not file.first and file.document is None and file.path.lower().endswith((".json", ".traj")):
        if os.path.getsize(file.path) > MAX_DOCUMENT_BYTES:
            return f"a document larger than {MAX_DOCUMENT_BYTES // 2**20} MB", file.path
        return "not valid JSON", _broken_place(file.path)
    return "not a session in a known format", file.path


def _broken_place(path: str) -> str:
    """Return the file, line and column where a JSON document is broken."""
    try:
        with open(path, encoding="utf-8-sig") as stream:
            json.load(stream)
    except json.JSONDecodeError as error:
        return f"{path}:{error.lineno}:{error.colno}"
    except (OSError, UnicodeError, RecursionError):
        pass
    return path


def is_session(path: str) -> bool:
    """Whether a file is a session, or a folder has one among its first files."""
    for number, name in enumerate(session_files(path)):
        if format_of(SessionFile(name)) is not None:
            return True
        if number >= _MOST_PROBED:
            return False
    return False


_MOST_PROBED = 200
