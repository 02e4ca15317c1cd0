"""Execution settings of a case, evaluator entries, and the base class of evaluators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from agentv.model.diagnostics import KeyPath, Problems
from agentv.model.result import EvaluatorResult, Share, TokenUsage, Verdict
from agentv.model.values import ComparedByContent, FrozenDict, digest

if TYPE_CHECKING:
    from agentv.model.job import Judgement


DEFAULT_TYPE = "llm_judge"
RUBRIC_TYPE = "rubric"
"""The type of evaluator that plain strings in `evaluators` become items of."""

COMMON_KEYS = (
    "type",
    "name",
    "metric",
    "id",
    "weight",
    "required",
    "min_score",
    "gate",
    "negate",
    "transform",
    "target",
)
"""Keys that every entry may have. All other keys belong to its type."""

OTHER_TOOLS = {
    "threshold": "Use `required` with the minimum score: `required: 0.7`, or `required: true` for the pass limit",
    "judge": "Name the judge in `target`, and define it in the targets file",
    "provider": "Name the judge in `target`, and define it in the targets file",
    "preprocessors": "Only `llm_judge` and `rubric` read files of an answer. Use `transform` to change its text",
    "postprocess": "Use `transform` of the evaluator or of the target",
    "context_transform": "Put the retrieved passages in the `context` of the case",
    "max_steps": "A judge responds in one call; use a coding agent as the judge's `target`",
}
"""Keys of AgentV (TypeScript) 4.x and 5.x, of promptfoo and our command line, with a hint. Types may declare them."""


class EvaluatorSpec(ComparedByContent, frozen=True, gc=False, kw_only=True):
    """One entry of a case's evaluators. Equal by content, hashable, picklable.

    `settings` are the type's own settings as written, `evaluator` the object built from them. It is None for a class in
    a user's file, which is not imported while reading, and for specs built in Python: see `evaluator_of`.
    """

    type: str
    name: str
    weight: float = 1.0
    required: bool | float = False
    gate: bool = True
    negate: bool = False
    transform: FrozenDict | tuple[FrozenDict, ...] | None = None
    target: str | tuple[str, ...] | None = None
    settings: FrozenDict = FrozenDict()
    evaluator: Evaluator | None = None

    def __hash__(self) -> int:
        return hash((self.type, self.name, self.settings))

    @property
    def _content(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name != "evaluator")

    def to_data(self) -> dict[str, Any]:
        """Return the entry as written in a dataset, without defaults; the type's own settings come last."""
        data: dict[str, Any] = {"type": self.type, "name": self.name}
        if self.weight != 1:
            data["weight"] = self.weight
        for key in ("required", "negate", "transform", "target"):
            value = getattr(self, key)
            if value is not None and value is not False:
                data[key] = value
        if not self.gate:
            data["gate"] = False
        return data | self.settings

    @property
    def is_gate(self) -> bool:
        """Whether the case only passes if the entry reaches its minimum."""
        return self.gate and self.required is not False

    @property
    def fingerprint(self) -> str:
        """A hash of everything in the entry that affects its scores."""
        return digest({key: value for key, value in self.to_data().items() if key not in ("name", "weight")})


DEFAULT_EVALUATOR = EvaluatorSpec(type=DEFAULT_TYPE, name=DEFAULT_TYPE)


FindFile = Callable[[str], str]
"""Resolves a file name used in a dataset to a path, or raises."""


class FileReference(msgspec.Struct, frozen=True):
    """A value in an evaluator's settings that may name files, programs or functions. `cwd` is its working directory.

    `check(find_file, folder)` returns problems without running anything; programs are started in `folder`. `executes`
    tells what scoring does with the value: start a command, import code, run it as a script, or none of these.
    """

    path: KeyPath
    value: Any
    check: Callable[[FindFile, str], Problems] | None = None
    cwd: str | None = None
    executes: Literal["", "command", "code", "script"] = ""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluator needs in order to score an answer."""

    reference: bool = False
    """The case's expected output."""

    context: bool = False
    """The case's retrieved passages."""

    trace: bool = False
    """The messages and tool calls of the answer."""

    embedder: bool = False
    """A target that creates embeddings."""

    judge_calls: int = 0
    """The number of calls to each judge."""

    judge: str | None = None
    """A judge named in the settings."""


NO_NEEDS = Needs()


