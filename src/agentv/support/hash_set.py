"""A set of hashes in 12 to 24 bytes each: what was seen, where the things themselves would take too much room."""

from __future__ import annotations

from array import array
from collections.abc import Sequence


class HashTable:
    """64-bit numbers without an object for each. Hashes can collide: what depends on a repeat must look again."""

    def __init__(self) -> None:
        self._slots = array("q", bytes(8 * 4096))
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def __contains__(self, code: int) -> bool:
        slots, mask = self._slots, len(self._slots) - 1
        slot = code & mask
        while held := slots[slot]:
            if held == code:
                return True
            slot = (slot + 1) & mask
        return False

    def add(self, codes: Sequence[int]) -> list[int]:
        """Takes all in. The positions of those that were there before, or earlier in this batch."""
        if (self._used + len(codes)) * 3 > len(self._slots) * 2:
            self.expect(self._used + len(codes))
        slots, mask = self._slots, len(self._slots) - 1
        repeated = []
        for position, code in enumerate(codes):
            slot = code & mask
            while held := slots[slot]:
                if held == code:
                    repeated.append(position)
                    break
                slot = (slot + 1) & mask
            else:
                slots[slot] = code
        self._used += len(codes) - len(repeated)
        return repeated

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
