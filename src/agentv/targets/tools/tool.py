"""Settings of tools that run on this machine. Other entries of `tools` are only declared to the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.model.diagnostics import Problems
from agentv.settings.settings_reader import read_settings
from agentv.support.hashes import file_of, words_in
from agentv.support.user_code import is_plain_function

Text = Annotated[str, Meta(min_length=1)]
Words = Annotated[tuple[Text, ...], Meta(min_length=1)]

DeclaredTool = dict[str, Any]
"""The name, description and parameters of a tool, as sent to the model."""


class ToolResult(msgspec.Struct, frozen=True):
    """The output of a tool for the model: text or data. After a failure it describes the failure."""

    output: Any
    failed: bool = False


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    """A Python function: `file.py:name` next to the targets file, `module:name`, or in Python the function itself.

    Name, description and parameters come from the function's name, docstring and signature unless they are set.
    """

    function: Any
    name: Text | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class CommandTool(msgspec.Struct, frozen=True, kw_only=True):
    """A command that reads the arguments as JSON from standard input and prints the result.

    It is a list of words, or a text for the shell; the arguments never become part of it. It runs in the workspace of
    the case, or in `cwd`, relative to the targets file.
    """

    command: Text | Words
    name: Text
    description: str | None = None
    parameters: dict[str, Any] | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server: its command as a list of words, or its address. `only` selects some of its tools."""

    aliases: ClassVar[dict[str, str]] = {"allowed_tools": "only"}

    mcp: Text | Words
    only: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    headers: dict[str, str] = {}

    @property
    def is_remote(self) -> bool:
        """Whether the server has an address."""
        return isinstance(self.mcp, str) and self.mcp.startswith(("http://", "https://"))


class RecordedTools(msgspec.Struct, frozen=True, kw_only=True):
    """Tools whose results are in a file, with the calls, relative to the targets file. `only` selects some of them."""

    recorded: Text
    only: tuple[str, ...] = ()


LocalTool = FunctionTool | CommandTool | McpServer | RecordedTools
ToolEntry = dict[str, Any] | str


def kind_of(entry: ToolEntry) -> type[LocalTool] | None:
    """Return the kind of a tool that runs here; None for one that is only declared."""
    if isinstance(entry, str):
        return FunctionTool
    function = entry.get("function")
    if isinstance(function, str) or callable(function):
        return FunctionTool
    kinds: dict[str, type[LocalTool]] = {"mcp": McpServer, "command": CommandTool, "recorded": RecordedTools}
    return next((kind for key, kind in kinds.items() if key in entry), None)


def are_stable(entries: Iterable[ToolEntry]) -> bool:
    """Whether the entries and their files determine what the tools do; function objects may have other state."""
    functions = (entry.get("function") for entry in entries if isinstance(entry, dict))
    return all(is_plain_function(function) for function in functions if callable(function))


def local_tools(entries: Iterable[ToolEntry]) -> list[LocalTool]:
    """Return the settings of the tools that run here, which have been checked."""
    problems = Problems()
    read = (_read(entry, index, problems) for index, entry in enumerate(entries))
    return [tool for tool in read if tool is not None]


def declared_tools(entries: Iterable[ToolEntry]) -> tuple[DeclaredTool, ...]:
    """Return the tools that are only declared: the answer is the model's call."""
    return tuple(entry for entry in entries if isinstance(entry, dict) and kind_of(entry) is None)


def tool_complaints(entries: Iterable[ToolEntry], *, is_batched: bool = False) -> list[str]:
    """Return the problems in the tools that run here; a target that `is_batched` must have none."""
    problems = Problems()
    for index, entry in enumerate(entries):
        tool = _read(entry, index, problems)
        if is_batched and kind_of(entry) is not None:
            why = "'batch' cannot be combined with tools that run here: each answer takes several calls"
            problems.error((), f"'tools[{index}]': {why}")
        if isinstance(tool, FunctionTool) and not callable(tool.function) and ":" not in tool.function:
            problems.error((), f"'tools[{index}]' must have the form 'file.py:name' or 'module:name'")
        if isinstance(tool, McpServer) and tool.headers and not tool.is_remote:
            problems.error((), f"'tools[{index}].headers' needs a server with an address")
    return [" ".join(filter(None, (f"{problem.message}.", problem.hint))) for problem in problems]


def files_of_tools(entries: Iterable[ToolEntry], home: str) -> Iterator[str]:
    """Yield the files that tools name; those that do not exist are ignored by the caller."""
    for tool in local_tools(entries):
        if isinstance(tool, FunctionTool):
            function = tool.function
            yield file_of(function, home) or "" if isinstance(function, str) else _file_of_code(function)
            continue
        if isinstance(tool, RecordedTools):
            yield f"{home}/{tool.recorded}"
            continue
        command = tool.command if isinstance(tool, CommandTool) else tool.mcp
        texts = (command,) if isinstance(command, str) else command
        yield from (f"{home}/{word}" for text in texts for word in words_in(text))


def _file_of_code(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return "" if code is None else str(code.co_filename)


def _read(entry: ToolEntry, index: int, problems: Problems) -> LocalTool | None:
    if (kind := kind_of(entry)) is None:
        return None
    data = {"function": entry} if isinstance(entry, str) else entry
    return read_settings(kind, data, ("tools", index), problems, strict=True)
