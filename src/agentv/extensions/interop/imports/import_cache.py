"""Imported runs of other tools, kept in the user's cache so that a file is converted once."""

import atexit
import inspect
import os
import shutil
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from agentv.extensions.interop.imports.run import ForeignResults
from agentv.extensions.interop.imports.run_import import import_run, source_digest
from agentv.model.values import digest, hash_bytes
from agentv.runs.folder import RunFolder
from agentv.support.private_files import make_folder
from agentv.support.temporary_folders import new_folder, remove_folder
from agentv.version import __version__

_KEPT_S = 30 * 24 * 3600


def imported_folder(importer: ForeignResults, path: Path) -> RunFolder:
    """Return the run folder of a file or folder of another tool, importing it unless that was done before.

    Raises AgentvError if it cannot be read.
    """
    source = source_digest(importer, path)
    root = _cache_folder()
    names = path.absolute().parts[-3:]  # some tools name the model or the task only there
    final = root / digest([source, type(importer).__name__, names, __version__, _code_digest(importer)])
    if (final / "run.json").is_file():
        with suppress(OSError):
            os.utime(final)
        return RunFolder(final)
    partial = root / f".{final.name}.{os.getpid()}"
    try:
        remove_folder(str(partial))
        make_folder(partial)
        import_run(importer, path, RunFolder(partial), source=source)
        _publish(partial, final)
    finally:
        if partial.exists():
            remove_folder(str(partial))
    _remove_old(root, final)
    return RunFolder(final)


def _code_digest(importer: ForeignResults) -> str:
    """Return a hash of the importer and of the modules next to it: an import that other code made is not used."""
    return _folder_digest(Path(__file__).parent) + _folder_digest(Path(inspect.getfile(type(importer))).parent)


@lru_cache(maxsize=16)
def _folder_digest(folder: Path) -> str:
    return digest([hash_bytes(file.read_bytes()) for file in sorted(folder.glob("*.py"))])


def _publish(partial: Path, final: Path) -> None:
    """Give an import its name; another process may have finished the same one first."""
    try:
        partial.rename(final)
    except OSError:
        if not (final / "run.json").is_file():
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)


def _cache_folder() -> Path:
    """Return the folder of imports: `$XDG_CACHE_HOME/agentv/imports`, or `~/.cache/agentv/imports`.

    Where that cannot be written, a temporary folder is used.
    """
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache_home) if os.path.isabs(cache_home) else Path(os.path.expanduser("~"), ".cache")
    folder = base / "agentv" / "imports"
    try:
        make_folder(folder)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    temporary = new_folder("agentv-imports-")
    atexit.register(remove_folder, temporary)
    return Path(temporary)


def _remove_old(root: Path, used: Path) -> None:
    """Remove imports that were not used for a month."""
    limit = time.time() - _KEPT_S
    for entry in root.iterdir():
        with suppress(OSError):
            if entry != used and entry.stat().st_mtime < limit:
                remove_folder(str(entry))
