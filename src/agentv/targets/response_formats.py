"""The response formats to request from a target, and the signs that it does not support one."""

from __future__ import annotations

import msgspec

from agentv.model.job import CallOverrides
from agentv.model.response import TargetFailure
from agentv.targets.target import Target

FORMAT_REJECTED = frozenset({400, 404, 415, 422, 501})
"""Statuses of servers that do not support the requested response format."""


class RecordedInAnotherFormat(TargetFailure):
    """A replayed call that was not recorded in this response format, but in a later one: it was never made."""

    def __init__(self) -> None:
        super().__init__("invalid_response", "Recorded in another response format", status=400)

    def __reduce__(self) -> tuple[type[RecordedInAnotherFormat], tuple[object, ...]]:
        return RecordedInAnotherFormat, ()


def response_formats(settings: Target, base: CallOverrides) -> list[CallOverrides]:
    """Return the overrides to try in turn: with the schema, with any JSON, and without a response format.

    Formats that the target cannot send are left out.
    """
    tried = [base, msgspec.structs.replace(base, schema="json")] if isinstance(base.schema, dict) else [base]
    tried = [step for step in tried if step.schema is not None and _sends(settings, step)]
    return [*tried, msgspec.structs.replace(base, schema=None)]


def _sends(settings: Target, overrides: CallOverrides) -> bool:
    return getattr(settings.with_overrides(overrides), "response_format", None) == overrides.schema
