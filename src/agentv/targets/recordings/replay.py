"""The replay target: answer calls from a recording, the results of an earlier run, or recorded sessions."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, ClassVar

import msgspec

from agentv.errors import AgentvError
from agentv.model.diagnostics import did_you_mean
from agentv.model.job import NO_OVERRIDES, OverrideKey
from agentv.model.message import Message
from agentv.model.response import Request, Responder, Response, TargetFailure, answer, content_text
from agentv.model.result import ExecutionMetrics, JobKey, Result, TokenUsage
from agentv.runs.job_index import AnswerIndex
from agentv.runs.record import RESULTS_FILE
from agentv.runs.store import RunStore
from agentv.sessions.session_file import is_session, session_files
from agentv.support.hash_table import OffsetTable
from agentv.targets.answers import messages_of_record
from agentv.targets.recordings.recorder import RecordedFailure, StoredResponse, request_digest_of, restored
from agentv.targets.recordings.session_answers import SessionAnswers
from agentv.targets.response_formats import RecordedInAnotherFormat
from agentv.targets.target import COMMON_ALIASES, HARMLESS, Target
from agentv.trust.inventory import NamedUse

USER = "user:"
"""The case id prefix of simulated users' calls."""

_MARKS = {"goal_met": "[[GOAL MET]]", "gave_up": "[[GIVE UP]]"}


def response_from_record(record: Result, request: Request) -> Response:
    """Return the answer in a record; in a conversation, that of the request's turn or the simulated user's message."""
    response = _whole_response(record)
    if record.conversation is None:
        return response
    if request.case.id.startswith(USER):
        ending = _MARKS.get(str(record.conversation.ended), _MARKS["gave_up"])
        return answer(_user_message(response.messages, ending, request.user_turn))
    return _turn_response(response, request.case.id, request.turn)


def _turn_response(whole: Response, id: str, turn: int) -> Response:
    by_role = groupby(whole.messages, lambda message: message.role == "user")
    turns = [tuple(messages) for is_user, messages in by_role if not is_user]
    if turn >= len(turns):
        raise TargetFailure("invalid_response", f"The earlier run has no response to '{id}' in turn {turn + 1}")
    if turn == 0:
        return msgspec.structs.replace(whole, messages=turns[0])
    # The first turn has the usage of all turns, so that the sum is correct.
    usage = None if whole.usage is None else TokenUsage(0, 0)
    cost_usd = None if whole.cost_usd is None else 0.0
    return Response(messages=turns[turn], usage=usage, cost_usd=cost_usd, duration_ms=0.0)


def _user_message(messages: tuple[Message, ...], mark: str, turn: int) -> str:
    """Return the user's message in a turn. The end mark, which is not stored, is added to the last one."""
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    if turn >= len(places):
        return mark
    text = content_text(messages[places[turn]].content)
    return f"{text}\n{mark}" if places[turn] == len(messages) - 1 else text


def _whole_response(record: Result) -> Response:
    error, id = record.error, record.eval_id
    if error is not None and error.stage not in ("evaluator", "teardown"):
        message = f"The earlier run has an error instead of an answer to '{id}': {error.message}"
        raise TargetFailure("invalid_response", message)
    if record.output_messages:
        response = Response(messages=messages_of_record(record))
    elif record.candidate_answer is not None:
        response = answer(record.candidate_answer)
    else:
        raise TargetFailure("invalid_response", f"The earlier run has no answer to '{id}'")
    metrics = record.execution_metrics or ExecutionMetrics()
    return msgspec.structs.replace(
        response,
        usage=metrics.token_usage,
        cost_usd=metrics.cost_usd,
        duration_ms=metrics.duration_ms,
        provider_data=metrics.provider_data,
    )


_HINT = "Use a run folder, a results file, a recording, or a file or folder of recorded sessions"
_BAD_REQUEST, _UNCLEAR = 400, 500

CallKey = tuple[str, str, str, str, int, str, int, int, str]
"""The identity of a recorded call: dataset (by name, because its file may have moved), case id, target, prompt, trial,
request digest, attempt, repeat and variant."""


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
        job = (self.dataset, self.eval_id, self.target, self.prompt or "", self.trial)
        return (*job, self.request_digest, self.attempt, self.repeat, self.variant)


_decode = msgspec.json.Decoder(_Call).decode


