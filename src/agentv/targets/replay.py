"""The replay target: answer calls from a recording, or from the results of an earlier run. Holds offsets only."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import ClassVar, NamedTuple

import msgspec

from agentv.errors import AgentvError
from agentv.model.job import NO_OVERRIDES, OverrideKey
from agentv.model.message import Message
from agentv.model.response import Request, Responder, Response, TargetFailure, answer, content_text
from agentv.model.result import ExecutionMetrics, JobKey, Result, TokenUsage
from agentv.runs.job_index import AnswerIndex
from agentv.runs.record import RESULTS_FILE
from agentv.runs.store import RunStore
from agentv.settings.diagnostics import did_you_mean
from agentv.targets.answers import response_from_object
from agentv.targets.recorder import RecordedFailure, StoredResponse, request_digest_of, restored
from agentv.targets.target import COMMON_ALIASES, Target

USER = "user:"
"""The prefix of the case ids of calls to simulated users."""

_MARKS = {"goal_met": "[[GOAL MET]]", "gave_up": "[[GIVE UP]]"}


def simulated_user_job(request: Request) -> tuple[str, str, str] | None:
    """Case, target and prompt of the job that a simulated user's call belongs to; None for any other request."""
    if not request.case.id.startswith(USER):
        return None
    target, _, prompt = (request.prompt_id or "").partition("/")
    return request.case.id.removeprefix(USER), target, prompt


def response_from_record(record: Result, request: Request) -> Response:
    """The answer in a record. Of a conversation: the reply to this turn, or what the simulated user said in it."""
    response = _whole(record)
    if record.conversation is None:
        return response
    if request.case.id.startswith(USER):
        ending = _MARKS.get(str(record.conversation.ended), _MARKS["gave_up"])
        return answer(_next_of_user(response.messages, ending, request.user_turn))
    return _reply(response, request.case.id, request.turn)


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


def _next_of_user(messages: tuple[Message, ...], mark: str, said: int) -> str:
    """The user's message number `said`; the mark that ended the conversation is not stored, and is put back."""
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    if said >= len(places):
        return mark
    text = content_text(messages[places[said]].content)
    return f"{text}\n{mark}" if places[said] == len(messages) - 1 else text


def _whole(record: Result) -> Response:
    error, id = record.error, record.eval_id
    if error is not None and error.stage not in ("evaluator", "teardown"):
        message = f"The earlier run has an error instead of an answer to '{id}': {error.message}"
        raise TargetFailure("invalid_response", message)
    if record.output_messages:
        response = response_from_object({"output_messages": list(record.output_messages)})
    elif record.candidate_answer is not None:
        response = answer(record.candidate_answer)
    else:
        raise TargetFailure("invalid_response", f"The earlier run has no answer to '{id}'")
    metrics = record.execution_metrics or ExecutionMetrics()
    return msgspec.structs.replace(
        response, usage=metrics.token_usage, cost_usd=metrics.cost_usd, duration_ms=metrics.duration_ms
    )


_HINT = "Name a run's folder, a file of results or a recording"
_REFUSED_FORM = 400


class CallKey(NamedTuple):
    """The identity of a recorded call. The dataset is named, because its file may be elsewhere now."""

    dataset: str
    eval_id: str
    target: str
    prompt: str
    trial: int
    request_digest: str
    attempt: int
    repeat: int
    variant: str


class _Call(msgspec.Struct, frozen=True, gc=False):
    """A line of a recording."""

    request_digest: str
    eval_id: str
    target: str
    dataset: str = ""
    dataset_path: str = ""
    prompt: str | None = None
    trial: int = 1
    attempt: int = 1
    repeat: int = 0
    variant: str = ""
    response: msgspec.Raw = msgspec.Raw(b"null")
    failure: RecordedFailure | None = None
    cached: bool = False

    @property
    def key(self) -> CallKey:
        asked = (self.dataset, self.eval_id, self.target, self.prompt or "", self.trial)
        return CallKey(*asked, self.request_digest, self.attempt, self.repeat, self.variant)


_decode = msgspec.json.Decoder(_Call).decode


class CallIndex:
    """The calls of a recording, a hash and an offset for each. The last line for a call counts."""

    def __init__(self, path: str) -> None:
        self._stream = open(path, "rb")  # noqa: SIM115  # closed by close
        # One number for hash and offset sorts without a key for each; an offset takes less than 64 bits.
        places: list[int] = []
        targets: dict[str, None] = {}
        offset = 0
        for number, line in enumerate(self._stream, 1):
            if line.strip():
                try:
                    call = _decode(line)
                except (msgspec.DecodeError, RecursionError) as error:
                    if not line.endswith(b"\n"):
                        break  # a run that was killed may leave half a line behind
                    self._stream.close()
                    raise AgentvError(f"Not a recorded call at line {number}", str(error)) from None
                places.append(_hash(call.key) << 64 | offset)
                targets[call.target] = None
            offset += len(line)
        places.sort()
        self._hashes = array("Q", (both >> 64 for both in places))
        self._offsets = array("Q", (both & 2**64 - 1 for both in places))
        self.targets = tuple(targets)

    def find(self, key: CallKey, dataset_path: str) -> _Call | None:
        """The last line for a call; of several datasets of one name, that of the same path goes first."""
        code = _hash(key)
        found: _Call | None = None
        for index in range(bisect_left(self._hashes, code), bisect_right(self._hashes, code)):
            self._stream.seek(self._offsets[index])
            call = _decode(self._stream.readline())
            if call.key == key and (
                found is None or found.dataset_path != dataset_path or call.dataset_path == dataset_path
            ):
                found = call
        return found

    def close(self) -> None:
        self._stream.close()


