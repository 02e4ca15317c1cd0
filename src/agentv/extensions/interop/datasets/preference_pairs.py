"""Preference pairs, as DPO trains on them: is an answer better than the one that was rejected?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, listed_records, rows_of
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import filled, first_of, is_blank, messages_of, metadata_of, text_of
from agentv.extensions.interop.datasets.dataset_values import cell_value

_NAMES = (("chosen", "rejected"), ("preferred_output", "non_preferred_output"))
_PROMPTS = ("prompt", "question", "query", "conversations", "input", "instruction")
_USED = ("id", "prompt_id", "system", *_PROMPTS, *_NAMES[0], *_NAMES[1])
_MESSAGE = frozenset(("role", "from", "messages"))
"""Keys of messages, and of an object with a list of them."""
_TURN = re.compile(r"\n\n(Human|Assistant): ?")
"""The start of a message in conversations that are one text."""


class _PreferencePairs(ForeignFormat):
    title = "preference pairs"
    strength = 0.45
    fields = "prompt → input, chosen → expected_output, rejected → pairwise"

    def fits(self, file: RecordFile) -> bool:
        return any(all_have(rows_of(file), *names) for names in _NAMES)

    def items(self, file: RecordFile) -> Iterator[Record]:
        return listed_records(file)

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = {key: _cell(value) for key, value in record.data.items()}
        pair = next(((data[a], data[b]) for a, b in _NAMES if a in data and b in data), (None, None))
        chosen, rejected = ([] if value is None else _messages(value, "assistant", lose) for value in pair)
        if not chosen or not rejected or any(is_blank(pair[-1].get("content")) for pair in (chosen, rejected)):
            raise ValueError("The record has no pair of texts: one answer is missing, or is a tool call")
        before = _prompt(data, lose) or chosen[:-1]  # without a prompt, both have the same messages before the answer
        if not before or (len(rejected) > 1 and rejected[:-1] != chosen[:-1]):
            raise ValueError("The record has no prompt that both answers reply to")
        row = {
            "id": first_of(data, "id", "prompt_id"),
            "input": before,
            "expected_output": chosen[-1]["content"],
            "assertions": [{"type": "pairwise", "value": text_of(rejected[-1]["content"])}],
            "metadata": metadata_of(data, _USED),
        }
        return [filled(row)]


PREFERENCE_PAIRS = _PreferencePairs()


def _cell(value: Any) -> Any:
    """Return the messages in the text of a cell. Other texts, such as an answer in JSON, are unchanged."""
    data = cell_value(value)
    first = data[0] if isinstance(data, list) and data else data
    return data if isinstance(first, dict) and not _MESSAGE.isdisjoint(first) else value


def _prompt(data: dict[str, Any], lose: Lose) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": text_of(data["system"])}] if not is_blank(data.get("system")) else []
    if not is_blank(data.get("instruction")):  # as Alpaca writes a question, with an optional input
        texts = [text_of(data[key]) for key in ("instruction", "input") if not is_blank(data.get(key))]
        return [*system, {"role": "user", "content": "\n\n".join(texts)}]
    value = first_of(data, *_PROMPTS)
    messages = value.get("messages") if isinstance(value, dict) else value
    return [*system, *_messages(messages, "user", lose)] if not is_blank(messages) else []


def _messages(value: Any, role: str, lose: Lose) -> list[dict[str, Any]]:
    """Return messages: of a list, of a text with `Human:` and `Assistant:`, or of a text that is one message."""
    if not isinstance(value, str):
        return messages_of(value, lose)
    parts = _TURN.split(value)
    if len(parts) < 3 or parts[0].strip():
        return [{"role": role, "content": value}]
    roles = ["user" if name == "Human" else "assistant" for name in parts[1::2]]
    return [{"role": own, "content": text.strip()} for own, text in zip(roles, parts[2::2], strict=True)]
