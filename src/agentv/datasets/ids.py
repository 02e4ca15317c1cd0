"""Which ids a dataset has used so far: as a set beside a list of cases, packed into 16 bytes a case beside a stream."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol


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
    """A hash table of 64-bit hashes without the ids. A repeat it reports must be confirmed: hashes can collide."""

    def __init__(self) -> None:
        self._slots = array("q", bytes(8 * 4096))
        self._used = 0

    def repeats(self, ids: Sequence[str]) -> list[int]:
        if (self._used + len(ids)) * 3 > len(self._slots) * 2:
            self.expect(self._used + len(ids))
        slots, mask = self._slots, len(self._slots) - 1
        found = []
        for position, code in enumerate(map(hash, ids)):
            slot = code & mask
            while held := slots[slot]:
                if held == code:
                    found.append(position)
                    break
                slot = (slot + 1) & mask
            else:
                slots[slot] = code
        self._used += len(ids)
        return found

    def expect(self, count: int) -> None:
        """Grows so that a third of the slots stays free. Known in advance, it saves moving everything every time."""
        size = len(self._slots)
        while count * 3 > size * 2:
            size *= 2
        if size == len(self._slots):
            return
        slots, mask = array("q", bytes(8 * size)), size - 1
        for code in filter(None, self._slots):
            slot = code & mask
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = code
        self._slots = slots
