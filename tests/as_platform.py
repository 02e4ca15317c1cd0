"""Run tests without what another platform lacks: `python tests/as_platform.py win32 tests/datasets`.

Neither mode is a real macOS or Windows: the syntax of paths and the shell stay those of this machine. It shows that
the code for that platform is chosen, imports nothing that is missing there, and does what the tests expect. Windows
also refuses what its file system and its event loops refuse: see `windows_files.py`.
"""

import asyncio
import atexit
import fcntl
import importlib
import io
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import types
from contextlib import suppress
from pathlib import Path

import pytest

import windows_files

LINUX_ONLY = {
    os: """copy_file_range eventfd fdatasync getrandom memfd_create pidfd_open posix_fadvise sched_getaffinity splice
        O_PATH""",
    signal: "pidfd_send_signal sigtimedwait SIGRTMIN SIGRTMAX",
    select: "epoll",
}
POSIX_ONLY = {
    os: """fork forkpty setsid getsid killpg getpgid getpgrp setpgid setpgrp getuid geteuid getgid getegid getgroups
        chown fchown fchmod mkfifo pread pwrite pipe2 sysconf uname waitid wait3 wait4 WNOHANG WEXITED WNOWAIT P_ALL
        environb getenvb set_blocking O_CLOEXEC O_NOFOLLOW O_DIRECTORY O_NONBLOCK openpty ttyname posix_spawn statvfs
        nice setuid setgid register_at_fork""",
    signal: """SIGKILL SIGCHLD SIGALRM SIGHUP SIGXFSZ SIGXCPU SIGSTOP SIGCONT SIGQUIT SIGUSR1 SIGUSR2 SIGPIPE SIGTSTP
        alarm setitimer ITIMER_REAL pthread_sigmask pthread_kill sigwait siginterrupt""",
    select: "poll",
    socket: "AF_UNIX send_fds recv_fds",
    asyncio: "open_unix_connection start_unix_server",
}
REAL_PLATFORM = (
    "aiohttp",
    "click",
    "concurrent.futures.process",
    "ctypes",
    "multiprocessing.connection",
    "multiprocessing.context",
    "numpy",
    "rich.console",
    "webbrowser",
)
"""Modules that look at the platform when they are imported, and have to find the real one."""

LINUX_PROGRAMS = ("bwrap", "setpriv", "unshare")
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
POSIX_MODULES = ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog")


def remove(names):
    for module, text in names.items():
        for name in text.split():
            if hasattr(module, name):
                delattr(module, name)


