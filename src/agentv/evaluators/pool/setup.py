"""What a judging process is told when it starts: which function, what it is given, what it may use."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

SCRIPT_FUNCTION = "agentv_judge"
"""The function that a script defines to be kept warm instead of being started for each answer."""

Way = Literal["limits", "landlock", "bubblewrap"]
Given = Literal["context", "payload"]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A function and its surroundings, as plain data: the same setup, the same process.

    `path` is where the file of the reference is; `name` is what messages call it. `given` says what the function gets:
    an object with attributes, or the dict that a program reads from stdin. `way` is how the process is isolated, `port`
    the one that it may reach then.
    """

    reference: str
    path: str
    name: str
    cwd: str
    given: Given = "context"
    fresh: bool = False
    memory_mb: int = 4096
    stamp: tuple[int, int] | None = None
    way: Way = "limits"
    port: int | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a forked process may do: so many judgements, files of so many bytes, what it prints among them.

    `scratch` is the one folder in which an isolated process may write; empty for one that is not.
    """

    judgements: int
    file_bytes: int
    scratch: str = ""


def stamp_of(path: str) -> tuple[int, int]:
    """What tells one version of a file from another. Raises OSError."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size
