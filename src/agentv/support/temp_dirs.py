"""Folders that are there for a while: removed whatever was put into them, and also when this process is killed."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from agentv.support.processes.watchdog import is_removed, remove_after_death


def new_folder(prefix: str) -> str:
    """A new folder that only this user can read. Whoever asked for it removes it."""
    folder = tempfile.mkdtemp(prefix=prefix)
    remove_after_death(folder)
    return folder


@contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """A new folder that goes afterwards."""
    folder = new_folder(prefix)
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: str) -> None:
    """Removes a folder and everything in it, folders that may not be written to included (Go's cache has many)."""
    try:
        if sys.version_info >= (3, 12):
            shutil.rmtree(folder, onexc=_let_it_be_removed)
        else:
            shutil.rmtree(folder, onerror=_let_it_be_removed)
    except RecursionError:  # folders a thousand deep
        _remove_from_below(folder)
    if not os.path.exists(folder):
        is_removed(folder)


def _remove_from_below(folder: str) -> None:
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


def _let_it_be_removed(call: Callable[..., Any], path: str, _: object) -> None:
    with suppress(OSError):
        for each in (os.path.dirname(path), path):
            if not os.path.islink(each):
                os.chmod(each, stat.S_IRWXU)
        if call in (os.unlink, os.rmdir):
            call(path)
        else:  # a folder that could not be looked into
            shutil.rmtree(path, ignore_errors=True)