def _hash(key: CallKey) -> int:
    return hash(key) & 2**64 - 1


class Recording:
    """A file that answers: a recording of calls, or the results of a run. `wanted` is the target after its path."""

    def __init__(self, source: str, home: str = ".") -> None:
        self.path, self.wanted = find_recording(source, home)
        self.missing: list[str] = []
        self.calls: CallIndex | None = None
        self.run: AnswerIndex | None = None
        try:
            if is_recording(self.path):
                self.calls = CallIndex(self.path)
            else:
                self.run = AnswerIndex(RunStore.open(self.path, needs_scores=False))
        except AgentvError as error:
            raise AgentvError(f"Cannot replay {self.path}", str(error), _HINT) from None
        self.is_recording = self.calls is not None
        self.targets = self.calls.targets if self.calls else self.run.targets if self.run else ()
        if not self.targets:
            self.close()
            raise AgentvError(f"Cannot replay {self.path}", "It has no results")

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self.calls is not None:
            self.calls.close()
        if self.run is not None:
            self.run.run.close()


class RecordedResponder:
    """Answers for one target from a file. `target` is its name there."""

    def __init__(
        self, recording: Recording, target: str, variant: OverrideKey = NO_OVERRIDES, *, owns: bool = False
    ) -> None:
        self.endpoint = f"replay:{recording.path}"
        self._recording = recording
        self._target = target
        self._variant = variant
        self._owns = owns

    async def respond(self, request: Request) -> Response:
        """Return the recorded answer, or fail as the call did."""
        if self._recording.calls is None:
            return self._from_results(request)
        call = self._recorded(request, self._variant.key)
        if call is None and request.attempt > 1:
            # Tried more often now than then: it would have failed as it did.
            call = self._recorded(request, self._variant.key, attempt=1)
        if call is None:
            raise self._not_there(request)
        if call.failure is not None:
            failure = call.failure
            raise TargetFailure(failure.error_class, failure.message, status=failure.status)
        try:
            return restored(msgspec.json.decode(call.response, type=StoredResponse), cached=call.cached)
        except msgspec.ValidationError as error:
            message = f"The recorded answer to '{request.case.id}' is none: {error}"
            raise TargetFailure("invalid_response", message) from None

    async def aclose(self) -> None:
        """Close the file if it belongs to this target alone."""
        if self._owns:
            self._recording.close()

    def _recorded(self, request: Request, variant: str, attempt: int | None = None) -> _Call | None:
        calls, case = self._recording.calls, request.case
        prompt, repeat = request.prompt_id or "", request.repeat
        job = (case.dataset, case.id, self._target, prompt, request.trial)
        key = CallKey(*job, request_digest_of(request), attempt or request.attempt, repeat, variant)
        return None if calls is None else calls.find(key, case.path)

    def _from_results(self, request: Request) -> Response:
        case, run = request.case, self._recording.run
        own = (case.id, self._target, request.prompt_id or "")
        id, target, prompt = simulated_user_job(request) or own
        assert run is not None
        record = run.find(case.dataset, JobKey(case.path, id, target, prompt or None, request.trial))
        if record is None:
            raise self._not_there(request)
        return response_from_record(record, request)

    def _not_there(self, request: Request) -> TargetFailure:
        recording = self._recording
        if (
            self._variant.form is not None
            and self._recorded(request, msgspec.structs.replace(self._variant, form=None).key) is not None
        ):
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
        return bool(_decode(first).request_digest)
    except (OSError, msgspec.DecodeError, RecursionError):
        return False


def open_recording(source: str, name: str, home: str) -> RecordedResponder:
    """Open a file as a target: the one with its name in the file, or the only one."""
    recording = Recording(source, home)
    try:
        return RecordedResponder(recording, choose_target(recording, name), owns=True)
    except BaseException:
        recording.close()
        raise


def choose_target(recording: Recording, name: str) -> str:
    """The target in a file that answers for `name`. Raises AgentvError when there are several others."""
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


def find_recording(source: str, home: str) -> tuple[str, str | None]:
    """The file to read, and the target that follows a colon."""
    whole = os.path.join(home, os.path.expanduser(source))
    shorter, colon, target = whole.rpartition(":")
    for path, wanted in ((whole, None), (shorter, target)) if colon else ((whole, None),):
        file = os.path.join(path, RESULTS_FILE) if os.path.isdir(path) else path
        if os.path.isfile(file):
            return file, wanted
    looked = os.path.join(whole, RESULTS_FILE) if os.path.isdir(whole) else whole
    raise AgentvError(f"Cannot replay '{source}'", f"There is no {looked}", _HINT)


class Replay(Target, frozen=True, kw_only=True, rename={"source": "from"}):
    """The answers of an earlier run or a recording.

    `from` is a run's folder, a file of results, or a recording; `PATH:target` picks one of several targets in it.
    """

    aliases: ClassVar[dict[str, str]] = {**COMMON_ALIASES, "path": "from", "recording": "from"}
    is_live: ClassVar[bool] = False

    source: str

    def open(self, home: str) -> Responder:
        """Reads the file once for where each answer stands."""
        return open_recording(self.source, self.name, home)

    def open_embeddings(self, home: str) -> Responder:
        """A recording has embeddings beside answers."""
        return self.open(home)

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """The file that answers."""
        with suppress(AgentvError):  # opening it will say that it is not there
            return (find_recording(self.source, home)[0],)
        return ()

    def complaints(self) -> list[str]:
        """A blank source."""
        return [] if self.source.strip() else ["'from' is blank"]
