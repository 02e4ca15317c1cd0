"""A coding agent alive: started for each case in a folder and a home of its own, its events read as the answer."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from agentv.model.response import Request, Response, TargetFailure
from agentv.settings.environment import child_environment, environment_of
from agentv.support.subprocesses import ProcessFailure, ProcessSpec, run_process, temporary_folder
from agentv.targets.agents.agent import GIT_CONFIG, Call, CodingAgent, Invocation, with_relative_paths
from agentv.targets.agents.events import MAX_BYTES, Event, EventStream, NoAnswer, classify_failure

_OF_A_SESSION = frozenset(
    {
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_AGENT_SDK_VERSION",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_THREAD_ID",
        "GEMINI_CLI",
        "OPENCODE",
    }
)
"""What an agent tells its children about itself. One that is started from there must not take it for its own."""

_MAX_REPORT_BYTES = 4 * 1024 * 1024


class AgentResponder:
    """Runs the agent of a target. It gets the environment without its secrets, but for its vendor's keys."""

    def __init__(self, settings: CodingAgent, home: str) -> None:
        self.endpoint = f"{settings.provider}:{settings.name}"
        self._settings = settings
        self._home = home
        passed = (*settings.pass_env, *settings.key_variables)
        inherited = child_environment(passed, {}, environment_of(home))
        kept = {name: value for name, value in inherited.items() if name not in _OF_A_SESSION}
        self._environment = {**kept, **settings.env}

    async def respond(self, request: Request) -> Response:
        """Answers one case. However it ends, nothing that the agent started goes on, and its home is gone."""
        program = self._program()
        try:
            return await self._respond(program, request)
        except OSError as error:
            message = f"The agent's folders cannot be made: {error.strerror or error}"
            raise TargetFailure("process", message) from None

    async def _respond(self, program: str, request: Request) -> Response:
        with self._folders(request) as (cwd, home, scratch):
            invocation = self._settings.invocation(self._call(request, home, scratch))
            env = {**self._environment, **_home_variables(home, self._environment), **invocation.env}
            _write(home, invocation.files)
            started = time.perf_counter()
            events, failure = await self._run(
                [program, *invocation.arguments], invocation, cwd, {**env, **self._settings.env}, request
            )
            response = self._answer(events, failure)
            duration_ms = round((time.perf_counter() - started) * 1000, 3)
            if request.workspace is not None or self._settings.cwd is None:
                response = with_relative_paths(response, cwd)
        return msgspec.structs.replace(response, duration_ms=duration_ms)

    def sends(self, request: Request) -> dict[str, Any]:
        """What the agent is given: its arguments, as far as they are the same each time, and the prompt."""
        invocation = self._settings.invocation(self._call(request, "~", "~"))
        return {
            "program": self._settings.executable,
            "arguments": list(invocation.arguments),
            "prompt": invocation.stdin,
            "files": list(request.files),
        }

    async def aclose(self) -> None:
        """Nothing is open between calls."""

    def _call(self, request: Request, home: str | None, scratch: str) -> Call:
        folders = tuple(dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in request.files))
        return Call(
            prompt=request.prompt_with_references,
            home=home,
            scratch=scratch,
            environment=self._environment,
            folders=folders,
        )

    async def _run(
        self, command: list[str], invocation: Invocation, cwd: str, env: dict[str, str], request: Request
    ) -> tuple[list[Event], ProcessFailure | None]:
        settings = self._settings
        extension = "jsonl" if settings.log_format == "json" else "log"
        folder = None if settings.log_dir is None else os.path.join(self._home, settings.log_dir)
        log = None if request.open_log is None else request.open_log(folder, extension)
        stream = EventStream(settings.ignored_prefixes, log, settings.log_format)
        failure = None
        try:
            await run_process(
                ProcessSpec(
                    command=command,
                    cwd=cwd,
                    env=env,
                    timeout_s=request.timeout_s,
                    stdin=invocation.stdin.encode(errors="replace"),
                    max_output_bytes=MAX_BYTES,
                    noun=f"The agent '{settings.executable}'",
                    take=stream.take,
                    leaves_nothing=True,
                )
            )
        except ProcessFailure as error:
            failure = error
        finally:
            if invocation.report is not None:
                stream.add(_report(invocation.report))
            if log is not None:
                log.close()
        return list(stream.events()), failure

    def _answer(self, events: list[Event], failure: ProcessFailure | None) -> Response:
        """The answer, unless the process failed; what the agent itself says of a failure is better than its exit."""
        if failure is not None and failure.ending != "exit":
            raise TargetFailure("timeout" if failure.ending == "timeout" else "process", failure.message)
        try:
            response = self._settings.read_events(events)
        except NoAnswer as nothing:
            if failure is None:
                raise TargetFailure("invalid_response", nothing.message) from None
            # Without a key several end before their first event: what they say on stderr is all there is.
            is_auth = classify_failure(failure.message).error_class == "auth"
            ended = TargetFailure("auth" if is_auth else "process", failure.message)
            raise self._explained(ended) from None
        except TargetFailure as reported:
            raise self._explained(reported) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Events of a version that writes them in another way: this case's error, and not the end of the run.
            what = f"The events of '{self._settings.executable}' cannot be read: {type(error).__name__}: {error}"
            raise TargetFailure("invalid_response", what) from None
        if failure is not None:
            raise TargetFailure("process", failure.message)
        return response

    def _explained(self, failure: TargetFailure) -> TargetFailure:
        if failure.error_class != "auth":
            return failure
        keys = " or ".join(self._settings.key_variables) or "its key through `pass_env`"
        hint = f"give the agent {keys}, or its user's own login with `user_settings: true`"
        return TargetFailure("auth", f"{failure.message}; {hint}", status=failure.status)

    def _program(self) -> str:
        """The program's path. One with a slash in it is looked up from the folder of the targets file."""
        name = os.path.expanduser(self._settings.executable)
        if os.sep in name:
            name = os.path.join(self._home, name)
        found = shutil.which(name, path=self._environment.get("PATH"))
        if found is None:
            raise TargetFailure("process", f"The agent '{self._settings.executable}' {self._why_not(name)}")
        return os.path.abspath(found)

    def _why_not(self, name: str) -> str:
        """What is wrong with a program that cannot be had."""
        if os.sep in name and os.path.isdir(name):
            return "is a folder, and no program"
        if os.sep in name and os.path.exists(name):
            return f"may not be executed: `chmod +x {shlex.quote(name)}` lets it be"
        where = "" if os.sep in name else " on the PATH"
        hint = f"install it with `npm install -g {self._settings.package}`, or name it in `executable`"
        return f"was not found{where}: {hint}"

    @contextmanager
    def _folders(self, request: Request) -> Iterator[tuple[str, str | None, str]]:
        """The folder to work in, the agent's home, and one for other files: what is made for the call goes with it."""
        with temporary_folder("agentv-agent-") as made:
            home = None if self._settings.user_settings else os.path.join(made, "home")
            work = request.workspace
            if work is None and self._settings.cwd is not None:
                work = os.path.join(self._home, os.path.expanduser(self._settings.cwd))
            if work is None:
                work = os.path.join(made, "work")
                os.mkdir(work)
            if home is not None:
                self._make_home(home)
            yield os.path.abspath(work), home, made

    def _make_home(self, home: str) -> None:
        if self._settings.home_template is None:
            os.mkdir(home)
            return
        template = os.path.join(self._home, os.path.expanduser(self._settings.home_template))
        try:
            shutil.copytree(template, home, symlinks=True)
        except OSError as error:  # what copytree raises for many files is one, too
            why = error.strerror or "files in it cannot be copied"
            raise TargetFailure("process", f"The agent's home cannot be made from {template}: {why}") from None


def _home_variables(home: str | None, environment: dict[str, str]) -> dict[str, str]:
    """The home, and beside it the user's own cache: it holds programs and lists, no settings and no sessions."""
    if home is None:
        return {}
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or home, ".cache")
    config = os.path.join(home, ".config")
    return {"HOME": home, "USERPROFILE": home, "XDG_CONFIG_HOME": config, "XDG_CACHE_HOME": cache}


def _write(home: str | None, files: dict[str, str]) -> None:
    if home is None:
        return
    for name, text in {".gitconfig": GIT_CONFIG, **files}.items():
        path = Path(home, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(text, encoding="utf-8")
        elif name.endswith(".md"):  # instructions add up; settings of the template stay as they are
            path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{text}", encoding="utf-8")


def _report(path: str) -> bytes:
    """The file that the agent wrote besides its events, as the last of them; nothing where it wrote none."""
    try:
        if os.path.getsize(path) > _MAX_REPORT_BYTES:
            return b""
        return msgspec.json.encode({"type": "report", "data": msgspec.Raw(Path(path).read_bytes())})
    except OSError:
        return b""
