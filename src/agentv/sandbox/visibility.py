"""The files that an isolated program may read: the system, programs, Python, and the project, without secrets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from agentv.sandbox.secret_files import link_targets, secrets_below

AGENTV = str(Path(__file__).parents[2])
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

_PROGRAM_FOLDERS = ("bin", "sbin", "shims")


def readable_paths(search_path: str, folders: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that a program may read: `folders`, and what it takes to start programs of its PATH."""
    own = (os.path.abspath(folder) for folder in folders if folder)
    return tuple(dict.fromkeys((*_installed(search_path, tuple(sys.path)), *own)))


def hidden_paths(
    readable: Iterable[str], secret_files: Iterable[str] = (), writable: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the paths below readable ones that a program may not read: secrets at every depth, and all of the home.

    A path that is itself in `readable` or `writable` is not hidden, nor is what is below a writable one: a workspace is
    data of the case. Raises TooManyFolders if there is too much to search.
    """
    named, home = frozenset((*readable, *writable)), os.path.realpath(os.path.expanduser("~"))
    packages = _package_folders()
    roots = [folder for folder in readable if folder not in _SYSTEM and folder not in packages]
    secrets = secrets_below(roots, {*_SYSTEM, *packages, *named})
    targets = [*map(os.path.realpath, secret_files), *link_targets(secrets)]
    hidden = [*_HIDDEN, *secrets, *(path for target in targets for path in _paths_to(target, roots))]
    for folder in readable:
        if folder in (os.sep, home) or home.startswith(os.path.join(folder, "")):
            hidden += _entries(home, (".",))
    hidden += (os.path.join(home, each) for each in _HIDDEN_AT_HOME)
    return tuple(dict.fromkeys(path for path in hidden if os.path.lexists(path)))


def _package_folders() -> set[str]:
    """Return the folders of this Python's installed packages: too many to search before a program starts."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = [os.path.join(prefix, "lib", version) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)]
    return {os.path.join(library, "site-packages") for library in libraries}


def _paths_to(target: str, roots: Iterable[str]) -> Iterator[str]:
    """Yield the paths to a real path that is below a folder, which may be named through a link."""
    for root in roots:
        real = os.path.join(os.path.realpath(root), "")
        if target.startswith(real):
            yield os.path.join(root, target[len(real) :])


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
