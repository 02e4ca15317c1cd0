"""Settings and invocation shared by all coding agents."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from agentv.errors import UsageError
from agentv.extensions.agents.events import Event, LogFormat, Transcript
from agentv.model.message import Message, ToolCall
from agentv.model.response import Response, TargetFailure
from agentv.model.sandbox_settings import CONTAINERS, Sandboxed
from agentv.model.values import MAX_DEPTH
from agentv.model.workspace_settings import WorkspaceFile
from agentv.sandbox.availability import sandbox_of
from agentv.settings.addresses import host_of, is_loopback
from agentv.support.hashes import words_in
from agentv.targets.target import COMMON_ALIASES, OTHER_TOOLS
from agentv.targets.workspace_target import SkillPlaces, WorkspaceTarget, is_skill, workspace_folders, workspace_skill
from agentv.trust.env_file import environment_of
from agentv.trust.inventory import NamedUse, command_text

GIT_CONFIG = "[user]\n\tname = agentv\n\temail = agentv@localhost\n"
"""An identity for commits: the agent's own home folder has no Git configuration."""


_ADDRESS_NAME = r"(?:base_?url|api_?base|api_?url|endpoint)"
_ADDRESS_VARIABLE = re.compile(_ADDRESS_NAME, re.IGNORECASE)
_ADDRESS_ARGUMENT = re.compile(rf"{_ADDRESS_NAME}\W+(https?:[^\s\"']+)", re.IGNORECASE)
_LIKE_AN_ADDRESS = re.compile(r"[:./{]")
"""Agents accept more than `http://name`: `http:name` and `//name` too."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The input of an agent. `home` is its own home folder, or None to use the user's; `scratch` is a temporary folder
    for other files."""

    prompt: str
    home: str | None
    scratch: str
    environment: Mapping[str, str]
    folders: tuple[str, ...] = ()


