"""The command target: a shell command per case, with what it needs put in for placeholders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import msgspec

from agentv.settings.diagnostics import did_you_mean
from agentv.settings.environment import REFERENCE
from agentv.support.file_hashes import short, words_in
from agentv.targets.programs.command_template import PLACEHOLDER, PLACEHOLDERS, unknown_placeholders
from agentv.targets.target import COMMON_ALIASES, Positive, Target, address_complaints

__all__ = ["PLACEHOLDER", "PLACEHOLDERS", "Cli", "Healthcheck"]


class Healthcheck(msgspec.Struct, frozen=True, kw_only=True):
    """What must work before the first case: an address that answers, or a command that ends well."""

    aliases: ClassVar[dict[str, str]] = {"command": "command_template"}

    type: Literal["http", "command"] | None = None
    url: str | None = None
    command_template: str | None = None
    cwd: str | None = None
    timeout_seconds: Positive | None = None

    def complaints(self) -> list[str]:
        """Neither or both ways of checking, or another one than `type` says."""
        kind = self.type or ("http" if self.url is not None else "command")
        needed, other = ("url", "command_template") if kind == "http" else ("command_template", "url")
        complaints = address_complaints("healthcheck.url", self.url)
        if not getattr(self, needed):
            both = "needs 'url' or 'command_template'"
            complaints.append(f"'healthcheck' {f'of type {kind} needs {needed!r}' if self.type else both}")
        if getattr(self, other):
            complaints.append(f"'healthcheck' takes 'url' or 'command_template'; '{other}' does not belong to {kind}")
        return complaints + _placeholder_complaints("healthcheck.command_template", self.command_template or "")


class Cli(Target, frozen=True, kw_only=True):
    """A command per case.

    `files_format` says how each file stands in `{FILES}`, with `{path}` and `{basename}`.

    `env` sets variables for the command; `pass_env` names those of ours that it gets although they look secret.
    """

    aliases: ClassVar[dict[str, str]] = {
        **COMMON_ALIASES,
        "command": "command_template",
        "attachments_format": "files_format",
        "cli_verbose": "verbose",
        "keep_output_files": "keep_temp_files",
    }
    responder: ClassVar[str] = "agentv.targets.programs.command_call:CommandResponder"

    command_template: str
    files_format: str = "{path}"
    cwd: str | None = None
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    healthcheck: Healthcheck | None = None
    provider_batching: bool = False
    keep_temp_files: bool = False
    verbose: bool = False

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:
        """What the command and its variables name, from the folder that it runs in."""
        where = folders if self.cwd is None else (os.path.join(home, self.cwd),)
        words = [word for text in (self.command_template, *self.env.values()) for word in words_in(text)]
        files = (os.path.join(folder, word) for folder in where for word in words if word)
        return (path for path in files if os.path.isfile(path))

    def check_note(self, home: str) -> str:
        """Without a `cwd`, a run calls the command elsewhere."""
        return "" if self.cwd is not None else f"ran in {short(home)}; in a run, in the folder of each dataset"

    def complaints(self) -> list[str]:
        """A blank command, an unknown placeholder, a health check of no known form."""
        complaints = _placeholder_complaints("command_template", self.command_template)
        if not self.command_template.strip():
            complaints.append("'command_template' is blank")
        if self.healthcheck is not None:
            complaints += self.healthcheck.complaints()
        return complaints


def _placeholder_complaints(field: str, template: str) -> list[str]:
    return [
        f"'{field}' has an unknown placeholder {{{name}}}. {did_you_mean(name, PLACEHOLDERS) or _KNOWN}"
        for name in unknown_placeholders(REFERENCE.sub("", template))
    ]


_KNOWN = f"Known placeholders: {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}"
