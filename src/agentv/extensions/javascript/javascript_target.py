"""The JavaScript target: a provider of promptfoo, in a process of Node.js that stays open."""

import os
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, ClassVar

from agentv.errors import UsageError
from agentv.extensions.javascript.javascript_files import RUNNER, program_of
from agentv.model.message import ChatFormat
from agentv.settings.project import project_root
from agentv.support.processes.function_process import CallFailure, FunctionProcess
from agentv.targets.python import FunctionTarget
from agentv.targets.python_call import FunctionResponder
from agentv.targets.target import OTHER_TOOLS, Target
from agentv.trust.env_file import load_environment
from agentv.trust.inventory import NamedUse


class JavaScriptTarget(Target, frozen=True, kw_only=True):
    """A provider of promptfoo in a JavaScript or TypeScript file, run with Node.js.

    The file exports a class: `new Provider(options)` is called once, and `callApi(prompt, context)` for each case. It
    returns `{output}` or `{error}`, and optionally `tokenUsage` and `cost`. `options` has `id` and `config`. With
    `chat_format: json`, the prompt is the JSON list of the messages.
    """

    unsupported: ClassVar[dict[str, str]] = {key: hint for key, hint in OTHER_TOOLS.items() if key != "config"}
    responder: ClassVar[str] = "agentv.extensions.javascript.javascript_target:ProviderResponder"

    file: str
    """JavaScript or TypeScript file next to the targets file, which exports the class."""

    id: str | None = None
    """Id that the class receives (default: `file`)."""

    config: dict[str, Any] = {}
    """Data that the function or class receives in its `options`, as `{"config": …}`."""

    chat_format: ChatFormat = "text"
    """Form of a prompt with several messages: `text` with a heading for each, or `json`, the list of all messages."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:
        """Return the file."""
        return (("code", str(settings["file"])),) if settings.get("file") else ()

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return the provider's file."""
        return (os.path.join(home, self.file),)

    def check_ready(self, home: str) -> None:
        """Raise UsageError if the file does not exist."""
        path = os.path.join(home, self.file)
        if not os.path.isfile(path):
            raise UsageError(f"Target '{self.name}': the file {self.file} was not found", f"Looked for {path}")


class ProviderResponder(FunctionResponder):
    """Calls one provider. Its process has the environment of the run, and starts with the first call."""

    def __init__(self, settings: JavaScriptTarget, home: str) -> None:
        self._path = os.path.abspath(os.path.join(home, settings.file))
        try:
            self._command = [*program_of(self._path), RUNNER, self._path]
        except CallFailure as failure:
            raise UsageError(f"Target '{settings.name}' cannot be run", str(failure)) from None
        self._options = {"id": settings.id or settings.file, "config": settings.config, "env": {}}
        self._process: FunctionProcess | None = None
        self._start_lock = Lock()
        self._is_closed = False
        target = FunctionTarget(
            name=settings.name,
            provider=settings.provider,
            call=self._call_api,
            reference=settings.file,
            chat_format=settings.chat_format,
            config=settings.config,
        )
        super().__init__(target, home)

    def _call_api(self, prompt: str, options: dict[str, Any], context: dict[str, Any]) -> Any:  # noqa: ARG002
        reply = self._running().call({"provider": self._options, "arguments": [prompt, context]}, None)
        if "error" in reply:
            raise CallFailure(str(reply["error"]))
        return reply["value"]

    def _running(self) -> FunctionProcess:
        with self._start_lock:
            if self._is_closed:  # a call that was cancelled before its thread ran
                raise CallFailure("The target is closed")
            if self._process is None or not self._process.is_running:
                folder = os.path.dirname(self._path)
                env = load_environment(folder, project_root(folder)).variables
                self._process = FunctionProcess(self._command, folder, env)
            return self._process

    async def aclose(self) -> None:
        """End the process without waiting for calls."""
        await super().aclose()
        with self._start_lock:
            self._is_closed = True
            if self._process is not None:
                self._process.close()
