"""Files that other users or programs could have replaced: who can write to them, and how to open them safely."""

import errno
import os
import stat
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import sleep

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
"""Only the user may read what a run writes: prompts and answers may be confidential."""

# Opening a pipe must not wait for its other end. The flag has no effect on regular files.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_FOLDER_FLAGS = _FLAGS | os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_HAS_FOLDER_DESCRIPTORS = os.open in os.supports_dir_fd and os.scandir in os.supports_fd


class TooLarge(OSError):
    """A file that is larger than the limit for reading it."""


def open_file(path: str | Path, flags: int = os.O_RDONLY, folder: int | None = None) -> int:
    """Open a regular file, and create it as private if the flags say so. Raises OSError for anything else.

    A file to write to must belong to this user. `folder` is the open folder that a relative path starts from.
    """
    try:
        if sys.platform == "win32" and os.path.islink(path):
            raise OSError(errno.ELOOP, "")
        file = os.open(path, flags | _FLAGS, PRIVATE_FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise OSError(error.errno, "It is a link, which is not followed. Remove the link") from None
        if error.errno == errno.ENXIO:
            raise OSError(error.errno, "It is a pipe or a socket, not a regular file. Remove it") from None
        raise
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "It is not a regular file. Remove it")
    if flags & (os.O_WRONLY | os.O_RDWR) and not is_own(status) and getattr(os, "geteuid", int)() != 0:
        os.close(file)
        raise OSError(errno.EPERM, "It belongs to another user")
    return file


def is_own(status: os.stat_result, *more: int) -> bool:
    """Whether a file belongs to this user, to root, or to one of more users."""
    own = getattr(os, "geteuid", lambda: status.st_uid)()
    return status.st_uid in (0, own, *more)


def is_shared(status: os.stat_result) -> bool:
    """Whether others than the owner of a folder, this user and root can write to it."""
    if not hasattr(os, "geteuid"):
        return False
    by_group = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid, os.geteuid())
    return bool(status.st_mode & stat.S_IWOTH or by_group)


@cache
def _is_private_group(group: int, *users: int) -> bool:
    """Whether a group has only one of these users: it has the user's name, or number if it has no name."""
    if sys.platform == "win32" or group == 0:
        return True
    import grp  # late: missing on Windows
    import pwd

    try:
        entry = grp.getgrgid(group)
    except KeyError:
        return group in users
    for user in users:
        try:
            name = pwd.getpwuid(user).pw_name
        except KeyError:
            continue
        if entry.gr_name == name and set(entry.gr_mem) <= {name}:
            return True
    return False


def read_file(path: str | Path, most_bytes: int, folder: int | None = None) -> bytes:
    """Read a regular file. Raises TooLarge if it is larger than the limit, even if it grows while it is read."""
    with open(open_file(path, folder=folder), "rb") as stream:
        data = stream.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise TooLarge(errno.EFBIG, f"It is larger than {most_bytes / 1024 / 1024:g} MiB")
    return data


def write_file(path: str | Path, data: bytes) -> None:
    """Write a private file, replacing its contents."""
    with open(open_file(path, os.O_WRONLY | os.O_CREAT), "wb") as stream:
        stream.truncate(0)  # only now: it is known to be this user's regular file
        stream.write(data)


def replace_file(source: str | Path, target: str | Path) -> None:
    """Move a file to a path, replacing the file there. On Windows, that waits for programs that have it open."""
    for pause_s in (0.01, 0.1, 0.5, 1.0) if sys.platform == "win32" else ():
        with suppress(PermissionError):
            return os.replace(source, target)
        sleep(pause_s)
    return os.replace(source, target)


def make_folder(path: str | Path) -> None:
    """Create a private folder and its parents, unless it exists."""
    Path(path).mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)


def is_folder(path: str) -> bool:
    """Whether a path is a folder itself, not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def open_folder(folder: str, below: str = "") -> int | None:
    """Open a folder, or one below it, without following links; None where folders cannot be opened. Raises OSError."""
    if not _HAS_FOLDER_DESCRIPTORS:
        return None
    opened = os.open(folder, _FOLDER_FLAGS)
    for name in filter(None, below.split("/")):
        parent = opened
        try:
            opened = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
        finally:
            os.close(parent)
    return opened
