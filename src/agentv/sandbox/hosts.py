"""The hosts that an isolated program may connect to."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from agentv.sandbox import PROXY_PORT

PROXY_ADDRESS = f"http://127.0.0.1:{PROXY_PORT}"
"""The address of the proxy in the network of an isolated program."""


class AllowedHost(msgspec.Struct, frozen=True):
    """A host that a program may connect to: `name`, `name:port` or `http://name:port`.

    `headers` are added to requests.
    """

    name: str
    port: int = 443
    is_encrypted: bool = True
    headers: Mapping[str, str] = {}

    @classmethod
    def read(cls, text: str, headers: Mapping[str, str] | None = None) -> AllowedHost:
        """Read a host of the settings. Raises ValueError."""
        parts = urlsplit(text if "://" in text else f"https://{text}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"'{text}' is not a host. Write a name such as api.example.com, or name:port")
        is_encrypted = parts.scheme == "https"
        return cls(parts.hostname.lower(), parts.port or (443 if is_encrypted else 80), is_encrypted, headers or {})

    @property
    def address(self) -> str:
        """The address of the host for a program in the sandbox: requests to it get the headers."""
        return f"{PROXY_ADDRESS}/{self.name}" + ("" if self.port == 443 else f":{self.port}")
