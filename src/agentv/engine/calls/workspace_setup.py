"""The workspace of a job, as a wrapper: made ready for each attempt, once the call has its place at the endpoint."""

from __future__ import annotations

import time
from collections.abc import Awaitable

from agentv.engine.calls.limit import timed
from agentv.model.response import Prepare, Request, ResponderWrapper, Response


class WorkspaceWrapper(ResponderWrapper):
    """Makes the folder of a job before the target works in it. Requests without one go straight through."""

    def respond(self, request: Request) -> Awaitable[Response]:
        prepare = request.prepare
        return self._inner.respond(request) if prepare is None else self._prepared(request, prepare)

    async def _prepared(self, request: Request, prepare: Prepare) -> Response:
        await prepare(request.attempt, request.timeout_s)
        started = time.perf_counter()  # making the folder is not part of the answer's time
        response = await self._inner.respond(request)
        return response if response.duration_ms is not None else timed(response, started)
