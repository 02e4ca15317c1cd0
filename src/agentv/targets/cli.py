"""The command target: a shell command per case, with placeholders for the prompt and files."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from agentv.errors import UsageError
from agentv.lazy_regex import lazy_regex
from agentv.model.call_trace import COMMAND_TRACE_WAIT_S
from agentv.model.diagnostics import did_you_mean
from agentv.model.message import ChatFormat
from agentv.model.sandbox_settings import Sandboxed
from agentv.sandbox.availability import sandbox_of
from agentv.settings.addresses import address_complaints, host_of
from agentv.settings.environment import REFERENCE
from agentv.support.hashes import short, words_in
from agentv.targets.target import COMMON_ALIASES, NonNegative, Positive
from agentv.targets.workspace_target import WorkspaceTarget
from agentv.trust.env_file import environment_of
from agentv.trust.inventory import NamedUse

PLACEHOLDERS = ("PROMPT", "PROMPT_FILE", "GUIDELINES", "EVAL_ID", "ATTEMPT", "FILES", "VARIABLES", "OUTPUT_FILE")
PLACEHOLDER = lazy_regex(r"(?<!\$)\{(?P<name>[A-Z][A-Z0-9_]*)\}")
"""`{UPPER}`, but not the shell's `${UPPER}`."""

_TEXTS = ("PROMPT", "GUIDELINES", "EVAL_ID", "FILES", "VARIABLES")
"""Placeholders whose values come from a dataset."""

_OF_A_CASE = frozenset((*_TEXTS, "PROMPT_FILE"))

_FILE_PLACEHOLDER = lazy_regex(r"(?<!\$)\{(?P<name>path|basename)\}")
_PREFIX = "AGENTV_"


_MENTIONED = lazy_regex(rf"\b{_PREFIX}({'|'.join(PLACEHOLDERS)})\b")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "su", "busybox"))
_CODE_OPTIONS = {
    **dict.fromkeys(_SHELLS, lazy_regex(r"-\w*c|--command")),
    **dict.fromkeys(("python", "python3"), lazy_regex(r"-\w*c")),
    **dict.fromkeys(("node", "perl", "ruby"), lazy_regex(r"-\w*[eE]|--eval")),
}
"""Programs that execute an argument as code, and the option before it."""
_OPTIONS_AFTER_ARGUMENTS = frozenset(("su", "busybox"))
_RUNS_ALL_WORDS = frozenset(("ssh", "eval"))


class CommandTemplate:
    """A parsed command. Each placeholder becomes one quoted word, whether or not it is in quotes.

    `names` are the placeholders, and those that the command reads as variables: `$AGENTV_PROMPT`.
    """

    def __init__(self, text: str, files_format: str = "{path}") -> None:
        self._parts = list(_parts(text, PLACEHOLDER))
        self._file_parts = list(_parts(files_format, _FILE_PLACEHOLDER))
        self.names = frozenset((*(name for _, name, _ in self._parts if name), *_MENTIONED.findall(text)))

    def render(self, values: Mapping[str, str], files: Sequence[str] = ()) -> tuple[str, dict[str, str]]:
        """Return the command, and the environment variables with the values of its placeholders and files."""
        variables = {f"{_PREFIX}{name}": value for name, value in values.items() if name in self.names}
        rendered_files = ""
        if "FILES" in self.names:
            rendered_files, file_variables = self._render_files(files)
            variables |= file_variables
        text = "".join(
            literal + (_inside(rendered_files, quotes) if name == "FILES" else _variable(f"{_PREFIX}{name}", quotes))
            if name
            else literal
            for literal, name, quotes in self._parts
        )
        return text, variables

    def _render_files(self, files: Sequence[str]) -> tuple[str, dict[str, str]]:
        variables: dict[str, str] = {}
        words = []
        for number, path in enumerate(dict.fromkeys(map(os.path.abspath, files)), 1):
            values = {"path": path, "basename": os.path.basename(path)}
            word = ""
            for literal, name, quotes in self._file_parts:
                word += literal
                if name:
                    variable = f"{_PREFIX}FILE_{number}_{name.upper()}"
                    variables[variable] = values[name]
                    word += _variable(variable, quotes)
            words.append(word)
        return " ".join(words), variables


def executed_placeholder(template: str) -> tuple[str, str]:
    """Return the program in a command that executes a placeholder as code, and the placeholder; else empty texts."""
    try:
        words = shlex.split(REFERENCE.sub("", template), comments=True)
    except ValueError:  # an unclosed quotation mark
        words = template.split()
    for place, word in enumerate(words):
        program, rest = os.path.basename(word), words[place + 1 :]
        code = _code_argument(program, rest) if program in _CODE_OPTIONS else rest * (program in _RUNS_ALL_WORDS)
        marker = next((name[0] for text in code for name in PLACEHOLDER.finditer(text) if name["name"] in _TEXTS), "")
        if marker:
            return program, marker
    return "", ""


