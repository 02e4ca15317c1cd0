"""Data exchanged between a run and code judges: their input, their results, and the framing of messages.

The judging processes import this module, so its imports must stay small.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from numbers import Real
from typing import Any, Literal

import msgspec

from agentv.evaluators.base import checked_score, checked_sentences, missed, passed, quoted
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement

_NAMES = (
    *("question", "expected_outcome", "expected_messages", "reference_answer", "candidate_answer", "output_messages"),
    *("guideline_files", "input_files", "input_messages", "context"),
    *("trace_summary", "execution_metrics", "workspace_path", "file_changes"),
)


def payload(judgement: Judgement, config: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a judge, under the names of AgentV (TypeScript) 2.x."""
    return {**{name: getattr(judgement, name) for name in _NAMES}, "config": config}


def with_names_of_4x(data: dict[str, Any]) -> dict[str, Any]:
    """Add the names of AgentV (TypeScript) 4.x. `output` is a text, as it has been there since 4.38."""
    return {
        **data,
        "criteria": data["expected_outcome"],
        "input": data["input_messages"],
        "output": data["candidate_answer"],
        "expected_output": data["expected_messages"],
    }


def program_input(judgement: Judgement, config: dict[str, Any], **more: Any) -> bytes:
    """Return the standard input of a program. Raises EvaluatorFailure for values that JSON cannot represent."""
    try:
        return msgspec.json.encode(with_names_of_4x(payload(judgement, config)) | more)
    except (TypeError, ValueError) as error:
        raise EvaluatorFailure(f"Cannot encode the answer as JSON: {error}") from None


def score_of(name: str, returned: Any) -> Score:
    """Convert the return value of a function to a score. Raises EvaluatorFailure if that is not possible."""
    if isinstance(returned, bool):
        return passed(f"{name} returned True") if returned else missed(f"{name} returned False")
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
        raise EvaluatorFailure(f"{name} must return a Score, a number or a bool, got {kind}")
    return Score(checked_score(number, name))


def score_in(data: dict[str, Any], source: str = "The program", verb: str = "printed") -> Score:
    """Read a score in the format of AgentV (TypeScript) 2.x or 4.x. Raises EvaluatorFailure if there is none."""
    passed_texts, failed_texts, fraction = _assertions(data.get("assertions"))
    value = data.get("score", fraction)
    if value is None:
        raise EvaluatorFailure(f"{source} {verb} no 'score': {quoted(data)}")
    reasoning = data.get("reasoning")
    of = source[0].lower() + source[1:]
    return Score(
        checked_score(value, source),
        hits=(*checked_sentences(data.get("hits"), f"'hits' of {of}"), *passed_texts),
        misses=(*checked_sentences(data.get("misses"), f"'misses' of {of}"), *failed_texts),
        reasoning=reasoning if reasoning is None or isinstance(reasoning, str) else str(reasoning),
        details=data.get("details"),
    )


def _assertions(value: Any) -> tuple[list[str], list[str], float | None]:
    """Read the assertions of 4.x: those that passed, those that failed, and the fraction that passed."""
    if value is None or value == []:
        return [], [], None
    if not isinstance(value, list) or not all(isinstance(item, dict) and "passed" in item for item in value):
        raise EvaluatorFailure("'assertions' of the program must be a list of {text, passed}")
    texts: dict[bool, list[str]] = {True: [], False: []}
    for item in value:
        text, evidence = str(item.get("text", "")), item.get("evidence")
        texts[item["passed"] is True].append(f"{text} ({evidence})" if evidence else text)
    return texts[True], texts[False], len(texts[True]) / len(value)


def _plain_number(value: Any) -> Any:
    """Convert real numbers of any library to float; return other values unchanged."""
    return float(value) if isinstance(value, Real) else value


def read_score(printed: str) -> Score:
    """Read the score that a program printed as a JSON object. Raises EvaluatorFailure for anything else."""
    reason = ""
    try:
        data = msgspec.json.decode(printed.strip())
    except (ValueError, RecursionError) as error:
        data, reason = None, f" ({error})"
    if not isinstance(data, dict):
        what = f"{quoted(printed)}{reason}" if printed.strip() else "nothing"
        raise EvaluatorFailure(f"The program must print a JSON object with a score, but printed {what}")
    return score_in(data)


MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_LENGTH = struct.Struct("!I")
LENGTH_BYTES = _LENGTH.size


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A function and its process settings. Judgements with equal setups share processes.

    `reference` is the function's name, also in messages; `path` is the location of its file. `given` selects the
    argument: an object with attributes, or the dict that a program reads from stdin. `port` is the only port that an
    isolated process may connect to.
    """

    reference: str
    path: str
    cwd: str
    given: Literal["context", "payload"] = "context"
    fresh: bool = False
    memory_mb: int = 4096
    stamp: tuple[int, int] | None = None
    isolation: Literal["limits", "landlock", "bubblewrap"] = "limits"
    port: int | None = None


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
            length = length_of(buffer[:LENGTH_BYTES])
            if length > MAX_MESSAGE_BYTES:
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
