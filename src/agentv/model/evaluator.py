"""Evaluators as cases carry them: an entry's common settings, and the object of the type that scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from agentv.model.result import EvaluatorResult, TokenUsage, Verdict
from agentv.model.values import FrozenDict, digest
from agentv.settings.diagnostics import Problems

if TYPE_CHECKING:
    from agentv.model.judgement import Judgement

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


class EvaluatorSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EvaluatorSpec) and self._content == other._content

    def __ne__(self, other: object) -> bool:
        return not self == other  # a struct's own `!=` does not use `==`

    def __hash__(self) -> int:
        return hash((self.type, self.name, self.settings))

    @property
    def _content(self) -> tuple[object, ...]:
        return (
            *(self.type, self.name, self.weight, self.required),
            *(self.negate, self.transform, self.target, self.settings),
        )

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


class Evaluator(msgspec.Struct, frozen=True, kw_only=True):
    """One type of evaluator: its fields are its settings. Subclasses implement `score`, or `evaluate` if they wait.

    `aliases` maps other spellings to fields; `unsupported` maps keys of other tools to the reason they are refused.
    `open_settings` collects unknown keys in the field `config`. `files` names the fields in which text may be a path.
    `members_field` names the field that holds further entries. `target_field` names the field that takes the entry's
    `target` when its value is not a name.
    """

    aliases: ClassVar[dict[str, str]] = {}
    unsupported: ClassVar[dict[str, str]] = OTHER_TOOLS
    open_settings: ClassVar[bool] = False
    files: ClassVar[tuple[str, ...]] = ()
    members_field: ClassVar[str | None] = None
    target_field: ClassVar[str | None] = None

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
    def refusal(self) -> str:
        """Why this machine cannot run it as the settings require; empty if it can."""
        return ""

    @property
    def judge(self) -> str | None:
        """The judge that the settings themselves name; it takes precedence over the entry's `target`."""
        return None

    @property
    def judge_calls(self) -> int:
        """How often each of its judges is called for one answer; 0 for types without a judge."""
        return 0

    @property
    def members(self) -> tuple[EvaluatorSpec, ...]:
        """The entries inside this one."""
        return ()

    @property
    def own_words(self) -> tuple[str, ...]:
        """The built-in text sent to judges: scores depend on it as they do on the settings."""
        return ()

    def preflight(self, find_file: Callable[[str], str], folder: str) -> Problems:  # noqa: ARG002
        """Problems with what the settings refer to, found before anything is called. Lets `find_file` raise.

        `folder` is where programs are started.
        """
        return Problems()

    def complaints(self) -> list[str]:
        """Problems with settings that are each of the right type, one sentence each."""
        return []

    @property
    def embeds(self) -> bool:
        """Whether the entry's `target` is called for embeddings."""
        return False

    @property
    def needs_trace(self) -> bool:
        """Whether it needs the messages and tool calls of an answer."""
        return False

    @property
    def needs_reference(self) -> bool:
        """Whether it needs the case's expected output."""
        return False

    @property
    def needs_context(self) -> bool:
        """Whether it needs the case's `context`."""
        return False


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
