"""Programs that start fast, for tests that start them often: forks of a process that has imported agentv.

Each command is a process of its own, with the arguments, folder, variables and streams of its caller. SIGINT and
SIGTERM reach it, and it ends with its caller. Only the imports are shared. A test of what is imported, of other
signals or of process groups starts the real program.
"""

import atexit
import gc
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from agentv.registry import EXTENSIONS

PACKAGES = ("cli", "datasets", "engine", "evaluators", "report", "runs")
PACKAGES += tuple(f"extensions.{name}" for name in ("judge", "view") if name in EXTENSIONS)
"""The packages of agentv that most commands import."""

CLIENT = """\
#!/bin/sh
exec "{python}" -IS -c '
import json, os, signal, socket, struct, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect("{address}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: server.sendall(bytes([number])))
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [struct.pack("!I", len(request))], [0, 1, 2])
    server.sendall(request)
    code = server.recv(1)
os._exit(code[0] if code else 70)
' "$@"
"""
"""Hands its streams over, forwards signals, and waits for the exit code."""


@contextmanager
def warm_program(path, main="agentv.cli:main"):
    """Write a program to `path` that calls `main` like a console script. It works until the end of the block."""
    if sys.platform == "win32":  # which cannot fork
        yield Path(shutil.which(path.name))
        return
    with tempfile.TemporaryDirectory() as folder:  # short: the address of a socket has at most 108 characters
        address = f"{folder}/socket"
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # a fork has one thread
        command = [sys.executable, "-P", __file__, address, main]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            greeting = server.stdout.readline().decode()
            assert greeting == "ready\n", f"the server of {main} did not start: {greeting or 'see its traceback'}"
            path.write_text(CLIENT.format(python=sys.executable, address=address))
            path.chmod(0o755)
            yield path
            server.stdin.close()


def serve(address, main):
    """Fork for every connection, until standard input ends."""
    try:
        import_all(main.partition(":")[0])
    except ModuleNotFoundError as error:
        print(f"the module {error.name} is not installed", flush=True)
        raise
    gc.freeze()  # the forks share the memory of what is imported
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(100)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    print("ready", flush=True)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer(connection, main)
        connection.close()


def import_all(module):
    import_module("numpy")
    import_module(module)
    for package in PACKAGES:
        found = import_module(f"agentv.{package}")
        for each in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            import_module(each.name)


def answer(connection, main):
    """Run the command of a connection in another fork, send its exit code, and end."""
    head, streams, *_ = socket.recv_fds(connection, 4, 3)
    request = connection.recv(*struct.unpack("!I", head), socket.MSG_WAITALL)
    if (process := os.fork()) == 0:
        connection.close()
        take_over(streams, *json.loads(request))
        call(main)
    for stream in streams:
        os.close(stream)
    threading.Thread(target=forward_signals, args=(connection, process), daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with suppress(BrokenPipeError):  # the caller was killed
        connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def forward_signals(connection, process):
    with suppress(ProcessLookupError):  # it has ended
        while number := connection.recv(1):
            os.kill(process, number[0])
        os.kill(process, signal.SIGKILL)  # the caller was killed


def take_over(streams, arguments, folder, variables):
    """Take the place of the caller."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the end
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv[1:] = arguments
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    places = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [str(Path.cwd()), *(os.path.abspath(place) for place in places)]


def call(main):
    """Call a function, and end as Python does, but for the slow removal of all modules."""
    module, _, name = main.partition(":")
    try:
        sys.exit(getattr(import_module(module), name)())
    except SystemExit as ending:
        code = ending.code
    threading._shutdown()  # waits for other threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    serve(*sys.argv[1:])
