"""The cases of a run, numbered in order of appearance, in little memory: a run can have a million."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentv.support.hash_table import NumberTable

CaseKey = tuple[str, str, str, str | None]
"""Dataset, id, target, prompt."""

CaseName = tuple[str | None, ...]
"""Some fields of a key, which several runs share."""

_Group = tuple[str, str, str | None]
"""Dataset, target, prompt: few in a run."""

_ID = 1
_SPREAD = 0x9E3779B97F4A7C15


class CaseTable:
    """The keys of cases, numbered from 0. A case takes about 40 bytes: its id as UTF-8, a hash of it, and its group.

    `codes` are 64-bit hashes of names, which match cases of several runs without building their names. Among a million
    cases, two different names have the same hash with a probability of about one in thirty million.
    """

    def __init__(self) -> None:
        self._groups: dict[_Group, int] = {}
        self._group_names: list[_Group] = []
        self._group_of = array("i")
        self._hashes = array("q")
        self._text = bytearray()
        self._ends = array("q", (0,))
        self._numbers = NumberTable()

    def add(self, key: CaseKey) -> int:
        """Return the number of a case, which is the next one if it is new."""
        dataset, id, target, prompt = key
        group = self._groups.get((dataset, target, prompt))
        if group is None:
            group = self._groups[dataset, target, prompt] = len(self._groups)
            self._group_names.append((dataset, target, prompt))
        number = self._numbers.number(hash(key))
        if number == len(self._hashes):
            self._hashes.append(hash(id))
            self._group_of.append(group)
            self._text += id.encode("utf-8", "surrogatepass")
            self._ends.append(len(self._text))
        return number

    def finish(self) -> None:
        """Free the memory that only `add` needs. No case can be added afterwards."""
        self._numbers = NumberTable()

    def __len__(self) -> int:
        return len(self._hashes)

    def __iter__(self) -> Iterator[CaseKey]:
        return map(self.key, range(len(self)))

    def key(self, number: int) -> CaseKey:
        """Return the key of a case."""
        dataset, target, prompt = self._group_names[self._group_of[number]]
        return dataset, self.id(number), target, prompt

    def id(self, number: int) -> str:
        """Return the id of a case."""
        return self._text[self._ends[number] : self._ends[number + 1]].decode("utf-8", "surrogatepass")

    def dataset(self, number: int) -> str:
        """Return the dataset of a case."""
        return self._group_names[self._group_of[number]][0]

    def datasets(self) -> tuple[NDArray[Any], list[str]]:
        """Return the dataset of each case as a number, and the names of the datasets."""
        numbers: dict[str, int] = {}
        of_group = [numbers.setdefault(dataset, len(numbers)) for dataset, _, _ in self._groups]
        return np.array(of_group, dtype=np.int32)[self._group_of], list(numbers)

    def codes(self, parts: Sequence[int]) -> NDArray[Any]:
        """Return a hash of the name of each case: the fields of its key at the positions `parts`, with the id."""
        keys = ((dataset, "", target, prompt) for dataset, target, prompt in self._groups)
        groups = [hash(tuple(key[part] for part in parts if part != _ID)) for key in keys]
        hashes: NDArray[Any] = np.array(groups, dtype=np.int64)[self._group_of]
        hashes ^= np.asarray(self._hashes, dtype=np.int64)
        return hashes

    def codes_with(self, others: NDArray[Any]) -> NDArray[Any]:
        """Return a hash of the id of each case, combined with another hash for each case."""
        hashes: NDArray[Any] = np.asarray(self._hashes, dtype=np.int64) ^ others
        return hashes


def first_places(codes: NDArray[Any], queries: NDArray[Any]) -> NDArray[Any]:
    """Return the first position of each wanted code; -1 for a code that does not occur."""
    if not len(codes):
        return np.full(len(queries), -1, dtype=np.intp)
    order = np.argsort(codes, kind="stable")
    places = np.searchsorted(codes, queries, sorter=order)
    positions: NDArray[Any] = order[np.minimum(places, len(codes) - 1)]
    positions[codes[positions] != queries] = -1
    return positions


def number_codes(codes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Number the distinct codes in order of appearance. Return the first position of each, and each code's number."""
    _, first, index = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.empty(len(order), dtype=np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return first[order].astype(np.int32), ranks[index]


def mixed_codes(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return a hash of each row of some columns of integers."""
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashes ^= column.astype(np.int64).view(np.uint64)
        hashes *= np.uint64(_SPREAD)
        hashes ^= hashes >> np.uint64(32)
    return hashes.view(np.int64)
