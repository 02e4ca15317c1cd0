"""Run a command as another user, with this Python, also if its folder is readable by root only."""

import os
import shlex
import shutil
import sys
from pathlib import Path

NOBODY = 65534
_TESTS = Path(__file__).resolve().parent


def command_as_nobody(command: list[str]) -> list[str]:
    """Return a command that runs another one as nobody. Private folders above Python and agentv are covered for it."""
    if os.geteuid() != 0:
        return command
    needed = [sys.base_prefix, sys.prefix, str(_TESTS.parent)]
    private = {_private_ancestor(path) for path in needed} - {""}
    script = [f"exec {10 + index}<{shlex.quote(path)}" for index, path in enumerate(needed)]
    script += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(path)}" for path in sorted(private)]
    for index, path in enumerate(needed):
        if any(path.startswith(os.path.join(each, "")) for each in private):
            place = shlex.quote(path)
            script.append(f"mkdir -p {place}; mount --no-canonicalize --bind /proc/self/fd/{10 + index} {place}")
    as_nobody = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --inh-caps=-all"
    script.append(f"exec {as_nobody} {shlex.join(command)}")
    return ["unshare", "--mount", "--propagation", "private", "bash", "-e", "-c", "\n".join(script)]


def has_another_user() -> bool:
    """Whether commands can run as another user than root."""
    return os.geteuid() != 0 or all(shutil.which(name) for name in ("unshare", "setpriv", "bash"))


def _private_ancestor(path: str) -> str:
    """Return the first folder on the way to a path that others cannot enter; empty if there is none."""
    for folder in [*reversed(Path(path).parents), Path(path)]:
        if not folder.stat().st_mode & 0o001:
            return str(folder)
    return ""
