"""The random order in which answers are labelled, and labels of answers that were picked before their turn."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from agentv.extensions.judge.labels import AnswerKey, Label, Labels


def draw_order(key: AnswerKey, seed: int) -> bytes:
    """Return the rank of an answer in a random order that is determined by the seed."""
    return hashlib.blake2b("\0".join((str(seed), *key)).encode("utf-8", "replace"), digest_size=8).digest()


def passed_over(labels: Labels, labeller: str, is_passed: Callable[[AnswerKey], bool]) -> list[Label]:
    """Return the labels of picked answers whose turn has come, now as drawn at random.

    An answer that was picked before its turn is not asked for again. Once a later one is drawn, it belongs to the
    random sample: without it, answers that people like to pick would be missing there.
    """
    picked = (label for label in labels.all_by(labeller) if label.drawn == "chosen")
    return [msgspec.structs.replace(label, drawn="random") for label in picked if is_passed(label.key)]
