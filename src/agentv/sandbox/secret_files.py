"""Find files and folders with secrets by their names, at every depth of a folder.

Judging processes import this module, so its imports must stay small.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

MOST_FOLDERS = 200_000
MOST_SECRETS = 2_000
_MOST_SETTINGS_BYTES = 1024 * 1024

_ENV = ".env"
"""Files with variables begin or end with this."""
_NAMES = frozenset((
    *(".netrc", "_netrc", ".npmrc", ".pypirc", "pip.conf", ".git-credentials", ".dockercfg", ".pgpass", ".my.cnf"),
    *(".mylogin.cnf", ".boto", ".s3cfg", ".htpasswd", ".vault-token", ".terraformrc", ".databrickscfg"),
    *(".aws", ".ssh", ".kube", ".gnupg", ".azure", ".oci", ".password-store", ".snowflake", ".kaggle"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"),
))  # fmt: skip
_NAMES_IN = {
    ".docker": ("config.json",),
    ".config": ("gh", "hub", "glab-cli", "gcloud", "git", "op", "rclone", "containers", "helm", "doctl"),
    ".cargo": ("credentials", "credentials.toml"),
    ".gem": ("credentials",),
    ".m2": ("settings.xml", "settings-security.xml"),
    ".gradle": ("gradle.properties",),
    ".composer": ("auth.json",),
    ".terraform.d": ("credentials.tfrc.json",),
    ".bundle": ("config",),
    "huggingface": ("token", "stored_tokens"),
    ".claude": (".credentials.json",),
    ".codex": ("auth.json",),
    ".gemini": ("oauth_creds.json",),
}
"""Names that are secrets only in a folder of a certain name. All names are compared in lower case."""

_CREDENTIALS = re.compile(rb"extraheader|https?://[^/\s@]+@|password\s*=", re.IGNORECASE)
"""What makes the settings of a Git repository a secret: a header or an address with a token."""

_SETTLED_NS = 2_000_000_000
"""A folder that changed more recently may change again without another time, so it is read again."""


class TooManyFolders(OSError):
    """There are more folders, or more secrets in them, than can be hidden from a program."""


class _Listing(NamedTuple):
    """The folders and the secrets in a folder, and the time of its last change."""

    changed_ns: int
    folders: tuple[str, ...]
    secrets: tuple[str, ...]


_listings: dict[str, _Listing] = {}


def secrets_below(roots: Iterable[str], leave_out: Collection[str]) -> list[str]:
    """Return the paths with names of secrets below folders. Links are not followed, and `leave_out` is not entered.

    Raises TooManyFolders, because what is not found would not be hidden.
    """
    waiting, visited, secrets = [os.path.normpath(root) for root in roots], set[str](), list[str]()
    while waiting:
        folder = waiting.pop()
        if folder in visited:
            continue
        visited.add(folder)
        listing = _list(folder)
        secrets += (path for path in listing.secrets if path not in leave_out)
        waiting += (path for path in listing.folders if path not in leave_out)
        if len(visited) > MOST_FOLDERS or len(secrets) > MOST_SECRETS:
            many = (
                f"{MOST_FOLDERS:,} folders" if len(visited) > MOST_FOLDERS else f"{MOST_SECRETS:,} files with secrets"
            )
            raise TooManyFolders(f"its readable folders contain more than {many}, which cannot all be hidden")
    return secrets


def _list(folder: str) -> _Listing:
    """Return what is in a folder, from memory if it has not changed since: programs cannot set the time of a change."""
    try:
        changed_ns = os.stat(folder).st_ctime_ns
        listing = _listings.get(folder)
        if listing is None or listing.changed_ns != changed_ns:
            listing = _Listing(changed_ns, *_scan(folder))
            if len(_listings) >= MOST_FOLDERS:
                _listings.clear()
            if time.time_ns() - changed_ns > _SETTLED_NS:
                _listings[folder] = listing
    except OSError:  # a file, or a folder that the program cannot read either
        return _Listing(0, (), ())
    return listing


def _scan(folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    folders, secrets = [], []
    names = _NAMES_IN.get(os.path.basename(folder).lower(), ())
    is_git = ".git" in folder.split(os.sep)
    with os.scandir(folder) as entries:
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            name = entry.name.lower()
            if (
                name in _NAMES
                or name in names
                or (name.startswith(_ENV) and not (is_folder and _is_virtual_environment(entry.path)))
                or (name.endswith(_ENV) and not is_folder)
                or (is_git and name.startswith("config") and not is_folder and _has_credentials(entry.path))
            ):
                secrets.append(entry.path)
            elif is_folder:
                folders.append(entry.path)
    return tuple(folders), tuple(secrets)


def _has_credentials(file: str) -> bool:
    """Whether the settings of a repository contain a token, as those that CI services check out do."""
    if not os.path.isfile(file):
        return False
    try:
        with open(file, "rb") as settings:
            return _CREDENTIALS.search(settings.read(_MOST_SETTINGS_BYTES)) is not None
    except OSError:  # the program cannot read it either
        return False


def _is_virtual_environment(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "pyvenv.cfg"))


def link_targets(paths: Iterable[str]) -> Iterator[str]:
    """Yield the real paths of those that are links."""
    return (os.path.realpath(path) for path in paths if os.path.islink(path))
