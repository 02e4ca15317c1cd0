"""Call judges and parse their responses strictly: the last JSON object that fits, or the reason why none does.

Objects inside a judge's thinking are drafts and are ignored.

The judged text may itself contain an object that looks like a verdict, and a judge may repeat it. Objects that occur in
the `quoted` texts are therefore ignored, unless the object is the entire response and no quoted text is exactly that
object.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from agentv.evaluators.base import LONGEST_REASON, Judge, cut
from agentv.evaluators.judges.judge_prompt import repair_message
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.job import Ask, CallOverrides, Judgement
from agentv.model.message import Message
from agentv.support.json_values import same

MAX_CHARACTERS = 1_000_000
_MOST_BROKEN = 5_000
"""Maximum number of broken objects in a response; a hostile response with more would take too long to parse."""

_CONTINUES = re.compile(r"\s*[,\]}]")
"""Text after an object that is part of a larger value, and therefore not a verdict."""

_THINKING_BEGINS = re.compile(r"\s*<(think|thinking|thought)>", re.IGNORECASE)
_THINKING_ENDS = re.compile(r"</(think|thinking|thought)>", re.IGNORECASE)

_NO_OVERRIDES = CallOverrides()

Value = TypeVar("Value")


class UnusableResponse(Exception):
    """A response or an object that cannot be used. The message is one short sentence about the reason."""


def parse_response(text: str, read: Callable[[dict[str, Any]], Value], quoted: tuple[str, ...] = ()) -> Value:
    """Return the last complete object that `read` accepts. Raises UnusableResponse about the last object otherwise."""
    if len(text) > MAX_CHARACTERS:
        raise UnusableResponse(f"it is longer than {MAX_CHARACTERS:,} characters")
    found = list(_objects_after_thinking(text.rstrip()))
    if not found:
        raise UnusableResponse("it is empty" if not text.strip() else "it has no complete JSON object")
    reason = ""
    for start, end, value in reversed(found):
        try:
            if isinstance(value, UnusableResponse):
                raise value
            accepted = read(value)
        except UnusableResponse as unusable:
            reason = reason or str(unusable)
            continue
        if not _is_echo(value, quoted, alone=_is_alone(text, start, end)):
            return accepted
        reason = reason or "it repeats an object from the judged text instead of giving its own verdict"
    raise UnusableResponse(reason)


def _objects_after_thinking(text: str) -> Iterator[tuple[int, int, Any]]:
    """Return the objects after the judge's thinking. A closing tag inside an object does not end the thinking."""
    thought = max((tag.end() for tag in _THINKING_ENDS.finditer(text)), default=0)
    if not thought:
        return iter(()) if _THINKING_BEGINS.match(text) else _objects(text)
    after = [each for each in _objects(text) if each[1] > thought]
    # An incomplete object in the thinking would hide everything after it.
    return iter(after or [(start + thought, end + thought, value) for start, end, value in _objects(text[thought:])])


def _is_echo(value: dict[str, Any], quoted: Iterable[str], *, alone: bool) -> bool:
    """Return whether a quoted text contains the object, or if `alone`, whether a quoted text is exactly the object."""
    return any(
        (not alone or (inner is outer and _is_alone(text, start, end))) and same(value, inner)
        for text in quoted
        if "\\u" in text or all(key in text for key in value)  # a cheap test that rules out most texts
        for start, end, outer in _objects(text, everywhere=True)
        for inner in _nested_objects(outer)
    )


def _objects(text: str, *, everywhere: bool = False) -> Iterator[tuple[int, int, Any]]:
    """Yield every complete object with its position, or an UnusableResponse in its place if it is not acceptable.

    The contents of an incomplete object are skipped. With `everywhere`, objects inside others are included.
    """
    position = text.find("{")
    broken = 0
    while position >= 0:
        end = position + 1
        try:
            value, end = _DECODER.raw_decode(text, position)
            if everywhere or not _CONTINUES.match(text, end):
                yield position, end, value
        except UnusableResponse as unusable:
            yield position, end, unusable
        except json.JSONDecodeError as error:
            if not everywhere and (error.pos >= len(text) or error.msg.startswith("Unterminated")):
                return
            broken += 1
        except ValueError:
            broken += 1
        except RecursionError:
            broken += _MOST_BROKEN // 10  # takes as long as hundreds of others
        if broken > _MOST_BROKEN:
            raise UnusableResponse("it has too many broken objects to find a verdict among them")
        position = text.find("{", position + 1 if everywhere else end)


