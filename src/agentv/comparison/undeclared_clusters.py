"""Warn about cases of a run that share long texts without a declared cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from agentv.comparison.scores import RunScores
from agentv.errors import AgentvError
from agentv.stats.shared_texts import HINT, SharedTexts


class _StoredInput(msgspec.Struct):
    """The fields of a stored case that show whether it may be correlated with others."""

    input: list[dict[str, Any]] = []
    cluster: str | None = None
    conversation_id: str | None = None


_decode = msgspec.json.Decoder(_StoredInput).decode


def undeclared_clusters(run: RunScores) -> Iterator[str]:
    """Yield a warning if many cases of a run share long texts and none is in a cluster."""
    if run.has_conversations or run.manifest is None:
        return
    texts = SharedTexts()
    with suppress(AgentvError, msgspec.DecodeError):  # `agentv runs check` names damaged cases
        for case in run.run.cases():
            stored = _decode(case.data)
            texts.add(content for message in stored.input if isinstance(content := message.get("content"), str))
            if texts.is_full:
                break
    if warning := texts.warning():
        yield f"{warning}. {HINT}"
