"""Call judges and parse their responses strictly: the one verdict in a response, or the reason why there is none.

A response that consists of one object is read as it is. In any other response, objects inside the judge's thinking are
drafts and are ignored, and so are objects quoted from the judged text. If two of the remaining objects are different
verdicts, none of them counts.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, cast

import msgspec

from agentv.evaluators.base import LONGEST_REASON, Judge, cut
from agentv.evaluators.judges.answer_files import with_images
from agentv.evaluators.judges.judge_prompt import repair_message
from agentv.evaluators.judges.object_scan import UnusableResponse, objects_in, whole_object
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.job import Ask, CallOverrides, Judgement
from agentv.model.message import Message
from agentv.support.json_values import same

__all__ = ["ResponseFormat", "UnusableResponse", "call_for_format", "call_judges", "parse_response"]

MAX_CHARACTERS = 1_000_000

_THINKING_BEGINS = re.compile(r"\s*<(think|thinking|thought)>", re.IGNORECASE)
_THINKING_ENDS = re.compile(r"</(think|thinking|thought)>", re.IGNORECASE)

_REPEATS = "it repeats an object from the judged text instead of giving its own verdict"
_NO_OVERRIDES = CallOverrides()

Value = TypeVar("Value")


class ResponseFormat(msgspec.Struct, Generic[Value], frozen=True):
    """The required form of a response: a JSON Schema for APIs that can enforce one, and a function that reads it.

    The `title` of the schema identifies the format. `read` raises UnusableResponse. `role` and `noun` are for messages:
    "The judge gave no usable verdict". `quoted` are texts in the prompt written by others; an object that occurs in one
    of them is ignored. Two values are different verdicts if `decision` returns different results for them.
    """

    schema: dict[str, Any]
    read: Callable[[dict[str, Any]], Value]
    role: str = "judge"
    noun: str = "verdict"
    quoted: tuple[str, ...] = ()
    decision: Callable[[Value], Any] = lambda value: value


def parse_response(text: str, form: ResponseFormat[Value]) -> Value:
    """Return the verdict in a response. Raises UnusableResponse if there is none, or more than one."""
    if len(text) > MAX_CHARACTERS:
        raise UnusableResponse(f"it is longer than {MAX_CHARACTERS:,} characters")
    try:
        whole = _whole_response(text)
        return _only_verdict(text, form) if whole is None else _whole_verdict(whole, form)
    except RecursionError:
        raise UnusableResponse("it is nested too deeply") from None


def _whole_response(text: str) -> Any:
    """Return the object that makes up the response, or all of it after the judge's thinking."""
    whole = whole_object(text)
    thought = _end_of_thinking(text) if whole is None else 0
    return whole_object(text[thought:]) if thought else whole


def _whole_verdict(value: dict[str, Any], form: ResponseFormat[Value]) -> Value:
    """Read an object that makes up a response. It counts even if a quoted text contains it, but not if one is equal."""
    verdict = form.read(value)
    if any(same(value, whole_object(text)) for text in form.quoted if text.lstrip()[:1] in ("{", "`")):
        raise UnusableResponse(_REPEATS, suspicious=True)
    return verdict


def _only_verdict(text: str, form: ResponseFormat[Value]) -> Value:
    """Return the last verdict in a response with other text, if all its verdicts agree."""
    quotations = Quotations(form.quoted)
    if not (objects := _objects_after_thinking(text, quotations)):
        raise UnusableResponse("it is empty" if not text.strip() else "it has no complete JSON object")
    verdicts: list[Value] = []
    problem: UnusableResponse | None = None
    for value in objects:
        try:
            if isinstance(value, UnusableResponse):
                raise value
            verdict = form.read(value)
            if quotations.contain(value):
                raise UnusableResponse(_REPEATS, suspicious=True)
            verdicts.append(verdict)
        except UnusableResponse as unusable:
            problem = unusable
    if not verdicts:
        raise problem or UnusableResponse("it has no complete JSON object")
    if any(form.decision(verdict) != form.decision(verdicts[0]) for verdict in verdicts):
        raise UnusableResponse(f"it has more than one {form.noun}, and they differ", suspicious=True)
    return verdicts[-1]


def _objects_after_thinking(text: str, quotations: Quotations) -> list[Any]:
    """Return the objects after the judge's thinking. A closing tag inside an object does not end the thinking."""
    if not (thought := _end_of_thinking(text)):
        own = objects_in(text, quotations.length_at)
        return [] if _THINKING_BEGINS.match(text) else [value for _, value in own]
    after = [value for end, value in objects_in(text, quotations.length_at) if end > thought]
    # A broken object in the thinking would hide everything after it.
    return after or [value for _, value in objects_in(text[thought:], quotations.length_at)]


def _end_of_thinking(text: str) -> int:
    return max((tag.end() for tag in _THINKING_ENDS.finditer(text)), default=0)


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


