"""The MCP server: list and call the tools over stdin and stdout. Needs the package `mcp`."""

import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import mcp_types as types
import msgspec
from anyio import to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from agentv.errors import AgentvError, RunWarning, UsageError, start_of
from agentv.extensions.mcp import dataset_tools, failure_tools, run_tool, run_tools
from agentv.extensions.mcp.served_project import ServedProject
from agentv.extensions.mcp.served_tool import CallInProgress, ServedTool, ToolAnswer
from agentv.extensions.mcp.text_limit import plain_text, short_text
from agentv.model.diagnostics import did_you_mean
from agentv.report.figures import visible
from agentv.report.status_line import Pace, status_line
from agentv.support.user_code import importing_nothing
from agentv.version import __version__

TOOLS = {tool.name: tool for home in (run_tools, failure_tools, dataset_tools, run_tool) for tool in home.TOOLS}
PROGRESS_S = 0.5
"""How often the progress of a run is sent."""

_log = logging.getLogger(__name__)


_warned: ContextVar[list[str] | None] = ContextVar("warned", default=None)


def serve(project: ServedProject) -> None:
    """Serve until the client closes stdin. Runs in progress are then interrupted, and their records kept."""
    show = warnings.showwarning

    def collect(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        messages = _warned.get()
        if messages is None or not issubclass(category, RunWarning):
            show(message, category, *place, **more)
        elif str(message) not in messages:
            messages.append(str(message))

    warnings.showwarning = collect
    anyio.run(_serve, project)


@contextmanager
def _run_warnings() -> Iterator[list[str]]:
    """Collect the warnings about runs that a tool reads; they concern the agent, not the log."""
    messages: list[str] = []
    token = _warned.set(messages)
    try:
        yield messages
    finally:
        _warned.reset(token)


async def _serve(project: ServedProject) -> None:
    server = build_server(project)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


def build_server(project: ServedProject) -> Server[Any]:
    """Return a server with the tools for a project, not connected to any client yet. Freezes its settings."""
    project.freeze()

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS.values()])

    instructions = Path(__file__).with_name("instructions.txt").read_text(encoding="utf-8")
    return Server(
        "agentv",
        version=__version__,
        title="agentv",
        instructions=" ".join(instructions.split()),
        on_list_tools=list_tools,
        on_call_tool=partial(_called, project),
    )


def _described(tool: ServedTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.only_reads, destructive_hint=False, open_world_hint=not tool.only_reads
        ),
    )


async def _called(
    project: ServedProject, context: ServerRequestContext[Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    """Call a tool in a thread, send its progress, and stop it if the client cancels the request."""
    call = CallInProgress()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch, call, context)
        result = await to_thread.run_sync(_result, project, params, call)
        tasks.cancel_scope.cancel()
    return result


async def _watch(call: CallInProgress, context: ServerRequestContext[Any]) -> None:
    """Send the progress of a call until it ends. This task is cancelled with the request, the thread is not."""
    pace = Pace()
    try:
        while True:
            await anyio.sleep(PROGRESS_S)
            if (snapshot := call.snapshot()) is not None:
                text = visible(status_line(snapshot, pace.rate(snapshot.done, monotonic())))
                await context.session.report_progress(snapshot.done, snapshot.total or None, text)
    finally:
        call.cancel()


def _result(project: ServedProject, params: types.CallToolRequestParams, call: CallInProgress) -> types.CallToolResult:
    """Call a tool. Errors become results with a message and a hint."""
    try:
        with _run_warnings() as warned:
            answer = _answer(project, params, call)
        answer = answer.bounded(warned)
        data: dict[str, Any] = msgspec.json.decode(project.redactor().redact_line(msgspec.json.encode(answer)))
        return _reply(project, answer.short(), data)
    except AgentvError as error:
        return _reply(project, short_text([str(error)]))
    except OSError as error:
        return _reply(project, f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))
    except Exception as error:
        _log.error("%s", traceback.format_exc())
        text = (
            f"{params.name} failed because of a bug in agentv ({type(error).__name__}). The server's log has details."
        )
        return _reply(project, text)


def _answer(project: ServedProject, params: types.CallToolRequestParams, call: CallInProgress) -> ToolAnswer:
    if (tool := TOOLS.get(params.name)) is None:
        hint = did_you_mean(params.name, TOOLS) or f"Tools: {', '.join(TOOLS)}"
        raise UsageError(f"There is no tool '{start_of(params.name, 100)}'", hint=hint)
    try:
        args = msgspec.convert(params.arguments or {}, tool.arguments, strict=False)
    except msgspec.ValidationError as error:
        names = ", ".join(tool.arguments.__struct_fields__) or "none"
        raise UsageError(f"Invalid arguments of {tool.name}", str(error), f"Its arguments are: {names}") from None
    with project.limits(), importing_nothing() if tool.only_reads else nullcontext():
        answer: ToolAnswer = tool.function(project, args, call)
    return answer


def _reply(project: ServedProject, text: str, data: dict[str, Any] | None = None) -> types.CallToolResult:
    """Return a result; without data, an error."""
    message = plain_text(visible(text))
    with suppress(AgentvError):  # an .env that cannot be read is reported by the tools that need it
        message = project.redactor().redact_text(message)
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=message)]
    return types.CallToolResult(content=content, structured_content=data, is_error=data is None)
