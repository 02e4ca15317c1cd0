"""How a case is run and scored: execution settings, and evaluator entries with the object that scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from agentv.model.result import EvaluatorResult, Share, TokenUsage, Verdict
from agentv.model.values import ComparedByContent, FrozenDict, digest
from agentv.settings.diagnostics import KeyPath, Problems

if TYPE_CHECKING:
    from agentv.model.job import Judgement


DEFAULT_TYPE = "llm_judge"
RUBRIC_TYPE = "rubric"
"""The type that plain strings among evaluators are items of."""

COMMON_KEYS = ("type", "name", "metric", "weight", "required", "min_score", "negate", "transform", "target")
"""Keys that every entry may have; the others belong to its type."""

OTHER_TOOLS = {
    "threshold": "Write the minimum into `required`: `required: 0.7`; `required: true` is the pass limit",
    "provider": "Name the judge in `target`; targets are declared in the targets file",
    "preprocessors": "Use `transform` of the evaluator or of the target",
    "postprocess": "Use `transform` of the evaluator or of the target",
    "context_transform": "Put the retrieved passages into `context` of the case",
    "max_steps": "A judge answers in one call; use a coding agent as the judge's `target`",
}
"""Keys of AgentV 4.x, 5.x and promptfoo that no type has unless it declares them itself."""


class EvaluatorSpec(ComparedByContent, frozen=True, gc=False, kw_only=True):
    """One entry of a case's evaluators. Equal by content, hashable, safe to pickle.

    `settings` are the type's own settings as written; `evaluator` is what they were read into. It is None for a class
    in a user's file, which reading must not import, and for a spec that a program made: see `evaluator_of`.
    """

    type: str
    name: str
    weight: float = 1.0
    required: bool | float = False
    negate: bool = False
    transform: FrozenDict | None = None
    target: str | tuple[str, ...] | None = None
    settings: FrozenDict = FrozenDict()
    evaluator: Evaluator | None = None

    def __hash__(self) -> int:
        return hash((self.type, self.name, self.settings))

    @property
    def _content(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name != "evaluator")

    def to_data(self) -> dict[str, Any]:
        """The entry as a dataset would write it: defaults left out, then the type's own settings."""
        data: dict[str, Any] = {"type": self.type, "name": self.name}
        if self.weight != 1:
            data["weight"] = self.weight
        for key in ("required", "negate", "transform", "target"):
            value = getattr(self, key)
            if value is not None and value is not False:
                data[key] = value
        return data | self.settings

    @property
    def fingerprint(self) -> str:
        """A hash of everything in the entry that shapes its scores."""
        return digest({key: value for key, value in self.to_data().items() if key not in ("name", "weight")})


DEFAULT_EVALUATOR = EvaluatorSpec(type=DEFAULT_TYPE, name=DEFAULT_TYPE)


FindFile = Callable[[str], str]
"""Returns the path of a file that a dataset names, or raises."""


