"""What judges in code receive and what they may return. Imported by the processes that judge, so it stays small."""

from __future__ import annotations

from numbers import Real
from typing import Any

import msgspec

from agentv.evaluators.checks.reference import as_sentences, as_share, missed, passed, quoted
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement

_NAMES = (
    *("question", "expected_outcome", "expected_messages", "reference_answer", "candidate_answer", "output_messages"),
    *("guideline_files", "input_files", "input_messages", "context"),
    *("trace_summary", "execution_metrics", "workspace_path", "file_changes"),
)


def payload(judgement: Judgement, config: dict[str, Any]) -> dict[str, Any]:
    """What a judge is told, under the names of 2.x."""
    return {**{name: getattr(judgement, name) for name in _NAMES}, "config": config}


def with_names_of_4x(told: dict[str, Any]) -> dict[str, Any]:
    """The same with the names of 4.x besides. `output` is the text, which it has been since AgentV 4.38."""
    return {
        **told,
        "criteria": told["expected_outcome"],
        "input": told["input_messages"],
        "output": told["candidate_answer"],
        "expected_output": told["expected_messages"],
    }


def program_input(judgement: Judgement, config: dict[str, Any], **more: Any) -> bytes:
    """What a program reads from its standard input. Raises EvaluatorFailure for values that JSON cannot hold."""
    try:
        return msgspec.json.encode(with_names_of_4x(payload(judgement, config)) | more)
    except (TypeError, ValueError) as error:
        raise EvaluatorFailure(f"The answer cannot be written as JSON: {error}") from None


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
    held: list[str] = []
    failed: list[str] = []
    for item in value:
        text, evidence = str(item.get("text", "")), item.get("evidence")
        (held if item["passed"] is True else failed).append(f"{text} ({evidence})" if evidence else text)
    return held, failed, len(held) / len(value)


def _plain_number(value: Any) -> Any:
    """Fractions, booleans and the numbers of other libraries as a float; anything that is no number as it is."""
    return float(value) if isinstance(value, Real) else value


def read_score(printed: str) -> Score:
    """The score that a program printed as a JSON object. Anything else raises EvaluatorFailure."""
    try:
        data = msgspec.json.decode(printed.strip())
    except (ValueError, RecursionError) as error:
        what = f"{quoted(printed)} ({error})" if printed.strip() else "nothing"
        raise EvaluatorFailure(f"The program must print a JSON object with a score, and printed {what}") from None
    if not isinstance(data, dict):
        raise EvaluatorFailure(f"The program must print a JSON object with a score, and printed {quoted(printed)}")
    return score_in(data)
