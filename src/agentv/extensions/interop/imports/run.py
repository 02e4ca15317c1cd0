"""A run of another tool, as its format reads it: a header, and one job at a time with its case, answer and grades."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from agentv.model.case import NO_DETAILS, CaseDetails, EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.message import Message
from agentv.model.result import ErrorInfo, TokenUsage, Verdict
from agentv.model.values import freeze
from agentv.settings.format_choice import DEFAULT_STRENGTH


class ForeignGrade(msgspec.Struct, frozen=True, kw_only=True):
    """What one scorer of the other tool found: a number, a truth value, or an error without one.

    A number outside 0 to 1 is a metric, not a score. `scorer` is the scorer of a grade that is one of several of it.
    `settings` identify the scorer: two runs whose scorers have other settings measured something else. `judge` is the
    model that it called.
    """

    name: str
    type: str = ""
    scorer: str = ""
    value: float | bool | None = None
    passed: bool | None = None
    weight: float = 1.0
    reasoning: str | None = None
    details: Any = None
    error: str | None = None
    settings: dict[str, Any] = {}
    judge: str | None = None
    usage: TokenUsage | None = None
    cost_usd: float | None = None

    @property
    def spec(self) -> EvaluatorSpec:
        """The scorer as an evaluator of a case."""
        kind = self.type or self.name
        return EvaluatorSpec(type=kind, name=self.name, weight=self.weight, settings=freeze(self.settings))


class ForeignCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case of the other tool. `variables` are those of a prompt template, which then identify the question.

    `identity` distinguishes cases that are otherwise equal, such as two tests of the same question.
    """

    id: str
    dataset: str
    input: str | tuple[Message, ...] = ()
    expected: Any = None
    outcome: str = ""
    context: tuple[str, ...] = ()
    variables: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    conversation_id: str | None = None
    identity: str = ""

    def build(self, evaluators: tuple[EvaluatorSpec, ...]) -> EvalCase:
        """Return the case as one of ours."""
        has_details = self.context or self.variables is not None
        variables = None if self.variables is None else freeze(self.variables)
        return EvalCase(
            self.id,
            self.outcome,
            self.input,
            _expected(self.expected),
            self.conversation_id,
            freeze(self.metadata),
            self.tags,
            evaluators=evaluators,
            details=CaseDetails(context=self.context, variables=variables) if has_details else NO_DETAILS,
        )


def _expected(value: Any) -> str | tuple[Message, ...]:
    if value is None or isinstance(value, str):
        return value or ()
    is_messages = isinstance(value, tuple) and all(isinstance(item, Message) for item in value)
    return value if is_messages else (Message("assistant", freeze(value)),)


class ForeignJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the other tool: an answer to a case, with its grades.

    Without a `trial`, answers of the same target to the same case are numbered. `score` is the total that the tool
    computed; without one, it is the mean of the grades. `passed` is the tool's own verdict. `evaluators` are those that
    the tool applies to the case, if it stores them apart from the grades. `place` is the position in the file, for
    messages.
    """

    case: ForeignCase
    target: str
    prompt: str | None = None
    trial: int | None = None
    answer: str | None = None
    messages: tuple[Message, ...] = ()
    grades: tuple[ForeignGrade, ...] = ()
    evaluators: tuple[EvaluatorSpec, ...] | None = None
    score: float | None = None
    passed: bool | None = None
    error: ErrorInfo | None = None
    reasoning: str | None = None
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    stop_reason: str | None = None
    cached: bool = False
    timestamp: str = ""
    metadata: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    place: str = ""


class ForeignRun(msgspec.Struct, kw_only=True):
    """A run of another tool. `jobs` are read once; the header may be completed while they are read.

    `targets` and `judges` are settings by name, `versions` those of the tool, `notes` what the reader should know.
    """

    jobs: Iterable[ForeignJob]
    id: str = ""
    started_at: str = ""
    finished_at: str | None = None
    is_unfinished: bool = False
    planned_jobs: int | None = None
    targets: dict[str, dict[str, Any]] = {}
    judges: dict[str, dict[str, Any]] = {}
    options: dict[str, Any] = {}
    versions: dict[str, str] = {}
    git_commit: str | None = None
    notes: list[str] = []

    def target(self, name: str, provider: str) -> str:
        """Add a model as a target, unless it is one already, and return its name."""
        self.targets.setdefault(name, {"provider": provider, "model": name})
        return name


class ForeignResults:
    """Base class of the formats of other tools' results. A file or a folder is one run."""

    title: ClassVar[str]
    """The name of the tool and of its file, for messages: `an Inspect log`."""

    empty_hint: ClassVar[str] = ""
    """What to do if a file has no results."""

    extensions: tuple[str, ...] = ()
    unit = "result"
    is_imported = True
    scores_by_first = False
    """Whether the first scorer gives the score, as the tool's own totals do; otherwise the score is a mean."""

    strength: ClassVar[float] = DEFAULT_STRENGTH
    """How specific the format is, from 0 to 1. If several recognize a file, the strongest reads it."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Return whether a file that starts with `head` has this format. For a folder, `head` is empty."""
        raise NotImplementedError

    def files(self, path: Path) -> list[Path]:
        """Return the files that are read: the file itself, or those of a folder."""
        return [path]

    def open(self, path: Path) -> ForeignRun:
        """Open a run. Raises AgentvError, also while its jobs are read."""
        run = ForeignRun(jobs=(), id=path.stem)
        run.jobs = self.jobs(path, run)
        return run

    def jobs(self, path: Path, run: ForeignRun) -> Iterable[ForeignJob]:
        """Yield the jobs of a run without a header, and complete the run. Raises AgentvError."""
        raise NotImplementedError


def mean_score(grades: Iterable[ForeignGrade]) -> float | None:
    """Return the weighted mean of the grades that are scores; None if there is none."""
    total = weight = 0.0
    for grade in grades:
        if grade.value is not None and grade.weight > 0:
            total += float(grade.value) * grade.weight
            weight += grade.weight
    return min(1.0, max(0.0, total / weight)) if weight else None


def is_score(value: float | bool | None) -> bool:
    """Return whether a value is from 0 to 1."""
    return value is not None and 0 <= value <= 1


def verdict_of(score: float | None, passed: bool | None) -> Verdict | None:
    """Return the verdict: the tool's own, or that of the default limits."""
    if score is None:
        return None
    if passed is not None:
        return "pass" if passed else "fail"
    return "pass" if score >= 0.8 else "borderline" if score >= 0.6 else "fail"
