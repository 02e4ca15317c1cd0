"""Which ids a dataset has used so far: as a set beside a list of cases, packed into 16 bytes a case beside a stream."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Protocol

from agentv.datasets.case.shorthand import is_message
from agentv.support.hash_set import HashTable


class SeenIds(Protocol):
    """Takes ids in batches and tells which were there before."""

    def repeats(self, ids: Sequence[str]) -> list[int]:
        """The positions in this batch of ids that were seen before, here or earlier; then all are seen."""
        ...

    def expect(self, count: int) -> None:
        """Makes room for so many ids at once."""
        ...


class IdSet:
    """Exact, for when the cases and so their ids are held anyway."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def repeats(self, ids: Sequence[str]) -> list[int]:
        fresh = set(ids)
        if len(fresh) == len(ids) and self._seen.isdisjoint(fresh):
            self._seen |= fresh
            return []
        found = []
        for position, id in enumerate(ids):
            if id in self._seen:
                found.append(position)
            self._seen.add(id)
        return found

    def expect(self, count: int) -> None:
        pass  # a set grows cheaply


class PackedIds:
    """Hashes without the ids. A repeat it reports must be confirmed: hashes can collide."""

    def __init__(self) -> None:
        self._seen = HashTable()
        self.expect = self._seen.expect

    def repeats(self, ids: Sequence[str]) -> list[int]:
        return self._seen.add(list(map(hash, ids)))


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_OURS = ("id", "expected_outcome", "outcome", "criteria")


def is_agentmark_row(row: Any) -> bool:
    """Whether a first row of JSONL says by its shape that the file is AgentMark's."""
    return holds_variables(row) and not any(key in row for key in _OURS)


def holds_variables(row: Any) -> bool:
    """Whether a row's input is an object that is no message."""
    return isinstance(row, dict) and isinstance(row.get("input"), dict) and not is_message(row["input"])


def item_name(value: Any) -> str:
    """The name AgentMark gives an item: from its input alone, the same in both tools."""
    text = _CANONICAL.encode(value)
    return hashlib.md5(text.encode("ascii"), usedforsecurity=False).hexdigest()[:12]


class ItemNames:
    """Names for the rows of one dataset; a repeated input gets `-2`, `-3` and so on."""

    def __init__(self) -> None:
        self._seen = PackedIds()
        self._counts: dict[str, int] = {}

    def name(self, value: Any) -> str:
        name = item_name(value)
        if not self._seen.repeats((name,)):
            return name
        self._counts[name] = self._counts.get(name, 1) + 1
        return f"{name}-{self._counts[name]}"
