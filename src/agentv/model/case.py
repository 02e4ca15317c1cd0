"""The case: one example to evaluate, independent of the file format it was read from."""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

from agentv.model.evaluator import DEFAULT_EVALUATOR, EvaluatorSpec, Execution, execution_to_data
from agentv.model.message import FilePart, ImagePart, Message, message_to_data
from agentv.model.origin import NOWHERE, Place
from agentv.model.values import EMPTY_HASH, ComparedByContent, FrozenDict, digest, to_json
from agentv.model.workspace_settings import Workspace


class PromptInput(msgspec.Struct, frozen=True, gc=False):
    """The input of a case as rendered by one of several prompts."""

    id: str
    input: tuple[Message, ...]


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A user turn sent after the input, with the expected output and the evaluators of the response."""

    input: tuple[Message, ...]
    expected_output: tuple[Message, ...] = ()
    evaluators: tuple[EvaluatorSpec, ...] = ()


Aggregation = Literal["mean", "min", "max"]
"""How the scores of a conversation's turns and of its case are combined."""

DependencyFailure = Literal["skip", "fail", "run"]
"""What happens to a case if one that it depends on has no answer."""

USER_TARGET = "user"
"""The target that plays the simulated user if the case names none."""


class SimulatedUser(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A user played by a model until the goal is met, the user gives up, or the turn limit is reached."""

    target: str | None = None
    persona: str | None = None
    goal: str | None = None
    max_turns: int | None = None
    stop: str | None = None


class CaseDetails(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Fields that few cases use, in a separate object so that other cases stay small."""

    description: str | None = None
    cluster: str | None = None
    context: tuple[str, ...] = ()
    rubrics: tuple[FrozenDict, ...] = ()
    variables: FrozenDict | None = None
    prompts: tuple[PromptInput, ...] = ()
    turns: tuple[Turn, ...] = ()
    aggregation: Aggregation | None = None
    on_turn_failure: Literal["stop"] | None = None
    window_size: int | None = None
    user: SimulatedUser | None = None
    workspace: Workspace | None = None
    depends_on: tuple[str, ...] = ()
    on_dependency_failure: DependencyFailure | None = None
    case_error: str | None = None


NO_DETAILS = CaseDetails()


class _CaseFields(ComparedByContent, frozen=True, gc=False, eq=False):
    """The stored fields of a case. Plain text stays a string: messages would take 50 % more memory."""

    id: str
    expected_outcome: str = ""
    input: str | tuple[Message, ...] = ()
    expected_output: str | tuple[Message, ...] = ()
    conversation_id: str | None = None
    metadata: FrozenDict = FrozenDict()
    tags: tuple[str, ...] = ()
    execution: Execution = Execution()
    evaluators: tuple[EvaluatorSpec, ...] = (DEFAULT_EVALUATOR,)
    details: CaseDetails = NO_DETAILS
    place: Place = NOWHERE
    offset: int = 0


stored_input = _CaseFields.__dict__["input"].__get__  # a plain text, or messages
_stored_expected_output = _CaseFields.__dict__["expected_output"].__get__


class EvalCase(_CaseFields, frozen=True, gc=False, eq=False):
    """One case: immutable, hashable, picklable, equal by content. Equality ignores the file it came from.

    `input` and `expected_output` are always tuples of messages, also if the dataset uses a shorthand.
    """

    @property  # type: ignore[misc]
    def input(self) -> tuple[Message, ...]:
        """The messages sent to a target; empty if several prompts each render their own (`prompts`)."""
        value = stored_input(self)
        return (Message("user", value),) if type(value) is str else value

    @property  # type: ignore[misc]
    def expected_output(self) -> tuple[Message, ...]:
        """The reference answer, if there is one."""
        value = _stored_expected_output(self)
        return (Message("assistant", value),) if type(value) is str else value

    @property
    def input_messages(self) -> tuple[Message, ...]:
        """Former name of `input`."""
        return self.input

    @property
    def expected_messages(self) -> tuple[Message, ...]:
        """Former name of `expected_output`."""
        return self.expected_output

    @property
    def dataset(self) -> str:
        """The display name of the dataset."""
        return self.place.origin.dataset

    @property
    def path(self) -> str:
        """The path of the dataset, as the user wrote it."""
        return self.place.origin.path

    @property
    def line(self) -> int:
        """The line on which the case starts; 0 if it was not read from a file."""
        return self.place.line + self.offset

    @property
    def description(self) -> str | None:
        """A note for readers; it does not affect the evaluation."""
        return self.details.description

    @property
    def cluster(self) -> str | None:
        """The document, template or user that its cases share, if one is declared; see `cluster_of`."""
        return self.details.cluster

    @property
    def context(self) -> tuple[str, ...]:
        """Retrieved passages, for evaluators that check an answer against them."""
        return self.details.context

    @property
    def rubrics(self) -> tuple[FrozenDict, ...]:
        """The rubric items of the case itself."""
        return self.details.rubrics

    @property
    def variables(self) -> FrozenDict | None:
        """The template variables of a case whose input is an object."""
        return self.details.variables

    @property
    def prompts(self) -> tuple[PromptInput, ...]:
        """The input as rendered by each of several prompts."""
        return self.details.prompts

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The user turns after the input."""
        return self.details.turns

    @property
    def user(self) -> SimulatedUser | None:
        """The simulated user, if there is one."""
        return self.details.user

    @property
    def workspace(self) -> Workspace | None:
        """The workspace, if there is one."""
        return self.details.workspace

    @property
    def case_error(self) -> str | None:
        """Why the case is refused: its jobs end in an error with this message, and nothing is called."""
        return self.details.case_error

    @property
    def input_fingerprint(self) -> str:
        """A hash of everything sent to a target, files included. While it is the same, an answer can be reused."""
        return digest(_input_data(self))

    @property
    def fingerprint(self) -> str:
        """A hash of the input and of all references and rubrics, independent of key order, file and format."""
        return self.fingerprints[1]

    @property
    def fingerprints(self) -> tuple[str, str]:
        """`input_fingerprint` and `fingerprint`, computed together."""
        if (texts := texts_of(self)) is not None:
            return text_fingerprints(texts)
        input_data = _input_data(self)
        reference: dict[str, Any] = {
            "expected_output": _hashable(self.expected_output),
            "expected_outcome": self.expected_outcome,
            "rubrics": self.rubrics,
            "context": self.context,
        }
        if any(turn.expected_output for turn in self.turns):
            reference["expected_of_turns"] = [_hashable(turn.expected_output) for turn in self.turns]
        values = {name: getattr(self.details, name) for name in ("aggregation", "on_turn_failure", "case_error")}
        reference |= {name: value for name, value in values.items() if value is not None}
        return digest(input_data), digest(input_data | reference)

    @property
    def is_conversation(self) -> bool:
        """Whether the case has more than one turn."""
        return self.details is not NO_DETAILS and (bool(self.turns) or self.user is not None)

    @property
    def names_files(self) -> bool:
        """Whether any message may name files. Fast, because most cases have none."""
        if self.details is not NO_DETAILS:
            return True
        case_input, expected = stored_input(self), _stored_expected_output(self)
        if type(case_input) is str and (type(expected) is str or not expected):
            return False
        return any(message.parts for message in (*self.input, *self.expected_output))

    @property
    def _content(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in ("place", "offset"))

    def __hash__(self) -> int:
        return hash((self.id, self.expected_outcome))


def refused_case(case: EvalCase, reason: str) -> EvalCase:
    """Return a case that cannot be run, without its evaluators: its jobs end in an error."""
    fields = {name: getattr(case.details, name) for name in ("description", "cluster", "variables", "prompts")}
    return msgspec.structs.replace(case, evaluators=(), details=CaseDetails(**fields, case_error=reason))


def case_to_data(case: EvalCase) -> dict[str, Any]:
    """Return a case as `agentv cases` prints it: current names only, in a fixed order, without empty values."""
    if (details := case.details) is NO_DETAILS:
        return _plain_to_data(case)
    data: dict[str, Any] = {
        "id": case.id,
        "dataset": case.dataset,
        "conversation_id": case.conversation_id,
        "cluster": details.cluster,
        "expected_outcome": case.expected_outcome,
        "input": _messages_to_data(case.input),
        "prompts": [{"id": prompt.id, "input": _messages_to_data(prompt.input)} for prompt in details.prompts],
        "expected_output": _messages_to_data(case.expected_output),
        "context": details.context,
        "variables": details.variables,
        "execution": execution_to_data(case.execution),
        "evaluators": _evaluators_to_data(case.evaluators),
        "turns": [_turn_to_data(turn) for turn in details.turns],
        "aggregation": details.aggregation,
        "on_turn_failure": details.on_turn_failure,
        "window_size": details.window_size,
        "user": msgspec.to_builtins(details.user),
        "workspace": details.workspace and details.workspace.to_data(),
        "depends_on": details.depends_on,
        "on_dependency_failure": details.on_dependency_failure,
        "description": details.description,
        "metadata": case.metadata,
        "tags": case.tags,
        "case_error": details.case_error,
    }
    # Kept if empty: without evaluators a case is not scored, and empty variables still mark a template.
    kept_keys = ("evaluators", "variables")
    return {key: value for key, value in data.items() if value or (key in kept_keys and value is not None)}


def _plain_to_data(case: EvalCase) -> dict[str, Any]:
    """Return the same for a case without details, the most common kind, faster."""
    data: dict[str, Any] = {"id": case.id}
    if case.dataset:
        data["dataset"] = case.dataset
    if case.conversation_id:
        data["conversation_id"] = case.conversation_id
    if case.expected_outcome:
        data["expected_outcome"] = case.expected_outcome
    case_input, expected = stored_input(case), _stored_expected_output(case)
    if case_input or case_input == "":
        data["input"] = _stored_to_data(case_input, "user")
    if expected or expected == "":
        data["expected_output"] = _stored_to_data(expected, "assistant")
    data["execution"] = execution_to_data(case.execution)
    data["evaluators"] = _evaluators_to_data(case.evaluators)
    if case.metadata:
        data["metadata"] = case.metadata
    if case.tags:
        data["tags"] = case.tags
    return data


Texts = tuple[bytes, bytes, bytes]
"""Input, expected output and expected outcome of a case as JSON texts; empty without an expected output."""


def texts_of(case: EvalCase) -> Texts | None:
    """Return the texts of a case whose input is text, and its reference text or none; None for any other case."""
    case_input, expected = stored_input(case), _stored_expected_output(case)
    if case.details is not NO_DETAILS or type(case_input) is not str or (expected and type(expected) is not str):
        return None
    return to_json(case_input), to_json(expected) if type(expected) is str else b"", to_json(case.expected_outcome)


def _stored_to_data(messages: str | tuple[Message, ...], role: str) -> list[dict[str, Any]]:
    """Return stored messages as data; text is one message of that role."""
    if isinstance(messages, str):
        return [{"role": role, "content": messages}]
    return _messages_to_data(messages)


def _messages_to_data(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [message_to_data(message) for message in messages]


def _evaluators_to_data(specs: tuple[EvaluatorSpec, ...]) -> list[dict[str, Any]]:
    """Return specs as data. Cases of a dataset share one tuple, so the last result is cached."""
    if _last_specs[0] is not specs:
        _last_specs[:] = (specs, [spec.to_data() for spec in specs])
    return cast("list[dict[str, Any]]", _last_specs[1])


_last_specs: list[Any] = [None, []]


def _turn_to_data(turn: Turn) -> dict[str, Any]:
    data = {
        "input": _messages_to_data(turn.input),
        "expected_output": _messages_to_data(turn.expected_output),
        "evaluators": [evaluator.to_data() for evaluator in turn.evaluators],
    }
    return {key: value for key, value in data.items() if value or key == "input"}


def text_fingerprints(texts: Texts) -> tuple[str, str]:
    """Return the fingerprints of a case of plain texts, the most common kind, from JSON built by hand for speed."""
    case_input, expected, outcome = texts
    messages = (b'{"content":', expected, b',"role":"assistant"}') if expected else ()
    (of_input := _INPUT_HASH.copy()).update(case_input + b',"role":"user"}]}')
    (of_case := _CASE_HASH.copy()).update(
        b"".join((
            outcome, b',"expected_output":[', *messages,
            b'],"input":[{"content":', case_input, b',"role":"user"}],"rubrics":[]}',
        ))
    )  # fmt: skip
    return of_input.hexdigest(), of_case.hexdigest()


# The hashes of how the JSON of each such case begins.
(_INPUT_HASH := EMPTY_HASH.copy()).update(b'{"input":[{"content":')
(_CASE_HASH := EMPTY_HASH.copy()).update(b'{"context":[],"expected_outcome":')


def _input_data(case: EvalCase) -> dict[str, Any]:
    data: dict[str, Any] = {"input": _hashable(case.input)}
    if case.prompts:
        data["prompts"] = {prompt.id: _hashable(prompt.input) for prompt in case.prompts}
    if case.turns:
        data["turns"] = [*(_hashable(turn.input) for turn in case.turns), *filter(None, [case.details.window_size])]
    if case.user is not None:
        data["user"] = msgspec.to_builtins(case.user)
    if case.workspace is not None:
        data["workspace"] = msgspec.to_builtins(case.workspace.before_answer)
    return data


def _hashable(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [_hashable_message(message) for message in messages]


def _hashable_message(message: Message) -> dict[str, Any]:
    data = message_to_data(message)
    digests = [part.digest for part in message.parts if isinstance(part, FilePart | ImagePart)]
    return {**data, "files": digests} if digests else data
