"""Share the limit of an endpoint between all agentv processes of this machine, through a small locked file.

Each process owns a number of calls; together they never own more than the limit. A process takes what is free, up to
its fair share, and gives back what exceeds it as its calls end. What the processes have adapted to the endpoint is
divided in the same way: the calls in flight that it answers, and the calls per second that it accepts. A process that
ends leaves its parts to the others. The rate is kept for later runs.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.executors.shared_file import SharedFile, SharedState, state_folder

_TICK_S, _CHANGE_S = 0.5, 0.05
"""How often a process looks at its share, and how often while its share is changing."""
_KNOWN_S = 600.0
_LEAST_LIMIT, _LEAST_RATE = 1.0, 0.1
_ALL = 1e9
_NEARLY = 0.95


class _Owner(msgspec.Struct, array_like=True):
    """A process: the most calls it may have in flight, those it wants, and those it owns.

    `limit` and `rate` are its parts of what the endpoint answers at a time and accepts per second; 0 if not limited.
    """

    most: int
    wanted: int
    owned: int
    limit: float = 0.0
    rate: float = 0.0
    wanted_rate: float = 0.0


class _Shared(SharedState):
    """The contents of the file. Owners are listed by their numbers.

    `limit` and `rate` are those of the endpoint: the parts of its owners, and what those who ended have left.
    """

    owners: dict[int, _Owner] = {}
    rate: float | None = None
    rate_at: float = 0.0
    limit: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remember."""
        return not self.owners and self.rate is None


class Adapted(NamedTuple):
    """What a process has adapted to an endpoint: calls in flight, and calls per second, if they are limited.

    `started` is the number of calls per second that it has started, and `is_paced` whether more of them wait.
    """

    limit: float = 1.0
    rate: float | None = None
    started: float = 0.0
    is_paced: bool = False


_UNADAPTED = Adapted()


class Lease(NamedTuple):
    """The calls that this process may have in flight, and when to ask again; its parts of what all have adapted."""

    calls: int
    ask_after_s: float
    limit: float
    rate: float | None = None
    total_rate: float = 0.0


def fair_parts(total: float, wanted: Mapping[int, float]) -> dict[int, float]:
    """Divide a total between owners, so that none gets more than it wants."""
    parts: dict[int, float] = {}
    for position, owner in enumerate(sorted(wanted, key=lambda owner: wanted[owner])):
        parts[owner] = min(wanted[owner], total / (len(wanted) - position))
        total -= parts[owner]
    return parts


def fair_shares(total: int, wanted: Mapping[int, int], turn: int) -> dict[int, int]:
    """Divide calls between owners, so that none gets more than it wants. What cannot be divided goes around."""
    shares = {owner: int(part + 1e-9) for owner, part in fair_parts(total, wanted).items()}
    left, owners = total - sum(shares.values()), sorted(wanted)
    for position in range(len(owners)):
        owner = owners[(turn + position) % len(owners)]
        if left and shares[owner] < wanted[owner]:
            shares[owner] += 1
            left -= 1
    return shares


