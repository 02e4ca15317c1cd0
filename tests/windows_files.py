"""What the file system of Windows refuses, and how Python opens texts there, for `as_platform.py`."""

import builtins
import errno
import io
import os
import re
import shutil
import sys
import tempfile
import types
from pathlib import Path

PRODUCT = str(Path(__file__).parents[1] / "src")
FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)
INVALID_NAME, IN_USE = 123, 32
LIBRARY = (os.path.dirname(os.__file__), __file__)


def refusal(number, text, path, winerror):
    error = OSError(number, f"win32 refuses {text}", path)
    error.winerror = winerror
    return error


def check_name(path):
    """Raise OSError for a path that cannot exist on Windows."""
    if isinstance(path, int):
        return
    for part in os.fsdecode(path).split("/"):
        if part not in ("", ".", "..") and FORBIDDEN.search(part):
            raise refusal(errno.EINVAL, "such a file name", path, INVALID_NAME)


def check_unused(path, *, is_tree=False):
    """Raise OSError if this process has a file open, or one in a folder: it can be neither removed nor replaced."""
    place = os.path.join(os.path.realpath(os.path.dirname(os.fspath(path))), os.path.basename(os.fspath(path)))
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target == place or (is_tree and target.startswith(place + "/")):
            raise refusal(errno.EACCES, "to remove or replace an open file", path, IN_USE)


def is_called_by_product():
    """Whether agentv calls, directly or through the standard library."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((*LIBRARY, "<frozen")):
        if "site-packages" in frame.f_code.co_filename:
            break
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(PRODUCT)


REAL = {name: getattr(os, name) for name in ("open", "stat", "lstat", "mkdir", "rename", "replace", "unlink")}
REAL_OPEN = io.open


def open_text(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
    check_name(file)
    if "b" not in mode and is_called_by_product():
        encoding = "cp1252" if encoding in (None, "locale") else encoding
        newline = "\r\n" if newline is None and not mode.startswith("r") else newline
    return REAL_OPEN(file, mode, buffering, encoding, errors, newline, closefd, opener)


def check_folder_descriptor(number):
    if number is not None:
        raise NotImplementedError("dir_fd unavailable on this platform")


def open_number(path, flags, mode=0o777, *, dir_fd=None):
    check_name(path)
    check_folder_descriptor(dir_fd)
    if os.path.isdir(path):
        raise refusal(errno.EACCES, "to open a folder", path, 5)
    return REAL["open"](path, flags, mode)


def checked(name):
    def call(path, *rest, **options):
        check_name(path)
        return REAL[name](path, *rest, **options)

    return call


def rename(source, target):
    check_name(target)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "win32 refuses to rename to a file that exists", target)
    check_unused(source, is_tree=True)
    REAL["rename"](source, target)


def replace(source, target):
    check_name(target)
    check_unused(source, is_tree=True)
    check_unused(target)
    REAL["replace"](source, target)


def unlink(path, *, dir_fd=None):
    check_folder_descriptor(dir_fd)
    check_unused(path)
    REAL["unlink"](path)


def install():
    """Replace the functions of `os` and `open` with those that check what Windows does."""
    functions = {name: checked(name) for name in ("stat", "lstat", "mkdir")}
    functions |= {"open": open_number, "rename": rename, "replace": replace, "unlink": unlink, "remove": unlink}
    tempfile._os = types.SimpleNamespace(**vars(os))  # the system removes temporary files when they are closed
    for name, function in functions.items():
        setattr(os, name, function)
    builtins.open = io.open = open_text
    os.supports_dir_fd.clear()
    os.supports_fd.clear()
    os.supports_follow_symlinks.add(os.stat)
    shutil._use_fd_functions = False