class CallIndex:
    """An index of a recording, with a hash and an offset per call. The last line for a call is used."""

    def __init__(self, path: str) -> None:
        self._stream = open(path, "rb")  # noqa: SIM115  # closed by close
        self._offsets = OffsetTable()
        targets: dict[str, None] = {}
        offset = 0
        for number, line in enumerate(self._stream, 1):
            if line.strip():
                try:
                    call = _decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    if not line.endswith(b"\n"):
                        break  # a killed run may leave an incomplete last line
                    self._stream.close()
                    raise AgentvError(f"Line {number} is not a recorded call", str(error)) from None
                self._offsets.add(hash(call.key), offset)
                targets[call.target] = None
            offset += len(line)
        self.targets = tuple(targets)

    def find(self, key: CallKey, dataset_path: str) -> _Call | None:
        """Return the last line for a call, preferring the dataset with the same path among those with the same name."""
        fallback: _Call | None = None
        for offset in self._offsets.latest_first(hash(key)):
            self._stream.seek(offset)
            call = _decode(self._stream.readline())
            if call.key == key and call.dataset_path == dataset_path:
                return call
            if call.key == key and fallback is None:
                fallback = call
        return fallback

    def close(self) -> None:
        self._stream.close()


class Recording:
    """A recording of calls, the results of a run, or sessions. `wanted` is the target after the path, if any."""

    def __init__(self, source: str, home: str = ".") -> None:
        self.path, self.wanted = find_recording(source, home)
        self.missing: list[str] = []
        self.index: CallIndex | AnswerIndex | SessionAnswers
        try:
            if is_recording(self.path):
                self.index = CallIndex(self.path)
            elif is_session(self.path):
                self.index = SessionAnswers(self.path)
            else:
                self.index = AnswerIndex(RunStore.open(self.path, needs_scores=False))
        except AgentvError as error:
            raise AgentvError(f"Cannot replay {self.path}", str(error), _HINT) from None
        self.is_recording = isinstance(self.index, CallIndex)
        self.targets = self.index.targets
        if not self.targets:
            self.close()
            raise AgentvError(f"Cannot replay {self.path}", "It has no results")

    def close(self) -> None:
        """Close the file. Closing it again has no effect."""
        (self.index.run if isinstance(self.index, AnswerIndex) else self.index).close()


class RecordedResponder:
    """Answers calls to one target, which is named `target` in the file."""

    def __init__(
        self,
        recording: Recording,
        target: str,
        overrides: OverrideKey = NO_OVERRIDES,
        *,
        owns: bool = False,
        suite: str | None = None,
    ) -> None:
        self._suite = suite
        self.endpoint = f"replay:{recording.path}"
        self._recording = recording
        self._target = target
        self._overrides = overrides
        self._owns = owns

    async def respond(self, request: Request) -> Response:
        """Return the recorded response, or raise the recorded failure."""
        index = self._recording.index
        if isinstance(index, AnswerIndex):
            return self._from_results(index, request)
        if isinstance(index, SessionAnswers):
            return self._from_sessions(index, request)
        call = self._recorded(request, self._overrides.key)
        if call is None and request.attempt > 1:
            # More attempts than were recorded: assume that the call fails in the same way.
            call = self._recorded(request, self._overrides.key, attempt=1)
        if call is None:
            raise self._missing(request)
        if call.failure is not None:
            failure = call.failure
            # After its last attempt, the recorded run may have tried the next response format.
            is_last = self._recorded(request, self._overrides.key, attempt=request.attempt + 1) is None
            fell_back = failure.status == _UNCLEAR and is_last and self._fell_back(request)
            status = _BAD_REQUEST if fell_back else failure.status
            raised = TargetFailure(failure.error_class, failure.message, status=status)
            for name in ("duration_ms", "usage", "cost_usd", "estimated_usd"):
                setattr(raised, name, getattr(failure, name))
            raise raised
        try:
            return restored(msgspec.json.decode(call.response, type=StoredResponse), cached=call.cached)
        except msgspec.ValidationError as error:
            message = f"The recorded response to '{request.case.id}' is invalid: {error}"
            raise TargetFailure("invalid_response", message) from None

    async def aclose(self) -> None:
        """Close the file if it belongs to this target alone."""
        if self._owns:
            self._recording.close()

    def _recorded(self, request: Request, variant: str, attempt: int | None = None) -> _Call | None:
        index, case = self._recording.index, request.case
        job = (case.dataset, case.id, self._target, request.prompt_id or "", request.trial)
        key = (*job, request_digest_of(request), attempt or request.attempt, request.repeat, variant)
        return index.find(key, case.path) if isinstance(index, CallIndex) else None

    def _from_results(self, run: AnswerIndex, request: Request) -> Response:
        case, target, prompt = request.case, self._target, request.prompt_id or ""
        if case.id.startswith(USER):  # the prompt id of a simulated user is the target and prompt of its job
            target, _, prompt = prompt.partition("/")
        key = JobKey(case.path, case.id.removeprefix(USER), target, prompt or None, request.trial)
        if (record := run.find(self._suite or case.dataset, key)) is None:
            raise self._missing(request)
        return response_from_record(record, request)

    def _from_sessions(self, sessions: SessionAnswers, request: Request) -> Response:
        if (response := sessions.find(request, self._recording.wanted or "")) is None:
            of_agent = f" of {self._recording.wanted}" if self._recording.wanted else ""
            message = f"{sessions.path} has no session{of_agent} with the request of '{request.case.id}'"
            message += f" (trial {request.trial})"
            self._recording.missing.append(message)
            raise TargetFailure("invalid_response", message)
        return response

    def _fell_back(self, request: Request) -> bool:
        """Whether the call was also recorded in a later response format."""
        form = self._overrides.form
        later = () if form is None else (None,) if form == "json" else ("json", None)
        others = [msgspec.structs.replace(self._overrides, form=other).key for other in later]
        return any(self._recorded(request, other, attempt=1) is not None for other in others)

    def _missing(self, request: Request) -> TargetFailure:
        recording = self._recording
        if self._fell_back(request):
            # When this was recorded, the target was already known not to support this response format.
            return RecordedInAnotherFormat()
        missing = f"{recording.path} has no answer to '{request.case.id}' by {self._target} (trial {request.trial})"
        changed = ", or the request has changed since it was recorded" if recording.is_recording else ""
        recording.missing.append(missing)
        return TargetFailure("invalid_response", missing + changed)


