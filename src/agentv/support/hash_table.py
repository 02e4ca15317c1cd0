"""Compact sets, numbers and offsets of hashes, for millions of ids and jobs, and a cache for values of cases."""

from array import array
from collections.abc import Iterator, Sequence
from typing import TypeVar


class HashTable:
    """A compact set of 64-bit hashes. Verify the repeats it reports: hashes can collide."""

    def __init__(self) -> None:
        self._slots = array("q", bytes(8 * 4096))
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def __contains__(self, code: int) -> bool:
        slots, mask = self._slots, len(self._slots) - 1
        slot = code & mask
        while entry := slots[slot]:
            if entry == code:
                return True
            slot = (slot + 1) & mask
        return False

    def add(self, codes: Sequence[int]) -> list[int]:
        """Add hashes; return the positions of those that were present before, also earlier in this batch."""
        if (self._used + len(codes)) * 3 > len(self._slots) * 2:
            self.expect(self._used + len(codes))
        slots, mask = self._slots, len(self._slots) - 1
        repeated = []
        for position, code in enumerate(codes):
            slot = code & mask
            while entry := slots[slot]:
                if entry == code:
                    repeated.append(position)
                    break
                slot = (slot + 1) & mask
            else:
                slots[slot] = code
        self._used += len(codes) - len(repeated)
        return repeated

    def expect(self, count: int) -> None:
        """Grow for `count` hashes, with a third of the slots free. Calling this early avoids repeated moves."""
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


class NumberTable:
    """Numbers for 64-bit hashes, from 0 in order of appearance, in 14 to 20 bytes each. Hashes can collide."""

    def __init__(self) -> None:
        self._codes = array("q")
        self._slots = array("i", bytes(4 * 4096))

    def __len__(self) -> int:
        return len(self._codes)

    def number(self, code: int) -> int:
        """Return the number of a hash, which is the next one if it is new."""
        codes, slots = self._codes, self._slots
        mask = len(slots) - 1
        slot = code & mask
        while entry := slots[slot]:  # a number plus 1
            if codes[entry - 1] == code:
                return entry - 1
            slot = (slot + 1) & mask
        codes.append(code)
        slots[slot] = number = len(codes)
        if number * 3 > mask * 2:
            self._enlarge()
        return number - 1

    def find(self, code: int) -> int | None:
        """Return the number of a hash; None for one that has no number."""
        codes, slots = self._codes, self._slots
        mask = len(slots) - 1
        slot = code & mask
        while entry := slots[slot]:
            if codes[entry - 1] == code:
                return entry - 1
            slot = (slot + 1) & mask
        return None

    def _enlarge(self) -> None:
        """Double the number of slots."""
        size = 2 * len(self._slots)
        slots, mask = array("i", bytes(4 * size)), size - 1
        for number, code in enumerate(self._codes, 1):
            slot = code & mask
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = number
        self._slots = slots


class OffsetTable:
    """Offsets in a file by the hash of what is there, in 30 to 36 bytes each. Verify what is found: hashes can collide.

    Entries with the same hash are linked, each to the one before.
    """

    def __init__(self) -> None:
        self._numbers = NumberTable()
        self._last = array("i")
        self._offsets = array("q")
        self._before = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, code: int, offset: int) -> None:
        """Add an offset. A hash can have several."""
        if (number := self._numbers.number(code)) == len(self._last):
            self._last.append(-1)
        self._before.append(self._last[number])
        self._last[number] = len(self._offsets)
        self._offsets.append(offset)

    def latest_first(self, code: int) -> Iterator[int]:
        """Yield the offsets of a hash, the last one added first."""
        number = self._numbers.find(code)
        entry = -1 if number is None else self._last[number]
        while entry >= 0:
            yield self._offsets[entry]
            entry = self._before[entry]


class IdSet:
    """The ids seen so far, for callers that keep the ids anyway."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def repeats(self, ids: Sequence[str]) -> list[int]:
        """Add ids; return the positions of those that were seen before, also earlier in this batch."""
        before = len(self._seen)
        if self._seen.isdisjoint(ids):
            self._seen.update(ids)
            if len(self._seen) == before + len(ids):
                return []
            return [position for position, id in enumerate(ids) if id in ids[:position]]
        positions = []
        for position, id in enumerate(ids):
            if id in self._seen:
                positions.append(position)
            self._seen.add(id)
        return positions

    def expect(self, count: int) -> None:
        """Do nothing: a set grows cheaply."""


class PackedIds(HashTable):
    """Hashes of the ids seen so far. Verify the repeats it reports: hashes can collide."""

    def repeats(self, ids: Sequence[str]) -> list[int]:
        """Add ids; return the positions of those that were seen before, also earlier in this batch."""
        return self.add(list(map(hash, ids)))


Key = TypeVar("Key")
Value = TypeVar("Value")


class OwnedCache(dict[Key, Value]):
    """A cache of values that belong to cases, such as their evaluators. Call `make_room` before adding one.

    Memory does not grow with the number of cases, but a case with many evaluators does not remove its own.
    """

    def __init__(self, size: int = 1024) -> None:
        super().__init__()
        self._size = size
        self._owner: object = None

    def make_room(self, owner: object) -> None:
        """Clear the cache if it is full, or enlarge it if one owner has filled it since it was cleared."""
        if len(self) >= self._size:
            if self._owner is owner:
                self._size *= 2
            else:
                self.clear()
        if not self:
            self._owner = owner