def _nested_objects(value: Any) -> Iterator[Any]:
    """Yield a value, if it is an object, and all objects inside it."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nested_objects(item)


def _is_alone(text: str, start: int, end: int) -> bool:
    """Return whether only whitespace and a code fence surround a part of a text."""
    before, after = text[:start].strip(), text[end:].strip()
    return before in ("", "```", "```json") and after in ("", "```")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = {_without_surrogates(key): _without_surrogates(item) for key, item in pairs}
    if len(value) < len(pairs):
        ((twice, _),) = Counter(_without_surrogates(key) for key, _ in pairs).most_common(1)
        raise UnusableResponse(f"it has the key '{twice[:40]}' twice")
    return value


def _without_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which JSON can express but UTF-8 cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value


def _constant(name: str) -> NoReturn:
    raise UnusableResponse(f"{name} is not a valid number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, strict=False)


def read_text(data: dict[str, Any], key: str) -> str | None:
    """Return an optional text of a judge's object, shortened if long. Raises UnusableResponse for anything else."""
    value = data.get(key)
    if not isinstance(value, str | None):
        raise UnusableResponse(f"'{key}' must be a string")
    return cut(value, LONGEST_REASON) if value else None


def object_schema(properties: dict[str, Any], **further: Any) -> dict[str, Any]:
    """Return the JSON Schema of an object with exactly these properties."""
    closed = {"required": list(properties), "additionalProperties": False}
    return {**further, "type": "object", "properties": properties, **closed}


class ResponseFormat(msgspec.Struct, Generic[Value], frozen=True):
    """The required form of a response: a JSON Schema for APIs that can enforce one, and a function that reads it.

    The `title` of the schema identifies the format. `read` raises UnusableResponse. `role` and `noun` are for messages:
    "The judge gave no usable verdict". `quoted` are texts in the prompt written by others; an object that occurs in one
    of them is ignored.
    """

    schema: dict[str, Any]
    read: Callable[[dict[str, Any]], Value]
    role: str = "judge"
    noun: str = "verdict"
    quoted: tuple[str, ...] = ()


async def call_judges(
    settings: Judge, judgement: Judgement, messages: tuple[Message, ...], form: ResponseFormat[Value]
) -> list[tuple[str, Value]]:
    """Call all judges concurrently and return each vote with its judge. Raises EvaluatorFailure if one is missing."""
    ask = judgement.ask
    if ask is None or not judgement.judges:
        raise EvaluatorFailure("No judge is configured: pass --judge NAME, or set `target` or `judge_target`")
    calls = [
        (judge, CallOverrides(model=settings.model, temperature=settings.temperature, sample=sample))
        for sample in range(1, settings.votes + 1)
        for judge in judgement.judges
    ]
    # Wait for all calls even if one fails: each is paid for and belongs in the record.
    outcomes = await asyncio.gather(
        *(call_for_format(ask, judge, messages, form, overrides) for judge, overrides in calls), return_exceptions=True
    )
    votes = []
    for (judge, _), outcome in zip(calls, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            raise outcome
        votes.append((judge, outcome))
    return votes


async def call_for_format(
    ask: Ask,
    judge: str | None,
    messages: tuple[Message, ...],
    form: ResponseFormat[Value],
    overrides: CallOverrides = _NO_OVERRIDES,
) -> Value:
    """Call a judge for a response in a format, with one repair attempt. Raises EvaluatorFailure if that fails too."""
    overrides = msgspec.structs.replace(overrides, schema=form.schema)
    reason = ""
    for _ in range(2):
        text = (await ask(judge, messages, overrides)).text
        try:
            return parse_response(text, form.read, form.quoted)
        except UnusableResponse as unusable:
            reason = str(unusable)
        repair = repair_message(reason)
        messages = (*messages, Message("assistant", text), repair) if text.strip() else (*messages, repair)
    who = f"The {form.role} '{judge}'" if judge else f"The {form.role}"
    raise EvaluatorFailure(f"{who} gave no usable {form.noun} in two attempts: {reason}")


def combine_votes(values: Sequence[float], combine: str) -> float:
    """Return the `mean` or the `majority` of votes. If several values are equally frequent, that is their mean."""
    if combine == "majority":
        counts = Counter(values)
        most = max(counts.values())
        values = [value for value, count in counts.items() if count == most]
    # Rounding must not push the mean outside the range of the values.
    return min(max(values), max(min(values), math.fsum(values) / len(values)))


def vote_details(votes: list[dict[str, Any]], combine: str) -> dict[str, Any]:
    """Return the votes, how they were combined, their spread, and the fraction that gave the most frequent score."""
    scores = [vote["score"] for vote in votes]
    agreement = max(Counter(scores).values()) / len(scores)
    return {"votes": votes, "combine": combine, "spread": max(scores) - min(scores), "agreement": agreement}
