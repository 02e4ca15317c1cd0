"""The command target: a shell command per case, with what it needs put in for placeholders."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

import msgspec

from agentv.suggest import did_you_mean
from agentv.targets.base import COMMON_ALIASES, INTERPOLATION, Positive, Target, address_complaints

PLACEHOLDERS = ("PROMPT", "PROMPT_FILE", "GUIDELINES", "EVAL_ID", "ATTEMPT", "FILES", "OUTPUT_FILE")
PLACEHOLDER = re.compile(r"(?<!\$)\{(?P<name>[A-Z][A-Z0-9_]*)\}")
"""`{UPPER}`; a shell's own `${UPPER}` is left to the shell."""


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
    """`files_format` says how each file stands in `{FILES}`, with `{path}` and `{basename}`.

    `env` sets variables for the command; `pass_env` names those of ours that it gets although they look secret.
    """

    aliases: ClassVar[dict[str, str]] = {
        **COMMON_ALIASES,
        "command": "command_template",
        "attachments_format": "files_format",
        "cli_verbose": "verbose",
        "keep_output_files": "keep_temp_files",
    }

    command_template: str
    files_format: str = "{path}"
    cwd: str | None = None
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    healthcheck: Healthcheck | None = None
    provider_batching: bool = False
    keep_temp_files: bool = False
    verbose: bool = False

    def complaints(self) -> list[str]:
        """A blank command, an unknown placeholder, a health check of no known form."""
        complaints = _placeholder_complaints("command_template", self.command_template)
        if not self.command_template.strip():
            complaints.append("'command_template' is blank")
        if self.healthcheck is not None:
            complaints += self.healthcheck.complaints()
        return complaints


def _placeholder_complaints(field: str, template: str) -> list[str]:
    used = dict.fromkeys(found["name"] for found in PLACEHOLDER.finditer(INTERPOLATION.sub("", template)))
    return [
        f"'{field}' has an unknown placeholder {{{name}}}. {did_you_mean(name, PLACEHOLDERS) or _KNOWN}"
        for name in used
        if name not in PLACEHOLDERS
    ]


_KNOWN = f"Known placeholders: {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}"
