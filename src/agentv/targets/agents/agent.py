"""What every coding agent shares: its settings, how it is called, and what it gets of the environment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import Response
from agentv.model.values import MAX_DEPTH
from agentv.support.hashes import words_in
from agentv.targets.agents.events import Event
from agentv.targets.target import COMMON_ALIASES, OTHER_TOOLS, Target

GIT_CONFIG = "[user]\n\tname = agentv\n\temail = agentv@localhost\n"
"""In a home of its own an agent has no name to commit under."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is asked. `home` is its own home folder, or None when it works in the user's; `scratch` is a folder
    for files that it writes besides, gone after the call."""

    prompt: str
    home: str | None
    scratch: str
    environment: Mapping[str, str]
    folders: tuple[str, ...] = ()


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """How a call is made: arguments behind the program's name, what it reads, variables, files in its home.

    `report` is a JSON file that the agent writes besides its events; it is read as one more event.
    """

    arguments: tuple[str, ...]
    stdin: str
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    report: str | None = None


class CodingAgent(Target, frozen=True, kw_only=True):
    """Settings every coding agent takes. `log_dir` is where its events are written, in `log_format`."""

    writes_logs: ClassVar[bool] = True

    aliases: ClassVar[dict[str, str]] = {
        **COMMON_ALIASES,
        "command": "executable",
        "binary": "executable",
        "arguments": "args",
        "log_directory": "log_dir",
        "log_output_format": "log_format",
    }
    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        "max_turns": "Give the agent its own flag in `args`",
        "temperature": "Coding agents choose it themselves",
    }
    responder: ClassVar[str] = "agentv.targets.agents.agent_process:AgentResponder"
    secrets: ClassVar[tuple[str, ...]] = ()
    """The variables with keys that the agent gets: its vendor's."""
    package: ClassVar[str] = ""
    """What `npm install -g` installs."""
    ignored_prefixes: ClassVar[tuple[bytes, ...]] = ()
    """How lines begin that repeat what later ones say; they are neither kept nor logged."""
    home_variables: ClassVar[dict[str, str]] = {}
    """The variables that name its home, or folders in it, by what follows the home's path."""
    instructions: ClassVar[str] = ""
    """The file in its home for the system prompt, of an agent with no option for one."""

    executable: str
    args: tuple[str, ...] = ()
    model: str | None = None
    system_prompt: str | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    home_template: str | None = None
    user_settings: bool = False
    log_dir: str | None = None
    log_format: Literal["summary", "json"] = "summary"

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """A program that is not on the PATH, the template of its home, and files that arguments and variables name."""
        program, template = os.path.expanduser(self.executable), os.path.expanduser(self.home_template or "")
        work = os.path.join(home, os.path.expanduser(self.cwd)) if self.cwd is not None else None
        words = [word for text in (*self.args, *self.env.values()) for word in words_in(text)]
        files = [os.path.join(work or "", word) for word in words if work is not None or os.path.isabs(word)]
        own = [os.path.join(home, program)] if os.sep in program else []
        templates = [os.path.join(home, template)] if template else []
        return [*(path for path in (*own, *files) if os.path.isfile(path)), *templates]

    def complaints(self) -> list[str]:
        """A blank program, or a home of its own and the user's at once."""
        complaints = [] if self.executable.strip() else ["'executable' is blank"]
        if self.user_settings and self.home_template is not None:
            complaints.append("'user_settings' and 'home_template' do not go together: the agent has one home")
        return complaints

    @property
    def needs_workspace(self) -> bool:
        """Whether each job gets a folder of its own when the case has none."""
        return self.cwd is None

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The variables with keys that these settings need."""
        return self.secrets

    def invocation(self, call: Call) -> Invocation:
        """How the agent is called. Pure."""
        raise NotImplementedError

    def build_invocation(
        self, call: Call, arguments: Sequence[str], env: Mapping[str, str], files: Mapping[str, str] | None = None
    ) -> Invocation:
        """An invocation with the user's arguments, the folders of the home, and the system prompt where it is a file.

        Without a home of its own, the system prompt goes before the prompt.
        """
        stdin, files, folders = call.prompt, dict(files or {}), {}
        if call.home is not None:
            folders = {name: call.home + below for name, below in self.home_variables.items()}
        if self.instructions and self.system_prompt and call.home is None:
            stdin = f"{self.system_prompt}\n\n{stdin}"
        elif self.instructions and self.system_prompt:
            files[self.instructions] = self.system_prompt
        return Invocation(arguments=(*arguments, *self.args), stdin=stdin, env={**folders, **env}, files=files)

    @staticmethod
    def read_events(events: Iterable[Event]) -> Response:
        """The answer in an agent's events, or the failure that they report. Pure."""
        raise NotImplementedError


def options(given: Mapping[str, str | None]) -> list[str]:
    """The options that have a value, as arguments."""
    return [word for name, value in given.items() if value for word in (name, value)]


def with_relative_paths(response: Response, folder: str) -> Response:
    """The same answer with `src/a.py` for `/tmp/…/src/a.py`, and with `.` for the folder itself."""
    names = tuple(dict.fromkeys((folder, os.path.realpath(folder))))

    def call(made: ToolCall) -> ToolCall:
        return msgspec.structs.replace(made, input=_shortened(made.input, names), output=_shortened(made.output, names))

    messages = (
        Message(each.role, _shortened(each.content, names), tuple(map(call, each.tool_calls)), each.name)
        for each in response.messages
    )
    return msgspec.structs.replace(response, messages=tuple(messages))


def _shortened(value: Any, names: tuple[str, ...], depth: int = 0) -> Any:
    if isinstance(value, str):
        for name in names:
            if name in value:
                value = value.replace(name + os.sep, "").replace(name, ".")
        return value
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {_shortened(key, names): _shortened(item, names, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item, names, depth + 1) for item in value]
    return value


_KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN"),
    "google": ("GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
    "github-copilot": ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"),
    "vercel-ai-gateway": ("AI_GATEWAY_API_KEY",),
}
_KEYS_BY_NAME = (
    *("openai", "azure-openai", "azure", "openrouter", "mistral", "groq"),
    *("xai", "deepseek", "cerebras", "fireworks", "opencode"),
)
"""The APIs whose variable is their name in capitals and `_API_KEY`."""


def key_variables_of(provider: str) -> tuple[str, ...]:
    """The variables of one model API; none for one that is not known, whose variable goes into `pass_env`."""
    if provider in _KEYS_BY_NAME:
        return (f"{provider.upper().replace('-', '_')}_API_KEY",)
    return _KEYS.get(provider, ())
