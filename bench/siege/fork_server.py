"""Run agentv commands in forks of a process that has imported it, so that a start takes milliseconds.

A command can be killed at a given write, sync, rename or truncation, before it, after it, or in the middle of a write.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

CALLS = ("write", "fsync", "replace", "ftruncate", "unlink", "mkdir")
MOMENTS = ("before", "half", "after")


class ForkServer:
    """Starts one command at a time. `with ForkServer() as server:`"""

    def __enter__(self) -> ForkServer:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def start(self, folder: Path, arguments: Sequence[str], kill: tuple[int, str] | None = None) -> int:
        """Start a command in a folder; return its process id. `kill` is the number of the call, and the moment."""
        return int(self._send({"folder": str(folder), "arguments": list(arguments), "kill": kill}))

    def wait(self) -> int:
        """Wait for the command; return its exit code, negative for a signal."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def run(self, folder: Path, arguments: Sequence[str]) -> int:
        """Run a command to its end."""
        self.start(folder, arguments)
        return self.wait()

    def preload(self, folder: Path, arguments: Sequence[str]) -> int:
        """Run a command, then import in the server all modules that it used."""
        names = folder / "modules.json"
        self._send({"folder": str(folder), "arguments": list(arguments), "kill": None, "modules": str(names)})
        code = self.wait()
        self._send({"import": json.loads(names.read_text()) if names.exists() else []})
        return code

    def _send(self, order: dict[str, Any]) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def serve() -> None:
    """Carry out the orders on stdin, one per line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until a command handles it
    for line in sys.stdin:
        order = json.loads(line)
        if "import" in order:
            for name in order["import"]:
                with suppress(Exception):
                    importlib.import_module(name)
            print("imported", flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            run_here(order)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run_here(order: dict[str, Any]) -> NoReturn:
    """Run a command in this process, which ends with it."""
    code: object = 1
    try:
        os.setsid()
        os.chdir(order["folder"])
        for name, stream in (("/dev/null", 0), ("stdout.txt", 1), ("stderr.txt", 2)):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = call(order)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if "modules" in order:
            Path(order["modules"]).write_text(json.dumps(list(sys.modules)))
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def call(order: dict[str, Any]) -> object:
    from agentv.cli import main
    from agentv.extensions.batch import batch_queue

    batch_queue._QUIET_S, batch_queue._FIRST_POLL_S = 0.03, 0.01  # the fake server answers at once
    if order["kill"] is not None:
        arm(*order["kill"])
    sys.argv = ["agentv", *order["arguments"]]
    main()
    return 0


def arm(number: int, moment: str) -> None:
    """Kill this process at its n-th call that changes files."""
    from agentv.runs import writer

    count = 0

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                if moment == "after":
                    real(*arguments, **named)
                elif moment == "half" and name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return change

    for name in CALLS:
        setattr(os, name, counted(name, getattr(os, name)))
    writer._sync = counted("fdatasync", writer._sync)


if __name__ == "__main__":
    serve()