class FileReference(msgspec.Struct, frozen=True):
    """A value in an evaluator's settings that may name files, programs or functions. `cwd` is a folder of its own.

    `check(find_file, folder)` returns its problems without running anything; `folder` is where programs are started.
    """

    path: KeyPath
    value: Any
    check: Callable[[FindFile, str], Problems] | None = None
    cwd: str | None = None


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluator needs in order to score an answer.

    `reference` is the case's expected output, `trace` the messages and tool calls of the answer, `embedder` a target
    that makes embeddings. `judge_calls` is how often each judge is called; `judge` is one that the settings name.
    """

    reference: bool = False
    context: bool = False
    trace: bool = False
    embedder: bool = False
    judge_calls: int = 0
    judge: str | None = None


NO_NEEDS = Needs()


class Evaluator(msgspec.Struct, frozen=True, kw_only=True):
    """One type of evaluator: its fields are its settings. Subclasses implement `score`, or `evaluate` if they wait.

    `aliases` maps other spellings to fields; `unsupported` maps keys of other tools to the reason they are refused.
    `open_settings` collects unknown keys in the field `config`. `members_field` names the field that holds further
    entries. `target_field` names the field that takes the entry's `target` when its value is not a name.
    `scores_content` is false for types that only look at what an answer cost.
    """

    aliases: ClassVar[dict[str, str]] = {}
    unsupported: ClassVar[dict[str, str]] = OTHER_TOOLS
    open_settings: ClassVar[bool] = False
    members_field: ClassVar[str | None] = None
    target_field: ClassVar[str | None] = None
    scores_content: ClassVar[bool] = True

    def score(self, judgement: Judgement) -> Score:
        """Score an answer without waiting for anything; called outside the event loop."""
        raise NotImplementedError

    async def evaluate(self, judgement: Judgement) -> Score:
        """Score an answer, or raise EvaluatorFailure. Types that call models or run programs override this one."""
        return self.score(judgement)

    @property
    def is_plain(self) -> bool:
        """Whether `score` can be called instead of `evaluate`."""
        return type(self).evaluate is Evaluator.evaluate

    @property
    def can_run(self) -> bool:
        """Whether this type implements scoring at all."""
        return type(self).score is not Evaluator.score or not self.is_plain

    @property
    def runs_code(self) -> bool:
        """Whether scoring may run user code, so that two of them must not run at once in the same folder."""
        return True

    @property
    def needs(self) -> Needs:
        """What must be there for an answer to be scored."""
        return NO_NEEDS

    @property
    def members(self) -> tuple[EvaluatorSpec, ...]:
        """The entries inside this one."""
        return ()

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """The built-in text sent to judges: scores depend on it as they do on the settings."""
        return ()

    @property
    def refusal(self) -> str:
        """Why this machine cannot run it as the settings require; empty if it can."""
        return ""

    def references(self) -> Iterator[FileReference]:
        """What the settings refer to outside themselves."""
        return iter(())

    def complaints(self) -> list[str]:
        """Problems with settings that are each of the right type, one sentence each."""
        return []


class Score(msgspec.Struct, frozen=True, gc=False):
    """How good an answer is, from 0 to 1, and why.

    `verdict` is for types that decide it themselves, by a gate of their own; otherwise the score decides.
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


class EvaluatorFailure(Exception):
    """An evaluator that could not score. The job becomes an error; nothing is counted as a zero.

    `members` are the results of a composite's members before one of them failed.
    """

    def __init__(self, message: str = "", members: tuple[EvaluatorResult, ...] = ()) -> None:
        super().__init__(message)
        self.members = members


DEFAULT_TARGET = "default"


class Verdicts(msgspec.Struct, frozen=True, gc=False, rename={"passing": "pass"}):
    """From which score on a case passes, and from which it is borderline."""

    passing: Share = 0.8
    borderline: Share = 0.6

    @classmethod
    def contradiction(cls, written: Mapping[str, Any]) -> str:
        """What is wrong with limits that are both written; `pass` alone may be below the other's default."""
        if "passing" not in written or written.get("borderline", 0.0) <= written["passing"]:
            return ""
        return f"'borderline' ({written['borderline']:g}) is above 'pass' ({written['passing']:g})"


class Execution(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The effective settings of one case, evaluators aside."""

    target: str | None = None
    targets: tuple[str, ...] = ()
    trials: int | None = None
    timeout_seconds: float | None = None
    verdicts: Verdicts | None = None
    thresholds: dict[str, float] | None = None

    def over(self, base: Execution) -> Execution:
        """These settings where they are given, those of `base` elsewhere; a target here replaces all targets there."""
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
    """The settings as `agentv cases` prints them: the effective target is always there."""
    if _last[0] is not execution:  # the cases of a dataset mostly share theirs
        data: dict[str, Any] = msgspec.to_builtins(execution)
        if not execution.targets:
            data = {"target": execution.target or DEFAULT_TARGET, **data}
        _last[:] = (execution, data)
    return dict(_last[1])


_last: list[Any] = [None, {}]


def turn_evaluator_name(number: int, spec: EvaluatorSpec) -> str:
    """Return the name of a turn's evaluator in results; turns are counted from 1."""
    return f"turn-{number}.{spec.name}"
