"""Answers in a file of results or a recording, found again by case, target, prompt and trial. Holds places only."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, BinaryIO

import msgspec

from agentv.errors import AgentvError
from agentv.model.response import Request, Response, TargetFailure
from agentv.model.result import ExecutionMetrics
from agentv.suggest import did_you_mean
from agentv.targets.answers import response_from_object, response_from_value
from agentv.targets.sending import question_digest
from agentv.targets.stored import StoredResponse, restored

RESULTS_FILE = "results.jsonl"
_HINT = "Name a run's folder, a file of results or a recording"


Place = tuple[str, str, str, str, int, str]
"""Dataset, case, target, prompt, trial, and in a recording the digest of what was asked."""


class _Key(msgspec.Struct, frozen=True, gc=False):
    """What a line answers. AgentV's later versions say `test_id` and `suite`."""

    eval_id: str | None = None
    test_id: str | None = None
    dataset: str | None = None
    suite: str | None = None
    target: str | None = None
    prompt: str | None = None
    trial: int = 1
    request_digest: str | None = None

    def place(self) -> Place:
        id, dataset = self.eval_id or self.test_id or "", self.dataset or self.suite or ""
        return dataset, id, self.target or "", self.prompt or "", self.trial, self.request_digest or ""


class _Line(msgspec.Struct, frozen=True, gc=False):
    """What a line says of the answer, in our words and in AgentV's."""

    dataset_path: str = ""
    candidate_answer: Any = None
    answer: Any = None
    text: Any = None
    output: Any = None
    output_messages: Any = None
    execution_metrics: ExecutionMetrics | None = None
    trace_summary: dict[str, Any] | None = None
    error: Any = None
    response: Any = None


_KEYS = msgspec.json.Decoder(_Key)
_LINES = msgspec.json.Decoder(_Line)


