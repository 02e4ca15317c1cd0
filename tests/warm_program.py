"""Programs that start fast, for tests that start them often: forks of a process that has imported agentv.

Each command is a process of its own, with the arguments, folder, variables and streams of its caller. SIGINT and
SIGTERM reach it, and it ends with its caller. Only the imports are shared. A test of what is imported, of other
signals or of process groups starts the real program.
"""

import atexit
import gc
import os
import pkgutil
import select
import shutil
import signal
import socket
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
import _signal, _socket, posix, sys
server = _socket.socket(_socket.AF_UNIX)
server.connect("{address}")
for number in (_signal.SIGINT, _signal.SIGTERM):
    _signal.signal(number, lambda number, _: server.sendall(bytes([number])))
arguments = [text.encode(sys.getfilesystemencoding(), "surrogateescape") for text in sys.argv[1:]]
variables = [name + b"=" + value for name, value in posix.environ.items()]
request = b"\\0".join([b"%d" % len(arguments), *arguments, posix.getcwdb(), *variables])
streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2))
server.sendmsg([b"%8d" % len(request)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(request)
code = server.recv(1)
posix._exit(code[0] if code else 70)
' "$@"
"""
"""Hands its streams over, forwards signals, and waits for the exit code. It imports no module written in Python."""


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
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        alarm, bell = socket.socketpair()
        bell.setblocking(False)
        signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        print("ready", flush=True)
        answer_all(listener, alarm, main)


def answer_all(listener, alarm, main):
    """Start a process for each connection, forward its signals, and send the exit codes of those that ended."""
    processes = {}
    while sys.stdin not in (ready := select.select([listener, sys.stdin, alarm, *processes], [], [])[0]):
        for connection in processes.keys() & ready:
            number = connection.recv(1) or bytes([signal.SIGKILL])  # the caller was killed
            os.kill(processes[connection], number[0])
        if alarm in ready:
            alarm.recv(4096)
            end_all(processes)
        if listener in ready:
            connection, _ = listener.accept()
            if process := start(connection, main, [listener, alarm, *processes]):
                processes[connection] = process


def start(connection, main, sockets):
    """Run the command of a connection in a fork and return its process; None if the caller was killed."""
    head, streams, *_ = socket.recv_fds(connection, 8, 3)
    request = connection.recv(int(head or 0), socket.MSG_WAITALL)
    process = None
    if streams and len(request) == int(head) and (process := os.fork()) == 0:
        for each in (connection, *sockets):
            each.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        take_over(streams, request)
        call(main)
    for stream in streams:
        os.close(stream)
    return process


def end_all(processes):
    """Send the exit codes of processes that have ended."""
    for connection, process in list(processes.items()):
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            with suppress(BrokenPipeError):  # the caller was killed
                connection.sendall(bytes([code if code >= 0 else 128 - code]))
            del processes[connection]
            connection.close()


def import_all(module):
    import_module("numpy")
    import_module(module)
    for package in PACKAGES:
        found = import_module(f"agentv.{package}")
        for each in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            import_module(each.name)


def take_over(streams, request):
    """Take the place of the caller."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the end
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    count, *texts = map(os.fsdecode, request.split(b"\0"))
    arguments, (folder, *variables) = texts[: int(count)], texts[int(count) :]
    sys.argv[1:] = arguments
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in variables)
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
