"""The sandbox of a coding agent: the folders it works in, and its vendor's API through a proxy that adds the key."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agentv.errors import UsageError
from agentv.extensions.agents.agent import CodingAgent
from agentv.model.environment import Environment
from agentv.model.sandbox_settings import HostKey
from agentv.sandbox.availability import sandbox_of
from agentv.sandbox.hosts import AllowedHost
from agentv.sandbox.sandbox import OpenSandbox
from agentv.sandbox.subprocesses import ProcessSpec
from agentv.trust.policy import load_policy

PLACEHOLDER = "added-by-agentv"
"""The value of the key variable of an isolated agent, which requires a key but never has it."""


class AgentAccess(msgspec.Struct, frozen=True):
    """What an agent may use. `variables` replace those of its environment; `passed` are for containers."""

    sandbox: OpenSandbox | None = None
    variables: Mapping[str, str] = {}
    passed: tuple[str, ...] = ()

    @property
    def is_container(self) -> bool:
        """Whether the agent is a program of a container's image."""
        return self.sandbox is not None and self.sandbox.confinement.is_container

    def confine(self, spec: ProcessSpec, writable: Sequence[str], readable: Iterable[str]) -> ProcessSpec:
        """Isolate the agent, if it has a sandbox."""
        return spec if self.sandbox is None else self.sandbox.confine(spec, writable, readable, self.passed)


def agent_access(settings: CodingAgent, environment: Environment, variables: Mapping[str, str]) -> AgentAccess:
    """Return the access of an agent with these variables. Raises UsageError if it must be isolated but cannot be."""
    if (sandbox := sandbox_of(f"Target '{settings.name}'", settings.sandbox, environment)) is None:
        return AgentAccess()
    if settings.user_settings:
        message = f"Target '{settings.name}' cannot be isolated"
        detail = "With `user_settings` the agent uses your own login, which an isolated program cannot read"
        raise UsageError(message, detail, f"Set {' or '.join(settings.key_variables) or 'a key'} instead")
    passed = (*settings.pass_env, *settings.key_variables)
    api = settings.model_host
    hosts = {entry.name for entry in sandbox.hosts}
    key = next((name for name in settings.key_variables if variables.get(name)), None)
    if api is None or key is None or api.host in hosts or variables.get(api.variable):
        return AgentAccess(sandbox, {}, passed)
    load_policy().check_host(api.host if "://" in api.host else f"https://{api.host}")
    header = HostKey(variable=key, header=api.headers[key])
    host = AllowedHost.read(api.host, {header.header: header.value(variables[key].strip())})
    hidden = {name: PLACEHOLDER for name in settings.key_variables if variables.get(name)}
    address = {api.variable: host.address + api.path}
    return AgentAccess(OpenSandbox(sandbox.confinement, (*sandbox.hosts, host)), {**hidden, **address}, passed)
