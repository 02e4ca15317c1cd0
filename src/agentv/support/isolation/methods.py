"""Find a method of isolation that works on this machine, by trying it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache

from agentv.support.isolation.confinement import Confinement

PROBE_S = 10.0


class CannotConfine(Exception):
    """No method of isolation works on this machine."""


@lru_cache(maxsize=1)
def best_confinement() -> Confinement:
    """Return the isolation that works on this machine, after trying it once. Raises CannotConfine."""
    problems = []
    for has_namespaces in (True, False):
        found = Confinement(method="landlock", has_namespaces=has_namespaces)
        problem = _problem(found)
        if not problem:
            return found
        problems = [problem]
        if has_namespaces and shutil.which("bwrap") is not None:
            wrapped = Confinement(method="bubblewrap")
            problem = _problem(wrapped)
            if not problem:
                return wrapped
            problems.append(f"bubblewrap does not work here: {problem}")
    if shutil.which("bwrap") is None:
        problems.append("bubblewrap is not installed")
    raise CannotConfine("; ".join(problems))


def _problem(confinement: Confinement) -> str:
    """Try an isolation; return why it does not work."""
    if not sys.platform.startswith("linux"):
        return f"programs cannot be isolated on {sys.platform}"
    launch = confinement.launch(["true"], "/", {"PATH": os.defpath})
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            launch.arguments, env=launch.env, pass_fds=launch.descriptors, capture_output=True, text=True,
            timeout=PROBE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        launch.close()
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"
