"""Convert values of datasets of other tools: cells of tables, references, turns, and checks of several texts."""

import itertools
import json
import re
from contextlib import suppress
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import (
    filled,
    is_blank,
    messages_of,
    object_at,
    parsed,
    texts_of,
    with_outcome,
)

_NUMPY_NAMES = {"array": "", "nan": "None"}
"""Names in the text of arrays, and what to read instead."""

_ANSWERS = ("output", "answer", "expected", "reference", "expected_output", "response", "text", "content", "label")


def cell_value(value: Any) -> Any:
    """Return the value in a cell of a table: JSON, a Python list or object as pandas writes them, or the text."""
    text = value.strip() if isinstance(value, str) else ""
    if text[:1] == '"' == text[-1:]:
        with suppress(ValueError):
            return json.loads(text)
        return value
    data = parsed(value)
    return _python_value(text, value) if data is value and text[:1] in ("{", "[") else data


def _python_value(text: str, default: Any) -> Any:
    """Return a Python list or object. In the text of an array, items are separated by blanks, as numpy writes them."""
    import ast  # late: only values that pandas wrote need it
    import io
    import tokenize

    try:
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(f"({text})").readline) if t.type != tokenize.NL]
        words = [_NUMPY_NAMES.get(token.string, token.string) for token in tokens]
        for place, (token, after) in enumerate(itertools.pairwise(tokens)):
            if token.type == after.type == tokenize.STRING:
                words[place] += ","
            if token.string == "dtype":
                words[place - 1 : place + 3] = ["", "", "", ""]
        items = ast.literal_eval(" ".join(words).strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
        return default
    return items if isinstance(items, list | dict) else default


def cell_list(value: Any, delimiter: str = "|") -> list[str]:
    """Return the list in a cell: JSON, a Python list, or items joined by a delimiter."""
    value = cell_value(value)
    if not isinstance(value, str):
        return texts_of(value)
    if value.strip().startswith("["):
        return [value]
    return [part.strip() for part in value.split(delimiter) if part.strip()]


def reference_of(value: Any, lose: Lose) -> Any:
    """Return a reference of any type; of an object with one value, that value."""
    inner = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else None
    for part in (value, inner):
        items = part if isinstance(part, list) else [part]
        if items and all(map(_is_message, items)):
            messages = messages_of(items, lose)
            asked = [place for place, message in enumerate(messages, 1) if message["role"] == "user"]
            return messages[asked[-1] :] or messages if asked else messages
    return inner if inner is not None and next(iter(value)) in _ANSWERS and not is_blank(inner) else value


def _is_message(value: Any) -> bool:
    """Whether a value is a message of a chat API, or one that LangChain wrote."""
    if not isinstance(value, dict):
        return False
    is_typed = value.get("type") in ("human", "ai", "tool") and (
        "content" in value or "content" in object_at(value, "data")
    )
    return is_typed or "role" in value or "kwargs" in value


def split_conversation(messages: list[dict[str, Any]], lose: Lose) -> dict[str, Any]:
    """Return the input and the turns of a conversation. The target writes its own replies."""
    if not (users := [index for index, message in enumerate(messages) if message["role"] == "user"]):
        raise ValueError("The conversation has no user message")
    if any(message["role"] in ("assistant", "tool") for message in messages):
        lose("recorded replies in a conversation: the target writes its own")
    before = [message for message in messages[: users[0]] if message["role"] == "system"]
    turns = [{"input": [messages[index]]} for index in users[1:]]
    return filled({"input": [*before, messages[users[0]]], "turns": turns})


def with_turns(row: dict[str, Any], turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row with the turns of a conversation, each with its own reference and checks, the first included."""
    if len(turns) == 1:
        return with_outcome({**row, **filled(turns[0])})
    for turn in turns:
        if not is_blank(turn.get("expected_output")):
            turn.setdefault("assertions", [{"type": "llm_judge"}])
    last = {"expected_output": turns[-1].get("expected_output")}
    own = with_outcome({**row, "turns": [filled(turn) for turn in turns], **filled(last)})
    return {**own, "assertions": []} if any(turn.get("assertions") for turn in turns) else own


def any_of(values: list[str]) -> dict[str, Any]:
    """Return an evaluator for an answer that equals one of several texts."""
    if len(values) == 1:
        return {"type": "equals", "value": values[0]}
    choices = "|".join(re.escape(value.strip()) for value in values)
    return {"type": "regex", "name": "equals_any", "value": rf"^\s*(?:{choices})\s*$"}
