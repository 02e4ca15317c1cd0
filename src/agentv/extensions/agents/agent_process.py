"""Run a coding agent for each call, in its own folder, home and sandbox, and read the answer from its events."""

import os
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import UsageError
from agentv.extensions.agents.agent import GIT_CONFIG, Call, CodingAgent, with_relative_paths
from agentv.extensions.agents.events import MAX_BYTES, Event, EventStream, NoAnswer, classify_failure
from agentv.model.environment import Environment
from agentv.model.response import OpenLog, Request, Response, TargetFailure
from agentv.model.sandbox_settings import HostKey
from agentv.sandbox.availability import sandbox_of
from agentv.sandbox.hosts import AllowedHost
from agentv.sandbox.sandbox import OpenSandbox
from agentv.sandbox.subprocesses import ProcessFailure, ProcessSpec, run_process
from agentv.settings.child_environment import child_environment
from agentv.support.private_files import read_file
from agentv.support.temporary_folders import temporary_folder
from agentv.targets.workspace_target import SKILL_FILE, find_skill, install_skill
from agentv.trust.env_file import environment_of
from agentv.trust.policy import load_policy

PLACEHOLDER = "added-by-agentv"
"""The value of the key variable of an isolated agent, which requires a key but never has it."""


class AgentAccess(msgspec.Struct, frozen=True):
    """What an agent may use. `variables` replace those of its environment; `passed` are for containers."""

    sandbox: OpenSandbox | None = None
    variables: Mapping[str, str] = {}
    passed: tuple[str, ...] = ()

    @property
    def is_container(self) -> bool:
        """Whether the agent is a program of a container's image."""
        return self.sandbox is not None and self.sandbox.confinement.is_container

    def confine(self, spec: ProcessSpec, writable: Sequence[str], readable: Iterable[str]) -> ProcessSpec:
        """Isolate the agent, if it has a sandbox."""
        return spec if self.sandbox is None else self.sandbox.confine(spec, writable, readable, self.passed)


def agent_access(settings: CodingAgent, environment: Environment, variables: Mapping[str, str]) -> AgentAccess:
    """Return the access of an agent with these variables. Raises UsageError if it must be isolated but cannot be."""
    if (sandbox := sandbox_of(f"Target '{settings.name}'", settings.sandbox, environment)) is None:
        return AgentAccess()
    if settings.user_settings:
        message = f"Target '{settings.name}' cannot be isolated"
        detail = "With `user_settings` the agent uses your own login, which an isolated program cannot read"
        raise UsageError(message, detail, f"Set {' or '.join(settings.key_variables) or 'a key'} instead")
    passed = (*settings.pass_env, *settings.key_variables)
    api = settings.model_host
    hosts = {entry.name for entry in sandbox.hosts}
    key = next((name for name in settings.key_variables if variables.get(name)), None)
    if api is None or key is None or api.host in hosts or variables.get(api.variable):
        return AgentAccess(sandbox, {}, passed)
    load_policy().check_host(api.host if "://" in api.host else f"https://{api.host}")
    header = HostKey(variable=key, header=api.headers[key])
    host = AllowedHost.read(api.host, {header.header: header.value(variables[key].strip())})
    hidden = {name: PLACEHOLDER for name in settings.key_variables if variables.get(name)}
    address = {api.variable: host.address + api.path}
    return AgentAccess(OpenSandbox(sandbox.confinement, (*sandbox.hosts, host)), {**hidden, **address}, passed)


