"""Remembers what was read from settings that many cases repeat word for word, so that it is read once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from agentv.problems import KeyPath, Problems

Read = TypeVar("Read")
_SIZE = 1024


class Memo(Generic[Read]):
    """A reading function with a memory of values in which it found nothing to say."""

    def __init__(self, read: Callable[[Any, KeyPath, Problems], Read]) -> None:
        self._read = read
        self._known: dict[tuple[str, bytes], Read] = {}

    def __call__(self, value: Any, path: KeyPath, problems: Problems) -> Read:
        try:
            key = (type(value).__name__, msgspec.json.encode(value))
        except (TypeError, ValueError, RecursionError):
            return self._read(value, path, problems)
        if key in self._known:
            return self._known[key]
        before = len(problems)
        read = self._read(value, path, problems)
        if len(problems) == before:
            if len(self._known) >= _SIZE:
                self._known.clear()
            self._known[key] = read
        return read