class RecordedResponder:
    """Answers from a file. The last line for a job holds: an earlier one is what was tried again."""

    def __init__(self, source: str, name: str, home: str) -> None:
        path, wanted = _find(source, home)
        self.endpoint = f"replay:{path}"
        self._path = path
        self._is_recording = False
        self._stream: BinaryIO | None = open(path, "rb")  # noqa: SIM115  # closed by aclose
        try:
            targets = self._index()
            self._target = _choose(targets, wanted, name, path)
        except BaseException:
            self._stream.close()
            raise

    def __len__(self) -> int:
        return len(self._hashes)

    async def respond(self, request: Request) -> Response:
        line = self._look_up(request)
        if line is None:
            missing = f"{self._path} has no answer to '{request.case.id}' (trial {request.trial})"
            changed = ", or what is asked changed since it was recorded" if self._is_recording else ""
            raise TargetFailure("invalid_response", missing + changed)
        return _response(line, request.case.id)

    async def aclose(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _index(self) -> list[str]:
        """Notes a hash of each line's key with its offset, sorted by hash; the names of the targets, as they come."""
        # One number for both sorts without a key for each; an offset takes less than 64 bits.
        places: list[int] = []
        targets: dict[str, None] = {}
        assert self._stream is not None
        for number, offset, line in _lines(self._stream):
            try:
                place = _KEYS.decode(line).place()
            except (msgspec.DecodeError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    break  # a run that was killed may leave half a line behind
                raise self._refused(f"Line {number} is no result: {error}") from None
            if not place[1]:
                raise self._refused(f"Line {number} has no 'eval_id'")
            places.append(_hash(place) << 64 | offset)
            targets[place[2]] = None
            self._is_recording = self._is_recording or bool(place[5])
        places.sort()
        self._hashes = array("Q", (both >> 64 for both in places))
        self._offsets = array("Q", (both & 2**64 - 1 for both in places))
        return list(targets)

    def _refused(self, detail: str) -> AgentvError:
        return AgentvError(f"Cannot replay {self._path}", detail, _HINT)

    def _look_up(self, request: Request) -> _Line | None:
        prompt = getattr(request, "prompt_id", None) or ""
        # AgentV leaves the dataset out of some files, and only recordings know what was asked.
        asked = ("", question_digest(request)) if self._is_recording else ("",)
        for dataset in dict.fromkeys((request.case.dataset, "")):
            for digest in asked:
                place = (dataset, request.case.id, self._target, prompt, request.trial, digest)
                found = self._at(place, request.case.path)
                if found is not None:
                    return found
        return None

    def _at(self, place: Place, dataset_path: str) -> _Line | None:
        """The last line for a job; of several datasets of one name, that of the same path goes first."""
        if self._stream is None:
            raise TargetFailure("process", "The replay was closed")
        number = _hash(place)
        found: _Line | None = None
        for index in range(bisect_left(self._hashes, number), bisect_right(self._hashes, number)):
            self._stream.seek(self._offsets[index])
            raw = self._stream.readline()
            if _KEYS.decode(raw).place() != place:
                continue
            line = _LINES.decode(raw)
            if found is None or found.dataset_path != dataset_path or line.dataset_path == dataset_path:
                found = line
        return found


def _find(source: str, home: str) -> tuple[str, str | None]:
    """The file to read, and the target that is named behind a colon."""
    whole = os.path.join(home, os.path.expanduser(source))
    shorter, colon, target = whole.rpartition(":")
    for path, wanted in ((whole, None), (shorter, target)) if colon else ((whole, None),):
        file = os.path.join(path, RESULTS_FILE) if os.path.isdir(path) else path
        if os.path.isfile(file):
            return file, wanted
    looked = os.path.join(whole, RESULTS_FILE) if os.path.isdir(whole) else whole
    raise AgentvError(f"Cannot replay '{source}'", f"There is no {looked}", _HINT)


def _choose(targets: list[str], wanted: str | None, name: str, path: str) -> str:
    if not targets:
        raise AgentvError(f"Cannot replay {path}", "It has no results")
    if wanted is not None and wanted not in targets:
        hint = did_you_mean(wanted, targets) or f"Its targets: {', '.join(targets)}"
        raise AgentvError(f"Cannot replay {path}", f"It has no target '{wanted}'", hint)
    if wanted is not None or name in targets:
        return wanted or name
    if len(targets) == 1:
        return targets[0]
    hint = f"Write one behind the path: `from: {path}:{targets[0]}`"
    raise AgentvError(f"Cannot replay {path}", f"It has several targets: {', '.join(targets)}", hint)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """Lines that are not blank, each with its number and its offset."""
    offset = 0
    for number, line in enumerate(stream, 1):
        if line.strip():
            yield number, offset, line
        offset += len(line)


def _hash(place: Place) -> int:
    return int.from_bytes(blake2b("\0".join(map(str, place)).encode(), digest_size=8).digest())


def _response(line: _Line, id: str) -> Response:
    if line.response is not None:
        return _recorded(line.response, id)
    said = line.output_messages or (line.output if isinstance(line.output, list) else None)
    texts = (line.candidate_answer, line.answer, line.text, line.output)
    text = next((text for text in texts if text is not None), None)
    stage = line.error.get("stage") if isinstance(line.error, dict) else "target"
    if (line.error is not None and stage not in ("evaluator", "teardown")) or (not said and text is None):
        why = line.error.get("message") if isinstance(line.error, dict) else line.error
        told = f"has an error instead of an answer to '{id}': {why}" if why else f"has no answer to '{id}'"
        raise TargetFailure("invalid_response", f"The earlier run {told}")
    response = response_from_object({"output_messages": said}) if said else response_from_value(text)
    metrics = line.execution_metrics or _metrics(line.trace_summary)
    return msgspec.structs.replace(
        response, usage=metrics.token_usage, cost_usd=metrics.cost_usd, duration_ms=metrics.duration_ms
    )


def _recorded(data: Any, id: str) -> Response:
    try:
        return restored(msgspec.convert(data, StoredResponse))
    except msgspec.ValidationError as error:
        raise TargetFailure("invalid_response", f"The recorded answer to '{id}' is none: {error}") from None


def _metrics(summary: dict[str, Any] | None) -> ExecutionMetrics:
    """AgentV 2.x keeps the metrics in its trace summary."""
    known = {key: (summary or {}).get(key) for key in ("token_usage", "cost_usd", "duration_ms")}
    try:
        return msgspec.convert(known, ExecutionMetrics)
    except msgspec.ValidationError:
        return ExecutionMetrics()
