"""Connect to an MCP server, a program or an address, and call its tools. Needs the package `mcp`."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from agentv.errors import UsageError, import_extra
from agentv.model.response import TargetFailure
from agentv.settings.child_environment import child_environment
from agentv.support.processes.process_memory import hide_environment
from agentv.targets.tools.tool import McpServer, ToolResult
from agentv.trust.env_file import environment_of
from agentv.trust.policy import load_policy

INSTALL = "pip install 'agentv[mcp]'"
CONNECT_TIMEOUT_S = 60.0


class McpConnection:
    """One server. Its client lives in a task of its own, because it must be opened and closed by the same task."""

    def __init__(self, server: McpServer, home: str) -> None:
        missing = UsageError("MCP servers need the package 'mcp'", hint=f"Install it with: {INSTALL}")
        self._mcp = import_extra("mcp", missing)  # late: it takes a second or more
        if server.is_remote:
            load_policy().check_host(str(server.mcp))
        self._server = server
        self._home = home
        self._label = server.mcp if isinstance(server.mcp, str) else " ".join(server.mcp)
        self._client: asyncio.Future[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def connect(self) -> list[McpTool]:
        """Start the server and return its tools. Raises TargetFailure."""
        self._client = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._serve(self._client))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                client = await asyncio.shield(self._client)
                tools = await _all_tools(client)
        except TimeoutError:
            raise self._failure(f"no response within {CONNECT_TIMEOUT_S:g} s") from None
        except Exception as error:
            raise self._failure(_reason(error)) from None
        if unknown := [name for name in self._server.only if name not in {tool.name for tool in tools}]:
            raise self._failure(f"it has no tool '{unknown[0]}'")
        only = self._server.only or [tool.name for tool in tools]
        return [McpTool(client, tool) for tool in tools if tool.name in only]

    async def aclose(self) -> None:
        """End the server."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _serve(self, ready: asyncio.Future[Any]) -> None:
        try:
            # The server's log would disturb the progress display.
            with Path(os.devnull).open("w", encoding="utf-8") as log:
                await self._serve_until_closed(ready, log)
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    async def _serve_until_closed(self, ready: asyncio.Future[Any], log: TextIO) -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self._mcp.Client(await self._transport(stack, log)))
            ready.set_result(client)
            await self._closing.wait()

    async def _transport(self, stack: AsyncExitStack, log: TextIO) -> Any:
        server = self._server
        if server.is_remote:
            http = import_module("mcp.client.streamable_http")
            client = await stack.enter_async_context(http.create_mcp_http_client(headers=dict(server.headers)))
            return http.streamable_http_client(server.mcp, http_client=client)
        command = (server.mcp,) if isinstance(server.mcp, str) else server.mcp
        hide_environment()
        stdio = import_module("mcp.client.stdio")
        parameters = stdio.StdioServerParameters(
            command=command[0],
            args=list(command[1:]),
            env=child_environment(server.pass_env, server.env, environment_of(self._home)),
            cwd=os.path.join(self._home, server.cwd or ""),
        )
        return stdio.stdio_client(parameters, errlog=log)

    def _failure(self, why: str) -> TargetFailure:
        return TargetFailure("process", f"Cannot use the MCP server '{self._label}': {why}")


class McpTool:
    """A tool of a connected server."""

    def __init__(self, client: Any, tool: Any) -> None:
        self._client = client
        self._name = tool.name
        self.declared = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}

    async def run(self, arguments: dict[str, Any], workspace: str | None, timeout_s: float) -> ToolResult:  # noqa: ARG002
        """Call the tool. A failure is a result."""
        async with asyncio.timeout(timeout_s):
            try:
                result = await self._client.call_tool(self._name, arguments)
            except Exception as error:
                return ToolResult(f"Error: {_reason(error)}", failed=True)
        texts = [_text(block) for block in result.content]
        output = "\n".join(texts) if texts or result.structured_content is None else result.structured_content
        return ToolResult(output, failed=bool(result.is_error))


async def _all_tools(client: Any) -> list[Any]:
    page = await client.list_tools()
    tools = list(page.tools)
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


def _text(block: Any) -> str:
    """Return the text of a content block; other content is described, because models get text only."""
    text = getattr(block, "text", None)
    return text if isinstance(text, str) else f"[{block.type} {getattr(block, 'mime_type', '')}".rstrip() + "]"


def _reason(error: BaseException) -> str:
    """Return the innermost message of an exception, which may be a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
