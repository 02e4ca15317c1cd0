"""What a judge replies, read strictly: the last JSON object in its text that fits, or the reason why none does.

What stands in a judge's thinking is a draft and no verdict.

What was put into the prompt may hold such an object too, made up to look like a verdict. A judge that repeats it has
not said it: objects that stand in the `quoted` texts are passed over, unless the object is all of the reply and no
quoted text is just that object.
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

from agentv.evaluators.base import Judge
from agentv.evaluators.judges.judge_prompt import repair_message
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.job import Ask, CallOverrides, Judgement
from agentv.model.message import Message
from agentv.support.json_values import same

MAX_CHARACTERS = 1_000_000
_MOST_BROKEN = 5_000
"""Openings of objects that lead nowhere: no reply has so many, and a hostile one would cost time."""

_GOES_ON = re.compile(r"\s*[,\]}]")
"""What follows a part of something larger, and never a verdict."""

_THINKING_BEGINS = re.compile(r"\s*<(think|thinking|thought)>", re.IGNORECASE)
_THINKING_ENDS = re.compile(r"</(think|thinking|thought)>", re.IGNORECASE)

_NOTHING_MORE = CallOverrides()

Value = TypeVar("Value")


class Unfit(Exception):
    """A reply or an object that cannot be used: one sentence that says why, without quoting anything at length."""


def read_reply(text: str, read: Callable[[dict[str, Any]], Value], quoted: tuple[str, ...] = ()) -> Value:
    """The last complete object of a reply that `read` takes. Raises Unfit, with what is wrong with the last one."""
    if len(text) > MAX_CHARACTERS:
        raise Unfit(f"it is longer than {MAX_CHARACTERS:,} characters")
    found = list(_said(text.rstrip()))
    if not found:
        raise Unfit("it is empty" if not text.strip() else "it has no complete JSON object")
    reason = ""
    for start, end, value in reversed(found):
        try:
            if isinstance(value, Unfit):
                raise value
            fitting = read(value)
        except Unfit as unfit:
            reason = reason or str(unfit)
            continue
        if _is_echo(value, quoted, alone=_is_alone(text, start, end)):
            reason = reason or "it repeats an object of the text that is judged instead of a verdict of its own"
            continue
        return fitting
    raise Unfit(reason)


def _said(text: str) -> Iterator[tuple[int, int, Any]]:
    """The objects behind the judge's thinking. A tag inside an object is a word of it and ends nothing."""
    thought = max((tag.end() for tag in _THINKING_ENDS.finditer(text)), default=0)
    if not thought:
        return iter(()) if _THINKING_BEGINS.match(text) else _objects(text)
    said = [each for each in _objects(text) if each[1] > thought]
    # Half an object in the thinking hides what comes after it.
    return iter(said or [(start + thought, end + thought, value) for start, end, value in _objects(text[thought:])])


def _is_echo(value: dict[str, Any], quoted: Iterable[str], *, alone: bool) -> bool:
    """Whether an object stands in a text; for one that is `alone` in its reply, whether it is all of a text."""
    return any(
        (not alone or (inner is outer and _is_alone(text, start, end))) and same(value, inner)
        for text in quoted
        if "\\u" in text or all(key in text for key in value)  # a quick no, in whichever way a key is spelled
        for start, end, outer in _objects(text, everywhere=True)
        for inner in _inside(outer)
    )


def _objects(text: str, *, everywhere: bool = False) -> Iterator[tuple[int, int, Any]]:
    """Every complete object with its place, from left to right; an Unfit in the place of one that is not acceptable.

    What stands inside an object that never ends is no object of its own. `everywhere` looks into all of them.
    """
    position = text.find("{")
    broken = 0
    while position >= 0:
        end = position + 1
        try:
            value, end = _DECODER.raw_decode(text, position)
            if everywhere or not _GOES_ON.match(text, end):
                yield position, end, value
        except Unfit as unfit:
            yield position, end, unfit
        except json.JSONDecodeError as error:
            if not everywhere and (error.pos >= len(text) or error.msg.startswith("Unterminated")):
                return
            broken += 1
        except ValueError:
            broken += 1
        except RecursionError:
            broken += _MOST_BROKEN // 10  # each takes as long as a thousand others
        if broken > _MOST_BROKEN:
            raise Unfit("there are too many broken objects to find a verdict among them")
        position = text.find("{", position + 1 if everywhere else end)