def _code_argument(program: str, words: list[str]) -> list[str]:
    """Return the argument that a program executes as code, if it has one. Its options end at its first argument."""
    for place, word in enumerate(words):
        if _CODE_OPTIONS[program].fullmatch(word):
            return words[place + 1 : place + 2]
        is_argument = not word.startswith("-") and words[place - 1 : place] not in (["-o"], ["-O"])
        if is_argument and program not in _OPTIONS_AFTER_ARGUMENTS:
            return []
    return []


def _parts(text: str, placeholder: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    """Yield literal text, the placeholder after it (empty at the end), and the quotes around the placeholder."""
    quotes_at = list(_quotes(text))
    last = 0
    for match in placeholder.finditer(text):
        yield text[last : match.start()], match["name"], quotes_at[match.start()]
        last = match.end()
    yield text[last:], "", ""


def _quotes(text: str) -> Iterator[str]:
    """Yield the quotes around each character of a shell command.

    Supports common syntax only. With rare syntax, a value may be split at spaces, but it is never executed.
    """
    stack: list[str] = [""]
    skip = False
    before = " "
    for position, char in enumerate(text):
        here = stack[-1]
        yield here if here in ('"', "'") else ""
        if skip:
            skip = False
        elif here in ("'", "#"):
            if char == ("'" if here == "'" else "\n"):
                stack.pop()
        elif char == "\\":
            skip = True
        elif char == '"':
            stack[-1:] = [] if here == '"' else [here, '"']
        elif char == "(" and (here != '"' or before == "$"):
            stack.append("(")
        elif char == ")" and here == "(":
            stack.pop()
        elif here != '"' and char == "'":
            stack.append("'")
        elif here != '"' and char == "#" and (position == 0 or before in " \t\n;(&|"):
            stack.append("#")
        before = char


def _variable(name: str, quotes: str) -> str:
    """Return a variable as one word inside the given quotes."""
    variable = f"\0{name}\0" if sys.platform == "win32" else f"${{{name}}}"  # see `plain_command`
    return variable if quotes == '"' else _inside(f'"{variable}"', quotes)


def _inside(words: str, quotes: str) -> str:
    """Return words of a command inside open quotes, which are closed before and reopened after them."""
    return f"{quotes}{words}{quotes}"


class Healthcheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check before the first case: an address that must respond, or a command that must succeed."""

    aliases: ClassVar[dict[str, str]] = {"command": "command_template"}

    type: Literal["http", "command"] | None = None
    url: str | None = None
    command_template: str | None = None
    cwd: str | None = None
    timeout_seconds: Positive | None = None

    def complaints(self) -> list[str]:
        """Check that exactly one kind of check is configured, and that it matches `type`."""
        kind = self.type or ("http" if self.url is not None else "command")
        needed, other = ("url", "command_template") if kind == "http" else ("command_template", "url")
        complaints = address_complaints("healthcheck.url", self.url)
        if not getattr(self, needed):
            missing = f"of type {kind} needs '{needed}'" if self.type else "needs 'url' or 'command_template'"
            complaints.append(f"'healthcheck' {missing}")
        if getattr(self, other):
            complaints.append(f"'healthcheck' of type {kind} does not accept '{other}'")
        return complaints + _placeholder_complaints("healthcheck.command_template", self.command_template or "")


class Cli(WorkspaceTarget, frozen=True, kw_only=True):
    """A shell command that is run for each case.

    With `sandbox`, it may write to its workspace only. With `traces`, the spans that it exports become the messages and
    tool calls of its answers.
    """

    aliases: ClassVar[dict[str, str]] = {
        **COMMON_ALIASES,
        "command": "command_template",
        "attachments_format": "files_format",
        "batch_requests": "provider_batching",
        "cli_verbose": "verbose",
        "keep_output_files": "keep_temp_files",
    }
    responder: ClassVar[str] = "agentv.targets.command_call:CommandResponder"
    optional_variables: ClassVar[tuple[str, ...]] = ("cwd",)
    is_command: ClassVar[bool] = True

    cwd: str | None = None
    """Working directory, relative to the dataset's folder (default: that folder)."""

    command_template: str
    """Command, with [placeholders](#placeholders)."""

    files_format: str = "{path}"
    """Format of each file in `{FILES}`: `{path}`, `{basename}`."""

    chat_format: ChatFormat = "text"
    """Form of a prompt with several messages: `text` with a heading for each, or `json`, the list of all messages."""

    plain_output: bool = False
    """JSON that the command prints is the text of the answer, whatever its keys."""

    env: dict[str, str] = {}
    """Environment variables to set."""

    pass_env: tuple[str, ...] = ()
    """Your variables to pass on, in addition to the usual ones."""

    healthcheck: Healthcheck | None = None
    """Check before the first case."""

    provider_batching: bool = False
    """One call for many cases."""

    keep_temp_files: bool = False
    """Keep the files of prompts and answers."""

    verbose: bool = False
    """Log the command."""

    sandbox: Sandboxed | None = None
    """Sandbox of the program: an engine such as `auto`, or an object."""

    traces: bool = False
    """Receive the spans of the agent, and use its [tool calls](../how-to/traces.md)."""

    trace_wait: NonNegative = COMMAND_TRACE_WAIT_S
    """Seconds to wait for the spans of a call."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterator[NamedUse]:
        """Return the command, and the command or the host of the health check."""
        if settings.get("command_template"):
            yield "command", str(settings["command_template"])
        check = settings.get("healthcheck")
        fields = check if isinstance(check, dict) else {}
        for key in ("command_template", "command"):
            if fields.get(key):
                yield "command", str(fields[key])
        if fields.get("url"):
            yield "host", host_of(str(fields["url"]))

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:
        """Return files in the command and its variables, relative to the folder that it runs in."""
        where = [os.path.join(folder, os.path.expanduser(self.cwd or "")) for folder in folders or (home,)]
        words = [word for text in (self.command_template, *self.env.values()) for word in words_in(text)]
        files = (os.path.join(folder, word) for folder in where for word in words if word)
        return [*(path for path in files if os.path.isfile(path)), *super().files_named(home, folders)]

    def check_note(self, home: str) -> str:
        """Return a note if `cwd` is not an absolute path, because runs use another folder."""
        if os.path.isabs(os.path.expanduser(self.cwd or "")):
            return ""
        where = short(os.path.join(home, self.cwd or ""))
        return f"ran in {where}; runs {'start from' if self.cwd else 'use'} the folder of each dataset"

    def advice(self, home: str) -> str:  # noqa: ARG002
        """Return a warning if the command lets a second shell execute the prompt, or is the same for all cases."""
        if (risk := self.shell_risk()) or not _OF_A_CASE.isdisjoint(CommandTemplate(self.command_template).names):
            return risk
        return f"Target '{self.name}' runs the same command for all cases: it has no {{PROMPT}} and no {{PROMPT_FILE}}"

    def shell_risk(self) -> str:
        """Return why a second shell would execute the prompt."""
        program, placeholder = executed_placeholder(self.command_template)
        if not program:
            return ""
        better = "pass it on stdin: `< {PROMPT_FILE}`"
        if program in _CODE_OPTIONS:
            variable = f"${_PREFIX}{placeholder[1:-1]}"
            better = f"write '\"{variable}\"' in single quotes, or use {{PROMPT_FILE}}"
        what = f"Target '{self.name}' passes {placeholder} to `{program}`, which executes commands in it"
        return f"{what}. Instead, {better}"

    def check_ready(self, home: str) -> None:
        """Raise UsageError if a file is missing, or if the command must be isolated, but cannot be."""
        self.check_files(home)
        sandbox = sandbox_of(f"Target '{self.name}'", self.sandbox, environment_of(home))
        if sandbox is not None and self.traces:
            hint = "Remove `traces`, or run the command without a sandbox"
            message = f"Target '{self.name}' has `traces`, but a sandbox keeps its spans from arriving"
            raise UsageError(message, hint=hint)

    def complaints(self) -> list[str]:
        """Check the command, its placeholders and the health check."""
        complaints = super().complaints() + _placeholder_complaints("command_template", self.command_template)
        if not self.command_template.strip():
            complaints.append("'command_template' is blank")
        if self.traces and self.provider_batching:
            complaints.append("'traces' cannot be used with 'provider_batching', which has one call for several cases")
        if self.healthcheck is not None:
            complaints += self.healthcheck.complaints()
        return complaints


def _placeholder_complaints(field: str, template: str) -> list[str]:
    used = dict.fromkeys(match["name"] for match in PLACEHOLDER.finditer(REFERENCE.sub("", template)))
    return [
        f"'{field}' has an unknown placeholder {{{name}}}. {did_you_mean(name, PLACEHOLDERS) or _KNOWN}"
        for name in used
        if name not in PLACEHOLDERS
    ]


_KNOWN = f"Known placeholders: {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}"
