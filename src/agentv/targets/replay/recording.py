"""Answers in a file of results or a recording, found again by who asked whom what. Holds places only."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from hashlib import blake2b
from itertools import groupby
from typing import Any, BinaryIO

import msgspec

from agentv.errors import AgentvError
from agentv.model.message import Message
from agentv.model.response import Request, Response, TargetFailure, answer, content_text
from agentv.model.result import ExecutionMetrics, TokenUsage
from agentv.settings.diagnostics import did_you_mean
from agentv.targets.programs.answers import response_from_object, response_from_value
from agentv.targets.replay.recorder import AS_IT_IS, RecordedFailure, Variant
from agentv.targets.replay.stored_response import StoredResponse, question_digest, restored

USER = "user:"
"""What the ids begin with under which simulated users are asked."""

_MARKS = {"goal_met": "[[GOAL MET]]", "gave_up": "[[GIVE UP]]"}


class RecordedResult(msgspec.Struct, frozen=True, gc=False):
    """What a result says of the answer, in our words and in AgentV's."""

    candidate_answer: Any = None
    answer: Any = None
    text: Any = None
    output: Any = None
    output_messages: Any = None
    execution_metrics: ExecutionMetrics | None = None
    trace_summary: dict[str, Any] | None = None
    conversation: dict[str, Any] | None = None
    error: Any = None


def said_by_user(request: Request) -> tuple[str, str, str] | None:
    """Case, target and prompt of the job for which a simulated user is asked; None for any other request."""
    if not request.case.id.startswith(USER):
        return None
    target, _, prompt = (getattr(request, "prompt_id", None) or "").partition("/")
    return request.case.id.removeprefix(USER), target, prompt


def reply_in(line: RecordedResult, request: Request) -> Response:
    """The answer in a result. Of a conversation: the reply to this turn, or what the simulated user said in it."""
    response = _whole(line, request.case.id)
    if line.conversation is None:
        return response
    if request.case.id.startswith(USER):
        return answer(_next_of_user(response.messages, line.conversation, getattr(request, "said", 0)))
    return _reply(response, request.case.id, getattr(request, "turn", 0))


def _reply(whole: Response, id: str, turn: int) -> Response:
    replies: list[tuple[Message, ...]] = []
    for is_user, messages in groupby(whole.messages, lambda message: message.role == "user"):
        if not is_user:
            replies.append(tuple(messages))
    if turn >= len(replies):
        raise TargetFailure("invalid_response", f"The earlier run has no reply to '{id}' in turn {turn + 1}")
    if turn == 0:
        return msgspec.structs.replace(whole, messages=replies[0])
    # What the whole took is told by the first reply, so that the sum is what it was.
    usage = None if whole.usage is None else TokenUsage(0, 0)
    return Response(
        messages=replies[turn], usage=usage, cost_usd=None if whole.cost_usd is None else 0.0, duration_ms=0.0
    )


def _next_of_user(messages: tuple[Message, ...], conversation: dict[str, Any], said: int) -> str:
    """What the user said after so many messages; the mark that ended it is not among the messages, and is put back."""
    mark = _MARKS.get(str(conversation.get("ended")), _MARKS["gave_up"])
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    if said >= len(places):
        return mark
    text = content_text(messages[places[said]].content)
    return f"{text}\n{mark}" if places[said] == len(messages) - 1 else text


def _whole(line: RecordedResult, id: str) -> Response:
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


def _metrics(summary: dict[str, Any] | None) -> ExecutionMetrics:
    """AgentV 2.x keeps the metrics in its trace summary."""
    known = {key: (summary or {}).get(key) for key in ("token_usage", "cost_usd", "duration_ms")}
    try:
        return msgspec.convert(known, ExecutionMetrics)
    except msgspec.ValidationError:
        return ExecutionMetrics()


RESULTS_FILE = "results.jsonl"
_HINT = "Name a run's folder, a file of results or a recording"
_REFUSED_FORM = 400


Place = tuple[str, str, str, str, int, str, int, int, str]
"""Dataset, case, target, prompt, trial; in a recording also the digest of what was asked, attempt, repeat, variant."""


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
    attempt: int = 1
    repeat: int = 0
    variant: str = ""

    def place(self) -> Place:
        id, dataset = self.eval_id or self.test_id or "", self.dataset or self.suite or ""
        job = (dataset, id, self.target or "", self.prompt or "", self.trial)
        if self.request_digest is None:
            return *job, "", 0, 0, ""
        return *job, self.request_digest, self.attempt, self.repeat, self.variant


class _Line(RecordedResult, frozen=True, gc=False):
    """What a line of either kind says."""

    dataset_path: str = ""
    response: Any = None
    failure: RecordedFailure | None = None
    cached: bool = False


_KEYS = msgspec.json.Decoder(_Key)
_LINES = msgspec.json.Decoder(_Line)


class Recording:
    """A file that answers: a recording of calls, or the results of a run. `wanted` is the target named behind its path.

    The last line for a call holds: an earlier one is what was done again after a kill.
    """

    def __init__(self, source: str, home: str = ".") -> None:
        self.path, self.wanted = find_recorded(source, home)
        self.is_recording = False
        self.missing: list[str] = []
        self._stream: BinaryIO | None = open(self.path, "rb")  # noqa: SIM115  # closed by close
        try:
            self.targets = self._index()
        except BaseException:
            self._stream.close()
            raise
        if not self.targets:
            self._stream.close()
            raise AgentvError(f"Cannot replay {self.path}", "It has no results")

    def __len__(self) -> int:
        return len(self._hashes)

    def at(self, place: Place, dataset_path: str) -> _Line | None:
        """The last line for a call; of several datasets of one name, that of the same path goes first."""
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

    def close(self) -> None:
        """Ends the file; closing it twice is fine."""
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
            self.is_recording = self.is_recording or bool(place[5])
        places.sort()
        self._hashes = array("Q", (both >> 64 for both in places))
        self._offsets = array("Q", (both & 2**64 - 1 for both in places))
        return list(targets)

    def _refused(self, detail: str) -> AgentvError:
        return AgentvError(f"Cannot replay {self.path}", detail, _HINT)