class Evaluator(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of evaluator types; the fields are the settings. Subclasses implement `score`, or `evaluate` for I/O.

    `aliases` maps other spellings to fields; `unsupported` maps keys of other tools to a hint for the error message.
    `open_settings` collects unknown keys in the field `config`. `members_field` names the field that holds nested
    entries. `target_field` names the field that receives the entry's `target` if its value is not a name.
    `scores_content` is false for types that only check cost or duration.
    """

    aliases: ClassVar[dict[str, str]] = {}
    unsupported: ClassVar[dict[str, str]] = OTHER_TOOLS
    open_settings: ClassVar[bool] = False
    members_field: ClassVar[str | None] = None
    target_field: ClassVar[str | None] = None
    scores_content: ClassVar[bool] = True

    def score(self, judgement: Judgement) -> Score:
        """Score an answer without I/O. Called directly, outside the event loop."""
        raise NotImplementedError

    async def evaluate(self, judgement: Judgement) -> Score:
        """Score an answer, or raise EvaluatorFailure. Types that call models or run programs override this method."""
        return self.score(judgement)

    @property
    def is_plain(self) -> bool:
        """Whether `score` can be called directly instead of `evaluate`."""
        return type(self).evaluate is Evaluator.evaluate

    @property
    def can_run(self) -> bool:
        """Whether this type implements scoring at all."""
        return type(self).score is not Evaluator.score or not self.is_plain

    @property
    def runs_code(self) -> bool:
        """Whether scoring may run user code, which must not run concurrently in one folder."""
        return True

    @property
    def needs(self) -> Needs:
        """What the evaluator needs in order to score an answer."""
        return NO_NEEDS

    @property
    def members(self) -> tuple[EvaluatorSpec, ...]:
        """The nested entries."""
        return ()

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """The built-in prompts sent to judges. Scores depend on them as much as on the settings."""
        return ()

    @property
    def refusal(self) -> str:
        """Why this machine cannot run the evaluator as configured; empty if it can."""
        return ""

    @property
    def caution(self) -> str:
        """A warning about how this machine runs the evaluator; shown once."""
        return ""

    def references(self) -> Iterator[FileReference]:
        """Yield the files, programs and functions that the settings refer to."""
        return iter(())

    def complaints(self) -> list[str]:
        """Return problems in settings whose types are correct, one sentence each."""
        return []


class Score(msgspec.Struct, frozen=True, gc=False):
    """A score from 0 to 1, with its explanation.

    `verdict` is set by types that apply a gate of their own; otherwise it follows from the score.
    """

    score: float
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    reasoning: str | None = None
    details: Any = None
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    request: dict[str, Any] | None = None
    members: tuple[EvaluatorResult, ...] = ()
    verdict: Verdict | None = None
    is_partial: bool = False
    """Whether a part was not checked, such as an item that a judge left out. Such a result has no opposite."""


class EvaluatorFailure(Exception):
    """An evaluator could not score an answer. The job ends as an error, never as a score of 0.

    `members` are the results of a composite's members that finished before one failed. `suspicious` if the answer may
    have caused the failure, by making the judge repeat a verdict.
    """

    def __init__(
        self, message: str = "", members: tuple[EvaluatorResult, ...] = (), *, suspicious: bool = False
    ) -> None:
        super().__init__(message)
        self.members = members
        self.suspicious = suspicious


DEFAULT_TARGET = "default"


class Verdicts(msgspec.Struct, frozen=True, gc=False, rename={"passing": "pass"}):
    """The minimum scores for a pass and for borderline."""

    passing: Share = 0.8
    """Minimum score of a pass."""

    borderline: Share = 0.6
    """Minimum score of borderline."""

    @classmethod
    def contradiction(cls, data: Mapping[str, Any]) -> str:
        """Describe the contradiction of two explicit limits; `pass` alone may be below the default of `borderline`."""
        if "passing" not in data or data.get("borderline", 0.0) <= data["passing"]:
            return ""
        return f"'borderline' ({data['borderline']:g}) is above 'pass' ({data['passing']:g})"


class Execution(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The effective settings of one case, without its evaluators."""

    target: str | None = None
    targets: tuple[str, ...] = ()
    trials: int | None = None
    timeout_seconds: float | None = None
    verdicts: Verdicts | None = None
    thresholds: dict[str, float] | None = None
    workers: int | None = None
    weight: float | None = None

    def over(self, base: Execution) -> Execution:
        """Return these settings with missing ones taken from `base`. A target here replaces all targets there."""
        merged: dict[str, Any] = {
            name: getattr(self, name) if getattr(self, name) not in (None, ()) else getattr(base, name)
            for name in self.__struct_fields__
        }
        if self.target is not None and not self.targets:
            merged["targets"] = ()
        elif self.targets and self.target is None:
            merged["target"] = None
        return Execution(**merged)

    def __hash__(self) -> int:
        return hash((self.target, self.targets, self.trials, self.timeout_seconds, self.verdicts))


def execution_to_data(execution: Execution) -> dict[str, Any]:
    """Return the settings as `agentv cases` prints them, always with the effective target."""
    if _last[0] is not execution:  # most cases of a dataset share one object
        data: dict[str, Any] = msgspec.to_builtins(execution)
        if not execution.targets:
            data = {"target": execution.target or DEFAULT_TARGET, **data}
        _last[:] = (execution, data)
    return dict(_last[1])


_last: list[Any] = [None, {}]


def turn_evaluator_name(number: int, spec: EvaluatorSpec) -> str:
    """Return the name of a turn's evaluator in results; turns are counted from 1."""
    return f"turn-{number}.{spec.name}"
