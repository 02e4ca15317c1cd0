"""Sessions of opencode: its database, its older storage folder, and the files that `opencode export` writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from agentv.model.token_counts import OPENCODE_USAGE, usage
from agentv.sessions.session import (
    ReadLog,
    Session,
    SessionBuilder,
    SessionFormat,
    decoded,
    iso_time,
    kind_of,
    object_in,
    objects_in,
)
from agentv.sessions.session_file import MAX_LINE_BYTES, SessionFile
from agentv.sessions.turns import number, text_of
from agentv.support.json_values import json_or

_IGNORED = frozenset((
    "step-start", "step-finish", "reasoning", "patch", "snapshot", "agent", "retry", "compaction", "subtask",
))  # fmt: skip
_TABLES = {"session", "message", "part"}
_NEWER_TABLES = {"session_v2", "session_message"}
_SESSIONS = "SELECT * FROM session ORDER BY time_created"
_NEWER_SESSIONS = "SELECT * FROM session_v2 ORDER BY time_created"
_NOT_MESSAGES = frozenset((
    "agent-switched", "compaction", "idle", "model-switched", "shell", "synthetic", "system",
))  # fmt: skip
_DATABASE = b"SQLite format 3\x00"


class _Message(NamedTuple):
    """A message and its parts."""

    info: dict[str, Any]
    parts: list[dict[str, Any]]


class _OpenCode(SessionFormat):
    agent = "opencode"
    title = "a session of opencode"
    marks = (b'"ses_', b"SQLite format 3\x00")

    def fits(self, file: SessionFile) -> bool:
        if file.head.startswith(_DATABASE):
            return _is_database(file.path)
        document = file.document
        about = object_in(document, "info") or document
        return isinstance(about, dict) and str(about.get("id")).startswith("ses_")

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        if file.head.startswith(_DATABASE):
            yield from self._read_database(file.path, log)
        elif "info" in file.document:
            exported = objects_in(file.document.get("messages"))
            messages = [_Message(object_in(entry, "info"), objects_in(entry.get("parts"))) for entry in exported]
            yield from self._session(object_in(file.document, "info"), messages, file.path, log)
        else:
            yield from self._session(file.document, _stored(file, log), file.path, log)

    def _read_database(self, path: str, log: ReadLog) -> Iterator[Session]:
        with _readable(path) as database:
            names = _tables(database)
            newer = _sessions(database, _NEWER_SESSIONS) if names >= _NEWER_TABLES else []
            older = _sessions(database, _SESSIONS) if names >= _TABLES else []
            for about in newer:
                yield from self._session(about, _newer_messages(database, str(about["id"]), log), path, log)
            migrated = {about["id"] for about in newer}
            for about in older:
                if about["id"] not in migrated:
                    yield from self._session(about, _rows(database, str(about["id"])), path, log)

    def _session(
        self, about: dict[str, Any], messages: Iterable[_Message], path: str, log: ReadLog
    ) -> Iterator[Session]:
        if about.get("parentID"):
            log.skip("the work of a sub-agent, which is part of another session", path)
            return
        builder = SessionBuilder(self.agent)
        created = object_in(about, "time").get("created")
        started = iso_time(float(created)) if isinstance(created, int | float) else None
        builder.learn(id=about.get("id"), cwd=about.get("directory"), started=started)
        stop = object_in(about, "revert").get("messageID")
        for message in messages:
            if stop and message.info.get("id") == stop:
                break  # the user went back to before this message
            _take(builder, message, log)
        yield from builder.finish(path, log)


OPENCODE = _OpenCode()


def _open(path: str) -> Any:
    import sqlite3  # late: only this format needs it

    # Read-only; a database in use has a log next to it, which is read as well.
    database = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro", uri=True)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LINE_BYTES)
    database.execute("PRAGMA trusted_schema = OFF")  # no function of the schema may have side effects
    return database


@contextmanager
def _readable(path: str) -> Iterator[Any]:
    """Open a database. Raises OSError if it is damaged."""
    import sqlite3  # late: only this format needs it

    try:
        with closing(_open(path)) as database:
            yield database
    except sqlite3.Error as error:
        raise OSError(f"the database is damaged: {error}") from error


def _is_database(path: str) -> bool:
    try:
        with _readable(path) as database:
            names = _tables(database)
    except OSError:
        return False
    return names >= _TABLES or names >= _NEWER_TABLES


def _tables(database: Any) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _sessions(database: Any, query: str) -> list[dict[str, Any]]:
    """Return what a table of sessions has about each, in order of time."""
    cursor = database.execute(query)
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor]
    return [
        {
            **{"id": row["id"], "parentID": row["parent_id"], "directory": row["directory"]},
            **{"time": {"created": row["time_created"]}, "revert": decoded(row.get("revert"))},
        }
        for row in rows
    ]


def _newer_messages(database: Any, session: str, log: ReadLog) -> Iterator[_Message]:
    """Yield the messages of a database whose rows have the parts of a message as its content."""
    query = "SELECT id, type, data FROM session_message WHERE session_id = ? ORDER BY seq"
    for id, kind, text in database.execute(query, (session,)).fetchall():
        data = object_in({"data": json_or(text, None)}, "data")
        info = {**data, "id": id, "role": kind, "modelID": object_in(data, "model").get("id")}
        if kind == "user":
            files = [{"type": "file"} for _ in objects_in(data.get("files"))]
            yield _Message(info, [{"type": "text", "text": data.get("text")}, *files])
        elif kind == "assistant":
            yield _Message(info, [_older_part(part) for part in objects_in(data.get("content"))])
        elif kind not in _NOT_MESSAGES:
            log.meet_unknown("opencode", kind)


def _older_part(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part as the older database has it."""
    if part.get("type") != "tool":
        return part
    state = object_in(part, "state")
    error = object_in(state, "error").get("message") or state.get("error")
    state = {**state, "input": decoded(state.get("input")), "output": text_of(state.get("content")), "error": error}
    return {"type": "tool", "callID": part.get("id"), "tool": part.get("name"), "state": state}


