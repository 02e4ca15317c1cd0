"""Run the tools of one target: functions, commands, MCP servers, and recorded results of any kind of file."""

import asyncio
import copy
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, get_type_hints

import msgspec

from agentv.errors import AgentvError, UsageError, file_errors
from agentv.model.response import TargetFailure
from agentv.model.values import to_json
from agentv.registry import service
from agentv.sandbox.availability import sandbox_of
from agentv.sandbox.subprocesses import ProcessFailure, ProcessSpec, run_process
from agentv.settings.child_environment import child_environment
from agentv.support.function_call import DaemonThreads, is_cancelled
from agentv.support.user_code import describe, import_reference
from agentv.targets.tools.tool import (
    CommandTool,
    DeclaredTool,
    FunctionTool,
    LocalTool,
    McpServer,
    RecordedTools,
    ToolResult,
)
from agentv.trust.env_file import environment_of

_ARGUMENTS = ("args", "arguments", "input", "parameters")
_RESULTS = ("output", "response", "content", "result")
_RESULT_IDS = ("tool_call_id", "tool_use_id", "call_id", "id")
_RESULT_TYPES = ("tool_result", "function_call_output", "function_response")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


class RecordedToolCall(NamedTuple):
    """A call of a tool with its result."""

    tool: str
    arguments: dict[str, Any]
    output: Any


class RecordedRunner:
    """Answers calls of one tool with the recorded result for the same arguments. Other calls fail."""

    def __init__(self, name: str, calls: Iterable[RecordedToolCall]) -> None:
        calls = list(calls)
        self._outputs: dict[bytes, list[Any]] = {}
        for call in calls:
            outputs = self._outputs.setdefault(_key(call.arguments), [])
            outputs += [] if call.output in outputs else [call.output]
        names = {key: value for call in calls for key, value in call.arguments.items()}
        properties = {
            key: {"type": _TYPES[type(value)]} if type(value) in _TYPES else {} for key, value in names.items()
        }
        required = [key for key in names if all(key in call.arguments for call in calls)]
        parameters = {"type": "object", "properties": properties, "required": required}
        self.declared: DeclaredTool = {"name": name, "description": None, "parameters": parameters}

    async def run(self, arguments: dict[str, Any], workspace: str | None, timeout_s: float) -> ToolResult:  # noqa: ARG002
        """Return the recorded output, or a failure that names the problem."""
        outputs = self._outputs.get(_key(arguments), [])
        if len(outputs) == 1:
            return ToolResult(outputs[0])
        what = "several results were" if outputs else "no result was"
        return ToolResult(f"Error: {what} recorded for these arguments: {to_json(arguments).decode()}", failed=True)


def open_recorded(tools: RecordedTools, home: str) -> list[RecordedRunner]:
    """Return a runner for each tool that has recorded results. Raises UsageError if none has."""
    path = os.path.join(home, tools.recorded)
    by_name: dict[str, list[RecordedToolCall]] = {}
    for call in recorded_calls(path):
        if not tools.only or call.tool in tools.only:
            by_name.setdefault(call.tool, []).append(call)
    missing = [name for name in tools.only if name not in by_name]
    if missing or not by_name:
        what = f"of '{missing[0]}'" if missing else "of tools"
        hint = "Name a file with calls and their results: results.jsonl of a run, chat messages, or an eval set"
        raise UsageError(f"{tools.recorded} has no recorded results {what}", hint=hint)
    return [RecordedRunner(name, calls) for name, calls in by_name.items()]


