"""The timeout of one attempt, as a wrapper: the command's, else the case's, else the target's."""

from __future__ import annotations

from collections.abc import Awaitable

from agentv.model.response import Request, Responder, ResponderWrapper, Response


class TimeoutWrapper(ResponderWrapper):
    """Writes the limit into the request. The target enforces it, because only it can end what it started."""

    def __init__(self, inner: Responder, own_s: float, command_s: float | None) -> None:
        super().__init__(inner)
        self.own_s = own_s
        self._command_s = command_s

    def respond(self, request: Request) -> Awaitable[Response]:
        request.timeout_s = self._command_s or request.case.execution.timeout_seconds or self.own_s
        return self._inner.respond(request)
