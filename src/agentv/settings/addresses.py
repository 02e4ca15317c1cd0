"""Addresses in settings: problems in them, and the hosts they name."""

from urllib.parse import urlsplit

from agentv.lazy_regex import lazy_regex
from agentv.settings.environment import REFERENCE

_PATH = lazy_regex("[/?#]")
_AMBIGUOUS = lazy_regex(r"[\s\\\x00-\x1f\x7f]")
"""Characters that programs read differently: in `http://a\\@b/`, the host is `a` for a browser and `b` for Python."""


def address_complaints(field: str, address: str | None) -> list[str]:
    """Return the problems in an address. One that starts with a variable is not checked."""
    if address is None or REFERENCE.match(address):
        return []
    if not address.startswith(("http://", "https://")):
        return [f"'{field}' must be an address that starts with http:// or https://, got '{address}'"]
    if "{{" in address or _has_host(address):  # values of variables are not known yet
        return []
    if is_ambiguous(address):
        return [f"'{field}' must be an address without blanks, backslashes and control characters"]
    return [f"'{field}' must be an address with a host and, if it has a port, a numeric one"]


def _has_host(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0 and not is_ambiguous(address)
    except ValueError:
        return False


def is_ambiguous(address: str) -> bool:
    """Whether programs may read different hosts from an address: what is before the path decides."""
    scheme, separator, rest = address.partition("://")
    return _AMBIGUOUS.search(scheme + separator + _PATH.split(rest, maxsplit=1)[0]) is not None


def is_loopback(address: str | None) -> bool:
    """Whether an address is certainly a loopback address."""
    if address is None or is_ambiguous(address):
        return False
    try:
        return urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        return False


def host_of(address: str) -> str:
    """Return the host of an address, with its port; the address as written if that is not certain."""
    host = address.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if REFERENCE.search(address.partition("?")[0]) or "{{" in host or is_ambiguous(address):
        return address.partition("?")[0]
    try:
        return urlsplit(address).netloc.rpartition("@")[2] or address
    except ValueError:
        return address
