"""Share one budget between the shards of an evaluation that run on this machine, through a small locked file.

Each shard may spend up to an allowance; together the allowances never exceed the budget. A few times a second, a shard
reports what it has spent and reserved, and gets an equal part of the rest. What a shard has spent counts after it has
ended or was killed; its reservations do not.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from agentv.executors.shared_file import SharedFile, state_folder

ROUNDING_USD = 1e-9
"""Sums of costs are not exact: ten calls of $0.01 use up $0.10."""
_ROUND_S, _KEPT_S = 24 * 3600.0, 30 * 24 * 3600.0
"""A shard belongs to those that were active within a day before it; spending is kept for a month."""


class BudgetShare(msgspec.Struct, frozen=True):
    """A shard and the budget it shares: `key` identifies the evaluation, `spent_usd` is from before it was resumed."""

    key: str
    shard: int
    run_id: str
    limit_usd: float
    spent_usd: float = 0.0


class Allowance(msgspec.Struct, frozen=True):
    """What a shard may spend in total, and what the other shards have spent or reserved.

    `others_run` if one of them has jobs in flight, `is_used_up` if all shards together have spent the budget.
    """

    usd: float
    others_usd: float = 0.0
    others_run: bool = False
    is_used_up: bool = False


class ShardSpending(msgspec.Struct, frozen=True):
    """What the shards of an evaluation on this machine have spent, and their number."""

    usd: float
    shards: int


class _Shard(msgspec.Struct):
    """A shard in the file. `round` separates evaluations that are the same but for their time."""

    round: int
    shard: int
    run_id: str
    number: int | None = None
    spent: float = 0.0
    reserved: float = 0.0
    jobs: int = 0
    allowed: float = 0.0
    at: float = 0.0


class _Budgets(msgspec.Struct):
    shards: list[_Shard] = []


class BudgetFile:
    """The part of this process in the budget of an evaluation."""

    def __init__(self, share: BudgetShare, folder: Path | None = None) -> None:
        self._share = share
        self._file = SharedFile(folder or state_folder("budgets"), share.key, _Budgets)

    def update(self, spent_usd: float, reserved_usd: float, jobs: int) -> Allowance:
        """Report what this process has spent and reserved, and its jobs in flight; return what it may spend.

        Raises BlockingIOError if the file stays locked, and other errors if it cannot be used.
        """
        with self._file.locked() as budgets:
            own, others = self._members(budgets)
            if self._file.number is None or own.number != self._file.number:
                own.number = self._file.join()
            for other in others:
                self._end_if_gone(other)
            own.spent, own.reserved, own.jobs, own.at = (
                self._share.spent_usd + spent_usd,
                reserved_usd,
                jobs,
                time.time(),
            )
            return self._divide(own, others)

    def release(self, spent_usd: float) -> None:
        """Leave the rest of the budget to the other shards."""
        if self._file.number is None:
            return
        try:
            with self._file.locked() as budgets:
                own, _ = self._members(budgets)
                if own.number == self._file.number:
                    own.spent = own.allowed = self._share.spent_usd + spent_usd
                    own.number, own.reserved, own.jobs, own.at = None, 0.0, 0, time.time()
        except (OSError, msgspec.MsgspecError):
            pass  # the other shards find that this one has ended
        self._file.leave()

    def spending(self) -> ShardSpending:
        """Return what all shards have spent. Raises an error if the file cannot be used."""
        with self._file.locked() as budgets:
            own, others = self._members(budgets)
            return ShardSpending(own.spent + sum(other.spent for other in others), 1 + len(others))

    def _members(self, budgets: _Budgets) -> tuple[_Shard, list[_Shard]]:
        """Return this shard and the others of its round; a new round begins if another run is this shard already."""
        now, share = time.time(), self._share
        budgets.shards = [member for member in budgets.shards if now - member.at < _KEPT_S]
        own = next((member for member in budgets.shards if member.run_id == share.run_id), None)
        if own is None:
            last = max((member.round for member in budgets.shards), default=0)
            latest = [member for member in budgets.shards if member.round == last]
            is_new = any(member.shard == share.shard for member in latest) or all(
                now - member.at > _ROUND_S for member in latest
            )
            own = _Shard(last + is_new, share.shard, share.run_id, at=now)
            budgets.shards.append(own)
        return own, [member for member in budgets.shards if member.round == own.round and member is not own]

    def _end_if_gone(self, other: _Shard) -> None:
        if other.number is not None and self._file.is_gone(other.number):
            other.number, other.reserved, other.jobs, other.allowed = None, 0.0, 0, other.spent

    def _divide(self, own: _Shard, others: list[_Shard]) -> Allowance:
        limit = self._share.limit_usd
        committed = sum(other.spent + other.reserved for other in others)
        running = 1 + sum(other.number is not None for other in others)
        rest = max(0.0, limit - committed - own.spent - own.reserved)
        free = limit - sum(max(other.allowed, other.spent) for other in others)
        own.allowed = max(own.spent, min(own.spent + own.reserved + rest / running, free))
        is_used_up = own.spent + sum(other.spent for other in others) >= limit - ROUNDING_USD
        return Allowance(own.allowed, committed, any(other.jobs for other in others), is_used_up)