class RecordedResponder:
    """One target, answered from a file. `target` is its name there."""

    def __init__(self, recording: Recording, target: str, variant: Variant = AS_IT_IS, *, owns: bool = False) -> None:
        self.endpoint = f"replay:{recording.path}"
        self._recording = recording
        self._target = target
        self._variant = variant
        self._owns = owns

    async def respond(self, request: Request) -> Response:
        """What was answered then, or what failed then."""
        if not self._recording.is_recording:
            return self._from_results(request)
        line = self._recorded(request, self._variant.key)
        if line is None and request.attempt > 1:
            # Tried more often now than then: it would have failed as it did.
            line = self._recorded(request, self._variant.key, attempt=1)
        if line is None:
            raise self._not_there(request)
        if line.failure is not None:
            failure = line.failure
            raise TargetFailure(failure.error_class, failure.message, status=failure.status)
        try:
            return restored(msgspec.convert(line.response, StoredResponse), cached=line.cached)
        except msgspec.ValidationError as error:
            message = f"The recorded answer to '{request.case.id}' is none: {error}"
            raise TargetFailure("invalid_response", message) from None

    async def aclose(self) -> None:
        """Ends the file where it is this target's own."""
        if self._owns:
            self._recording.close()

    def _recorded(self, request: Request, variant: str, attempt: int | None = None) -> _Line | None:
        prompt = getattr(request, "prompt_id", None) or ""
        said, repeat = question_digest(request), getattr(request, "repeat", 0)
        case = request.case
        job = (case.dataset, case.id, self._target, prompt, request.trial)
        return self._recording.at((*job, said, attempt or request.attempt, repeat, variant), case.path)

    def _from_results(self, request: Request) -> Response:
        user = said_by_user(request)
        own = (request.case.id, self._target, getattr(request, "prompt_id", None) or "")
        id, target, prompt = own if user is None else user
        # AgentV leaves the dataset out of some files.
        for dataset in dict.fromkeys((request.case.dataset, "")):
            line = self._recording.at((dataset, id, target, prompt, request.trial, "", 0, 0, ""), request.case.path)
            if line is not None:
                return reply_in(line, request)
        raise self._not_there(request)

    def _not_there(self, request: Request) -> TargetFailure:
        recording = self._recording
        if self._variant.form is not None and self._recorded(request, self._variant.without_form().key) is not None:
            # Then it was known by this time that the target keeps to no form.
            return TargetFailure("invalid_response", "No form of answer was asked for then", status=_REFUSED_FORM)
        missing = f"{recording.path} has no answer to '{request.case.id}' by {self._target} (trial {request.trial})"
        changed = ", or what is asked changed since it was recorded" if recording.is_recording else ""
        recording.missing.append(missing)
        return TargetFailure("invalid_response", missing + changed)


def is_recording(path: str) -> bool:
    """Whether a file is a recording, by its first line; anything else is taken for results."""
    try:
        with open(path, "rb") as stream:
            first = next((line for line in stream if line.strip()), b"")
        return _KEYS.decode(first).request_digest is not None
    except (OSError, msgspec.DecodeError, RecursionError):
        return False


def open_recorded(source: str, name: str, home: str) -> RecordedResponder:
    """A target of its own that answers from a file: as the target of its name there, or of the only name there is."""
    recording = Recording(source, home)
    try:
        return RecordedResponder(recording, choose(recording, name), owns=True)
    except BaseException:
        recording.close()
        raise


def choose(recording: Recording, name: str) -> str:
    """The target in a file that answers for `name`. Raises AgentvError when that cannot be told."""
    targets, wanted, path = recording.targets, recording.wanted, recording.path
    if wanted is not None and wanted not in targets:
        hint = did_you_mean(wanted, targets) or f"Its targets: {', '.join(targets)}"
        raise AgentvError(f"Cannot replay {path}", f"It has no target '{wanted}'", hint)
    if wanted is not None or name in targets:
        return wanted or name
    if len(targets) == 1:
        return targets[0]
    hint = f"Write one behind the path: `from: {path}:{targets[0]}`"
    raise AgentvError(f"Cannot replay {path}", f"It has several targets: {', '.join(targets)}", hint)


def find_recorded(source: str, home: str) -> tuple[str, str | None]:
    """The file to read, and the target that is named behind a colon."""
    whole = os.path.join(home, os.path.expanduser(source))
    shorter, colon, target = whole.rpartition(":")
    for path, wanted in ((whole, None), (shorter, target)) if colon else ((whole, None),):
        file = os.path.join(path, RESULTS_FILE) if os.path.isdir(path) else path
        if os.path.isfile(file):
            return file, wanted
    looked = os.path.join(whole, RESULTS_FILE) if os.path.isdir(whole) else whole
    raise AgentvError(f"Cannot replay '{source}'", f"There is no {looked}", _HINT)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """Lines that are not blank, each with its number and its offset."""
    offset = 0
    for number, line in enumerate(stream, 1):
        if line.strip():
            yield number, offset, line
        offset += len(line)


def _hash(place: Place) -> int:
    return int.from_bytes(blake2b("\0".join(map(str, place)).encode(), digest_size=8).digest())
