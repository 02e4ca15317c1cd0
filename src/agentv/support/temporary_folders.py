"""Temporary folders that are removed at the end, even if this process is killed."""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from agentv.support.processes.watchdog import forget_folder, remove_after_death


def new_folder(prefix: str) -> str:
    """Create a temporary folder that only this user can read. The caller removes it."""
    folder = tempfile.mkdtemp(prefix=prefix)
    remove_after_death(folder)
    return folder


@contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """Create a temporary folder and remove it at the end of the block."""
    folder = new_folder(prefix)
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: str) -> None:
    """Remove a folder and its contents, including read-only folders (Go's cache has many)."""
    try:
        if sys.version_info >= (3, 12):
            shutil.rmtree(folder, onexc=_remove_read_only)
        else:
            shutil.rmtree(folder, onerror=_remove_read_only)
    except RecursionError:  # a thousand nested folders
        _remove_bottom_up(folder)
    if not os.path.exists(folder):
        forget_folder(folder)


def _remove_bottom_up(folder: str) -> None:
    below, folders = [folder], []
    while below:
        parent = below.pop()
        folders.append(parent)
        with suppress(OSError):
            for entry in list(os.scandir(parent)):
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                else:
                    os.unlink(entry.path)
    for parent in reversed(folders):
        with suppress(OSError):
            os.rmdir(parent)


def _remove_read_only(call: Callable[..., Any], path: str, _: object) -> None:
    with suppress(OSError):
        for place in (os.path.dirname(path), path):
            if not os.path.islink(place):
                os.chmod(place, stat.S_IRWXU)
        if call in (os.unlink, os.rmdir):
            call(path)
        else:  # a folder that could not be listed
            shutil.rmtree(path, ignore_errors=True)