_SESSION_VARIABLES = (
    *("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID"),
    *("CLAUDE_AGENT_SDK_VERSION", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID"),
    *("GEMINI_CLI", "OPENCODE"),
)
"""Variables that agents set for their child processes; an agent started from another one must not inherit them."""

_MAX_REPORT_BYTES = 4 * 1024 * 1024


class AgentResponder:
    """Runs a target's agent, with an environment that contains no secrets except its vendor's keys."""

    def __init__(self, settings: CodingAgent, home: str) -> None:
        self.endpoint = f"{settings.provider}:{settings.name}"
        self._settings = settings
        self._home = home
        # Another host than the vendor's gets the key only if the settings name it.
        passed = (*settings.pass_env, *(() if settings.foreign_address else settings.key_variables))
        if settings.model_host is not None:  # a key of a gateway must not be sent to the vendor
            passed = (*passed, settings.model_host.variable)
        inherited = child_environment(passed, {}, environment_of(home))
        variables = {name: value for name, value in inherited.items() if name not in _SESSION_VARIABLES}
        self._environment = {**variables, **settings.env}
        self._access = agent_access(settings, environment_of(home), self._environment)

    async def respond(self, request: Request) -> Response:
        """Answer one request. In any case, the agent's processes are ended and its home is removed."""
        program = self._settings.executable if self._access.is_container else self.program()
        try:
            return await self._respond(program, request)
        except OSError as error:
            message = f"Cannot create the agent's folders: {error.strerror or error}"
            raise TargetFailure("process", message) from None

    async def _respond(self, program: str, request: Request) -> Response:
        with self._folders(request) as (cwd, home, scratch):
            invocation = self._settings.invocation(self._call(request, home, scratch))
            env = {**self._environment, **_home_variables(home, self._environment), **invocation.env}
            _write(home, invocation.files)
            started = time.perf_counter()
            spec = ProcessSpec(
                command=[program, *invocation.arguments],
                cwd=cwd,
                env={**env, **self._settings.env, **self._access.variables},
                timeout_s=request.timeout_s,
                stdin=invocation.stdin.encode(errors="replace"),
                max_output_bytes=MAX_BYTES,
                noun=f"The agent '{self._settings.executable}'",
                leaves_nothing=True,
            )
            spec = self._access.confine(spec, (cwd, scratch), (self._home, *request.files))
            response = self._answer(*await self._run(spec, invocation.report, request.open_log))
            duration_ms = round((time.perf_counter() - started) * 1000, 3)
            if request.workspace is not None or self._settings.cwd is None:
                response = with_relative_paths(response, cwd)
        return msgspec.structs.replace(response, duration_ms=duration_ms)

    def sends(self, request: Request) -> dict[str, Any]:
        """Return the program, its arguments with a placeholder for temporary folders, the prompt and the files."""
        invocation = self._settings.invocation(self._call(request, "~", "~"))
        return {
            "program": self._settings.executable,
            "arguments": list(invocation.arguments),
            "prompt": invocation.stdin,
            "files": list(request.files),
        }

    async def aclose(self) -> None:
        """Do nothing: nothing is open between calls."""

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
        self, spec: ProcessSpec, report: str | None, open_log: OpenLog | None
    ) -> tuple[list[Event], ProcessFailure | None]:
        settings = self._settings
        is_summary = settings.log_format in ("summary", True)
        folder = None if settings.log_dir is None else os.path.join(self._home, settings.log_dir)
        extension = "log" if is_summary else "jsonl"
        log = None if open_log is None or settings.log_format is False else open_log(folder, extension)
        stream = EventStream(settings.ignored_prefixes, log, summary=is_summary)
        failure = None
        try:
            await run_process(msgspec.structs.replace(spec, take=stream.take))
        except ProcessFailure as error:
            failure = error
        finally:
            if report is not None:
                stream.add(_report(report))
            if log is not None:
                log.close()
        return list(stream.events()), failure

    def _answer(self, events: list[Event], failure: ProcessFailure | None) -> Response:
        """Return the answer. Raises the failure in the events, else that of the process, which explains less."""
        if failure is not None and failure.ending != "exit":
            raise TargetFailure("timeout" if failure.ending == "timeout" else "process", failure.message)
        try:
            response = self._settings.read_events(events)
        except NoAnswer as missing:
            if failure is None:
                raise TargetFailure("invalid_response", missing.message).add_use(missing) from None
            # Without a key, some agents exit before their first event and only write to stderr.
            is_auth = classify_failure(failure.message).error_class == "auth"
            ended = TargetFailure("auth" if is_auth else "process", failure.message).add_use(missing)
            raise self._explained(ended) from None
        except TargetFailure as reported:
            raise self._explained(reported) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # An agent version with different events causes an error for the job, not the end of the run.
            message = f"Cannot read the events of '{self._settings.executable}': {type(error).__name__}: {error}"
            raise TargetFailure("invalid_response", message) from None
        if failure is not None:
            raise TargetFailure("process", failure.message).add_use(response)
        return response

    def _explained(self, failure: TargetFailure) -> TargetFailure:
        if failure.error_class != "auth":
            return failure
        keys = " or ".join(self._settings.key_variables) or "its key variable in `pass_env`"
        hint = f"set {keys}, or use your own login with `user_settings: true`"
        return TargetFailure("auth", f"{failure.message}; {hint}", status=failure.status).add_use(failure)

    def program(self) -> str:
        """Return the program's path. A relative path is relative to the targets file. Raises TargetFailure."""
        name = os.path.expanduser(self._settings.executable)
        if os.sep in name:
            name = os.path.join(self._home, name)
        if (path := shutil.which(name, path=self._environment.get("PATH"))) is None:
            raise TargetFailure("process", f"The agent '{self._settings.executable}' {self._missing_reason(name)}")
        return os.path.abspath(path)

    def _missing_reason(self, name: str) -> str:
        if os.sep in name and os.path.isdir(name):
            return "is a folder, not a program"
        if os.sep in name and os.path.exists(name):
            return f"is not executable; run `chmod +x {shlex.quote(name)}`"
        where = "" if os.sep in name else " on the PATH"
        return f"was not found{where}; run `npm install -g {self._settings.package}`, or set `executable` to its path"

    @contextmanager
    def _folders(self, request: Request) -> Iterator[tuple[str, str | None, str]]:
        """Yield the working folder, the agent's home and a scratch folder; those created for the call are removed."""
        with temporary_folder("agentv-agent-") as scratch:
            home = None if self._settings.user_settings else os.path.join(scratch, "home")
            work = request.workspace
            if work is None and self._settings.cwd is not None:
                work = os.path.join(self._home, os.path.expanduser(self._settings.cwd))
            if work is None:
                work = os.path.join(scratch, "work")
                os.mkdir(work)
            if home is not None:
                self._make_home(home)
            self._check_hidden(home, work)
            if home is not None:
                for folder in self._settings.skill_folders(self._home):
                    install_skill(folder, os.path.join(home, self._settings.skill_places.home[0]))
            yield os.path.abspath(work), home, scratch

    def _make_home(self, home: str) -> None:
        if self._settings.home_template is None:
            os.mkdir(home)
            return
        template = os.path.join(self._home, os.path.expanduser(self._settings.home_template))
        try:
            shutil.copytree(template, home, symlinks=True)
        except OSError as error:  # shutil.Error, which has no strerror, is one too
            why = error.strerror or "some files cannot be copied"
            raise TargetFailure("process", f"Cannot create the agent's home from {template}: {why}") from None

    def _check_hidden(self, home: str | None, work: str) -> None:
        """Raise TargetFailure if the agent would see a hidden skill: in its home, its folder or a parent of that."""
        settings = self._settings
        added = [os.path.join(os.path.realpath(work), file.path) for file in settings.added_files(self._home)]
        moved, home = (self._environment, os.path.expanduser("~")) if home is None else ({}, home)
        for name in settings.hidden_skills:
            leak = find_skill(name, settings.folders_for_skills(home, work, moved))
            if leak is not None and os.path.join(leak, SKILL_FILE) not in added:
                raise TargetFailure("process", f"The agent would see the skill '{name}' in {leak}", stage="setup")


def _home_variables(home: str | None, environment: dict[str, str]) -> dict[str, str]:
    """Return variables for the home, with the user's cache, which contains neither settings nor sessions."""
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
        elif name.endswith(".md"):  # instructions are appended; the template's settings are kept
            path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{text}", encoding="utf-8")


def _report(path: str) -> bytes:
    """Return the agent's report file as an event; empty if there is none."""
    try:
        return msgspec.json.encode({"type": "report", "data": msgspec.Raw(read_file(path, _MAX_REPORT_BYTES))})
    except OSError:
        return b""
