"""Settings that must not change while a server runs: the contents of their files, and the targets of datasets.

They are compared when they are read, so that the contents that are checked are those that are used.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from agentv.errors import UsageError
from agentv.support.yaml.yaml_file import parse_yaml_content, read_yaml_file

_DETAIL = "The server uses the targets, prices, hosts, variables and defaults that the project had when it was started"
_HINT = "Undo the change, or ask the user to look at it and to restart the server"


class FrozenSettings(msgspec.Struct, frozen=True):
    """The hashes of settings files by absolute path, and those of the targets that datasets define."""

    files: dict[str, str] = {}
    targets: frozenset[str] = frozenset()

    def check_file(self, path: str, content: bytes | None) -> None:
        """Raise UsageError if a settings file is new or has other contents; None if there is no such file."""
        before = self.files.get(os.path.abspath(path))
        if before == (None if content is None else content_hash(content)):
            return
        change = "was added" if before is None else "was removed" if content is None else "has changed"
        raise UsageError(f"{path} {change} since the server was started", _DETAIL, _HINT)

    def check_targets(self, path: str, entries: Iterable[dict[str, Any]]) -> None:
        """Raise UsageError if a dataset defines a target that no dataset of the project defined."""
        for entry in entries:
            if target_hash(entry) not in self.targets:
                headline = f"Target '{entry.get('name')}' in {path} was added or changed since the server was started"
                raise UsageError(headline, _DETAIL, _HINT)


_frozen: ContextVar[FrozenSettings | None] = ContextVar("frozen", default=None)


@contextmanager
def enforcing(settings: FrozenSettings) -> Iterator[None]:
    """Refuse settings that differ from these for a while."""
    token = _frozen.set(settings)
    try:
        yield
    finally:
        _frozen.reset(token)


def frozen_settings() -> FrozenSettings | None:
    """Return the settings that must not change; None if they may."""
    return _frozen.get()


def check_settings_file(path: str, content: bytes | None) -> None:
    """Raise UsageError if a settings file must not change, but did."""
    if (settings := _frozen.get()) is not None:
        settings.check_file(path, content)


def content_hash(content: bytes) -> str:
    """Return the hash of a settings file."""
    return hashlib.sha256(content).hexdigest()


def target_hash(entry: dict[str, Any]) -> str:
    """Return the hash of a target as a dataset defines it."""
    return content_hash(msgspec.json.encode(entry, order="sorted", enc_hook=str))


def parse_settings_file(path: str) -> Any:
    """Parse a YAML file with settings. Raises DatasetParseError, or UsageError if a server froze other contents."""
    data = read_yaml_file(path)
    check_settings_file(path, data)
    return parse_yaml_content(path, data)