async def call_judges(
    settings: Judge, judgement: Judgement, messages: tuple[Message, ...], form: ResponseFormat[Value]
) -> list[tuple[str, Value]]:
    """Call all judges concurrently and return each vote with its judge. Raises EvaluatorFailure if one is missing."""
    ask = judgement.ask
    if ask is None or not judgement.judges:
        raise EvaluatorFailure("No judge is configured: pass --judge NAME, or set `target` or `judge_target`")
    messages = with_images(messages, judgement)
    calls = [
        (judge, CallOverrides(model=settings.model, temperature=settings.temperature, sample=sample))
        for sample in range(1, settings.votes + 1)
        for judge in judgement.judges
    ]
    votes = await all_of(call_for_format(ask, judge, messages, form, overrides) for judge, overrides in calls)
    return [(judge, vote) for (judge, _), vote in zip(calls, votes, strict=True)]


async def all_of(calls: Iterable[Awaitable[Value]]) -> list[Value]:
    """Return the results of calls. All are waited for even if one fails: each is paid for and belongs in the record."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return cast("list[Value]", outcomes)


async def call_for_format(
    ask: Ask,
    judge: str | None,
    messages: tuple[Message, ...],
    form: ResponseFormat[Value],
    overrides: CallOverrides = _NO_OVERRIDES,
) -> Value:
    """Call a judge for a response in a format, with one repair attempt. Raises EvaluatorFailure if that fails too."""
    overrides = msgspec.structs.replace(overrides, schema=form.schema)
    problem = UnusableResponse("")
    for _ in range(2):
        text = (await ask(judge, messages, overrides)).text
        try:
            return parse_response(text, form)
        except UnusableResponse as unusable:
            problem = unusable
        repair = repair_message(str(problem))
        messages = (*messages, Message("assistant", text), repair) if text.strip() else (*messages, repair)
    who = f"The {form.role} '{judge}'" if judge else f"The {form.role}"
    message = f"{who} gave no usable {form.noun} in two attempts: {problem}"
    raise EvaluatorFailure(message, suspicious=problem.suspicious)


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


MOST_PARTS = 200
"""Limit on the keys of an object that are looked up, so that the time is proportional to the length of the texts."""

_ESCAPED_CHARACTER = re.compile(r"\\+u([0-9a-fA-F]{4})")
_ESCAPED_SPACE = re.compile(r"\\+[nrtbf]")
_TOKEN = re.compile(r"[^\W\d]\w*+|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|[:=]")

_NO_WORDS = "  "
"""The normal form of a text without words."""


class Quotations:
    """The texts that a judge was shown, prepared on first use."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)
        self._normal: dict[int, str] = {}

    def contain(self, value: dict[str, Any]) -> bool:
        """Whether one of the texts has every key of an object with its value, in any order and notation."""
        parts = {_normal_form(part) for part in islice(_parts(value, ""), MOST_PARTS)} - {_NO_WORDS}
        return bool(parts) and any(self._has(index, parts, value) for index in range(len(self._texts)))

    def length_at(self, text: str, position: int) -> int:
        """Return the length of the longest passage at a position of a response that occurs in one of the texts."""
        length = 0
        for quoted in self._texts:
            most = min(len(quoted), len(text) - position)
            while length < most:  # a longer passage can only occur where all shorter ones do
                middle = (length + most + 1) // 2
                if text[position : position + middle] in quoted:
                    length = middle
                else:
                    most = middle - 1
        return length

    def _has(self, index: int, parts: set[str], value: dict[str, Any]) -> bool:
        text = self._texts[index]
        if "\\u" not in text and text.isascii():
            lower = text.lower()  # a cheap test that rules out most texts
            if not all(key.lower() in lower for key, item in value.items() if item not in (None, "", [], {})):
                return False
        if index not in self._normal:
            self._normal[index] = _normal_form(text)
        return all(part in self._normal[index] for part in parts)


def _parts(value: Any, key: str) -> Iterator[str]:
    """Yield the keys of an object, at all levels, each with its value."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _parts(item, f"{name}:")
    elif isinstance(value, list):
        for item in value:
            yield from _parts(item, "")
    elif value is not None and value != "":
        yield f"{key}{value if isinstance(value, str) else json.dumps(value)}"


def _normal_form(text: str) -> str:
    """Return the words, numbers and colons of a text, each between spaces."""
    if "\\u" in text:
        text = _ESCAPED_CHARACTER.sub(lambda match: chr(int(match[1], 16)), text)
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _ESCAPED_SPACE.sub(" ", text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return f" {' '.join(map(_token, _TOKEN.findall(text.casefold())))} "


def _token(token: str) -> str:
    if token == "=":
        return ":"
    return repr(float(token)) if token[0] in "-0123456789" else token
