"""Call functions of JavaScript files and providers of promptfoo with Node.js, in processes that stay open."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from threading import Lock
from typing import Any

from agentv.errors import UsageError
from agentv.extensions.javascript.javascript_target import JavaScriptTarget
from agentv.settings.project import project_root
from agentv.support.processes.function_process import CallFailure, FunctionProcess, function_process
from agentv.targets.python import FunctionTarget
from agentv.targets.python_call import FunctionResponder
from agentv.trust.env_file import load_environment

_TYPESCRIPT = (".ts", ".mts", ".cts")
_TYPES_WITH_FLAG = (22, 6)
_TYPES = (22, 18)
"""The versions of Node.js that run TypeScript: with a flag, and without."""

RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "function_runner.mjs")
"""The program that calls functions and providers of a file."""

_CHECK_RUNNER = os.path.join(os.path.dirname(RUNNER), "node_runner.mjs")
_SECONDS = 60.0


def call_file(
    path: str, name: str, arguments: list[Any], env: Mapping[str, str] | None = None, *, is_transform: bool = False
) -> Any:
    """Return what a function of a file returns, or the value that the file exports. Raises CallFailure.

    A transform may be the default export, whatever its name.
    """
    process = function_process([*program_of(path), RUNNER], path, os.environ if env is None else env)
    reply = process.call({"name": name, "arguments": arguments, "isTransform": is_transform}, _SECONDS)
    if "error" in reply:
        raise CallFailure(str(reply["error"]))
    return reply["value"]


def check_program(path: str) -> list[str]:
    """Return the program that calls one function of a file with an answer and a context. Raises CallFailure.

    Its arguments are the name of the function, and that of another export to call if there is no default one.
    """
    return [*program_of(path), _CHECK_RUNNER, path]


def program_of(path: str) -> list[str]:
    """Return the program that runs a file: Node.js; for TypeScript Bun, or a Node.js that can. Raises CallFailure."""
    is_typescript = path.lower().endswith(_TYPESCRIPT)
    if is_typescript and (bun := shutil.which("bun")):
        return [bun]
    if (node := shutil.which("node")) is None:
        raise CallFailure("JavaScript files need Node.js, and `node` is not on the PATH. Install Node.js")
    return [node, *_typescript_options(node, os.path.dirname(path))] if is_typescript else [node]


def _typescript_options(node: str, folder: str) -> list[str]:
    parents = [folder]
    while parents[-1] != os.path.dirname(parents[-1]):
        parents.append(os.path.dirname(parents[-1]))
    if any(os.path.isdir(os.path.join(parent, "node_modules", "tsx")) for parent in parents):
        return ["--import", "tsx"]
    version, text = _version_of(node)
    if version < _TYPES_WITH_FLAG:
        hint = "Install Bun or Node.js 22.6 or later, or run `npm install tsx` in the project"
        raise CallFailure(f"TypeScript files need Bun, the package tsx, or Node.js 22.6; here is {text}. {hint}")
    return [] if version >= _TYPES else ["--experimental-strip-types"]


@lru_cache(maxsize=4)
def _version_of(node: str) -> tuple[tuple[int, ...], str]:
    text = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    return tuple(map(int, re.findall(r"\d+", text)[:2])), text


class ProviderResponder(FunctionResponder):
    """Calls one provider. Its process has the environment of the run, and starts with the first call."""

    def __init__(self, settings: JavaScriptTarget, home: str, *, embeds: bool = False) -> None:
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
            call=self._embeddings if embeds else self._call_api,
            reference=settings.file,
            chat_format=settings.chat_format,
            config=None if embeds else settings.config,
        )
        super().__init__(target, home)

    def _call_api(self, prompt: str, options: dict[str, Any], context: dict[str, Any]) -> Any:  # noqa: ARG002
        return self._returned("callApi", prompt, context)

    def _embeddings(self, texts: list[str]) -> list[Any]:
        replies = [self._returned("callEmbeddingApi", text) for text in texts]
        for reply in replies:
            if not isinstance(reply, dict) or reply.get("error") or not reply.get("embedding"):
                error = reply.get("error") if isinstance(reply, dict) else None
                raise CallFailure(str(error or "callEmbeddingApi returned no embedding"))
        return [reply["embedding"] for reply in replies]

    def _returned(self, method: str, *arguments: Any) -> Any:
        """Return what a method of the provider returns. Raises CallFailure."""
        request = {"provider": self._options, "method": method, "arguments": list(arguments)}
        reply = self._running().call(request, None)
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
