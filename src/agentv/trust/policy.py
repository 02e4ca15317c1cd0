"""The user's policy: limits on programs, sandboxes and hosts that no project can weaken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from agentv.errors import AgentvError, UsageError
from agentv.model.diagnostics import Problems, type_word
from agentv.settings.addresses import is_ambiguous
from agentv.settings.frozen_settings import check_settings_file, frozen_settings
from agentv.settings.settings_reader import read_settings
from agentv.support.yaml.yaml_file import parse_yaml_file
from agentv.support.yaml.yaml_parser import locate

FILE_NAME = "policy.yaml"

_how_to_allow: ContextVar[str] = ContextVar("how_to_allow", default="")


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that a user sets for all projects on this machine.

    `programs`: `deny` starts no program and imports no code that a file names, `ask` does so for the project and for
    folders that the user trusts, `allow` for all folders without a question. `sandbox: required` refuses programs
    that cannot be isolated. `hosts` are the only hosts that may be called: names, `*.name`, or either with a port.
    """

    hints: ClassVar[dict[str, str]] = {"hosts": "List the hosts that may be called: [api.openai.com, '*.example.com']"}

    programs: Literal["deny", "ask", "allow"] = "ask"
    sandbox: Literal["required"] | None = None
    hosts: tuple[str, ...] | None = None

    def allows_host(self, address: str) -> bool:
        """Whether the host of an address may be called."""
        if self.hosts is None or "*" in self.hosts:
            return True
        host, port = _host_and_port(address)
        names = (host, f"{host}:{port}") if host else ()
        return any(fnmatchcase(name, allowed.lower()) for allowed in self.hosts for name in names)

    def check_host(self, address: str) -> None:
        """Raise UsageError if the host of an address may not be called."""
        if not self.allows_host(address):
            host = _host_and_port(address)[0] or address
            detail = f"Your policy allows only: {', '.join(self.hosts or ()) or 'no host'}"
            raise UsageError(f"Calls to '{host}' are not allowed", detail, f"Add it to `hosts` in {policy_path()}")


def config_folder() -> str:
    """Return the folder of the user's own settings: `$XDG_CONFIG_HOME/agentv`, or `~/.config/agentv`."""
    value = os.environ.get("XDG_CONFIG_HOME", "")
    base = value if os.path.isabs(value) else os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "agentv")


def policy_path() -> str:
    """Return the path of the user's policy, which may not exist."""
    return os.path.join(config_folder(), FILE_NAME)


@contextmanager
def denying_programs(how_to_allow: str) -> Iterator[None]:
    """Deny programs and code of files for a while, even if the user's policy allows them."""
    token = _how_to_allow.set(how_to_allow)
    try:
        yield
    finally:
        _how_to_allow.reset(token)


def why_denied() -> tuple[str, str]:
    """Return what denies programs, and how to allow them."""
    own = _how_to_allow.get()
    return ("This command", own) if own else ("Your policy", f"Change `programs` in {policy_path()}")


def load_policy() -> Policy:
    """Return the user's policy, which a command may tighten; the default one if there is no file.

    Raises AgentvError for an invalid file.
    """
    policy = _users_policy()
    return msgspec.structs.replace(policy, programs="deny") if _how_to_allow.get() else policy


def _users_policy() -> Policy:
    path = policy_path()
    try:
        status = os.stat(path)
        if frozen_settings() is not None:
            check_settings_file(path, Path(path).read_bytes())
    except FileNotFoundError:
        check_settings_file(path, None)
        return Policy()
    except OSError as error:
        raise AgentvError(f"Cannot read the policy {path}", error.strerror or str(error)) from None
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _read(path: str, modified: int, size: int) -> Policy:  # noqa: ARG001  # a changed file is read again

    if (data := parse_yaml_file(path)) is None:
        return Policy()
    problems = Problems()
    if not isinstance(data, dict):
        problems.error((), f"A policy must be an object, got {type_word(data)}", "For example: programs: deny")
    policy = read_settings(Policy, data, (), problems, strict=True) if isinstance(data, dict) else None
    for problem in problems.errors:
        mark = locate(data, problem.path)
        raise AgentvError(f"Invalid policy at line {mark.line if mark else 1} in {path}", problem.message, problem.hint)
    assert policy is not None
    return policy


def _host_and_port(address: str) -> tuple[str, int | None]:
    """Return the host and the port of a URL; an empty host for other text, and if programs may read another one."""
    try:
        parts = urlsplit(address)
        default = {"https": 443, "http": 80}.get(parts.scheme)
        return "" if is_ambiguous(address) else (parts.hostname or "").lower(), parts.port or default
    except ValueError:
        return "", None