class ModelHost(msgspec.Struct, frozen=True):
    """The API of an agent's vendor: its host, the variable with the address of the API, and the path in that address.

    `headers` has the header of each key variable.
    """

    host: str
    variable: str
    headers: Mapping[str, str]
    path: str = ""


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments, standard input, environment variables and home files of a call.

    `report` is a JSON file that the agent writes in addition to its events; it is read as the last event.
    """

    arguments: tuple[str, ...]
    stdin: str
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    report: str | None = None


class CodingAgent(WorkspaceTarget, frozen=True, kw_only=True):
    """Settings of all coding agents. Events are written to `log_dir` in `log_format`; `raw` is the same as `json`.

    `skills` are folders with a SKILL.md. They are installed where the agent looks for them, without their evals: in its
    own home, or with `user_settings` in the workspace. A call fails if the agent would find a skill of `hidden_skills`
    anywhere else.

    `sandbox` isolates the agent: it may write to its workspace and connect to its vendor only, and never has the key.
    """

    takes_skills: ClassVar[bool] = True
    writes_logs: ClassVar[bool] = True
    reports_calls: ClassVar[bool] = True

    aliases: ClassVar[dict[str, str]] = {
        **COMMON_ALIASES,
        "command": "executable",
        "binary": "executable",
        "arguments": "args",
        "log_directory": "log_dir",
        "log_output_format": "log_format",
        "stream_log": "log_format",
        "cli_path": "executable",
    }
    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        "max_turns": "Pass the agent's own flag in `args`",
        "max_budget_usd": "Use `agentv eval --budget-usd`, or pass the agent's own flag in `args`",
        "model_reasoning_effort": "Pass the agent's own flag in `args`",
        "temperature": "Coding agents set it themselves",
    }
    optional_variables: ClassVar[tuple[str, ...]] = ("executable", "cwd", "log_dir")
    responder: ClassVar[str] = "agentv.extensions.agents.agent_process:AgentResponder"
    secrets: ClassVar[tuple[str, ...]] = ()
    """Environment variables with the vendor's keys, which are passed to the agent."""
    model_host: ClassVar[ModelHost | None] = None
    """The vendor's API, which an isolated agent reaches through a proxy that adds the key."""
    package: ClassVar[str] = ""
    """The npm package."""
    ignored_prefixes: ClassVar[tuple[bytes, ...]] = ()
    """Prefixes of event lines that only repeat later ones; these lines are neither kept nor logged."""
    home_variables: ClassVar[dict[str, str]] = {}
    """Environment variables for its home or folders in it, with the path below the home."""
    login_files: ClassVar[tuple[str, ...]] = ()
    """Files in the user's home that exist after a login."""
    instructions: ClassVar[str] = ""
    """The file in its home for the system prompt, for agents without an option for it."""

    skill_places: ClassVar[SkillPlaces] = SkillPlaces((), ())

    executable: str
    """Program, on the PATH or as a path."""

    args: tuple[str, ...] = ()
    """Additional arguments."""

    model: str | None = None
    """Name of the model."""

    system_prompt: str | None = None
    """System message before every conversation."""

    skills: tuple[str, ...] = ()
    """Folders with a `SKILL.md` to install for the agent: see [does my skill help](../how-to/skills.md)."""

    hidden_skills: tuple[str, ...] = ()
    """Names of skills that the agent must not see, except those in `skills`: a call fails if it would."""

    env: dict[str, str] = {}
    """Environment variables to set."""

    pass_env: tuple[str, ...] = ()
    """Your variables to pass on, in addition to the usual ones."""

    home_template: str | None = None
    """Folder to copy into the agent's home for each case."""

    user_settings: bool = False
    """Allow your own settings, memory and sessions."""

    log_dir: str | None = None
    """Folder for event logs."""

    log_format: LogFormat | bool = "summary"
    """Format of event logs: `summary`, `json` (or `raw`) for one line per event, `false` for none."""

    sandbox: Sandboxed | None = None
    """Sandbox of the program: an engine such as `auto`, or an object."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterator[NamedUse]:
        """Return the program with its arguments, the vendor's key variables, and the host of its API, if it has one."""
        default = {field.name: field.default for field in msgspec.structs.fields(cls)}["executable"]
        program, arguments, env = (settings.get(key) for key in ("executable", "args", "env"))
        words = arguments if isinstance(arguments, list | tuple) else ()
        if isinstance(program or default, str):
            yield "command", command_text([program or default, *words])
        addresses = _addresses(env if isinstance(env, Mapping) else {}, map(str, words))
        yield from (("host", host_of(address)) for address in addresses)
        if cls.model_host is not None and not addresses:
            yield "host", cls.model_host.host
        yield from (("variable", name) for name in cls.keys_of(settings))

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:
        """Return the home template, the skills, a program given as a path, and files in arguments and variables."""
        program, template = os.path.expanduser(self.executable), os.path.expanduser(self.home_template or "")
        work = os.path.join(home, os.path.expanduser(self.cwd)) if self.cwd is not None else None
        words = [word for text in (*self.args, *self.env.values()) for word in words_in(text)]
        files = [os.path.join(work or "", word) for word in words if work is not None or os.path.isabs(word)]
        own = [os.path.join(home, program)] if os.sep in program else []
        templates = [os.path.join(home, template)] if template else []
        paths = [*(path for path in (*own, *files) if os.path.isfile(path)), *templates]
        return [*paths, *self.skill_folders(home), *super().files_named(home, folders)]

    def skill_folders(self, home: str) -> list[str]:
        """Return the folders of `skills`, which are relative to the targets file."""
        return [os.path.abspath(os.path.join(home, os.path.expanduser(skill))) for skill in self.skills]

    def folders_for_skills(self, home: str | None, work: str, environment: Mapping[str, str]) -> Iterator[str]:
        """Yield where the agent looks for skills: in its home, which variables may move, and where it works."""
        for place in self.skill_places.home if home is not None else ():
            yield os.path.join(home or "", place)
            for variable, below in self.home_variables.items():
                prefix = below.lstrip("/")
                if environment.get(variable) and place.startswith(prefix):
                    yield os.path.join(environment[variable], place[len(prefix) :].lstrip("/"))
        yield from workspace_folders(self.skill_places, work)

    def added_files(self, home: str) -> tuple[WorkspaceFile, ...]:
        """Return the files to add to each workspace: also the skills, if the agent has no home of its own."""
        folders = self.skill_folders(home) if self.user_settings else ()
        skills = (file for folder in folders for file in workspace_skill(folder, self.skill_places.workspace[0]))
        return (*super().added_files(home), *skills)

    def complaints(self) -> list[str]:
        """Check the program and the home settings."""
        complaints = super().complaints()
        if not self.executable.strip():
            complaints.append("'executable' is blank")
        if self.user_settings and self.home_template is not None:
            complaints.append("'user_settings' and 'home_template' cannot be combined: the agent has only one home")
        if self.user_settings and self.skills and self.cwd is not None:
            complaints.append("'skills' with 'user_settings' are added to workspaces only: remove 'cwd'")
        return complaints

    def check_ready(self, home: str) -> None:
        """Raise UsageError if the program or a file does not exist, or if it must be isolated, but cannot be."""
        self.check_files(home)
        for folder in self.skill_folders(home):
            if not is_skill(folder):
                raise UsageError(f"Target '{self.name}' cannot be called", f"There is no SKILL.md in {folder}")
        settings = environment_of(home).sandbox.of(self.sandbox)
        if settings is not None and settings.engine in CONTAINERS:
            sandbox_of(f"Target '{self.name}'", self.sandbox, environment_of(home))  # the program is in the image
            return
        try:
            self.open(home).program()  # type: ignore[attr-defined]
        except TargetFailure as failure:
            raise UsageError(f"Target '{self.name}' cannot be called", failure.message) from None

    @property
    def foreign_address(self) -> str:
        """The address in the settings that calls go to instead of the vendor; empty for the vendor or this machine."""
        addresses = _addresses(self.env, self.args)
        return next((address for address in addresses if not is_loopback(address)), "")

    def advice(self, home: str) -> str:
        """Return a warning if the agent gets no key: because of another address, or of a login that it does not see."""
        values = {**environment_of(home).variables, **self.env}
        withheld = [name for name in self.key_variables if values.get(name) and name not in (*self.env, *self.pass_env)]
        if self.foreign_address and withheld:
            why = f"its settings name the address {self.foreign_address}"
            return f"Target '{self.name}' does not get {withheld[0]}: {why}. To pass it: pass_env: [{withheld[0]}]"
        has_key = any(values.get(name) for name in self.key_variables)
        if has_key or self.user_settings or self.home_template is not None:
            return ""
        if not any(os.path.exists(os.path.expanduser(f"~/{file}")) for file in self.login_files):
            return ""
        keys = " or ".join(self.key_variables)
        return f"Target '{self.name}' does not use your own login: set {keys}, or `user_settings: true`"

    @property
    def needs_workspace(self) -> bool:
        """Whether each job needs its own folder if the case has no workspace."""
        return self.cwd is None

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The environment variables with the keys that these settings need."""
        return self.keys_of(msgspec.structs.asdict(self))

    @classmethod
    def keys_of(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG003
        """Return the environment variables with the keys that settings, as in `uses`, need."""
        return cls.secrets

    def invocation(self, call: Call) -> Invocation:
        """Return how the agent is called."""
        raise NotImplementedError

    def build_invocation(
        self, call: Call, arguments: Sequence[str], env: Mapping[str, str], files: Mapping[str, str] | None = None
    ) -> Invocation:
        """Build an invocation: add the user's arguments, the home variables, and the system prompt file.

        Without its own home, the agent gets the system prompt before the prompt.
        """
        stdin, files, folders = call.prompt, dict(files or {}), {}
        if call.home is not None:
            folders = {name: call.home + below for name, below in self.home_variables.items()}
        if self.instructions and self.system_prompt and call.home is None:
            stdin = f"{self.system_prompt}\n\n{stdin}"
        elif self.instructions and self.system_prompt:
            files[self.instructions] = self.system_prompt
        return Invocation(arguments=(*arguments, *self.args), stdin=stdin, env={**folders, **env}, files=files)

    @classmethod
    def read_events(cls, events: Iterable[Event]) -> Response:
        """Return the answer in an agent's events. Raises the failure that they report, with what was paid for."""
        transcript = Transcript()
        try:
            cls.follow(events, transcript)
            return transcript.response()
        except TargetFailure as failure:
            raise transcript.failed(failure) from None

    @staticmethod
    def follow(events: Iterable[Event], transcript: Transcript) -> None:
        """Add an agent's events to a transcript. Raises the failure that they report."""
        raise NotImplementedError


