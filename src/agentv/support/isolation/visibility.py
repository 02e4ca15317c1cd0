"""The files that an isolated program may read: the system, programs, Python, and the project, without secrets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

AGENTV = str(Path(__file__).parents[3])
"""The folder that agentv is imported from."""

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/proc", "/sys"),
    *("/nix", "/gnu", "/snap", "/run/current-system"),
)
_HIDDEN = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d"),
    *("/etc/ssh", "/etc/ssl/private", "/etc/krb5.keytab", "/etc/wireguard", "/etc/NetworkManager"),
)
_HIDDEN_AT_HOME = (
    *(".cargo/credentials", ".cargo/credentials.toml", ".local/share/keyrings", ".local/share/kwalletd"),
    *(".local/share/opencode/auth.json", ".local/share/gnupg", ".local/share/containers/auth.json"),
)
"""Secrets next to installed programs, which are readable."""

_SECRET_NAMES = (".env", ".netrc", ".pypirc", ".git-credentials")
_PROGRAM_FOLDERS = ("bin", "sbin", "shims")


def readable_paths(search_path: str, folders: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that a program may read: `folders`, and what it takes to start programs of its PATH."""
    own = (os.path.abspath(folder) for folder in folders if folder)
    return tuple(dict.fromkeys((*_installed(search_path, tuple(sys.path)), *own)))


def hidden_paths(readable: Iterable[str], secret_files: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the paths below readable ones that a program may not read: `.env` files, and settings in the home."""
    hidden = [*_HIDDEN, *(os.path.realpath(path) for path in secret_files)]
    home = os.path.realpath(os.path.expanduser("~"))
    for folder in readable:
        if folder not in _SYSTEM:
            hidden += _entries(folder, _SECRET_NAMES)
        if folder in (os.sep, home) or home.startswith(os.path.join(folder, "")):
            hidden += _entries(home, (".",))
    hidden += (os.path.join(home, each) for each in _HIDDEN_AT_HOME)
    return tuple(dict.fromkeys(path for path in hidden if os.path.lexists(path)))


@lru_cache(maxsize=64)
def _installed(search_path: str, module_path: tuple[str, ...]) -> tuple[str, ...]:
    found = [*filter(os.path.exists, _SYSTEM), sys.prefix, sys.base_prefix, sys.exec_prefix, AGENTV]
    found += [os.path.abspath(each) for each in module_path if each and os.path.exists(each)]
    for each in search_path.split(os.pathsep):
        if os.path.isabs(each) and os.path.isdir(each):
            found += [_prefix_of(path) for path in (each, os.path.realpath(each))]
    return tuple(dict.fromkeys(each for each in found if not _is_covered(each)))


def _prefix_of(folder: str) -> str:
    """Return the folder of an installation, such as `~/.nvm/versions/node/v22` for its `bin`."""
    parent = os.path.dirname(folder.rstrip(os.sep))
    is_own = os.path.realpath(parent) not in (os.sep, os.path.realpath(os.path.expanduser("~")))
    return parent if os.path.basename(folder.rstrip(os.sep)) in _PROGRAM_FOLDERS and is_own else folder


def _is_covered(path: str) -> bool:
    return path not in _SYSTEM and path.startswith(tuple(f"{each}{os.sep}" for each in _SYSTEM))


def _entries(folder: str, starts: tuple[str, ...]) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(folder) if entry.name.startswith(starts)]
    except OSError:
        return []
