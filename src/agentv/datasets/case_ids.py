"""Which ids a dataset has used so far: as a set beside a list of cases, packed into 16 bytes a case beside a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentv.support.hashes import HashTable


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
        before = len(self._seen)
        if self._seen.isdisjoint(ids):
            self._seen.update(ids)
            if len(self._seen) == before + len(ids):
                return []
            return [position for position, id in enumerate(ids) if id in ids[:position]]
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
