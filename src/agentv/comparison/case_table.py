"""The cases of a run, numbered in order of appearance, in little memory: a run can have a million."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from functools import cached_property

CaseKey = tuple[str, str, str, str | None]
"""Dataset, id, target, prompt."""

CaseName = tuple[str | None, ...]

_Group = tuple[str, str, str | None]
"""Dataset, target, prompt: few in a run."""


class CaseTable(Mapping[CaseKey, int]):
    """The number of each case. Ids are stored once for each dataset, target and prompt, without their keys."""

    def __init__(self) -> None:
        self._groups: dict[_Group, int] = {}
        self._ids: list[dict[str, int]] = []
        self._group_of = array("i")

    def add(self, key: CaseKey) -> int:
        """Return the number of a case, which is the next one if it is new."""
        dataset, id, *rest = key
        group = self._groups.setdefault((dataset, *rest), len(self._groups))  # type: ignore[arg-type]
        if group == len(self._ids):
            self._ids.append({})
        count = len(self._group_of)
        number = self._ids[group].setdefault(id, count)
        if number == count:
            self._group_of.append(group)
        return number

    def __getitem__(self, key: CaseKey) -> int:
        dataset, id, target, prompt = key
        return self._ids[self._groups[dataset, target, prompt]][id]

    def __len__(self) -> int:
        return len(self._group_of)

    def __iter__(self) -> Iterator[CaseKey]:
        groups, ids = list(self._groups), [iter(each) for each in self._ids]
        for number in self._group_of:
            dataset, target, prompt = groups[number]
            yield dataset, next(ids[number]), target, prompt

    def dataset_of(self, number: int) -> str:
        """Return the dataset of the case with a number."""
        return self._datasets[self._group_of[number]]

    @cached_property
    def _datasets(self) -> list[str]:
        return [dataset for dataset, _, _ in self._groups]

    def ids(self) -> Iterator[str]:
        """Yield the id of each case."""
        found = [iter(each) for each in self._ids]
        return (next(found[number]) for number in self._group_of)


class CaseNames(Mapping[CaseName, int]):
    """The names of the cases of a run with one target and one prompt: their datasets and ids."""

    def __init__(self, cases: CaseTable) -> None:
        self._cases = cases
        _, _, *self._rest = next(iter(cases), ("", "", "", None))

    def __getitem__(self, name: CaseName) -> int:
        return self._cases[(*name, *self._rest)]  # type: ignore[index]

    def __len__(self) -> int:
        return len(self._cases)

    def at(self, number: int) -> CaseName:
        """Return the name of the case with a number."""
        return self._cases.dataset_of(number), self._ids[number]

    @cached_property
    def _ids(self) -> list[str]:
        return list(self._cases.ids())

    def __iter__(self) -> Iterator[CaseName]:
        return (key[:2] for key in self._cases)
