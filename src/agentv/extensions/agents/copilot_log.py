"""The target `copilot-log` of AgentV (TypeScript): the answer in a recorded session of the Copilot CLI."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal

from agentv.errors import AgentvError
from agentv.model.response import Request, Responder, Response, TargetFailure
from agentv.sessions.session import ReadLog
from agentv.sessions.session_file import read_sessions
from agentv.support.yaml.yaml_file import parse_yaml_file
from agentv.targets.target import Target
from agentv.trust.inventory import NamedUse

_SESSIONS = "~/.copilot/session-state"
_EVENTS, _WORKSPACE = "events.jsonl", "workspace.yaml"


class CopilotLog(Target, frozen=True, kw_only=True):
    """A recorded session of the Copilot CLI, which answers every case.

    The session is in `session_dir`, has the `session_id`, or is the last one (`discover: latest`), with `cwd` the last
    one in that folder. Files that the session wrote are not read.
    """

    is_live: ClassVar[bool] = False

    session_dir: str | None = None
    """Folder of a session."""

    session_id: str | None = None
    """Id of a session."""

    session_state_dir: str = _SESSIONS
    """Folder of all sessions."""

    discover: Literal["latest"] | None = None
    """`latest`: the session that was changed last."""

    cwd: str | None = None
    """With `discover`: the folder that the session worked in."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:
        """Return the folder of sessions, which are private: their answers reach judges and reports."""
        return (("session", str(settings.get("session_dir") or settings.get("session_state_dir") or _SESSIONS)),)

    def open(self, home: str) -> Responder:
        """Read the session."""
        return _SessionResponder(self._events(home))

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return the file of the session."""
        with suppress(AgentvError):  # opening it reports a missing session
            return (self._events(home),)
        return ()

    def complaints(self) -> list[str]:
        """Check that a session is named."""
        is_named = self.session_dir or self.session_id or self.discover
        return [] if is_named else ["One of 'session_dir', 'session_id' or 'discover: latest' is required"]

    def _events(self, home: str) -> str:
        folder = os.path.join(home, os.path.expanduser(self.session_dir or self.session_state_dir))
        if self.session_dir is None and self.session_id is not None:
            folder = os.path.join(folder, self.session_id)
        elif self.session_dir is None:
            folder = self._latest(folder)
        path = os.path.join(folder, _EVENTS)
        if not os.path.isfile(path):
            raise AgentvError(f"Target '{self.name}' has no session", f"{path} does not exist")
        return path

    def _latest(self, folder: str) -> str:
        """Return the folder of the session that was changed last."""
        names = os.listdir(folder) if os.path.isdir(folder) else ()
        sessions = [os.path.join(folder, name) for name in names]
        times = {
            session: os.path.getmtime(events)
            for session in sessions
            if os.path.isfile(events := os.path.join(session, _EVENTS)) and self._is_own(session)
        }
        if not times:
            where = f" with the folder {self.cwd}" if self.cwd else ""
            raise AgentvError(f"Target '{self.name}' has no session", f"{folder} has no session{where}")
        return max(times, key=lambda session: times[session])

    def _is_own(self, session: str) -> bool:
        about = os.path.join(session, _WORKSPACE)
        data = parse_yaml_file(about) if os.path.isfile(about) else None
        return isinstance(data, dict) and (self.cwd is None or data.get("cwd") == self.cwd)


class _SessionResponder:
    """Answers with a whole session, whatever is asked."""

    def __init__(self, path: str) -> None:
        self.endpoint = f"copilot-log:{path}"
        log = ReadLog()
        self._session = next(read_sessions([path], log), None)
        self._problem = f"{path} has no session with an answer. " + " ".join(log.lines())

    async def respond(self, request: Request) -> Response:  # noqa: ARG002
        """Return everything after the first request of the session."""
        if self._session is None:
            raise TargetFailure("invalid_response", self._problem)
        return self._session.response()

    async def aclose(self) -> None:
        """Do nothing: the file is closed."""
