"""The sandbox of programs, opened with a clear error if it does not work on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentv.errors import UsageError
from agentv.model.environment import Environment
from agentv.model.sandbox_settings import Sandboxed

if TYPE_CHECKING:
    from agentv.sandbox.sandbox import OpenSandbox

NO_SANDBOX_HINT = "Install bubblewrap (the program `bwrap`), or use Linux 6.12 or later"


def sandbox_of(who: str, own: Sandboxed | None, environment: Environment) -> OpenSandbox | None:
    """Open the sandbox with these settings; None if there is none. Raises UsageError if it does not work here."""
    if environment.sandbox.of(own) is None:
        return None
    from agentv.sandbox import methods, sandbox  # late: few runs have a sandbox

    try:
        return sandbox.open_sandbox(environment, own)
    except methods.CannotConfine as error:
        raise UsageError(f"{who} cannot be isolated", str(error), error.hint) from None