def recorded_calls(path: str) -> Iterator[RecordedToolCall]:
    """Yield the calls with results in a JSON or JSON Lines file. Raises UsageError if it cannot be read."""
    with file_errors(f"Cannot read {path}"), open(path, "rb") as stream:
        data = stream.read()
    try:
        documents: list[Any] = [msgspec.json.decode(data)]
    except msgspec.DecodeError:
        try:
            documents = [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
        except msgspec.DecodeError as error:
            raise UsageError(f"{path} is not valid JSON or JSON Lines", str(error)) from None
    for document in documents:  # ids are unique in a document only
        objects = list(_objects(document))
        results = {id: output for item in objects for id, output in _result(item)}
        for item in objects:
            yield from _call(item, results)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(item)


def _result(item: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the id and the output of an object that is the result of a call."""
    is_result = item.get("role") == "tool" or item.get("type") in _RESULT_TYPES or "response" in item
    id = next((item[key] for key in _RESULT_IDS if isinstance(item.get(key), str)), None)
    output = next((item[key] for key in _RESULTS if item.get(key) is not None), None)
    if is_result and id is not None and output is not None:
        yield id, output


def _call(item: dict[str, Any], results: dict[str, Any]) -> Iterator[RecordedToolCall]:
    """Yield the call that an object describes: with its output, or with an id for which there is a result."""
    function = item["function"] if isinstance(item.get("function"), dict) else item
    name = next((function[key] for key in ("tool", "name") if isinstance(function.get(key), str)), None)
    arguments = next((function[key] for key in _ARGUMENTS if function.get(key) is not None), None)
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            return
    if name is None or not isinstance(arguments, dict):
        return
    if "tool" in item and item.get("output") is not None:
        yield RecordedToolCall(name, arguments, item["output"])
    elif item.get("id") in results:
        yield RecordedToolCall(name, arguments, results[item["id"]])


def _key(arguments: dict[str, Any]) -> bytes:
    return msgspec.json.encode(arguments, order="sorted")


_NO_PARAMETERS = {"type": "object", "properties": {}}
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ToolRunner(Protocol):
    """Runs one tool. `workspace` is the folder of the case, if it has one."""

    declared: DeclaredTool

    async def run(self, arguments: dict[str, Any], workspace: str | None, timeout_s: float) -> ToolResult: ...


class ToolServer(Protocol):
    """A connection to an MCP server, opened by `connect`."""

    async def connect(self) -> Sequence[ToolRunner]: ...

    async def aclose(self) -> None: ...


class Toolbox:
    """The tools of one target by name. MCP servers are started by the first call and shared by all."""

    def __init__(self, tools: Sequence[LocalTool], home: str) -> None:
        self._runners: dict[str, ToolRunner] = {}
        self._servers: list[ToolServer] = []
        self._threads = DaemonThreads()
        self._started: asyncio.Task[None] | None = None
        for tool in tools:
            if isinstance(tool, McpServer):
                self._servers.append(service("mcp-connection", f"The tool {tool.mcp}")(tool, home))
            elif isinstance(tool, RecordedTools):
                for runner in open_recorded(tool, home):
                    self._add(runner)
            elif isinstance(tool, FunctionTool):
                self._add(_FunctionRunner(tool, home, self._threads))
            else:
                self._add(_CommandRunner(tool, home))

    async def start(self) -> tuple[DeclaredTool, ...]:
        """Return the declarations of all tools. Raises TargetFailure if an MCP server cannot be started."""
        if self._started is None:
            self._started = asyncio.ensure_future(self._connect())
        try:
            await asyncio.shield(self._started)
        except TargetFailure as failure:
            raise copy.copy(failure) from None  # every call raises it, and raising extends the traceback
        return tuple(runner.declared for runner in self._runners.values())

    async def run(self, name: str, arguments: Any, workspace: str | None, timeout_s: float) -> ToolResult:
        """Run a tool. Mistakes of the model and of the tool are results, so that the model can react."""
        if (runner := self._runners.get(name)) is None:
            return ToolResult(f"Error: there is no tool '{name}'. Tools: {', '.join(self._runners)}", failed=True)
        if not isinstance(arguments, dict):
            return ToolResult("Error: the arguments are not a JSON object", failed=True)
        return await runner.run(arguments, workspace, timeout_s)

    async def aclose(self) -> None:
        """End the MCP servers, without waiting for functions that still run."""
        self._threads.close()
        if self._started is not None and not self._started.done():
            self._started.cancel()
        await asyncio.gather(*(server.aclose() for server in self._servers), return_exceptions=True)

    async def _connect(self) -> None:
        for server in self._servers:
            for runner in await server.connect():
                try:
                    self._add(runner)
                except UsageError as error:
                    raise TargetFailure("process", f"{error.headline}. {error.hint}") from None

    def _add(self, runner: ToolRunner) -> None:
        if (name := runner.declared["name"]) in self._runners:
            raise UsageError(f"Two tools are named '{name}'", hint="Set `name`, or `only` of an MCP server")
        self._runners[name] = runner


class _FunctionRunner:
    def __init__(self, tool: FunctionTool, home: str, threads: DaemonThreads) -> None:
        self._home = home
        self._threads = threads
        function = tool.function if callable(tool.function) else import_reference(tool.function, home)
        if not callable(function):
            raise UsageError(f"Tool '{tool.function}' is not a function")
        self._function: Callable[..., Any] = function
        label = tool.name or str(getattr(function, "__qualname__", tool.function))
        self._is_async = inspect.iscoroutinefunction(self._function)
        self._arguments = None if tool.parameters is not None else _arguments_of(self._function, label)
        self.declared = {
            "name": tool.name or getattr(self._function, "__name__", "tool"),
            "description": tool.description or inspect.getdoc(self._function),
            "parameters": tool.parameters if self._arguments is None else _schema_of(self._arguments),
        }

    async def run(self, arguments: dict[str, Any], workspace: str | None, timeout_s: float) -> ToolResult:  # noqa: ARG002
        try:
            if self._arguments is not None:
                arguments = msgspec.structs.asdict(msgspec.convert(arguments, self._arguments, strict=False))
        except msgspec.ValidationError as error:
            return ToolResult(f"Error: invalid arguments: {error}", failed=True)
        call = partial(self._function, **arguments)
        async with asyncio.timeout(timeout_s):
            try:
                value = await call() if self._is_async else await self._threads.run(call)
                value = await value if inspect.isawaitable(value) else value
                return ToolResult("" if value is None else value if isinstance(value, str) else _plain(value))
            except BaseException as error:
                if isinstance(error, GeneratorExit) or is_cancelled(error):
                    raise
                return ToolResult(f"Error: {describe(error, self._home)}", failed=True)


def _plain(value: Any) -> Any:
    """Return data that can be stored as JSON. Raises TypeError."""
    data = msgspec.to_builtins(value)
    to_json(data)
    return data


def _arguments_of(function: Callable[..., Any], label: str) -> type[msgspec.Struct]:
    """Return a struct with the parameters of a function. Raises UsageError if their types have no JSON Schema."""
    try:
        hints = get_type_hints(function)
        fields: list[Any] = []
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in _VARIADIC:
                continue
            default = () if parameter.default is parameter.empty else (parameter.default,)
            fields.append((name, hints.get(name, Any), *default))
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        msgspec.json.schema(struct)
    except (TypeError, ValueError, NameError) as error:
        hint = "Use plain types in its annotations, or set `parameters` of the tool to a JSON Schema"
        raise UsageError(f"The parameters of tool '{label}' cannot be described", str(error), hint) from None
    return struct


def _schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a struct, with the definitions it refers to."""
    definitions = msgspec.json.schema(arguments)["$defs"]
    schema: dict[str, Any] = definitions.pop("Arguments")
    schema.pop("title", None)
    return {**schema, **({"$defs": definitions} if definitions else {})}


class _CommandRunner:
    def __init__(self, tool: CommandTool, home: str) -> None:
        self._tool = tool
        self._home = home
        environment = environment_of(home)
        self._env = child_environment(tool.pass_env, tool.env, environment)
        self._sandbox = sandbox_of(f"The tool '{tool.name}'", None, environment)
        self.declared = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters or _NO_PARAMETERS,
        }

    async def run(self, arguments: dict[str, Any], workspace: str | None, timeout_s: float) -> ToolResult:
        cwd = workspace if self._tool.cwd is None else None
        spec = ProcessSpec(
            command=self._tool.command,
            cwd=cwd or os.path.join(self._home, self._tool.cwd or ""),
            env=self._env,
            timeout_s=timeout_s,
            stdin=to_json(arguments),
            noun=f"The tool '{self._tool.name}'",
        )
        if self._sandbox is not None:
            spec = self._sandbox.confine(spec, (workspace,) if workspace else (), (self._home,), self._tool.pass_env)
        try:
            ended = await run_process(spec)
        except ProcessFailure as failure:
            if failure.ending == "timeout":
                raise TargetFailure("timeout", failure.message) from None
            return ToolResult(f"Error: {failure.message}", failed=True)
        return ToolResult(ended.stdout.rstrip("\r\n"))


def open_toolbox(tools: Sequence[LocalTool], home: str, target: str) -> Toolbox:
    """Open the tools of a target. Raises UsageError if a function cannot be imported."""
    try:
        return Toolbox(tools, home)
    except AgentvError as error:
        detail = ". ".join(filter(None, (error.headline, error.detail)))
        raise UsageError(f"Target '{target}': its tools cannot be used", detail, error.hint) from None
