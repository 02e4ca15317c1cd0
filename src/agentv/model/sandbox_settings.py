"""Settings of the sandbox for users' programs: those of the command, the project, a target and the user's policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

Engine = Literal["none", "auto", "landlock", "bubblewrap", "docker", "podman"]
ENGINES: tuple[Engine, ...] = ("none", "auto", "landlock", "bubblewrap", "docker", "podman")
CONTAINERS = ("docker", "podman")
Text = Annotated[str, Meta(min_length=1)]
Megabytes = Annotated[int, Meta(ge=1)]


class HostKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is added to requests to a host: the variable that has it, and the header that it is sent in.

    In the header `Authorization`, it is sent as `Bearer KEY`.
    """

    variable: Text
    """Variable with the key."""

    header: Text = "Authorization"
    """Header that the key is sent in."""

    def value(self, key: str) -> str:
        """Return the value of the header."""
        return f"Bearer {key}" if self.header.lower() == "authorization" else key


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How programs are isolated. `docker` and `podman` need an `image`."""

    hints: ClassVar[dict[str, str]] = {"engine": f"One of {', '.join(ENGINES)}"}

    engine: Engine = "auto"
    """`none`, `auto` (Landlock or bubblewrap), `landlock`, `bubblewrap`, `docker` or `podman`."""

    image: Text | None = None
    """Image of the container."""

    hosts: tuple[Text, ...] = ()
    """Hosts that programs may connect to: `name`, `name:port` or `http://name:port`."""

    keys: dict[str, HostKey] = {}
    """Keys that a proxy adds to requests to some of the hosts."""

    readable: tuple[Text, ...] = ()
    """Additional files and folders to read, relative to the project."""

    writable: tuple[Text, ...] = ()
    """Additional folders to write to, relative to the project."""

    memory_mb: Megabytes = 8192
    """Memory that all processes of a program may use together."""

    disk_mb: Megabytes = 2048
    """Data that a program may add to its workspace and its temporary folder."""

    @classmethod
    def contradiction(cls, data: Mapping[str, Any]) -> str:
        """Describe the contradiction of two settings."""
        if data.get("image") is not None and data.get("engine") not in CONTAINERS:
            return "'image' needs `engine: docker` or `engine: podman`"
        hosts = data.get("hosts", ())
        unlisted = next((host for host in data.get("keys", {}) if host not in hosts), None)
        return "" if unlisted is None else f"'keys' has the host '{unlisted}', which 'hosts' does not list"


Sandboxed = Engine | SandboxSettings
"""A value of the key `sandbox`: an engine, or all settings."""


class RunSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """The sandbox of a run: the engine of `--sandbox`, the project's default, and whether the user's policy needs one.

    `root` is the folder of the project.
    """

    option: Engine | None = None
    default: SandboxSettings | None = None
    is_required: bool = False
    root: str = ""

    def of(self, own: Sandboxed | None = None) -> SandboxSettings | None:
        """Return the sandbox of a program, which may have its own settings; None if it is not isolated.

        The engine of `--sandbox` takes precedence. No project can turn off a sandbox that the user's policy requires.
        """
        settings = settings_of(own) or self.default
        engine = self.option or (settings.engine if settings is not None else "none")
        if engine == "none" and self.is_required:
            engine = "auto"
        if engine == "none":
            return None
        return msgspec.structs.replace(settings or SandboxSettings(), engine=engine)


def settings_of(value: Sandboxed | None) -> SandboxSettings | None:
    """Return the settings in a value of the key `sandbox`."""
    return SandboxSettings(engine=value) if isinstance(value, str) else value
