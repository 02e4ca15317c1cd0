"""Find a method of isolation that works on this machine, by trying it."""

import os
import shutil
import subprocess
import sys
from functools import lru_cache

from agentv.model.sandbox_settings import CONTAINERS
from agentv.sandbox.availability import NO_SANDBOX_HINT
from agentv.sandbox.confinement import Confinement, Launch

PROBE_S = 10.0


class CannotConfine(Exception):
    """A program cannot be isolated on this machine, or not with these settings."""

    def __init__(self, message: str, hint: str = NO_SANDBOX_HINT) -> None:
        super().__init__(message)
        self.hint = hint


def confinement_by(engine: str, image: str | None = None) -> Confinement:
    """Return the isolation by an engine, or by any if it is `auto`. Raises CannotConfine if it does not work here."""
    if engine in CONTAINERS:
        if problem := _engine_problem(engine):
            raise CannotConfine(problem, f"Install and start {engine}, or choose another engine with --sandbox")
        if not image:
            hint = f"For example, in .agentv/config.yaml: execution: {{sandbox: {{engine: {engine}, image: my-image}}}}"
            raise CannotConfine(f"{engine} needs an image: set `image` of the sandbox", hint)
        return Confinement(method="docker" if engine == "docker" else "podman", image=image)
    return best_confinement() if engine == "auto" else _only(engine)


@lru_cache(maxsize=4)
def _only(engine: str) -> Confinement:
    problem = "bubblewrap is not installed"
    if engine == "landlock" or shutil.which("bwrap") is not None:
        for has_namespaces in (True, False) if engine == "landlock" else (True,):
            confinement = Confinement(
                method="landlock" if engine == "landlock" else "bubblewrap", has_namespaces=has_namespaces
            )
            if not (problem := _problem(confinement)):
                return confinement
    raise CannotConfine(problem)


@lru_cache(maxsize=2)
def _engine_problem(engine: str) -> str:
    """Return why a container engine cannot be used."""
    if (program := shutil.which(engine)) is None:
        return f"{engine} is not installed"
    try:
        result = subprocess.run(  # noqa: S603 - the engine that the user chose
            [program, "version"], capture_output=True, text=True, timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{engine} does not work: {error}"
    lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
    return "" if result.returncode == 0 else f"{engine} does not work: {lines[-1]}"


@lru_cache(maxsize=1)
def best_confinement() -> Confinement:
    """Return the isolation that works on this machine, after trying it once. Raises CannotConfine."""
    problems = []
    for has_namespaces in (True, False):
        confinement = Confinement(method="landlock", has_namespaces=has_namespaces)
        if not (problem := _problem(confinement)):
            return confinement
        problems = [problem]
        if has_namespaces and shutil.which("bwrap") is not None:
            wrapped = Confinement(method="bubblewrap")
            if not (problem := _problem(wrapped)):
                return wrapped
            problems.append(f"bubblewrap does not work here: {problem}")
    if shutil.which("bwrap") is None:
        problems.append("bubblewrap is not installed")
    raise CannotConfine("; ".join(problems))


def _problem(confinement: Confinement) -> str:
    """Try an isolation; return why it does not work."""
    if not sys.platform.startswith("linux"):
        return f"programs cannot be isolated on {sys.platform}"
    launch = Launch([], {})
    try:
        launch = confinement.launch(["true"], "/usr", {"PATH": os.defpath})
        result = subprocess.run(  # noqa: S603 - our own program
            launch.arguments, env=launch.env, pass_fds=launch.descriptors, capture_output=True, text=True,
            timeout=PROBE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        launch.close()
    return "" if result.returncode == 0 else result.stderr.strip() or f"exit code {result.returncode}"
