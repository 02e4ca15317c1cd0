"""Addresses in settings: problems in them, and the hosts they name."""

from __future__ import annotations

from urllib.parse import urlsplit

from agentv.settings.environment import REFERENCE


def address_complaints(field: str, address: str | None) -> list[str]:
    """Return the problems in an address. One that starts with a variable is not checked."""
    if address is None or REFERENCE.match(address):
        return []
    if not address.startswith(("http://", "https://")):
        return [f"'{field}' must be an address that starts with http:// or https://, got '{address}'"]
    if "{{" in address or _has_host(address):  # values of variables are not known yet
        return []
    return [f"'{field}' must be an address with a host and, if it has a port, a numeric one"]


def _has_host(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_loopback(address: str | None) -> bool:
    """Whether an address is a loopback address."""
    return address is not None and urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1")


def host_of(address: str) -> str:
    """Return the host of an address, with its port; the address as written if a variable is part of the host."""
    host = address.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if REFERENCE.search(address.partition("?")[0]) or "{{" in host:
        return address.partition("?")[0]
    try:
        return urlsplit(address).netloc.rpartition("@")[2] or address
    except ValueError:
        return address
