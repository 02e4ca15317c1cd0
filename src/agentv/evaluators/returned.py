"""What a user's function returned, as a score: a Score, a number or a bool, and from scripts the object they print."""

from __future__ import annotations

from numbers import Real
from typing import Any

import msgspec

from agentv.evaluators.scoring import as_sentences, as_share, missed, passed, quoted
from agentv.model.score import EvaluatorFailure, Score


def score_of(name: str, returned: Any) -> Score:
    """The score that a function returned. Anything that is none raises EvaluatorFailure."""
    if isinstance(returned, bool):
        return passed(f"{name} returned True") if returned else missed(f"{name} returned False")
    if isinstance(returned, Score):
        return msgspec.structs.replace(
            returned,
            score=as_share(_plain_number(returned.score), name),
            hits=as_sentences(returned.hits, f"'hits' of {name}"),
            misses=as_sentences(returned.misses, f"'misses' of {name}"),
        )
    number = _plain_number(returned)
    if not isinstance(number, int | float):
        kind = type(returned).__name__
        raise EvaluatorFailure(f"{name} must return a Score, a number or a bool, got {kind}")
    return Score(as_share(number, name))


def score_in(data: dict[str, Any], source: str = "The program", gave: str = "printed") -> Score:
    """The score in an object as AgentV's programs print it, 2.x or 4.x. Without one, raises EvaluatorFailure."""
    held, failed, share = _assertions(data.get("assertions"))
    value = data.get("score", share)
    if value is None:
        raise EvaluatorFailure(f"{source} {gave} no 'score': {quoted(data)}")
    reasoning = data.get("reasoning")
    of = source[0].lower() + source[1:]
    return Score(
        as_share(value, source),
        hits=(*as_sentences(data.get("hits"), f"'hits' of {of}"), *held),
        misses=(*as_sentences(data.get("misses"), f"'misses' of {of}"), *failed),
        reasoning=reasoning if reasoning is None or isinstance(reasoning, str) else str(reasoning),
        details=data.get("details"),
    )


def _assertions(value: Any) -> tuple[list[str], list[str], float | None]:
    """What AgentV 4.x programs print instead of hits and misses, and the share that holds for those without a score."""
    if value is None or value == []:
        return [], [], None
    if not isinstance(value, list) or not all(isinstance(item, dict) and "passed" in item for item in value):
        raise EvaluatorFailure("'assertions' of the program must be a list of {text, passed}")
    held = [_sentence(item) for item in value if item["passed"] is True]
    failed = [_sentence(item) for item in value if item["passed"] is not True]
    return held, failed, len(held) / len(value)


def _sentence(item: dict[str, Any]) -> str:
    text, evidence = str(item.get("text", "")), item.get("evidence")
    return f"{text} ({evidence})" if evidence else text


def _plain_number(value: Any) -> Any:
    """Fractions, booleans and the numbers of other libraries as a float; anything that is no number as it is."""
    return float(value) if isinstance(value, Real) else value
