"""Remembered trust: the folders that the user trusted, with hashes of the files in them that can execute."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from agentv.datasets.files import is_inside
from agentv.errors import AgentvError
from agentv.support.hashes import file_digest, words_in
from agentv.trust.inventory import Inventory
from agentv.trust.policy import config_folder

FILE_NAME = "trust.json"
MOST_FILES = 20_000

_CODE = re.compile(
    r"""\.(py[wicdx]?|pth|so|dll|dylib|exe|jar|wasm|(ba|z|fi)?sh|ps1|bat|cmd|[cm]?[jt]sx?|rb|p[lm]|php|lua|tcl|awk|sed|r|jl
    |go|rs|java|kts?|scala|groovy|gradle|clj|exs?|erl|hs|ml|swift|[chm]|cc|[ch]pp|cxx|mm|[cf]s|sql|mk|cmake|nix|bzl|bazel
    |ipynb|ya?ml|toml|ini|cfg|conf|env|mdx|service)$
    |^((gnu)?make|just|rake|gem|proc|docker|container|jenkins|vagrant|brew)file
    |^(package|composer|deno|tsconfig|settings|settings\.local|\.?mcp|opencode)\.json$
    |^(agents|claude|gemini|skill)\.md$""",
    re.VERBOSE,
)
"""Names of programs, and of files that programs are configured with."""
_HIDDEN = (".env", ".npmrc", ".yarnrc", ".gitattributes", ".gitmodules", ".pythonrc", ".bash", ".zsh", ".profile")
"""The beginnings of hidden files that programs read their settings from."""
_SKIPPED = ("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis")
_OWN = frozenset((os.path.join(".agentv", "results"), os.path.join(".agentv", "cache")))


class TrustedFolder(msgspec.Struct, frozen=True):
    """The hashes of what could execute when a folder was trusted, by path relative to it."""

    files: dict[str, str]


class Memory(msgspec.Struct, frozen=True):
    """All folders that the user trusts."""

    version: int = 1
    folders: dict[str, TrustedFolder] = {}


def is_remembered(path: str, inventory: Inventory) -> str | None:
    """Return the trusted folder that contains a path, if nothing that can execute in it is new or changed."""
    real = os.path.realpath(path)
    for folder, then in _read().folders.items():
        if is_inside(real, folder):
            now = _snapshot(folder, inventory)
            if now is not None and all(then.files.get(name) == digest for name, digest in now.items()):
                return folder
    return None


def is_known(path: str) -> bool:
    """Whether the user trusted a folder that contains a path, in whatever state it was."""
    return any(is_inside(os.path.realpath(path), folder) for folder in _read().folders)


def remember(path: str, inventory: Inventory) -> bool:
    """Remember a trusted folder or file; return False if it has too many files."""
    real = os.path.realpath(path)
    files, memory = _snapshot(real, inventory), _read()
    if files is None:
        return False
    known = memory.folders.get(real)
    # Another dataset of the folder may use other files; those that are unchanged stay trusted.
    kept = {name: digest for name, digest in (known.files if known else {}).items() if name not in files}
    if known is None or known.files != {**kept, **files}:
        _write(msgspec.structs.replace(memory, folders=memory.folders | {real: TrustedFolder({**kept, **files})}))
    return True


def memory_path() -> str:
    """Return the path of the file."""
    return os.path.join(config_folder(), FILE_NAME)


def _read() -> Memory:
    path = memory_path()
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Memory)
    except FileNotFoundError:
        return Memory()
    except (OSError, msgspec.DecodeError) as error:
        raise AgentvError(
            f"Cannot read {path}", str(error), "Remove it: agentv asks again about every folder"
        ) from None


def _write(memory: Memory) -> None:
    """Write the file as a whole, for the user only."""
    import tempfile  # late: rarely needed

    path = memory_path()
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=os.path.dirname(path))  # mode 0600
        with open(handle, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(memory)))
        os.replace(name, path)
    except OSError as error:
        hint = "Pass --trust with each command, or make the folder writable"
        raise AgentvError(f"Cannot remember trust in {path}", error.strerror or str(error), hint) from None


def _snapshot(root: str, inventory: Inventory) -> dict[str, str] | None:
    """Return the hashes of what can execute below a folder; None if there is too much.

    Of a dataset it is what the dataset would use: its data may change. Results and caches are left out.
    """
    found: dict[str, str] = {}
    datasets = {os.path.realpath(file) for file in inventory.files}
    named = set(_named_files(inventory))
    for path in (*_files_below(root), *sorted(named)):
        below = os.path.relpath(path, root)
        if below in found or (path in datasets and path not in named) or not is_inside(path, root):
            continue
        if path in named or _can_execute(path):
            found[below] = _digest(path)
        if len(found) > MOST_FILES:
            return None
    for file in datasets:
        if is_inside(file, root):
            what = "uses with values" if inventory.has_values else "uses"
            found[f"{os.path.relpath(file, root)} {what}"] = _uses_digest(file, inventory)
    return found


def _files_below(root: str) -> Iterator[str]:
    """Yield the files below a folder, or the file itself. Of `.git`, only what Git executes."""
    if os.path.isfile(root):
        yield root
        return
    for parent, folders, files in os.walk(root):
        below = os.path.relpath(parent, root)
        if os.path.basename(parent) == ".git":
            folders[:] = [name for name in folders if name == "hooks"]
            files = [name for name in files if name == "config"]
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED and os.path.normpath(os.path.join(below, name)) not in _OWN
        )
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        yield from (os.path.join(parent, name) for name in sorted((*files, *links)))


def _can_execute(path: str) -> bool:
    name = os.path.basename(path).lower()
    if os.path.islink(path) or name.startswith(_HIDDEN):
        return True
    if _CODE.search(name) or f"{os.sep}.git{os.sep}" in path or os.access(path, os.X_OK):
        return True
    with suppress(OSError), open(path, "rb") as file:
        return file.read(2) == b"#!"
    return False


def _named_files(inventory: Inventory) -> Iterator[str]:
    """Yield the files that commands and imports name, looked up next to the file that names them and above it."""
    for use in inventory.running:
        texts = words_in(use.value)
        if use.kind == "code":
            texts.append(use.value.rpartition(":")[0])
        folder = os.path.dirname(os.path.realpath(use.file))
        for place in (folder, os.path.dirname(folder)):
            paths = (os.path.join(place, text) for text in texts if text)
            yield from (os.path.realpath(path) for path in paths if os.path.isfile(path))


def _digest(path: str) -> str:
    link = f"link {os.readlink(path)} " if os.path.islink(path) else ""
    return link + (file_digest(path).hex() if os.path.isfile(path) else "folder")


def _uses_digest(file: str, inventory: Inventory) -> str:
    """Return a hash of what a dataset uses; with variables, which can be part of a command, of its contents too."""
    uses = [use for use in inventory if os.path.realpath(use.file) == file]
    digest = hashlib.blake2b(digest_size=16)
    digest.update(msgspec.json.encode(sorted((use.kind, use.value, use.used_by) for use in uses)))
    if any(use.kind == "variable" for use in uses):
        digest.update(file_digest(file))
    return digest.hexdigest()
