"""Run tests without what another platform lacks: `python tests/as_platform.py win32 tests/datasets`.

Neither mode is a real macOS or Windows: paths, the shell and the file system stay those of this machine. It shows that
the code for that platform is chosen, imports nothing that is missing there, and does what the tests expect.
"""

import asyncio
import asyncio.unix_events
import fcntl
import importlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import types
from contextlib import suppress
from pathlib import Path

import pytest

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
    "ctypes",
    "hypothesis",
    "multiprocessing.context",
    "numpy",
    "rich.console",
    "webbrowser",
)
"""Modules that look at the platform when they are imported, and have to find the real one."""

LINUX_PROGRAMS = ("bwrap", "setpriv", "unshare")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
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
    socket.socketpair = lambda *_: pair(unix)  # event loops need one; on Windows it is of the family AF_INET

    def end(process):
        if process.poll() is None:
            for pid in (*descendants(process.pid), process.pid):
                with suppress(ProcessLookupError):
                    kill(pid, 9)

    subprocess.Popen.kill = subprocess.Popen.terminate = end

    def locking(handle, mode, _):
        flock(handle, {0: unlock, 1: exclusive, 2: exclusive | immediate}[mode])

    def add_signal_handler(loop, number, callback, *arguments):
        raise NotImplementedError

    def which(name, mode=os.F_OK | os.X_OK, path=None):
        sys.platform = "linux"
        try:
            return program(name, mode, path)
        finally:
            sys.platform = "win32"

    os.environ.pop("CHROMIUM", None)
    shutil.which = without_programs(which, *LINUX_PROGRAMS, *BROWSERS)  # Playwright starts a browser as on Windows
    asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = add_signal_handler
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2, LK_LOCK=1, LK_UNLCK=0, getwch=input)
    for name in POSIX_MODULES:
        sys.modules[name] = None
    remove(POSIX_ONLY)


def without_programs(which, *names):
    return lambda name, *rest, **options: None if name in names else which(name, *rest, **options)


MISSING = re.compile(
    r"import of (\w+) halted|(?:'(?:os|signal|select|socket|asyncio)'|type object '\w+') has no attribute '(\w+)'"
)
REFUSALS = re.compile(r"--executor process does not run on Windows|programs cannot be isolated on \w+")
TESTS = Path(__file__).parent


class Platform:
    """A plugin of pytest that takes away what a platform lacks before the tests and agentv are imported."""

    def __init__(self, name):
        self.name = name

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self):
        for name in REAL_PLATFORM:
            importlib.import_module(name)
        remove(LINUX_ONLY)
        if self.name == "win32":
            become_windows()
        else:
            shutil.which = without_programs(shutil.which, *LINUX_PROGRAMS)
        sys.platform = self.name

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        """Skip a file of tests that needs what is taken away, and name it."""
        report = yield
        missing = MISSING.search(str(report.longrepr))
        if report.failed and missing:
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 0, f"Skipped: {self.name} lacks {missing[1] or missing[2]}")
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        """Skip a test that itself uses what is taken away, and name it. If agentv uses it, the test fails."""
        report = yield
        if report.failed and call.excinfo and (reason := self._reason(call.excinfo, report.longreprtext)):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {reason}")
        return report

    def _reason(self, error, text):
        missing = MISSING.search(str(error.value))
        if missing and TESTS in Path(error.traceback[-1].path).parents:
            return f"{self.name} lacks {missing[1] or missing[2]}"
        refusal = REFUSALS.search(text)
        return refusal and refusal[0]


def main(platform, *arguments):
    assert platform in ("darwin", "win32"), "the platform is darwin or win32"
    options = ["-n", "0", "-p", "no:faulthandler", "--timeout-method", "thread"]
    return pytest.main([*options, *arguments], plugins=[Platform(platform)])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
