"""Answer requests with a provider of promptfoo, in a process of Node.js that stays open."""

import os
from threading import Lock
from typing import Any

from agentv.errors import UsageError
from agentv.extensions.javascript.javascript_files import RUNNER, program_of
from agentv.extensions.javascript.javascript_target import JavaScriptTarget
from agentv.settings.project import project_root
from agentv.support.processes.function_process import CallFailure, FunctionProcess
from agentv.targets.python import FunctionTarget
from agentv.targets.python_call import FunctionResponder
from agentv.trust.env_file import load_environment


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
