"""The files that an isolated program may read: the system, programs, Python, and the project, without secrets."""

import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from agentv.lazy_regex import lazy_regex

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
    explicit_paths, home = frozenset((*readable, *writable)), os.path.realpath(os.path.expanduser("~"))
    packages = _package_folders()
    roots = [folder for folder in readable if folder not in _SYSTEM and folder not in packages]
    secrets = secrets_below(roots, {*_SYSTEM, *packages, *explicit_paths})
    targets = [*map(os.path.realpath, secret_files), *link_targets(secrets)]
    hidden = [*_HIDDEN, *secrets, *(path for target in targets for path in _paths_to(target, roots))]
    for folder in readable:
        if folder in (os.sep, home) or home.startswith(os.path.join(folder, "")):
            hidden += _entries(home, (".",))
    hidden += (os.path.join(home, name) for name in _HIDDEN_AT_HOME)
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
    paths = [*filter(os.path.exists, _SYSTEM), sys.prefix, sys.base_prefix, sys.exec_prefix, AGENTV]
    paths += [os.path.abspath(entry) for entry in module_path if entry and os.path.exists(entry)]
    for entry in search_path.split(os.pathsep):
        if os.path.isabs(entry) and os.path.isdir(entry):
            paths += [_prefix_of(path) for path in (entry, os.path.realpath(entry))]
    return tuple(dict.fromkeys(entry for entry in paths if not _is_covered(entry)))


def _prefix_of(folder: str) -> str:
    """Return the folder of an installation, such as `~/.nvm/versions/node/v22` for its `bin`."""
    parent = os.path.dirname(folder.rstrip(os.sep))
    is_own = os.path.realpath(parent) not in (os.sep, os.path.realpath(os.path.expanduser("~")))
    return parent if os.path.basename(folder.rstrip(os.sep)) in _PROGRAM_FOLDERS and is_own else folder


def _is_covered(path: str) -> bool:
    return path not in _SYSTEM and path.startswith(tuple(f"{root}{os.sep}" for root in _SYSTEM))


def _entries(folder: str, starts: tuple[str, ...]) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(folder) if entry.name.startswith(starts)]
    except OSError:
        return []


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

_CREDENTIALS = lazy_regex(rb"extraheader|https?://[^/\s@]+@|password\s*=", re.IGNORECASE)
"""What makes the settings of a Git repository a secret: a header or an address with a token."""

_SETTLED_NS = 2_000_000_000
"""A folder that changed more recently may change again without another time, so it is read again."""


class TooManyFolders(OSError):
    """There are more folders, or more secrets in them, than can be hidden from a program."""


class _Listing(msgspec.Struct, frozen=True):
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
        if (folder := waiting.pop()) in visited:
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
