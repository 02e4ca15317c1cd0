"""Model access for judge programs: an HTTP server with one token and a call limit per judgement.

An isolated program listens in its own network and passes that socket to the run, so that no port is open outside.

Calls count toward the run's limits, retries, records and costs. The wire format is that of AgentV (TypeScript).
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from agentv.model.evaluator import EvaluatorFailure
from agentv.model.job import Judgement
from agentv.model.message import Message, message_to_data
from agentv.sandbox import PROXY_PORT
from agentv.support.web_listener import listen

HOST = "127.0.0.1"
MAX_BODY_BYTES = 16 * 1024 * 1024


class Grant:
    """A token that permits a number of calls on behalf of one judgement."""

    def __init__(self, judgement: Judgement, max_calls: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self.judgement = judgement
        self.max_calls = max_calls
        self.calls = 0
        self.running: set[asyncio.Task[Any]] = set()

    def take(self, calls: int) -> None:
        """Count the calls of a batch, all or none. Raises HTTPTooManyRequests above the limit."""
        if self.calls + calls > self.max_calls:
            text = f"Call limit exceeded: this judgement may make {self.max_calls} calls and has made {self.calls}"
            raise web.HTTPTooManyRequests(text=text)
        self.calls += calls

    async def ask(self, target: str | None, messages: tuple[Message, ...]) -> dict[str, Any]:
        """Call a model. Raises EvaluatorFailure if the call fails."""
        if self.judgement.ask is None:
            raise EvaluatorFailure("No model is available")
        response = await self.judgement.ask(target, messages)
        return {"outputMessages": [message_to_data(message) for message in response.messages], "rawText": response.text}

    async def revoke(self) -> None:
        """Cancel the calls that are still running."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)