def is_recording(path: str) -> bool:
    """Whether a file is a recording, by its first line; other files are treated as results."""
    try:
        with open(path, "rb") as stream:
            first = next((line for line in stream if line.strip()), b"")
        return bool(_decode(first).request_digest)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def choose_target(recording: Recording, name: str) -> str:
    """Return the target in a file whose answers are used for `name`. Raises AgentvError if it is ambiguous."""
    targets, target_name, path = recording.targets, recording.wanted, recording.path
    if target_name is not None and target_name not in targets:
        hint = did_you_mean(target_name, targets) or f"Its targets: {', '.join(targets)}"
        raise AgentvError(f"Cannot replay {path}", f"It has no target '{target_name}'", hint)
    if target_name is not None or name in targets:
        return target_name or name
    if isinstance(recording.index, SessionAnswers):
        return name
    if len(targets) == 1:
        return targets[0]
    hint = f"Add one to the path: `from: {path}:{targets[0]}`"
    raise AgentvError(f"Cannot replay {path}", f"It has several targets: {', '.join(targets)}", hint)


def find_recording(source: str, home: str) -> tuple[str, str | None]:
    """Return the file and the target after a colon, if there is one. AgentV's paths may begin in the folder .agentv."""
    whole = os.path.join(home, os.path.expanduser(source))
    for place in (whole, os.path.join(home, ".agentv", os.path.expanduser(source))):
        shorter, colon, target = place.rpartition(":")
        for path, target_name in ((place, None), (shorter, target)) if colon else ((place, None),):
            file = os.path.join(path, RESULTS_FILE) if os.path.isdir(path) else path
            if os.path.isfile(file):
                return file, target_name
            if os.path.isdir(path) and is_session(path):
                return path, target_name
    looked = os.path.join(whole, RESULTS_FILE) if os.path.isdir(whole) else whole
    raise AgentvError(f"Cannot replay '{source}'", f"{looked} does not exist", _HINT)


class Replay(Target, frozen=True, kw_only=True, rename={"source": "from"}):
    """The answers of an earlier run, a recording, or recorded sessions of coding agents.

    `from` is a run folder, a results file, a recording, or a file or folder of sessions; `PATH:target` or
    `source_target` selects one of several targets or agents in it, and `suite` one of several datasets in results.
    """

    aliases: ClassVar[dict[str, str]] = {
        **COMMON_ALIASES,
        **dict.fromkeys(("path", "recording", "fixtures", "transcripts"), "from"),
    }
    ignored: ClassVar[dict[str, str]] = {**HARMLESS, "eval_path": "The answers are found by suite and id"}
    is_live: ClassVar[bool] = False

    source: str
    """Run folder, results file, or recording."""

    source_target: str | None = None
    """Target or agent in it whose answers are used (default: the only one, or the one with this name)."""

    suite: str | None = None
    """Dataset in the results whose answers are used (default: the one with the name of the evaluated dataset)."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:  # noqa: ARG003
        """Return nothing: stored answers are data."""
        return ()

    @property
    def _place(self) -> str:
        return self.source if self.source_target is None else f"{self.source}:{self.source_target}"

    def open(self, home: str) -> Responder:
        """Open the file and index it."""
        recording = Recording(self._place, home)
        try:
            return RecordedResponder(recording, choose_target(recording, self.name), owns=True, suite=self.suite)
        except BaseException:
            recording.close()
            raise

    def open_embeddings(self, home: str) -> Responder:
        """Open the file, which may also contain embeddings."""
        return self.open(home)

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return the file with the answers."""
        with suppress(AgentvError):  # opening it reports a missing file
            path = find_recording(self._place, home)[0]
            return tuple(session_files(path))
        return ()

    def complaints(self) -> list[str]:
        """Check that the source is set."""
        return [] if self.source.strip() else ["'from' is blank"]