def _inside(value: Any) -> Iterator[Any]:
    """A value and all objects in it."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _inside(item)


def _is_alone(text: str, start: int, end: int) -> bool:
    """Whether nothing but spaces and a code fence stands around a part of a text."""
    before, after = text[:start].strip(), text[end:].strip()
    return before in ("", "```", "```json") and after in ("", "```")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = {_writable(key): _writable(item) for key, item in pairs}
    if len(value) < len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in {earlier for earlier, _ in pairs[:index]})
        raise Unfit(f"it has the key '{twice[:40]}' twice")
    return value


def _writable(value: Any) -> Any:
    """A text without halves of characters, which JSON can spell and no file can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return [_writable(item) for item in value] if isinstance(value, list) else value


def _constant(name: str) -> NoReturn:
    raise Unfit(f"{name} is no number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, strict=False)


class Form(msgspec.Struct, Generic[Value], frozen=True):
    """What an answer must look like: a JSON Schema for APIs that hold a model to one, and what reads the object.

    The `title` of the schema tells forms apart: two with the same title are the same. `read` raises Unfit. Messages say
    that `asked` gave no usable `what`. `quoted` are texts in the messages that others wrote: an object that stands in
    one of them is no answer.
    """

    schema: dict[str, Any]
    read: Callable[[dict[str, Any]], Value]
    asked: str = "judge"
    what: str = "verdict"
    quoted: tuple[str, ...] = ()


class Vote(msgspec.Struct, Generic[Value], frozen=True):
    """What one judge said, the first time it was asked or a later one."""

    judge: str
    value: Value


async def ask_judges(
    settings: Judge, judgement: Judgement, messages: tuple[Message, ...], form: Form[Value]
) -> list[Vote[Value]]:
    """The votes of all judges, asked at the same time. Raises EvaluatorFailure when one of them is missing."""
    ask = judgement.ask
    if ask is None or not judgement.judges:
        raise EvaluatorFailure("No judge: name one with --judge, `target` of the evaluator or `judge_target`")
    asked = [
        (judge, CallOverrides(model=settings.model, temperature=settings.temperature, sample=sample))
        for sample in range(1, settings.votes + 1)
        for judge in judgement.judges
    ]
    # All are waited for, also when one has failed: what was asked is paid for and belongs into the record.
    values = await asyncio.gather(
        *(ask_for(ask, judge, messages, form, wanted) for judge, wanted in asked), return_exceptions=True
    )
    votes = []
    for (judge, _), value in zip(asked, values, strict=True):
        if isinstance(value, BaseException):
            raise value
        votes.append(Vote(judge, value))
    return votes


async def ask_for(
    ask: Ask, judge: str | None, messages: tuple[Message, ...], form: Form[Value], wanted: CallOverrides = _NOTHING_MORE
) -> Value:
    """What a judge answers in a form. Raises EvaluatorFailure when it does not answer, or twice in no such form."""
    wanted = msgspec.structs.replace(wanted, schema=form.schema)
    reply = (await ask(judge, messages, wanted)).text
    try:
        return read_reply(reply, form.read, form.quoted)
    except Unfit as unfit:
        repair = repair_message(str(unfit))
    messages = (*messages, Message("assistant", reply), repair) if reply.strip() else (*messages, repair)
    again = (await ask(judge, messages, wanted)).text
    try:
        return read_reply(again, form.read, form.quoted)
    except Unfit as unfit:
        who = f"The {form.asked} '{judge}'" if judge else f"The {form.asked}"
        raise EvaluatorFailure(f"{who} gave no usable {form.what} in two tries: {unfit}") from None


def mean(values: Sequence[float]) -> float:
    """The mean, exact to the last bit, and never outside of the values."""
    return min(max(values), max(min(values), math.fsum(values) / len(values)))


def majority(values: Sequence[float]) -> float:
    """The value that most votes give; where several are given equally often, their mean."""
    counts = Counter(values)
    most = max(counts.values())
    return mean([value for value, count in counts.items() if count == most])


def spread(values: Sequence[float]) -> dict[str, float]:
    """How far votes lie apart: from the lowest to the highest, and the share that gives what most give."""
    return {"spread": max(values) - min(values), "agreement": max(Counter(values).values()) / len(values)}
