"""Divide the limit of an endpoint between those who call it at the moment: runs on a machine, and workers of a run.

Each owner states the calls it wants and those in flight, and gets a fair share of what is free. Runs share a small
locked file; the workers of a run send messages to its driver. Only what is in use is shared: an owner that ends, or is
killed, leaves nothing behind.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agentv.executors.lane import TICK_S
from agentv.executors.shared_file import SharedFile, state_folder

_CHANGE_S = 0.05
"""How often an owner asks for its share while it is changing."""


class Owner(msgspec.Struct, array_like=True):
    """An owner: the most calls it may have in flight, those it wants, and those it owns, at first those in flight."""

    most: int
    wanted: int
    owned: int


class Part(msgspec.Struct, frozen=True):
    """The calls that an owner may have in flight, and when to ask again."""

    calls: int
    ask_after_s: float = TICK_S


class Lease(Protocol):
    """The share of one process in the limit of an endpoint."""

    async def update(self, own: Owner) -> Part: ...

    def release(self) -> None: ...


def fair_shares(total: int, demands: Mapping[Any, int], turn: int) -> dict[Any, int]:
    """Divide calls between owners, so that none gets more than it wants. What cannot be divided goes around."""
    shares: dict[Any, int] = {}
    owners = sorted(demands)
    places = {owner: (turn - position) % len(owners) for position, owner in enumerate(owners)}
    for position, owner in enumerate(sorted(owners, key=lambda owner: (demands[owner], -places[owner]))):
        shares[owner] = min(demands[owner], (total - sum(shares.values())) // (len(owners) - position))
    return shares


def divide(owners: dict[Any, Owner], name: Any, own: Owner, most: int | None = None) -> Part:
    """Update the entry of an owner; return its part of the limit, by default the largest limit of an owner."""
    owners[name] = own
    others = sum(owner.owned for owner in owners.values()) - own.owned
    total = max(owner.most for owner in owners.values()) if most is None else most
    demands = {number: owner.wanted for number, owner in owners.items()}
    share = min(own.most, total) if len(owners) == 1 else fair_shares(total, demands, int(time.time()))[name]
    # Calls in flight cannot be given back.
    own.owned = max(own.owned, min(share, total - others))
    return Part(min(share, own.owned), TICK_S if own.owned == share else _CHANGE_S)


class _Shared(msgspec.Struct):
    """The contents of the file. Owners are listed by their numbers."""

    owners: dict[int, Owner] = {}


class FileLease:
    """The share of a run, in a file. Without a writable folder, it is the whole limit."""

    def __init__(self, endpoint: str, folder: Path | None = None) -> None:
        name = sha256(f"{socket.gethostname()} {endpoint}".encode()).hexdigest()
        self._file = SharedFile(folder or state_folder("limits"), name, _Shared)
        self._is_off = False
        self._calls = 0

    async def update(self, own: Owner) -> Part:
        """Return the calls that may be in flight."""
        if not self._is_off:
            try:
                with self._file.locked() as shared:
                    part = self._divide(shared, own)
                self._calls = part.calls
                return part
            except BlockingIOError:
                # Another process is slow: ask again.
                return Part(self._calls, _CHANGE_S)
            except (OSError, ImportError, msgspec.MsgspecError) as error:
                self._is_off = True
                logging.getLogger("agentv").info("Limits are not shared with other processes: %s", error)
        return Part(own.most)

    def release(self) -> None:
        """Give the share back."""
        if self._file.number is not None:
            with suppress(OSError, ImportError, msgspec.MsgspecError), self._file.locked() as shared:
                shared.owners.pop(self._file.number, None)
            self._file.leave()

    def _divide(self, shared: _Shared, own: Owner) -> Part:
        for number in [*shared.owners]:
            if number != self._file.number and self._file.is_gone(number):
                del shared.owners[number]
        if self._file.number not in shared.owners:
            self._file.join()
        return divide(shared.owners, self._file.number, own)