def _addresses(env: Mapping[str, Any], arguments: Iterable[str]) -> list[str]:
    """Return the addresses of APIs in variables and arguments."""
    variables = [str(value) for name, value in env.items() if _ADDRESS_VARIABLE.search(name)]
    words = [" ".join(arguments), *(f"{name}={value}" for name, value in env.items())]
    addresses = [value for value in variables if _LIKE_AN_ADDRESS.search(value)]
    addresses += (match[1] for text in words for match in _ADDRESS_ARGUMENT.finditer(text))
    return list(dict.fromkeys(addresses))


def options(flags: Mapping[str, str | None]) -> list[str]:
    """Return the options that have a value as arguments."""
    return [word for name, value in flags.items() if value for word in (name, value)]


def with_relative_paths(response: Response, folder: str) -> Response:
    """Replace `/tmp/…/src/a.py` with `src/a.py`, and the folder itself with `.`, in a response."""
    names = tuple(dict.fromkeys((folder, os.path.realpath(folder))))

    def shorten_call(call: ToolCall) -> ToolCall:
        return msgspec.structs.replace(call, input=_shorten(call.input, names), output=_shorten(call.output, names))

    messages = (
        Message(entry.role, _shorten(entry.content, names), tuple(map(shorten_call, entry.tool_calls)), entry.name)
        for entry in response.messages
    )
    return msgspec.structs.replace(response, messages=tuple(messages))


def _shorten(value: Any, names: tuple[str, ...], depth: int = 0) -> Any:
    if isinstance(value, str):
        for name in names:
            if name in value:
                value = value.replace(name + os.sep, "").replace(name, ".")
        return value
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {_shorten(key, names): _shorten(item, names, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_shorten(item, names, depth + 1) for item in value]
    return value


_KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN"),
    "google": ("GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
    "github-copilot": ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"),
    "vercel-ai-gateway": ("AI_GATEWAY_API_KEY",),
    "azure-openai-responses": ("AZURE_OPENAI_API_KEY",),
}
_KEYS_BY_NAME = (
    *("openai", "azure-openai", "azure", "openrouter", "mistral", "groq"),
    *("xai", "deepseek", "cerebras", "fireworks", "opencode"),
)
"""Model APIs whose key variable is `NAME_API_KEY`."""


def key_variables_of(provider: str) -> tuple[str, ...]:
    """Return a model API's key variables; for unknown APIs, users list the variable in `pass_env`."""
    if provider in _KEYS_BY_NAME:
        return (f"{provider.upper().replace('-', '_')}_API_KEY",)
    return _KEYS.get(provider, ())
