"""The results of code judges, and the messages between a run and its judging processes.

The judging processes import this module, so its imports must stay small.
"""

import struct
from collections.abc import Iterator
from numbers import Real
from typing import Any, Literal

import msgspec

from agentv.evaluators.base import checked_assertions, checked_score, checked_sentences, missed, passed, quoted
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.result import Verdict
from agentv.sandbox.confinement import Confinement
from agentv.support.json_values import repeated_key


def score_of(name: str, returned: Any) -> Score:
    """Convert the return value of a function to a score. Raises EvaluatorFailure if that is not possible."""
    if isinstance(returned, dict):
        return score_in(returned, name, "returned")
    if isinstance(returned, bool):
        return boolean_score(f"{name} returned {returned}", is_pass=returned)
    if isinstance(returned, Score):
        return msgspec.structs.replace(
            returned,
            score=checked_score(_plain_number(returned.score), name),
            hits=checked_sentences(returned.hits, f"'hits' of {name}"),
            misses=checked_sentences(returned.misses, f"'misses' of {name}"),
        )
    number = _plain_number(returned)
    if not isinstance(number, int | float):
        kind = type(returned).__name__
        raise EvaluatorFailure(f"{name} must return a Score, a dict, a number or a bool, got {kind}")
    return Score(checked_score(number, name))


def boolean_score(sentence: str, *, is_pass: bool) -> Score:
    """Return the score of code that returned a verdict."""
    return msgspec.structs.replace(
        passed(sentence) if is_pass else missed(sentence), verdict="pass" if is_pass else "fail"
    )


def inverted(score: Score, *, is_boolean: bool) -> Score:
    """Return the opposite verdict, as `not-` does in promptfoo: numbers and objects keep their score."""
    return msgspec.structs.replace(
        score,
        score=1.0 - score.score if is_boolean else score.score,
        hits=score.misses,
        misses=score.hits,
        verdict="fail" if score.verdict == "pass" else "pass",
    )


def score_in(data: dict[str, Any], source: str = "The program", verb: str = "printed") -> Score:
    """Read a score from an object. Raises EvaluatorFailure if there is none.

    The keys are those of AgentV (TypeScript) 2.x (`score`, `hits`, `misses`, `reasoning`, `details`), 4.x
    (`assertions`), 5.x and promptfoo (`pass`, `reason`, `checks`) and AgentMark (`passed`, `label`).
    """
    of = source[0].lower() + source[1:]
    assertions = _first(data, "assertions", "checks")
    if isinstance(assertions, list) and not all(isinstance(item, dict) and _is_assertion(item) for item in assertions):
        raise EvaluatorFailure(f"'assertions' of {of} must be a list of {{text, passed}}, with passed true or false")
    passed_texts, failed_texts, fraction = checked_assertions(assertions, of)
    verdict = _verdict_in(data, of)
    if (value := _first(data, "score")) is None:
        value = fraction if verdict is None else float(verdict == "pass")
    if value is None:
        raise EvaluatorFailure(f"{source} {verb} no 'score': {quoted(data)}")
    reasoning = _first(data, "reasoning", "reason")
    return Score(
        checked_score(_plain_number(value), source),
        hits=(*checked_sentences(data.get("hits"), f"'hits' of {of}"), *passed_texts),
        misses=(*checked_sentences(data.get("misses"), f"'misses' of {of}"), *failed_texts),
        reasoning=reasoning if reasoning is None or isinstance(reasoning, str) else str(reasoning),
        details=_details_in(data),
        verdict=verdict,
    )


def _is_assertion(item: dict[str, Any]) -> bool:
    """Whether an item has a verdict and, in the form of 4.x, a text: AgentV (TypeScript) ignores those without one."""
    return isinstance(item.get("text"), str) if isinstance(item.get("passed"), bool) else "pass" in item


def promptfoo_result(value: Any, source: str) -> Any:
    """Return what code of promptfoo returned. Raises EvaluatorFailure for an object that promptfoo refuses."""
    if not isinstance(value, dict):
        return value
    data = {"pass" if key == "pass_" else key: item for key, item in value.items()}
    is_number = isinstance(data.get("score"), int | float) and not isinstance(data["score"], bool)
    if not isinstance(data.get("pass"), bool) or not is_number or not isinstance(data.get("reason"), str):
        raise EvaluatorFailure(f"{source} must return an object with 'pass', 'score' and 'reason', as in promptfoo")
    more = {"namedScores": _first(data, "namedScores", "named_scores")}
    more["componentResults"] = _first(data, "componentResults", "component_results")
    details = {key: item for key, item in more.items() if isinstance(item, dict | list)}
    return {**data, "details": details} if details else data