class LeaseFile:
    """The share of this process in the limit of one endpoint. Without a writable folder, it is the whole limit."""

    def __init__(self, endpoint: str, folder: Path | None = None) -> None:
        name = sha256(f"{socket.gethostname()} {endpoint}".encode()).hexdigest()[:24]
        self._file = SharedFile(folder or state_folder("limits"), name, _Shared)
        self._is_off = False
        self._calls = 0

    def update(self, most: int, wanted: int, in_flight: int, adapted: Adapted = _UNADAPTED) -> Lease:
        """Return the calls that may be in flight, given the most, those that are wanted, and those in flight now."""
        if not self._is_off:
            try:
                with self._file.locked() as shared:
                    lease = self._updated(shared, _Owner(most, wanted, in_flight), adapted)
                self._calls = lease.calls
                return lease
            except BlockingIOError:
                # Another process is slow: ask again.
                return Lease(self._calls, _CHANGE_S, adapted.limit)
            except (OSError, ImportError, msgspec.MsgspecError) as error:
                self._is_off = True
                logging.getLogger("agentv").info("Limits are not shared with other processes: %s", error)
        return Lease(most, _TICK_S, adapted.limit)

    def release(self, rate: float | None = None) -> None:
        """Give the share back, and keep the rate that the endpoint accepted, if it is limited."""
        if self._file.number is None:
            return
        with suppress(OSError, msgspec.MsgspecError), self._file.locked() as shared:
            own = shared.owners.pop(self._file.number, None)
            if own is not None and rate is not None:
                shared.rate, shared.rate_at = (shared.rate or 0.0) - own.rate + rate, time.time()
        self._file.leave()
        self._calls = 0

    def _updated(self, shared: _Shared, own: _Owner, adapted: Adapted) -> Lease:
        file = self._file
        for gone in [number for number in shared.owners if number != file.number and file.is_gone(number)]:
            del shared.owners[gone]
            file.forget(gone)
        before = None if file.number is None else shared.owners.get(file.number)
        number = self._join(shared, adapted) if before is None or file.number is None else file.number
        file.touch()
        shared.owners[number] = own
        others = sum(owner.owned for each, owner in shared.owners.items() if each != number)
        total = max(owner.most for owner in shared.owners.values())
        wanted = {number: owner.wanted for number, owner in shared.owners.items()}
        share = own.most if len(wanted) == 1 else fair_shares(total, wanted, int(time.time()))[number]
        # Calls in flight cannot be given back.
        own.owned = max(own.owned, min(share, total - others))
        is_fair = self._divide_limit(shared, before, adapted) & self._divide_rate(shared, before, adapted)
        ask_after_s = _TICK_S if own.owned == share and is_fair else _CHANGE_S
        return Lease(min(share, own.owned), ask_after_s, own.limit, own.rate or None, shared.rate or 0.0)

    def _join(self, shared: _Shared, adapted: Adapted) -> int:
        if not shared.owners:
            shared.limit = adapted.limit
        return self._file.join(shared)

    def _divide_limit(self, shared: _Shared, before: _Owner | None, adapted: Adapted) -> bool:
        """Take a part of the calls that the endpoint answers at a time; return whether it is a fair one."""
        number = self._file.number
        assert number is not None
        owners, own = shared.owners, shared.owners[number]
        change = adapted.limit - before.limit if before is not None else 0.0
        most = max(owner.most for owner in owners.values())
        shared.limit = min(most, max(_LEAST_LIMIT, shared.limit + change))
        wanted = {number: float(owner.wanted) for number, owner in owners.items()}
        fair = self._fair_part(shared.limit, wanted)
        own.limit = max(_LEAST_LIMIT, min(fair, shared.limit - sum(owner.limit for owner in owners.values())))
        return own.limit >= _NEARLY * fair

    def _divide_rate(self, shared: _Shared, before: _Owner | None, adapted: Adapted) -> bool:
        """Take a part of the rate that the endpoint accepts, if it is limited; return whether it is a fair one."""
        number = self._file.number
        assert number is not None
        owners, own, last = shared.owners, shared.owners[number], before.rate if before is not None else 0.0
        total = shared.rate if shared.rate is not None and time.time() - shared.rate_at < _KNOWN_S else None
        if adapted.rate is None and total is None:
            return True
        if adapted.rate is None:
            rate = adapted.started if before is not None else 0.0
        else:
            # A rate that is not used up is not known to be accepted.
            is_known = adapted.is_paced or len(owners) == 1 or not last
            rate = adapted.rate if is_known else min(last, adapted.rate)
        own.wanted_rate = _ALL if adapted.is_paced or before is None else 1.5 * adapted.started + 1
        shared.rate, shared.rate_at = max(_LEAST_RATE, (total or 0.0) + rate - last), time.time()
        fair = self._fair_part(shared.rate, {number: owner.wanted_rate for number, owner in owners.items()})
        own.rate = max(_LEAST_RATE, min(fair, shared.rate - sum(owner.rate for owner in owners.values())))
        return own.rate >= _NEARLY * fair

    def _fair_part(self, total: float, wanted: Mapping[int, float]) -> float:
        """Return the part of this process; the whole if there are no others."""
        number = self._file.number
        assert number is not None
        return fair_parts(total, wanted)[number] if len(wanted) > 1 else total
