"""The interface of a served tool: typed arguments, a function, and an answer as data and as a short text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import cleandoc
from typing import Any, ClassVar, NamedTuple

import msgspec

from agentv.engine.run_in_progress import RunInProgress
from agentv.extensions.mcp.served_project import ServedProject
from agentv.extensions.mcp.text_limit import Cut, fitted, short_text
from agentv.runs.summary import Snapshot

_SHOWN_CUTS = 5


class ToolArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The arguments of a tool. The docstring of a subclass describes the tool to the agent."""


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of a tool. Subclasses return its short text as lines.

    `run_warnings` are about runs that were changed after they were written. `cut` lists the texts and lists that were
    shortened, and `cut_hint` how to read the rest.
    """

    REST: ClassVar[str] = ""
    """How to read what was cut."""

    run_warnings: list[str] = []
    cut: list[Cut] = []
    cut_hint: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the short text."""
        raise NotImplementedError

    def bounded(self, run_warnings: list[str]) -> ToolAnswer:
        """Return the answer within the limits of any answer, with warnings about its runs."""
        answer: ToolAnswer
        answer, cut = fitted(msgspec.structs.replace(self, run_warnings=run_warnings))
        return msgspec.structs.replace(answer, cut=cut, cut_hint=self.REST) if cut else answer

    def short(self) -> str:
        """Return the short text, with what was cut."""
        cuts = (f"{cut.place}: {cut.shown:,} of {cut.size:,} shown" for cut in self.cut[:_SHOWN_CUTS])
        return short_text((*self.lines(), *self.run_warnings), (*cuts, *filter(None, (self.cut_hint,))))


class CallInProgress:
    """One call of a tool. The client may cancel it from another thread, also before its run has started."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self._running: RunInProgress | None = None

    def started(self, running: RunInProgress) -> None:
        """Set the run of this call."""
        self._running = running
        if self.is_cancelled:
            running.interrupt()

    def cancel(self) -> None:
        """Stop the run of this call. Its records are kept."""
        self.is_cancelled = True
        if self._running is not None:
            self._running.interrupt()

    def snapshot(self) -> Snapshot | None:
        """Return the progress of the run; None if the call has none."""
        return None if self._running is None else self._running.snapshot()


class ServedTool(NamedTuple):
    """A tool: its name and title, its arguments, its answer, and the function to call in a thread."""

    name: str
    title: str
    arguments: type[ToolArguments]
    answer: type[ToolAnswer]
    function: Callable[[ServedProject, Any, CallInProgress], ToolAnswer]
    only_reads: bool = True

    @property
    def description(self) -> str:
        """Return what the tool does, for the agent."""
        return " ".join(cleandoc(self.arguments.__doc__ or "").split())

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return {name: value for name, value in _schema(self.arguments).items() if name != "description"}

    @property
    def output_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the answer."""
        return _schema(self.answer)


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return a schema with an object at its root, as the protocol requires."""
    (root,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    own: dict[str, Any] = parts.pop(root["$ref"].rpartition("/")[2])
    return {**own, "$defs": parts} if parts else own
