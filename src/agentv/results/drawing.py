"""The random order in which a run that may stop early draws its cases: the same for a seed, whoever asks for it."""

from __future__ import annotations

import hashlib


def unit_of(conversation_id: str | None, path: str, id: str) -> str:
    """What a result is drawn and bet on together with: its conversation, else the trials of its case."""
    return f"conversation\0{conversation_id}" if conversation_id is not None else f"{path}\0{id}"


def rank(seed: int, unit: str) -> int:
    """A unit's place in the shuffle of a seed."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{unit}".encode(), digest_size=8).digest())
