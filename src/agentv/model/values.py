"""Immutable JSON values, equality by content, and hashes of values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

Kind = TypeVar("Kind")

MAX_DEPTH = 256
"""Deeper nesting is rejected, so that recursive functions stay within Python's stack."""


_SCALARS = frozenset({str, int, float, bool, type(None)})


class NestingError(ValueError):
    """A value nested deeper than MAX_DEPTH."""

    def __init__(self) -> None:
        super().__init__(f"nested more than {MAX_DEPTH} levels deep")


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    copy = "dict" if isinstance(self, dict) else "list"
    raise TypeError(f"a case cannot be changed; copy the value first, for example with {copy}(value)")


class FrozenDict(dict[str, Any]):
    """An immutable dict that compares and prints like a dict."""

    __slots__ = ()

    __setitem__ = __delitem__ = update = setdefault = pop = popitem = clear = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """An immutable list that compares and prints like a list."""

    __slots__ = ()

    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = _refuse
    sort = reverse = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type[FrozenList], tuple[list[Any]]]:
        return FrozenList, (list(self),)


class ComparedByContent(msgspec.Struct, frozen=True, gc=False):
    """A struct that is compared by `_content` only, ignoring where it was found."""

    @property
    def _content(self) -> tuple[object, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return self._content == other._content if type(other) is type(self) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other  # a struct's own `!=` does not use `==`

    def __hash__(self) -> int:
        return hash((type(self), self._content))


def freeze(value: Any, depth: int = 0) -> Any:
    """Return the JSON value in immutable containers. Raises NestingError beyond MAX_DEPTH."""
    kind = type(value)
    if kind is str or kind is bool or value is None or kind is float:
        return value
    if depth >= MAX_DEPTH:
        raise NestingError
    if isinstance(value, dict):
        if all(type(item) in _SCALARS for item in value.values()):
            return FrozenDict(value)
        return FrozenDict({key: freeze(item, depth + 1) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList([freeze(item, depth + 1) for item in value])
    # A YAML integer may carry its source text; only the value is kept.
    return int(value) if isinstance(value, int) else value


to_json = msgspec.json.Encoder().encode
"""Encode as compact UTF-8 JSON, keys in order."""


@cache
def json_decoder(kind: type[Kind]) -> Callable[[bytes], Kind]:
    """Return the function that decodes JSON as a type. Building it takes long, so modules do not do so at import."""
    return msgspec.json.Decoder(kind).decode


def digest(value: Any) -> str:
    """Return a hash of a JSON value, 32 hex digits, independent of key order."""
    return hash_bytes(msgspec.json.encode(value, order="sorted"))


EMPTY_HASH = hashlib.blake2b(digest_size=16)
"""Copied for a new hash, in half of the time that making one takes."""


def hash_bytes(data: bytes) -> str:
    """Return a hash of bytes, 32 hex digits."""
    digest = EMPTY_HASH.copy()
    digest.update(data)
    return digest.hexdigest()


def draw_rank(seed: int, name: str) -> int:
    """Return the rank of a name in a seeded shuffle: a hash, independent of the other names."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest())


class _Clustered(Protocol):
    """A case or a record."""

    # fmt: off
    @property
    def cluster(self) -> str | None: ...
    @property
    def conversation_id(self) -> str | None: ...
    # fmt: on


def cluster_of(case: _Clustered) -> str | None:
    """Return the cluster of a case or record in its dataset: its `cluster`, or else its conversation."""
    return case.conversation_id if case.cluster is None else case.cluster


def sampling_unit(cluster: str | None, path: str, id: str) -> str:
    """Return the group that a case is sampled with: its cluster in this dataset, or only its own trials."""
    return f"{path}\0{id}" if cluster is None else f"{path}\0conversation\0{cluster}"
