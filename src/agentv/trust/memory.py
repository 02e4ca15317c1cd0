"""Remembered trust: the folders that the user trusted, with hashes of the files in them."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from agentv.errors import AgentvError
from agentv.lazy_regex import lazy_regex
from agentv.settings.project import is_inside, is_too_wide
from agentv.support.hashes import add_file, words_in
from agentv.support.private_files import replace_file
from agentv.trust.inventory import Inventory
from agentv.trust.policy import config_folder
from agentv.trust.template_search import is_repository

FILE_NAME = "trust.json"
MOST_FILES = 20_000
MOST_BYTES = 256 * 1024 * 1024
"""Folders with more than that are remembered with the files that can execute only."""

_CODE = r"""(?x)
    \.(py[wicdx]?|pth|so|dll|dylib|exe|jar|wasm|(ba|z|fi)?sh|ps1|bat|cmd|[cm]?[jt]sx?|rb|p[lm]|php|lua|tcl|awk|sed
    |r|jl|go|rs|java|kts?|scala|groovy|gradle|clj|exs?|erl|hs|ml|swift|[chm]|cc|[ch]pp|cxx|mm|[cf]s|sql|mk|cmake|nix|bzl
    |bazel|ipynb|ya?ml|toml|ini|cfg|conf|env|mdx|service|j2|jinja2?
    |zip|whl|egg|pyz|tar|t?gz|tbz2?|bz2|t?xz|zst|7z|rar|war|deb|rpm|asar
    |pkl|pickle|p|dill|joblib|pt|ckpt|bin|npy|npz|h5|hdf5|keras|onnx|pb|tflite|safetensors|gguf|rds|rdata|mat|parquet)$
    |^((gnu)?make|just|rake|gem|proc|docker|container|jenkins|vagrant|brew)file
    |^(package|composer|deno|tsconfig|settings|settings\.local|\.?mcp|opencode)\.json$
    |^(agents|claude|gemini|skill)\.md$"""
"""Names of programs, of archives and pickles, and of files that programs are configured with."""
_HIDDEN = (".env", ".npmrc", ".yarnrc", ".gitattributes", ".gitmodules", ".pythonrc", ".bash", ".zsh", ".profile")
"""The beginnings of hidden files that programs read their settings from."""
_GIT_SETTINGS = ("config", "config.worktree", "commondir")
"""Files of a repository that tell Git which programs to run; a bare one may have any name."""
_GIT_DATA = frozenset(("objects", "refs", "logs", "lfs", "rr-cache", "index", "packed-refs", "shallow", "gc.log"))
"""What Git changes in `.git` with each command, in addition to files such as `FETCH_HEAD`."""
_GIT_STATE = lazy_regex(r"[A-Z_]*HEAD|[A-Z_]+(MSG|MODE|RR|LOG)|AUTO_MERGE")
_RESULTS = os.path.join(".agentv", "results")
_IN_PART = "(only files that can execute)"
_USES, _USES_WITH_VALUES = " uses", " uses with values"
"""The ends of names for what a dataset uses; other names are paths."""


_SYSTEM = ("/proc", "/sys", "/dev")
"""Folders whose files are not data: reading one may wait for ever."""


class _UncheckableError(Exception):
    """The files of a folder cannot be checked before each run."""


_TOO_MANY = "it has too many programs to check"


class TrustedFolder(msgspec.Struct, frozen=True):
    """The hashes of the files when a folder was trusted, by path relative to it."""

    files: dict[str, str]


class Memory(msgspec.Struct, frozen=True):
    """All folders that the user trusts."""

    version: int = 1
    folders: dict[str, TrustedFolder] = {}


def is_remembered(path: str, inventory: Inventory) -> str | None:
    """Return the trusted folder that contains a path, if no file in it is new, changed or removed."""
    real = os.path.realpath(path)
    for folder, then in _read().folders.items():
        if is_inside(real, folder):
            now = snapshot(folder, inventory)
            if now is None or any(then.files.get(name) != digest for name, digest in now.items()):
                continue
            if not any(_is_removed(folder, name) for name in then.files.keys() - now.keys()):
                return folder
    return None


def is_known(path: str) -> bool:
    """Whether the user trusted a folder that contains a path, in whatever state it was."""
    return any(is_inside(os.path.realpath(path), folder) for folder in _read().folders)


def remember(path: str, files: dict[str, str]) -> None:
    """Remember a trusted folder or file in the state of a snapshot."""
    real, memory = os.path.realpath(path), _read()
    before = memory.folders.get(real)
    # Another dataset of the folder may use other files; those that are unchanged stay trusted.
    entries = {name: digest for name, digest in (before.files if before else {}).items() if not _is_removed(real, name)}
    trusted = TrustedFolder(entries | files)
    if before != trusted:
        _write(msgspec.structs.replace(memory, folders=memory.folders | {real: trusted}))


def snapshot(path: str, inventory: Inventory) -> dict[str, str] | None:
    """Return the hashes of what trust in a folder or file covers; None if that cannot be checked."""
    try:
        return _snapshot(os.path.realpath(path), inventory)
    except _UncheckableError:
        return None


def coverage_gap(path: str, inventory: Inventory) -> str:
    """Describe the changes in a folder that would not end the trust in it; empty if all would."""
    try:
        files = _snapshot(os.path.realpath(path), inventory)
    except _UncheckableError as error:
        return f"Trust in {path} is not remembered: {error}."
    if _IN_PART not in files:
        return ""
    size = f"{MOST_FILES:,} files or {MOST_BYTES / 1024 / 1024:.0f} MiB"
    end = f"It has more than {size}, so changes of other files are not noticed."
    return f"Trust in {path} is remembered until one of its programs, archives or pickles changes. {end}"


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
        replace_file(name, path)
    except OSError as error:
        hint = "Pass --trust with each command, or make the folder writable"
        raise AgentvError(f"Cannot remember trust in {path}", error.strerror or str(error), hint) from None


def _is_removed(root: str, name: str) -> bool:
    """Whether a name in a snapshot is the path of a file that no longer exists."""
    is_path = name != _IN_PART and not name.endswith((_USES, _USES_WITH_VALUES))
    return is_path and not os.path.lexists(os.path.normpath(os.path.join(root, name)))


def _snapshot(root: str, inventory: Inventory) -> dict[str, str]:
    """Return the hashes of all files below a folder, or reached from it by links.

    If there are too many, only of those that can execute. Of a dataset it is what the dataset would use: its data may
    change. Results, and modules that Python compiles itself, are left out. Raises _UncheckableError.
    """
    hashes: dict[str, str] = {}
    datasets = {os.path.realpath(file) for file in inventory.files}
    used_files = set(_named_files(inventory, root))
    commands = "\n".join(use.value for use in inventory.running)
    try:
        paths = [path for path in _files_below(root) if path not in datasets]
        if not (is_small := _is_small(paths)):
            hashes[_IN_PART] = ""
        for path in (*paths, *sorted(used_files)):
            is_read = is_small or os.path.basename(path) in commands or _can_execute(path)
            if path in used_files or (is_read and _is_hashed(path)):
                hashes.setdefault(os.path.relpath(path, root), _digest(path))
            if not is_small and len(hashes) > MOST_FILES:
                raise _UncheckableError(_TOO_MANY)
        for file in datasets:
            if is_inside(file, root):
                what = _USES_WITH_VALUES if inventory.has_values else _USES
                hashes[f"{os.path.relpath(file, root)}{what}"] = _uses_digest(file, inventory)
    except OSError as error:
        raise _UncheckableError(f"{error.filename or root} cannot be read") from None
    return hashes


def _is_small(paths: list[str]) -> bool:
    """Whether all files can be hashed before each run."""
    if len(paths) > MOST_FILES:
        return False
    return sum(os.stat(path).st_size for path in paths if os.path.isfile(path)) <= MOST_BYTES


def _is_hashed(path: str) -> bool:
    """Whether a path is a link, or a file other than a module that Python compiles again. A pipe would wait."""
    if os.path.islink(path) or not os.path.isfile(path):
        return os.path.islink(path)
    is_module = path.endswith(".pyc") and os.path.basename(os.path.dirname(path)) == "__pycache__"
    return not (is_module and _is_written_by_python(path))


def _files_below(root: str) -> Iterator[str]:
    """Yield the files below a folder and below folders that links in it lead to, or the file itself."""
    if os.path.isfile(root):
        yield root
        return
    waiting, parents, outside = [root], set[str](), 0
    while waiting:
        start = waiting.pop()
        for parent, folders, files in os.walk(start, onerror=_raise):
            if parent in parents:
                folders.clear()
                continue
            parents.add(parent)
            files = _kept(root if start == root else "", parent, folders, files)
            links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
            waiting += (_linked_folder(os.path.join(parent, name)) for name in links)
            outside += 0 if is_inside(parent, root) else 1 + len(files)
            if outside > MOST_FILES:
                raise _UncheckableError(_TOO_MANY)
            yield from (os.path.join(parent, name) for name in sorted((*files, *links)))


def _raise(error: OSError) -> None:
    raise error


def _kept(root: str, parent: str, folders: list[str], files: list[str]) -> list[str]:
    """Return the files of a folder to look at, and leave such folders: of `.git`, what Git does not write itself."""
    parts = parent.split(os.sep)
    if parts[-1] == ".git" or (".git" in parts and is_repository([*folders, *files])):  # of a submodule or worktree
        folders[:] = [name for name in folders if name not in _GIT_DATA]
        files = [name for name in files if name not in _GIT_DATA and not _GIT_STATE.fullmatch(name)]
    if root:
        below = os.path.relpath(parent, root)
        folders[:] = [name for name in folders if os.path.normpath(os.path.join(below, name)) != _RESULTS]
    folders.sort()
    return files


def _linked_folder(link: str) -> str:
    real = os.path.realpath(link)
    if is_too_wide(real) or any(is_inside(real, root) for root in _SYSTEM):
        raise _UncheckableError(f"{link} is a link to {real}, which has too many files")
    return real


def _can_execute(path: str) -> bool:
    name = os.path.basename(path).lower()
    if os.path.islink(path) or name.startswith(_HIDDEN):
        return True
    if re.search(_CODE, name) or name in _GIT_SETTINGS or f"{os.sep}.git{os.sep}" in path or os.access(path, os.X_OK):
        return True
    with suppress(OSError), open(path, "rb") as file:
        return file.read(2) == b"#!"
    return False


def _is_written_by_python(path: str) -> bool:
    """Whether a compiled module is one that Python writes itself, and replaces when its source has another time."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(8)[4:] == bytes(4)  # other flags: Python may run it whatever the source is
    return False


