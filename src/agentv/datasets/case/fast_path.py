"""The short way from a row to a case: rows in the common shape, whose types were checked while they were parsed."""

from __future__ import annotations

from typing import Any

from agentv.datasets.case.header import Header
from agentv.datasets.formats.rows import PlainRow, Row
from agentv.model.case import NO_DETAILS, EvalCase, Place
from agentv.model.message import Message
from agentv.model.values import NestingError, freeze


class PlainBuilder:
    """Builds what needs no look at the row beyond its types; anything else is left to the long way."""

    def __init__(self, header: Header) -> None:
        self._header = header

    def cases(self, rows: list[Row], place: Place) -> list[EvalCase] | None:
        """A batch at once, or None when one of its rows needs the long way."""
        header = self._header
        metadata, tags, execution, specs = header.metadata, header.tags, header.execution, header.evaluators.specs
        cases = []
        for offset, row in enumerate(rows):
            if type(row) is not PlainRow:
                return None
            id, asked, expected = row.id, row.input, row.expected_output
            # By far the most common row has two texts and nothing else: it is built right here.
            if type(asked) is str and type(expected) is str and row.metadata is None and row.tags is None:
                if not id or id.isspace():
                    return None
                case: EvalCase | None = EvalCase(
                    id, row.expected_outcome, asked, expected, row.conversation_id,
                    metadata, tags, execution, specs, NO_DETAILS, place, offset,
                )  # fmt: skip
            else:
                case = self.case(row, place, offset)
            if case is None:
                return None
            cases.append(case)
        return cases

    def case(self, row: PlainRow, place: Place, offset: int) -> EvalCase | None:
        """One case, or None when the row needs the long way after all."""
        if not row.id or row.id.isspace() or not (type(row.input) is str or _is_plain_text(row.input)):
            return None
        header, metadata = self._header, self._header.metadata
        try:
            expected = _expected(row.expected_output)
            if row.metadata is not None:
                metadata = header.with_metadata(row.metadata)
        except NestingError:
            return None
        if expected is None:
            return None
        tags = header.tags if row.tags is None else header.with_tags(row.tags)
        return EvalCase(
            row.id, row.expected_outcome, row.input, expected, row.conversation_id,
            metadata, tags, header.execution, header.evaluators.specs, NO_DETAILS, place, offset,
        )  # fmt: skip


def _expected(value: Any) -> str | tuple[Message, ...] | None:
    """The reference answer as a case stores it; None when it needs a closer look."""
    if value is None:
        return ()
    if type(value) is dict:
        return None if "role" in value else (Message("assistant", freeze(value)),)
    return value if type(value) is str or _is_plain_text(value) else None


def _is_plain_text(messages: Any) -> bool:
    """Whether there is at least one message and none has anything but text: nothing to resolve or freeze."""
    return bool(messages) and all(type(message.content) is str and not message.tool_calls for message in messages)