class ModelProxy:
    """The server. `targets` are the names of the targets it may call."""

    def __init__(self, targets: tuple[str, ...] = ()) -> None:
        self._targets = targets
        self._grants: dict[str, Grant] = {}
        self._runner: web.AppRunner | None = None
        self._hosts: set[str] = {f"{HOST}:{PROXY_PORT}", f"localhost:{PROXY_PORT}"}
        self._port: int | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> ModelProxy:
        """Prepare the server. It opens a port only for programs that are not isolated."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/info", self._answering(self._info))
        app.router.add_post("/invoke", self._answering(self._invoke))
        app.router.add_post("/invokeBatch", self._answering(self._invoke_batch))
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        return self

    def serve(self, channel: socket.socket) -> Callable[[], None]:
        """Serve the listening socket that an isolated program passes through a channel; return how to stop that."""
        loop = asyncio.get_running_loop()
        listening: list[asyncio.Task[asyncio.Server]] = []

        def received() -> None:
            loop.remove_reader(channel)
            for descriptor in socket.recv_fds(channel, 16, 1)[1]:
                listening.append(loop.create_task(self._listen(socket.socket(fileno=descriptor))))

        def stop() -> None:
            loop.remove_reader(channel)
            channel.close()
            for task in listening:
                task.add_done_callback(lambda done: done.result().close())

        channel.setblocking(False)
        loop.add_reader(channel, received)
        return stop

    async def port(self) -> int:
        """Return the port for programs that are not isolated. The first call opens it."""
        if self._port is None:
            listening = socket.create_server((HOST, 0))
            self._port = listening.getsockname()[1]
            self._hosts |= {f"{HOST}:{self._port}", f"localhost:{self._port}"}
            self._server = await self._listen(listening)
        return self._port

    async def _listen(self, listening: socket.socket) -> asyncio.Server:
        assert self._runner is not None
        return await listen(self._runner, listening)

    async def aclose(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @asynccontextmanager
    async def granted(self, judgement: Judgement, limit: int, isolated: bool = False) -> AsyncIterator[dict[str, str]]:
        """Yield the environment variables that give a program access; the token is revoked afterwards."""
        grant = Grant(judgement, limit)
        self._grants[grant.token] = grant
        url = f"http://{HOST}:{PROXY_PORT if isolated else await self.port()}"
        try:
            values = {"URL": url, "TOKEN": grant.token}
            kinds = ("TARGET", "PROVIDER")
            yield {f"AGENTV_{kind}_PROXY_{name}": value for kind in kinds for name, value in values.items()}
        finally:
            del self._grants[grant.token]
            await grant.revoke()

    def _answering(
        self, handle: Callable[[Grant, dict[str, Any]], Awaitable[dict[str, Any]]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            try:
                grant = self._grant_of(request)
                task = asyncio.ensure_future(handle(grant, await _body_of(request)))
                grant.running.add(task)
                task.add_done_callback(grant.running.discard)
                data, status = await task, 200
            except web.HTTPException as refused:
                data, status = {"error": refused.text}, refused.status
            return web.Response(body=msgspec.json.encode(data), status=status, content_type="application/json")

        return answer

    def _grant_of(self, request: web.Request) -> Grant:
        # DNS rebinding: a web page can reach loopback under another host name, but not under these.
        if request.host not in self._hosts:
            raise web.HTTPForbidden(text="Only requests to a loopback host name are accepted")
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        for own_token, grant in self._grants.items():
            if kind.lower() == "bearer" and hmac.compare_digest(own_token.encode(), token.strip().encode()):
                return grant
        raise web.HTTPUnauthorized(text="Unknown token: send AGENTV_TARGET_PROXY_TOKEN as `Authorization: Bearer …`")

    async def _info(self, grant: Grant, _: dict[str, Any]) -> dict[str, Any]:
        judges = grant.judgement.judges
        return {
            "targetName": judges[0] if judges else "",
            "maxCalls": grant.max_calls,
            "callCount": grant.calls,
            "availableTargets": self._targets or judges,
        }

    async def _invoke(self, grant: Grant, body: dict[str, Any]) -> dict[str, Any]:
        target, messages = self._read(body)
        grant.take(1)
        try:
            return await grant.ask(target, messages)
        except EvaluatorFailure as failure:
            raise web.HTTPInternalServerError(text=str(failure)) from None

    async def _invoke_batch(self, grant: Grant, body: dict[str, Any]) -> dict[str, Any]:
        requests = body.get("requests")
        if not isinstance(requests, list) or not all(isinstance(item, dict) for item in requests):
            raise web.HTTPBadRequest(text="'requests' must be a list of objects")
        read = [self._read(item) for item in requests]
        grant.take(len(read))

        async def answer(target: str | None, messages: tuple[Message, ...]) -> dict[str, Any]:
            # A failed call yields an error in its place and does not affect the others.
            try:
                return await grant.ask(target, messages)
            except EvaluatorFailure as failure:
                return {"outputMessages": [], "rawText": f"Error: {failure}"}

        return {"responses": await asyncio.gather(*(answer(*item) for item in read))}

    def _read(self, body: dict[str, Any]) -> tuple[str | None, tuple[Message, ...]]:
        question, target = body.get("question"), body.get("target")
        system = body.get("systemPrompt", body.get("system_prompt"))
        if not isinstance(question, str) or not question:
            raise web.HTTPBadRequest(text="'question' must be a non-empty string")
        if system is not None and not isinstance(system, str):
            raise web.HTTPBadRequest(text="'systemPrompt' must be a string")
        if target is not None and (not isinstance(target, str) or (self._targets and target not in self._targets)):
            raise web.HTTPBadRequest(text=f"Unknown target {target!r}; known targets: {', '.join(self._targets)}")
        before = (Message("system", system),) if system else ()
        return target, (*before, Message("user", question))


async def _body_of(request: web.Request) -> dict[str, Any]:
    if request.method != "POST":
        return {}
    try:
        body = msgspec.json.decode(await request.read())
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"The request is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="The request must be a JSON object")
    return body
