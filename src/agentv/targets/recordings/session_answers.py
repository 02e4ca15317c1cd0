"""Answers from recorded sessions of agents, found by the session's id or by the text of the request."""

from typing import NamedTuple

import msgspec

from agentv.errors import AgentvError, UsageError
from agentv.model.message import Message
from agentv.model.response import Request, Response, TargetFailure
from agentv.model.values import digest
from agentv.sessions.private_data import PrivateData
from agentv.sessions.session import Exchange, ReadLog, Session
from agentv.sessions.session_file import read_sessions
from agentv.targets.recordings.recorder import StoredResponse, restored, stored

_SPOOL_BYTES = 32 * 1024 * 1024
SESSION_KEY, REQUEST_KEY = "session_id", "request"
"""Metadata of a case that was made from a session: the session's id, and the number of the request in it."""


class _Answer(NamedTuple):
    """Where an answer is stored, the agent that gave it, and when its session started."""

    place: int
    agent: str
    started: str


class SessionAnswers:
    """The answers in recorded sessions. They are kept in a temporary file; the index has their places."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.log = ReadLog()
        self._privacy = PrivateData()
        import tempfile  # late: checking the settings of a target must be fast

        self._stream = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115  # closed by close
        self._sessions: dict[str, list[_Answer]] = {}
        self._texts: dict[str, list[_Answer]] = {}
        for session in read_sessions([path], self.log):
            self._add(session)
        for answers in self._texts.values():
            answers.sort(key=lambda answer: answer.started)
        self.targets = tuple(self.log.sessions)
        if not self._sessions:
            self.close()
            raise AgentvError("It has no sessions with an answer", "\n".join(self.log.lines()))

    def _add(self, session: Session) -> None:
        """Store the answer of the whole session, then the answer to each of its requests."""
        exchanges = session.exchanges
        whole = self._store(session)
        answers = [whole]
        for exchange in exchanges:
            answer = whole if len(exchanges) == 1 else self._store(session, exchange)
            answers.append(answer)
            if exchange.response:
                self._texts.setdefault(self._key(exchange.text), []).append(answer)
        self._sessions.setdefault(session.id, answers)

    def _store(self, session: Session, exchange: Exchange | None = None) -> _Answer:
        self._stream.seek(0, 2)
        place = self._stream.tell()
        self._stream.write(msgspec.json.encode(stored(session.response(exchange))) + b"\n")
        return _Answer(place, session.agent, session.started or "")

    def _key(self, text: str) -> str:
        """Return a hash of a request that does not depend on spaces, or on private data that was removed from it."""
        return digest(" ".join(self._privacy.clean(text).split()))

    def find(self, request: Request, agent: str = "") -> Response | None:
        """Return the recorded answer to a request, by `agent` if it is given; None if there is none."""
        answer = self._by_session(request, agent) or self._by_text(request, agent)
        if answer is None:
            return None
        self._stream.seek(answer.place)
        response = restored(msgspec.json.decode(self._stream.readline(), type=StoredResponse))
        if not any(message.role == "assistant" for message in response.messages):
            raise TargetFailure("invalid_response", f"The session has no answer to request {request.turn + 1}")
        return response

    def _by_session(self, request: Request, agent: str) -> _Answer | None:
        case = request.case
        metadata = case.metadata
        answers = self._sessions.get(str(metadata.get(SESSION_KEY) or case.id))
        if answers is None or (agent and answers[0].agent != agent):
            return None
        number = metadata.get(REQUEST_KEY)
        if isinstance(number, int) and not isinstance(number, bool):
            place = number + request.turn
        else:
            place = request.turn + 1 if case.turns or request.turn else 0
        return answers[place] if 0 <= place < len(answers) else None

    def _by_text(self, request: Request, agent: str) -> _Answer | None:
        """Return the answer to the same text. The trials of a case are the recorded answers in order of time."""
        sources = (request.messages,) if request.turn else (request.case.input, request.messages)
        for text in map(_last_request, sources):
            answers = [answer for answer in self._texts.get(self._key(text), ()) if not agent or answer.agent == agent]
            if answers:
                return answers[request.trial - 1] if request.trial <= len(answers) else None
        return None

    def close(self) -> None:
        """Remove the temporary file."""
        self._stream.close()


def _last_request(messages: tuple[Message, ...]) -> str:
    """Return the text of the user's last messages."""
    exchanges = Session(id="", agent="", messages=messages, path="").exchanges
    return exchanges[-1].text if exchanges else ""


def require_sessions(path: str) -> None:
    """Raise UsageError, which states why, if a file or folder has no sessions. Only the first session is read."""
    log = ReadLog()
    if next(read_sessions([path], log), None) is None:
        hint = "Pass a file or folder of recorded sessions; `agentv eval DATASET` runs a dataset"
        raise UsageError(f"No sessions in {path}", "\n".join(log.lines()) or "The folder has no files", hint)
