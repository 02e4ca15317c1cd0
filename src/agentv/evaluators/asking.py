"""Asks a judge for an answer of a certain form, and once more when it gives none. A bad reply is never a score."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from agentv.evaluators.base import Judge
from agentv.evaluators.judge_prompt import repair_message
from agentv.evaluators.replies import Unfit, read_reply
from agentv.model.judgement import Ask, Judgement, Wanted
from agentv.model.message import Message
from agentv.model.score import EvaluatorFailure

Value = TypeVar("Value")


class Form(msgspec.Struct, Generic[Value], frozen=True):
    """What an answer must look like: a JSON Schema for APIs that hold a model to one, and what reads the object.

    The `title` of the schema tells forms apart: two with the same title are the same. `read` raises Unfit. Messages say
    that `asked` gave no usable `what`.
    """

    schema: dict[str, Any]
    read: Callable[[dict[str, Any]], Value]
    asked: str = "judge"
    what: str = "verdict"


class Vote(msgspec.Struct, Generic[Value], frozen=True):
    """What one judge said, the first time it was asked or a later one."""

    judge: str
    value: Value


async def ask_judges(
    settings: Judge, judgement: Judgement, messages: tuple[Message, ...], form: Form[Value], quoted: Iterable[str]
) -> list[Vote[Value]]:
    """The votes of all judges, asked at the same time. Raises EvaluatorFailure when one of them is missing."""
    ask = judgement.ask
    if ask is None or not judgement.judges:
        raise EvaluatorFailure("No judge: name one with --judge, `target` of the evaluator or `judge_target`")
    quoted = tuple(quoted)
    asked = [
        (judge, Wanted(model=settings.model, temperature=settings.temperature, sample=sample))
        for sample in range(1, settings.votes + 1)
        for judge in judgement.judges
    ]
    # All are waited for, also when one has failed: what was asked is paid for and belongs into the record.
    values = await asyncio.gather(
        *(ask_for(ask, judge, messages, form, quoted=quoted, wanted=wanted) for judge, wanted in asked),
        return_exceptions=True,
    )
    votes = []
    for (judge, _), value in zip(asked, values, strict=True):
        if isinstance(value, BaseException):
            raise value
        votes.append(Vote(judge, value))
    return votes


async def ask_for(
    ask: Ask,
    judge: str | None,
    messages: tuple[Message, ...],
    form: Form[Value],
    *,
    quoted: Iterable[str] = (),
    wanted: Wanted = Wanted(),  # noqa: B008  # frozen
) -> Value:
    """What a judge answers in a form. Raises EvaluatorFailure when it does not answer, or twice in no such form.

    `quoted` are texts in the messages that others wrote: an object that stands in one of them is no answer.
    """
    wanted = msgspec.structs.replace(wanted, schema=form.schema)
    quoted = tuple(quoted)
    reply = (await ask(judge, messages, wanted)).text
    try:
        return read_reply(reply, form.read, quoted)
    except Unfit as unfit:
        repair = repair_message(str(unfit))
    messages = (*messages, Message("assistant", reply), repair) if reply.strip() else (*messages, repair)
    again = (await ask(judge, messages, wanted)).text
    try:
        return read_reply(again, form.read, quoted)
    except Unfit as unfit:
        who = f"The {form.asked} '{judge}'" if judge else f"The {form.asked}"
        raise EvaluatorFailure(f"{who} gave no usable {form.what} in two tries: {unfit}") from None
