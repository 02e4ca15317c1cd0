"""The sandbox of a target, a workspace or an evaluator: opened once, then applied to each program."""

import os
from collections.abc import Iterable, Sequence

import msgspec

from agentv.model.environment import Environment
from agentv.model.sandbox_settings import Sandboxed, SandboxSettings
from agentv.sandbox.confinement import Confinement
from agentv.sandbox.hosts import AllowedHost
from agentv.sandbox.methods import CannotConfine, confinement_by
from agentv.sandbox.subprocesses import ProcessSpec
from agentv.support.processes.process_limits import ProcessLimits
from agentv.trust.policy import load_policy


class OpenSandbox(msgspec.Struct, frozen=True):
    """A sandbox that works on this machine, with the hosts that its programs may connect to."""

    confinement: Confinement
    hosts: tuple[AllowedHost, ...] = ()
    disk_mb: int = SandboxSettings().disk_mb

    def confine(
        self, spec: ProcessSpec, writable: Sequence[str], readable: Iterable[str] = (), passed: Sequence[str] = ()
    ) -> ProcessSpec:
        """Return the spec of a program in this sandbox, with the files and variables that it needs."""
        own, folders = self.confinement, tuple(map(os.path.abspath, writable))
        limits = ProcessLimits(own.memory_mb, disk_mb=self.disk_mb, folders=folders)
        confinement = msgspec.structs.replace(
            own,
            writable=(*own.writable, *folders),
            readable=tuple(dict.fromkeys((*own.readable, *(os.path.abspath(path) for path in readable if path)))),
            passed=(*own.passed, *passed),
        )
        return msgspec.structs.replace(spec, confinement=confinement, hosts=self.hosts, limits=limits)


def open_sandbox(environment: Environment, own: Sandboxed | None = None) -> OpenSandbox | None:
    """Open the sandbox of a program with its own settings, if any; None if it is not isolated. Raises CannotConfine."""
    settings = environment.sandbox.of(own)
    return None if settings is None else opened(settings, environment)


def opened(settings: SandboxSettings, environment: Environment) -> OpenSandbox:
    """Open a sandbox. Raises CannotConfine if it does not work on this machine."""
    base = confinement_by(settings.engine, settings.image)
    if settings.hosts and not base.has_namespaces:
        raise CannotConfine("it cannot have a network of its own, which `hosts` needs; install bubblewrap")
    root = environment.sandbox.root

    def located(paths: Iterable[str]) -> tuple[str, ...]:
        return tuple(os.path.abspath(os.path.join(root, os.path.expanduser(path))) for path in paths)

    confinement = msgspec.structs.replace(
        base,
        readable=(*((root,) if root else ()), *located(settings.readable)),
        writable=located(settings.writable),
        memory_mb=settings.memory_mb,
        passed=environment.pass_env,
        secret_files=() if environment.path is None else (os.path.abspath(environment.path),),
    )
    return OpenSandbox(confinement, tuple(_hosts(settings, environment)), settings.disk_mb)


def _hosts(settings: SandboxSettings, environment: Environment) -> Iterable[AllowedHost]:
    variables, policy = environment.variables, load_policy()
    for text in settings.hosts:
        policy.check_host(text if "://" in text else f"https://{text}")
        headers = {}
        if (key := settings.keys.get(text)) is not None:
            if not variables.get(key.variable):
                hint = f"Set {key.variable} in the environment or in .env"
                raise CannotConfine(f"The key of '{text}' is in {key.variable}, which is not set", hint)
            headers = {key.header: key.value(variables[key.variable].strip())}
        try:
            yield AllowedHost.read(text, headers)
        except ValueError as error:
            raise CannotConfine(str(error), "") from None