def descendants(pid):
    """Return the processes that a process started, which `taskkill /T` ends on Windows."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = dict(map(int, line.split()) for line in listed.splitlines())
    children = [child for child, parent in parents.items() if parent == pid]
    return [each for child in children for each in (child, *descendants(child))]


def become_windows():
    """Take away what POSIX adds. Parts of the standard library that need it keep what they had imported before."""
    kill, flock, program, pair, unix = os.kill, fcntl.flock, shutil.which, socket.socketpair, socket.AF_UNIX
    unlock, exclusive, immediate = fcntl.LOCK_UN, fcntl.LOCK_EX, fcntl.LOCK_NB
    subprocess.os = types.SimpleNamespace(**vars(os))
    socket.socketpair = lambda *_: pair(unix)  # event loops need one; on Windows it is of the family AF_INET

    def end(process):
        if process.poll() is None:
            for pid in (*descendants(process.pid), process.pid):
                with suppress(ProcessLookupError):
                    kill(pid, 9)

    def send_signal(process, number):
        if number != signal.SIGTERM:
            raise ValueError(f"win32 lacks signals to processes: {number}")
        end(process)

    def kill_process(pid, number):
        if number == 0 or pid == os.getpid():
            raise OSError(22, "win32 lacks signals to processes")
        kill(pid, 9)

    def locking(handle, mode, _):
        flock(handle, {0: unlock, 1: exclusive, 2: exclusive | immediate}[mode])

    def which(name, mode=os.F_OK | os.X_OK, path=None):
        sys.platform = "linux"
        try:
            return program(name, mode, path)
        finally:
            sys.platform = "win32"

    subprocess.Popen.kill = subprocess.Popen.terminate = end
    subprocess.Popen.send_signal = send_signal
    os.kill = kill_process
    io._WindowsConsoleIO = type("WindowsConsoleIO", (), {})
    signal.SIGBREAK = signal.Signals(21)
    ssl.enum_certificates = lambda store: ()
    os.environ.pop("CHROMIUM", None)
    shutil.which = without_programs(which, *LINUX_PROGRAMS, *BROWSERS)  # Playwright starts a browser as on Windows
    for name in ("add_signal_handler", "add_reader", "add_writer"):
        setattr(asyncio.SelectorEventLoop, name, getattr(asyncio.AbstractEventLoop, name))  # NotImplementedError
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2, LK_LOCK=1, LK_UNLCK=0, getwch=input)
    for name in POSIX_MODULES:
        sys.modules[name] = None
    remove(POSIX_ONLY)
    windows_files.install()


def become(platform):
    """Take away what a platform lacks."""
    for name in REAL_PLATFORM:
        importlib.import_module(name)
    sysconfig.get_config_vars()
    remove(LINUX_ONLY)
    if platform == "win32":
        become_windows()
    else:
        shutil.which = without_programs(shutil.which, *LINUX_PROGRAMS)
    sys.platform = platform


def write_programs():
    """Write `agentv` and `pytest` as programs that run in the mode of Windows, and return their folder."""
    folder = tempfile.mkdtemp(prefix="agentv-win32-")
    atexit.register(shutil.rmtree, folder)
    for name, module in (("agentv", "agentv.cli"), ("pytest", "pytest")):
        lines = [
            f"#!{sys.executable}",
            "import sys",
            f"sys.path.insert(0, {str(TESTS)!r})",
            "from as_platform import become",
        ]
        lines += ["become('win32')", f"from {module} import main", "sys.exit(main())"]
        Path(folder, name).write_text("\n".join(lines), encoding="utf-8")
        Path(folder, name).chmod(0o755)
    return folder


def without_programs(which, *names):
    return lambda name, *rest, **options: None if name in names else which(name, *rest, **options)


MISSING = re.compile(
    r"import of (\w+) halted|(?:'(?:os|signal|select|socket|asyncio)'|type object '\w+') has no attribute '(\w+)'"
    r"|(win32 (?:lacks|refuses) [\w ]+)"
)
PROCESSES = "--executor process does not run on Windows"
REFUSALS = re.compile(
    rf"{PROCESSES}|programs cannot be isolated on \w+|MCP servers need the package 'mcp'"
    r"|On Windows, a function cannot call models|on Windows, there is no POSIX shell"
)
TESTS = Path(__file__).parent
OWN_FILES = (__file__, windows_files.__file__)
PRODUCT = Path(windows_files.PRODUCT)


class Platform:
    """A plugin of pytest that takes away what a platform lacks before the tests and agentv are imported."""

    def __init__(self, name):
        self.name = name

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self):
        for name in ("hypothesis", "pytest_timeout"):
            importlib.import_module(name)
        if self.name == "win32":
            sys.modules["pytest_timeout"].signal = types.SimpleNamespace(**vars(signal))
            os.environ["PATH"] = os.pathsep.join((write_programs(), os.environ["PATH"]))
        become(self.name)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        """Skip a file of tests that needs what is taken away, and name it."""
        report = yield
        missing = MISSING.search(str(report.longrepr))
        if report.failed and missing:
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 0, f"Skipped: {self._lack(missing)}")
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        """Skip a test that itself uses what is taken away, and name it. If agentv uses it, the test fails."""
        report = yield
        values = item.callspec.params.values() if self.name == "win32" and hasattr(item, "callspec") else ()
        text = _text(report) + PROCESSES * any(
            "process" in value for value in values if isinstance(value, str | list | tuple)
        )
        if report.failed and call.excinfo and (reason := self._reason(call.excinfo, text)):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {reason}")
        return report

    def _reason(self, error, text):
        missing = MISSING.search(str(error.value))
        callers = (Path(entry.path) for entry in reversed(error.traceback) if str(entry.path) not in OWN_FILES)
        caller = next((path for path in callers if {TESTS, PRODUCT} & set(path.parents)), None)
        if missing and caller is not None and TESTS in caller.parents:
            return self._lack(missing)
        refusal = REFUSALS.search(text)
        return refusal and refusal[0]

    def _lack(self, missing):
        return missing[3] or f"{self.name} lacks {missing[1] or missing[2]}"


def _text(report):
    return report.longreprtext + "".join(text for _, text in report.sections)


def main(platform, *arguments):
    assert platform in ("darwin", "win32"), "the platform is darwin or win32"
    options = ["-n", "0", "-p", "no:faulthandler", *(["--timeout-method", "thread"] if platform == "darwin" else [])]
    return pytest.main([*options, *arguments], plugins=[Platform(platform)])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