def _rows(database: Any, session: str) -> Iterator[_Message]:
    query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for id, data in database.execute(query, (session,)).fetchall():
        parts = database.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (id,))
        info = json_or(data, None)
        yield _Message(
            {**(info if isinstance(info, dict) else {}), "id": id},
            objects_in([json_or(part, None) for (part,) in parts]),
        )


def _stored(file: SessionFile, log: ReadLog) -> Iterator[_Message]:
    """Yield the messages of a session in the storage folder: `message/SESSION/*.json` and `part/MESSAGE/*.json`."""
    id = str(file.document["id"])
    parent = os.path.dirname(os.path.dirname(os.path.abspath(file.path)))
    for base in (parent, os.path.dirname(parent)):
        folder = os.path.join(base, "message", os.path.basename(id))
        if os.path.isdir(folder):
            for info in _documents(folder, log):
                name = os.path.basename(str(info.get("id", "")))
                candidates = (os.path.join(base, "part", *path) for path in ((name,), (id, name)))
                parts = next((candidate for candidate in candidates if name and os.path.isdir(candidate)), None)
                yield _Message(info, list(_documents(parts, log)) if parts else objects_in(info.get("parts")))
            return
    log.skip("no messages next to the session", file.path)


def _documents(folder: str, log: ReadLog) -> Iterator[dict[str, Any]]:
    """Yield the JSON documents in a folder; their names are in order of time."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            data = SessionFile(os.path.join(folder, name)).document
            if isinstance(data, dict):
                yield data
            else:
                log.meet_broken(os.path.join(folder, name), 1)


def _take(builder: SessionBuilder, message: _Message, log: ReadLog) -> None:
    info, parts = message
    at_ms = builder.see_time(object_in(info, "time").get("created"))
    builder.see_time(object_in(info, "time").get("completed"))
    if info.get("role") == "user":
        texts = [part.get("text") for part in parts if part.get("type") == "text" and not part.get("synthetic")]
        files = sum(part.get("type") == "file" for part in parts)
        builder.add_request("\n".join(text for text in texts if isinstance(text, str)), files)
        return
    if info.get("summary") is True:
        return  # a summary of the conversation for the model
    builder.learn(model=info.get("modelID"))
    key = str(info.get("id"))
    builder.start_turn(key)
    builder.usages[key] = usage(info.get("tokens"), OPENCODE_USAGE)
    builder.costs[key] = info.get("cost") or None  # 0 means that the price is unknown
    for part in parts:
        kind = kind_of(part)
        if kind == "text" and not part.get("ignored"):
            builder.add_text(str(part.get("text") or ""))
        elif kind == "tool":
            _take_call(builder, part, at_ms)
        elif kind not in ("text", "file", *_IGNORED):
            log.meet_unknown(builder.agent, kind)


def _take_call(builder: SessionBuilder, part: dict[str, Any], at_ms: float | None) -> None:
    state, id = object_in(part, "state"), str(part.get("callID", part.get("id", "")))
    times = object_in(state, "time")
    builder.add_call(id, str(part.get("tool", "")), state.get("input"), at_ms)
    if state.get("status") in ("completed", "error"):
        is_error = state["status"] == "error"
        has_times = bool(number(times, "start") and number(times, "end"))
        duration_ms = float(number(times, "end") - number(times, "start")) if has_times else None
        failed = is_error or number(state.get("metadata"), "exit") > 0
        output = state.get("error") if is_error else state.get("output")
        builder.add_result(id, output, None, failed=failed, duration_ms=duration_ms)
