"""Divide the limit of an endpoint between those who call it at the moment: runs on a machine, and workers of a run.

Each owner states the calls it wants and those in flight, and gets a fair share of what is free. Runs share a small
locked file; the workers of a run send messages to its driver. Only what is in use is shared: an owner that ends, or is
killed, leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from agentv.executors.shared_file import SharedFile, SharedState, state_folder

_TICK_S, _CHANGE_S = 0.5, 0.05
"""How often an owner asks for its share, and how often while its share is changing."""


class Demand(NamedTuple):
    """The most calls that an owner may have in flight, those it wants, and those in flight now."""

    most: int
    wanted: int
    in_flight: int


class Part(NamedTuple):
    """The calls that an owner may have in flight, and when to ask again."""

    calls: int
    ask_after_s: float = _TICK_S


class Lease(Protocol):
    """The share of one process in the limit of an endpoint."""

    async def update(self, demand: Demand) -> Part: ...

    def release(self) -> None: ...


class Owner(msgspec.Struct, array_like=True):
    """An owner: the most calls it may have in flight, those it wants, and those it owns."""

    most: int
    wanted: int
    owned: int


def fair_shares(total: int, wanted: Mapping[Any, int], turn: int) -> dict[Any, int]:
    """Divide calls between owners, so that none gets more than it wants. What cannot be divided goes around."""
    shares: dict[Any, int] = {}
    owners = sorted(wanted)
    places = {owner: (turn - position) % len(owners) for position, owner in enumerate(owners)}
    for position, owner in enumerate(sorted(owners, key=lambda owner: (wanted[owner], -places[owner]))):
        shares[owner] = min(wanted[owner], (total - sum(shares.values())) // (len(owners) - position))
    return shares


def divide(owners: dict[Any, Owner], name: Any, demand: Demand, most: int | None = None) -> Part:
    """Update the entry of an owner; return its part of the limit, by default the largest limit of an owner."""
    others = sum(owner.owned for number, owner in owners.items() if number != name)
    own = owners[name] = Owner(demand.most, demand.wanted, demand.in_flight)
    total = max(owner.most for owner in owners.values()) if most is None else most
    wanted = {number: owner.wanted for number, owner in owners.items()}
    share = min(own.most, total) if len(wanted) == 1 else fair_shares(total, wanted, int(time.time()))[name]
    # Calls in flight cannot be given back.
    own.owned = max(own.owned, min(share, total - others))
    return Part(min(share, own.owned), _TICK_S if own.owned == share else _CHANGE_S)


class _Shared(SharedState):
    """The contents of the file. Owners are listed by their numbers."""

    owners: dict[int, Owner] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to share."""
        return not self.owners


class FileLease:
    """The share of a run, in a file. Without a writable folder, it is the whole limit."""

    def __init__(self, endpoint: str, folder: Path | None = None) -> None:
        name = sha256(f"{socket.gethostname()} {endpoint}".encode()).hexdigest()[:24]
        self._file = SharedFile(folder or state_folder("limits"), name, _Shared)
        self._is_off = False
        self._calls = 0

    async def update(self, demand: Demand) -> Part:
        """Return the calls that may be in flight."""
        if not self._is_off:
            try:
                with self._file.locked() as shared:
                    part = self._updated(shared, demand)
                self._calls = part.calls
                return part
            except BlockingIOError:
                # Another process is slow: ask again.
                return Part(self._calls, _CHANGE_S)
            except (OSError, ImportError, msgspec.MsgspecError) as error:
                self._is_off = True
                logging.getLogger("agentv").info("Limits are not shared with other processes: %s", error)
        return Part(demand.most)

    def release(self) -> None:
        """Give the share back."""
        number = self._file.number
        if number is not None:
            with suppress(OSError, ImportError, msgspec.MsgspecError), self._file.locked() as shared:
                shared.owners.pop(number, None)
            self._file.leave()

    def _updated(self, shared: _Shared, demand: Demand) -> Part:
        for number in [number for number in shared.owners if number != self._file.number]:
            if self._file.is_gone(number):
                del shared.owners[number]
                self._file.forget(number)
        own = self._file.number
        number = self._file.join(shared) if own is None or own not in shared.owners else own
        self._file.touch()
        return divide(shared.owners, number, demand)


class HubLease:
    """The share of a worker, from its driver."""

    def __init__(self, endpoint: str, call: Callable[..., Awaitable[Any]], load: Callable[[], object]) -> None:
        self._endpoint = endpoint
        self._load = load
        self._call = call

    async def update(self, demand: Demand) -> Part:
        """Return the calls that may be in flight."""
        part: Part = await self._call("share", self._endpoint, demand, self._load())
        return part

    def release(self) -> None:
        """Give the share back."""
        with suppress(RuntimeError):  # the event loop has ended, and so will the worker
            asyncio.get_running_loop().create_task(_ended(self.update(Demand(0, 0, 0))))


async def _ended(update: Awaitable[Part]) -> None:
    with suppress(Exception):  # the driver is gone
        await update