def _first(data: dict[str, Any], *names: str) -> Any:
    return next((data[name] for name in names if data.get(name) is not None), None)


def _verdict_in(data: dict[str, Any], of: str) -> Verdict | None:
    """Return the verdict of an object that has one of its own, in `passed` or `pass`."""
    verdict = _first(data, "passed", "pass")
    if not isinstance(verdict, bool | None):
        raise EvaluatorFailure(f"'passed' of {of} must be true or false, got {quoted(verdict)}")
    return None if verdict is None else "pass" if verdict else "fail"


def _details_in(data: dict[str, Any]) -> Any:
    details, label = data.get("details"), data.get("label")
    if label is None or not isinstance(details, dict | None):
        return details
    return {"label": label, **(details or {})}


def _plain_number(value: Any) -> Any:
    """Convert real numbers of any library to float; return other values unchanged."""
    if isinstance(value, int | float):
        return value
    return float(value) if isinstance(value, Real) else value


def read_score(printed: str) -> Score:
    """Read the score that a program printed as a JSON object. Raises EvaluatorFailure for anything else."""
    return score_in(printed_object(printed))


def printed_object(printed: str) -> dict[str, Any]:
    """Decode the JSON object that a program printed. Raises EvaluatorFailure for anything else."""
    reason = ""
    try:
        data = msgspec.json.decode(printed.strip())
    except (ValueError, RecursionError) as error:
        data, reason = None, f" ({error})"
    if not isinstance(data, dict):
        what = f"{quoted(printed)}{reason}" if printed.strip() else "nothing"
        raise EvaluatorFailure(f"The program must print a JSON object with a score, but printed {what}")
    if (twice := repeated_key(printed)) is not None:
        # A program that pastes the answer into its output lets the answer add a second score.
        raise EvaluatorFailure(f"The program printed the key {quoted(twice)} twice in one object", suspicious=True)
    return data


MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_LENGTH = struct.Struct("!I")
LENGTH_BYTES = _LENGTH.size


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A function and its process settings. Judgements with equal setups share processes.

    `reference` is the function's name, also in messages; `path` is the location of its file. `given` selects the
    argument: an object with attributes, those of promptfoo, whose results are checked as well, or the dict that a
    program or a grader of AgentV (TypeScript) 4.x reads from stdin. `has_proxy`: an isolated process has access to the
    model proxy.
    """

    reference: str
    path: str
    cwd: str
    given: Literal["context", "promptfoo", "payload", "agentv-4"] = "context"
    fresh: bool = False
    memory_mb: int = 4096
    stamp: tuple[int, int] | None = None
    confinement: Confinement | None = None
    has_proxy: bool = False


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a forked process: the number of judgements and the size of files, including its printed output.

    `scratch` is the only folder that an isolated process may write to; empty without isolation.
    """

    judgements: int
    file_bytes: int
    scratch: str = ""


class ProtocolError(Exception):
    """Bytes that are not a message."""


def frame(message: Any) -> bytes:
    """Encode a message. Raises TypeError or ValueError for values that JSON cannot hold."""
    return framed(msgspec.json.encode(message))


def framed(body: bytes) -> bytes:
    """Prefix an encoded message with its length."""
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes | bytearray) -> int:
    """Decode a length prefix."""
    return int(_LENGTH.unpack(head)[0])


class MessageBuffer:
    """Collects received bytes and yields complete messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the messages that are complete now. Raises ProtocolError for bytes that cannot be one."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= LENGTH_BYTES:
            if (length := length_of(buffer[:LENGTH_BYTES])) > MAX_MESSAGE_BYTES:
                raise ProtocolError(f"a message of {length} bytes")
            if len(buffer) < LENGTH_BYTES + length:
                return
            body = bytes(buffer[LENGTH_BYTES : LENGTH_BYTES + length])
            del buffer[: LENGTH_BYTES + length]
            try:
                message = msgspec.json.decode(body)
            except (ValueError, RecursionError) as error:
                raise ProtocolError(str(error)) from None
            yield message
