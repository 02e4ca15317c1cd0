"""Convert values in files of other tools, which may be anything: numbers, texts, errors, token counts and messages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from agentv.datasets.foreign.values import text_of as text_of
from agentv.extensions.interop.imports.json_stream import JsonProblem, decode_json
from agentv.model.message import ROLES, Message, ToolCall
from agentv.model.result import ErrorClass, ErrorInfo, Stage, TokenUsage

_UNSAFE = re.compile(r"[^\w.-]+")
# Many tools store an error as a message only; its class is guessed from these words.
_CLASSES: tuple[tuple[ErrorClass, re.Pattern[str]], ...] = (
    ("timeout", re.compile(r"time[d]?[\s_-]?out", re.I)),
    ("rate_limit", re.compile(r"\b429\b|rate[\s_-]?limit|too many requests", re.I)),
    ("auth", re.compile(r"\b40[13]\b|unauthori[sz]ed|forbidden|api[\s_-]?key", re.I)),
    ("server", re.compile(r"\b5\d\d\b|overloaded|server[\s_]error", re.I)),
    ("network", re.compile(r"ECONN|ENOTFOUND|EAI_AGAIN|network|fetch failed|socket", re.I)),
    ("invalid_response", re.compile(r"JSON|parse|missing (?:batch )?(?:id|output)", re.I)),
)

_ROUNDING = 1e-9
"""A value that is nearer to 0 or 1 is read as that: sums of floats such as 1.0000000000000004 are outside the scale."""


def unique_names(names: Iterable[str]) -> Iterator[str]:
    """Yield names, with a number added to those that repeat an earlier one."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        yield name if counts[name] == 1 else f"{name}-{counts[name]}"


class Fields(dict[str, Any]):
    """An object of another tool. A key may be missing, and a value of the wrong type counts as missing."""

    def text(self, key: str, *others: str) -> str:
        """Return the first value that is not empty as text."""
        value = self.get(key)
        for other in others:
            value = value or self.get(other)
        return text_of(value)

    def optional_text(self, key: str) -> str | None:
        """Return a value as text; None if there is none."""
        return None if self.get(key) is None else text_of(self[key])

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the items of a list as texts."""
        return tuple(map(text_of, self.items_of(key)))

    def object(self, key: str) -> Fields:
        """Return an object; an empty one if there is none."""
        return dict_of(self.get(key))

    def objects(self, key: str) -> list[Fields]:
        """Return the items of a list as objects."""
        return list(map(dict_of, self.items_of(key)))

    def items_of(self, key: str) -> list[Any]:
        """Return a list; an empty one if there is none."""
        return list_of(self.get(key))

    def number(self, key: str) -> float | None:
        """Return a finite number."""
        return number_or_none(self.get(key))

    def milliseconds(self, key: str) -> float | None:
        """Return a number of seconds in milliseconds."""
        return None if (seconds := self.number(key)) is None else seconds * 1000

    def truth(self, key: str) -> bool | None:
        """Return a truth value."""
        value = self.get(key)
        return value if isinstance(value, bool) else None

    def grade(self, key: str) -> float | bool | None:
        """Return a number or truth value."""
        return grade_value(self.get(key))

    def usage(self, input: str, output: str, **more: str) -> TokenUsage | None:
        """Return token counts by their keys; None if neither is known."""
        return token_usage(self.get(input), self.get(output), **{name: self.get(key) for name, key in more.items()})


def dict_of(value: Any) -> Fields:
    """Return an object; an empty one for anything else."""
    return value if type(value) is Fields else Fields(value) if isinstance(value, dict) else Fields()


def list_of(value: Any) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def number_or_none(value: Any) -> float | None:
    """Return a finite number; None for anything else, also for a truth value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def grade_value(value: Any) -> float | bool | None:
    """Return a number or truth value; None for anything else. A number that is 0 or 1 but for rounding is that."""
    number = value if isinstance(value, bool) else number_or_none(value)
    is_rounded = isinstance(number, float) and min(abs(number), abs(number - 1)) < _ROUNDING
    return float(round(number)) if is_rounded and number is not None else number


def token_usage(input_tokens: Any, output_tokens: Any, **more: Any) -> TokenUsage | None:
    """Return token counts; None if neither is known."""
    counts = [number_or_none(value) for value in (input_tokens, output_tokens)]
    if counts == [None, None]:
        return None
    others = {name: int(number) for name, value in more.items() if (number := number_or_none(value)) is not None}
    return TokenUsage(int(counts[0] or 0), int(counts[1] or 0), **others)


def error_info(message: Any, stage: Stage = "target") -> ErrorInfo:
    """Return an error, with the class that its words suggest."""
    text = text_of(message).strip() or "no message"
    return ErrorInfo("evaluator" if stage == "evaluator" else error_class_in(text), text, stage)


def error_class_in(words: str) -> ErrorClass:
    """Return the class that the words of an error message suggest."""
    return next((name for name, pattern in _CLASSES if pattern.search(words)), "process")


def chat_messages(items: Any) -> tuple[Message, ...]:
    """Return chat messages of OpenAI's shape as messages, with their tool calls. Other items are left out."""
    return tuple(
        message for item in list_of(items) if isinstance(item, dict) and (message := chat_message(item)) is not None
    )


def chat_message(item: dict[str, Any]) -> Message | None:
    """Return one chat message; None if it has no known role."""
    role = {"developer": "system", "function": "tool", "model": "assistant", "ai": "assistant", "human": "user"}.get(
        str(item.get("role")), item.get("role")
    )
    if role not in ROLES:
        return None
    calls = tuple(call for entry in list_of(item.get("tool_calls")) if (call := _tool_call(entry)) is not None)
    content = content_text_of(item.get("content"))
    return Message(role, content if content or not calls else None, calls)  # type: ignore[arg-type]


def content_text_of(content: Any) -> str:
    """Return the content of a chat message as text: text parts on separate lines; other parts by their type."""
    if not isinstance(content, list):
        return text_of(content)
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return text_of(part)
    text = next((part[key] for key in ("text", "reasoning", "value") if isinstance(part.get(key), str)), None)
    return text if text is not None else f"[{part.get('type', 'part')}]"


def _tool_call(call: Any) -> ToolCall | None:
    if not isinstance(call, dict):
        return None
    function = call.get("function")
    source = function if isinstance(function, dict) else call
    name = function if isinstance(function, str) else source.get("name") or source.get("tool")
    arguments = next((source[key] for key in ("arguments", "input", "args") if key in source), None)
    if isinstance(arguments, str) and arguments.lstrip().startswith("{"):
        with suppress(JsonProblem):
            arguments = decode_json(arguments.encode())
    id = call.get("id")
    return ToolCall(tool=str(name), input=arguments, id=None if id is None else str(id)) if name else None


def safe_name(text: str) -> str:
    """Return a text as a part of a file name."""
    return _UNSAFE.sub("-", text).strip("-.")[:80]
