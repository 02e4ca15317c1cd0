"""Run a program on Windows: without a process group, and with its placeholders as arguments."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from threading import Thread
from typing import NamedTuple

from agentv.lazy_regex import lazy_regex
from agentv.support.processes.process_exit import wait_uncancelled

_GRACE_S = 10.0
"""Time to wait for the output of a program that was stopped."""


_DRAIN_S = 1.0
"""Time to wait for the end of the output of a program that has ended: another one may keep it open."""

_CHUNK_BYTES = 64 * 1024


class PlainOutput(NamedTuple):
    """The output of a program. Its code is None if it was stopped after the time allowed."""

    stdout: bytes
    stderr: bytes
    code: int | None


_INSERTION = lazy_regex(r"\0(\w+)\0")
"""The place in a command where the value of a variable is inserted."""

_SHELL_SYNTAX = lazy_regex(r"[&|<>^%\n]")
_POSIX_SYNTAX = lazy_regex(r"[;$`]")
_SAFE_NAMES = lazy_regex(r"AGENTV_(PROMPT_FILE|OUTPUT_FILE|ATTEMPT|FILE_\d+_(PATH|BASENAME))")


def plain_command(text: str, cwd: str, env: Mapping[str, str]) -> str | list[str]:
    """Insert variables into a command: the arguments of a program, or a text for cmd.exe if only that can run it.

    Raises ValueError if cmd.exe would execute a value from a dataset.
    """

    def value(match: re.Match[str]) -> str:
        return env[match[1]]

    if not (names := _INSERTION.findall(text)):
        return text
    if _POSIX_SYNTAX.search(text):
        raise ValueError("on Windows, there is no POSIX shell for the ;, $ or ` of the command")
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""  # `\\` separates folders
    program, *words = lexer
    path = os.path.join(cwd, program) if os.path.dirname(program) else program
    path = "" if _SHELL_SYNTAX.search(text) else shutil.which(path, path=env.get("PATH")) or ""
    if path and not path.lower().endswith((".bat", ".cmd")):  # those are run by cmd.exe
        return [path, *(_INSERTION.sub(value, word) for word in words)]
    if not all(map(_SAFE_NAMES.fullmatch, names)):
        raise ValueError("on Windows, only a program (not .cmd or .bat) gets a text, in a command without | < > & ^ %")
    return _INSERTION.sub(value, text)


async def run_plainly(
    command: str | Sequence[str], cwd: str, env: Mapping[str, str], stdin: bytes | None, limits: tuple[float, int]
) -> PlainOutput:
    """Run a program until it ends, its time is over, or it has printed too much. The system's shell runs a string."""
    timeout_s, most_bytes = limits
    arguments = plain_command(command, cwd, env) if isinstance(command, str) else command
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    with TemporaryFile() as requests, TemporaryFile() as errors:
        requests.write(stdin or b"")
        requests.seek(0)
        process = subprocess.Popen(  # noqa: S603 - the user's own program
            arguments,
            shell=isinstance(arguments, str),
            stdin=requests,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            cwd=cwd,
            env={"PYTHONUTF8": "1", **env},  # otherwise, Python prints in the encoding of the system
        )
        printed = bytearray()

        def wait() -> None:
            reader = Thread(target=_read, args=(process, printed, most_bytes), daemon=True)
            reader.start()
            process.wait()
            reader.join(_DRAIN_S)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended.set_result, None)

        Thread(target=wait, daemon=True).start()
        try:
            await asyncio.wait([ended], timeout=timeout_s)
        finally:
            if timed_out := not ended.done():
                _end(process)
                await wait_uncancelled(ended, _GRACE_S)
        errors.seek(0)
        return PlainOutput(bytes(printed), errors.read(), None if timed_out else process.returncode)


def _read(process: subprocess.Popen[bytes], printed: bytearray, most_bytes: int) -> None:
    """Read the output of a program, and end it if it is too long."""
    assert process.stdout is not None
    with process.stdout:
        while len(printed) <= most_bytes and (data := process.stdout.read(_CHUNK_BYTES)):
            printed += data
    if len(printed) > most_bytes:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started, which would keep its output open."""
    with suppress(OSError):  # the program belongs to Windows
        subprocess.run(  # noqa: S603
            ["taskkill", "/T", "/F", "/PID", str(process.pid)],  # noqa: S607
            capture_output=True,
            check=False,
        )
    process.kill()
