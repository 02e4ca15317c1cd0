"""What passes between a run and judges in code: what they receive, what they may return, and framed messages.

Imported by the processes that judge, so it stays small.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from numbers import Real
from typing import Any, Literal

import msgspec

from agentv.evaluators.base import as_sentences, as_share, missed, passed, quoted
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


MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_LENGTH = struct.Struct("!I")
LENGTH_BYTES = _LENGTH.size


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A function and its process settings. Judgements with equal setups share processes.

    `reference` names the function, in messages too; `path` is the location of its file. `given` selects the argument:
    an object with attributes, or the dict that a program reads from stdin. `way` is the kind of isolation, and `port`
    the one port that an isolated process may connect to.
    """

    reference: str
    path: str
    cwd: str
    given: Literal["context", "payload"] = "context"
    fresh: bool = False
    memory_mb: int = 4096
    stamp: tuple[int, int] | None = None
    way: Literal["limits", "landlock", "bubblewrap"] = "limits"
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


def stamp_of(path: str) -> tuple[int, int]:
    """Modification time and size, which identify one version of a file. Raises OSError."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def frame(message: Any) -> bytes:
    """Encode a message. Raises TypeError or ValueError for values that JSON cannot hold."""
    return framed(msgspec.json.encode(message))


def framed(body: bytes) -> bytes:
    """Prefix an encoded message with its length."""
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes | bytearray) -> int:
    """Return the length that a prefix announces."""
    return int(_LENGTH.unpack(head)[0])


class MessageBuffer:
    """Collects bytes as they arrive and yields complete messages."""

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
