"""Recorded sessions as cases: what the user asked, and the recorded answers as references."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, Mapper
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import filled
from agentv.datasets.formats.dataset_format import Document
from agentv.model.response import content_text
from agentv.sessions.private_data import PrivateData
from agentv.sessions.session import Exchange, ReadLog, Session
from agentv.sessions.session_file import SessionFile, format_of, read_sessions, session_files

_PROBED = 20
_DATASET_SUFFIXES = (".yaml", ".yml", ".csv", ".tsv", ".toml")


class _Sessions(ForeignFormat):
    """A file of sessions."""

    title = "recorded sessions"
    strength = 0.95
    fields = "requests → input and turns, answers → expected_output"

    def fits(self, file: RecordFile) -> bool:
        return format_of(SessionFile(file.path)) is not None

    def items(self, file: RecordFile) -> Iterator[Record]:
        log = ReadLog()
        for number, session in enumerate(read_sessions([file.path], log), 1):
            yield Record(number, {"session": session})
        yield Record(1, {"log": log})

    def mapper(self, document: Document) -> Mapper:  # noqa: ARG002
        ids: set[str] = set()
        privacy = PrivateData()

        def rows(record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
            if "log" in record.data:
                for what in record.data["log"].losses():
                    lose(what)
                for kind in privacy.counts.elements():
                    lose(f"{kind} in inputs and expected outputs, which were replaced")
                privacy.counts.clear()
                return []
            session: Session = record.data["session"]
            if session.id in ids:
                lose("a session with the id of an earlier one")
                return []
            ids.add(session.id)
            return [privacy.clean_value(_row(session))]

        return rows


class _SessionFolder(_Sessions):
    """A folder of sessions, at any depth."""

    is_folder = True

    def sniff(self, head: bytes, path: str) -> bool:  # noqa: ARG002
        """Whether a folder has mostly sessions, and no files of datasets next to them."""
        if not os.path.isdir(path) or any(name.lower().endswith(_DATASET_SUFFIXES) for name in os.listdir(path)):
            return False
        probed = [format_of(SessionFile(file)) for file, _ in zip(session_files(path), range(_PROBED), strict=False)]
        return 2 * len([kind for kind in probed if kind is not None]) > len(probed)

    def files(self, path: str) -> tuple[str, ...]:
        return tuple(file for file in session_files(path) if format_of(SessionFile(file)) is not None)


SESSIONS = _Sessions()
SESSION_FOLDER = _SessionFolder()


def _row(session: Session) -> dict[str, Any]:
    """Return a session as a case: a conversation if it has several requests."""
    first, *others = (item for item in session.exchanges if item.response)
    request = _request(first)
    before = [{"role": item.role, "content": content_text(item.content)} for item in first.history if item.content]
    if before:
        request["input"] = [*before, {"role": "user", "content": request["input"]}]
    row = {
        "id": session.id,
        **request,
        "turns": [_request(item) for item in others],
        "tags": [session.agent],
        "metadata": filled({"model": session.model, "started": session.started, "cwd": session.cwd}),
    }
    return filled(row)


def _request(exchange: Exchange) -> dict[str, Any]:
    return filled({"input": exchange.text or "(attachment)", "expected_output": exchange.answer})