def _named_files(inventory: Inventory, root: str) -> Iterator[str]:
    """Yield the files that commands and imports name, looked up next to the file that names them and above it.

    They are looked up in the working directory of a command too. Absolute paths count only below the root: others are
    installed programs.
    """
    for use in inventory.running:
        texts = words_in(use.value)
        if use.kind == "code":
            texts.append(use.value.rpartition(":")[0])
        folder = os.path.dirname(os.path.realpath(use.file))
        for place in (folder, os.path.dirname(folder)):
            for cwd, text in ((cwd, text) for cwd in {"", use.cwd} for text in texts if text):
                real = os.path.realpath(os.path.join(place, cwd, text))
                if os.path.isfile(real) and (not os.path.isabs(text) or is_inside(real, root)):
                    yield real


def _digest(path: str) -> str:
    link = f"link {os.readlink(path)} " if os.path.islink(path) else ""
    if not os.path.isfile(path):
        return f"{link}folder"
    status = os.stat(path)
    if status.st_size > MOST_BYTES:  # unlike the time of modification, the last one cannot be set
        return f"{link}{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    digest = hashlib.blake2b(digest_size=16)
    add_file(digest, path)
    return link + digest.hexdigest()


def _uses_digest(file: str, inventory: Inventory) -> str:
    """Return a hash of what a dataset uses; with variables, which can be part of a command, of its contents too."""
    uses = [use for use in inventory if os.path.realpath(use.file) == file]
    digest = hashlib.blake2b(digest_size=16)
    digest.update(msgspec.json.encode(sorted((use.kind, use.value, use.used_by, use.cwd) for use in uses)))
    if any(use.kind == "variable" for use in uses):
        digest.update(_digest(file).encode())
    return digest.hexdigest()
