"""Share the limit of an endpoint between all agentv processes of this machine, through a small locked file.

Each process owns a number of calls; together they never own more than the limit. A process takes what is free, up to
its fair share, and gives back what exceeds it as its calls end. The file also keeps the rate of calls that the endpoint
accepted.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

_TICK_S, _CHANGE_S = 0.5, 0.05
"""How often a process looks at its share, and how often while its share is changing."""
_STALLED_S = 30.0
"""A process that has not looked for this long, such as a stopped one, loses its share."""
_KNOWN_S = 600.0
_TRIES, _TRY_S = 20, 0.002


class _Owner(msgspec.Struct, array_like=True):
    """A process: the most calls it may have in flight, those it wants, and those it owns."""

    most: int
    wanted: int
    owned: int


class _Shared(msgspec.Struct):
    """The contents of the file. Owners have fencing numbers, which are never used again."""

    last_number: int = 0
    owners: dict[int, _Owner] = {}
    rate: float | None = None
    rate_at: float = 0.0


class Lease(NamedTuple):
    """The calls that this process may have in flight, and when to ask again."""

    calls: int
    ask_after_s: float


def fair_shares(total: int, wanted: Mapping[int, int], turn: int) -> dict[int, int]:
    """Divide calls between owners, so that none gets more than it wants. What cannot be divided goes around."""
    shares, left, level = {}, total, total
    for position, owner in enumerate(sorted(wanted, key=lambda owner: wanted[owner])):
        others = len(wanted) - position
        level = min(level, left // others) if wanted[owner] > left // others else level
        shares[owner] = min(wanted[owner], level)
        left -= shares[owner]
    owners = sorted(wanted)
    for position in range(len(owners)):
        owner = owners[(turn + position) % len(owners)]
        if left and shares[owner] < wanted[owner]:
            shares[owner] += 1
            left -= 1
    return shares


class LeaseFile:
    """The share of this process in the limit of one endpoint. Without a writable folder, it is the whole limit."""

    def __init__(self, endpoint: str, folder: Path | None = None) -> None:
        self._folder = state_folder() if folder is None else folder
        self._name = sha256(f"{socket.gethostname()} {endpoint}".encode()).hexdigest()[:24]
        self._number: int | None = None
        self._own: int | None = None
        self._is_off = False
        self._last = Lease(0, _CHANGE_S)
        self.rate: float | None = None

    def update(self, most: int, wanted: int, in_flight: int) -> Lease:
        """Return the calls that may be in flight, given the most, those that are wanted, and those in flight now."""
        if self._is_off:
            return Lease(most, _TICK_S)
        try:
            with self._locked() as shared:
                self._last = self._updated(shared, _Owner(most, wanted, 0), in_flight)
        except BlockingIOError:
            pass  # another process is slow: ask again
        except (OSError, ImportError, msgspec.MsgspecError) as error:
            self._is_off = True
            logging.getLogger("agentv").info("Limits are not shared with other processes: %s", error)
            return Lease(most, _TICK_S)
        return self._last

    def release(self, rate: float | None = None) -> None:
        """Give the share back, and keep the rate that the endpoint accepted, if it is limited."""
        if self._number is None:
            return
        with suppress(OSError, msgspec.MsgspecError), self._locked() as shared:
            shared.owners.pop(self._number, None)
            if rate is not None:
                shared.rate, shared.rate_at = rate, time.time()
        self._forget(self._number)
        if self._own is not None:
            os.close(self._own)
        self._number = self._own = None
        self._last = Lease(0, _CHANGE_S)

    def _updated(self, shared: _Shared, own: _Owner, in_flight: int) -> Lease:
        for number in [number for number in shared.owners if number != self._number and self._is_gone(number)]:
            del shared.owners[number]
            self._forget(number)
        if self._number not in shared.owners:
            self._join(shared)
        assert self._number is not None and self._own is not None
        os.utime(self._own)
        shared.owners[self._number] = own
        others = sum(owner.owned for number, owner in shared.owners.items() if number != self._number)
        total = max(owner.most for owner in shared.owners.values())
        wanted = {number: owner.wanted for number, owner in shared.owners.items()}
        share = own.most if len(wanted) == 1 else fair_shares(total, wanted, int(time.time()))[self._number]
        # Calls in flight cannot be given back.
        own.owned = max(in_flight, min(share, total - others))
        return Lease(min(share, own.owned), _TICK_S if own.owned == share else _CHANGE_S)

    def _join(self, shared: _Shared) -> None:
        """Become an owner, with a lock that ends with this process, however it ends."""
        import fcntl  # late: not on all systems

        shared.last_number += 1
        if self._own is not None:
            os.close(self._own)
        self._number = shared.last_number
        self._own = os.open(self._owner_path(self._number), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if shared.rate is not None and time.time() - shared.rate_at < _KNOWN_S:
            self.rate = shared.rate / (1 + len(shared.owners))

    def _is_gone(self, number: int) -> bool:
        """Whether an owner has ended, or has not looked at its share for long."""
        import fcntl

        try:
            other = os.open(self._owner_path(number), os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return time.time() - os.fstat(other).st_mtime > _STALLED_S
        finally:
            os.close(other)

    def _owner_path(self, number: int) -> Path:
        return self._folder / f"{self._name}.{number}"

    def _forget(self, number: int) -> None:
        with suppress(OSError):
            self._owner_path(number).unlink()

    @contextmanager
    def _locked(self) -> Iterator[_Shared]:
        """Lock the file, and write it if it changed. Raises BlockingIOError if it stays locked."""
        file = self._open()
        try:
            data = os.pread(file, 2**20, 0)
            shared = msgspec.json.decode(data, type=_Shared) if data else _Shared()
            yield shared
            written = msgspec.json.encode(shared)
            if not shared.owners and shared.rate is None:
                self._path.unlink(missing_ok=True)
            elif written != data:
                os.pwrite(file, written, 0)
                os.ftruncate(file, len(written))
        finally:
            os.close(file)

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._name}.json"

    def _open(self) -> int:
        import fcntl

        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for attempt in range(_TRIES):
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The last owner deletes the file, perhaps just before we locked it.
                if os.fstat(file).st_nlink:
                    return file
            except BlockingIOError:
                time.sleep(_TRY_S if attempt else 0)
            except BaseException:
                os.close(file)
                raise
            os.close(file)
        raise BlockingIOError(f"{self._path} is locked")


def state_folder() -> Path:
    """Return the folder for what agentv remembers between runs: in `XDG_STATE_HOME`, or in the home folder."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base, "agentv", "limits")
