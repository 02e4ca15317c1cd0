"""Search the history for the commit that changed the scores, deciding each step with a sequential paired test."""

import math
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from agentv.errors import AgentvError
from agentv.extensions.bisect.evaluations import AnswerUsage, CommitFailure, Evaluations
from agentv.extensions.bisect.evidence import Answers, Evidence, difference, evidence_that_lower
from agentv.settings.git_repository import Commit, GitRepository
from agentv.stats.distributions import Interval
from agentv.stats.sequential import BettingMean

FIRST_BATCH = 12
GROWTH = 1.5
MOST_UNDECIDED = 3
"""Stop after this many undecided commits: each takes all cases and trials."""

StepOutcome = Literal["good", "bad", "undecided", "skipped"]


class SearchStep(msgspec.Struct, frozen=True, kw_only=True):
    """The test of one commit. `cases` counts the cases used, and several trials of a case several times."""

    commit: Commit
    outcome: StepOutcome
    cases: int = 0
    p_value: float | None = None
    reason: str = ""


class ScoreChange(msgspec.Struct, frozen=True, kw_only=True):
    """The scores before and after, over shared cases, with an interval that is valid at any stopping time."""

    before: float
    after: float
    difference: float
    ci95: Interval
    cases: int


class SearchProgress(msgspec.Struct, kw_only=True):
    """The part of a search that is stored: whether the score falls (-1) or rises (1), and the steps so far."""

    direction: int | None = None
    steps: list[SearchStep] = []


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a search. `alpha` is the probability of naming a wrong commit. `paths` limit the commits."""

    alpha: float = 0.05
    trials: int = 5
    into_merges: bool = False
    paths: tuple[str, ...] = ()


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search. `suspects` are the commits that may have changed the score; one if it was found."""

    outcome: Literal["found", "undecided", "no_difference"]
    good: Commit
    bad: Commit
    last_good: Commit
    suspects: tuple[Commit, ...]
    change: ScoreChange | None
    steps: tuple[SearchStep, ...]
    usage: AnswerUsage
    full_answers: int
    commits: int
    cases: int
    trials: int


class Listener:
    """Receives the events of a search."""

    def confirming(self, commits: int) -> None:
        """Receive the number of commits, before GOOD and BAD are compared."""

    def confirmed(self, change: ScoreChange, p_value: float, cases: int) -> None:
        """Receive the difference between GOOD and BAD."""

    def testing(self, number: int, about: int, commit: Commit) -> None:
        """Receive the commit that is evaluated next, and the estimated number of steps."""

    def tested(self, step: SearchStep, direction: int) -> None:
        """Receive the outcome of a step."""


class Search:
    """A search between two commits. `save` stores the progress after each step."""

    def __init__(
        self,
        repository: GitRepository,
        evaluations: Evaluations,
        ends: tuple[Commit, Commit],
        settings: SearchSettings,
        progress: SearchProgress,
    ) -> None:
        self._repository = repository
        self._evaluations = evaluations
        self._good, self._bad = ends
        self._settings = settings
        self._progress = progress
        self._flags = () if settings.into_merges else ("--first-parent",)
        self._limit = math.inf

    def run(self, listener: Listener, save: Callable[[SearchProgress], None]) -> SearchResult:
        """Search until the commit is found, or nothing is left to test."""
        rest = self._rest()
        # The error probability is divided among the comparison of the ends and the steps.
        tests = 1 + math.ceil(math.log2(len(self._all_between()) + 1))
        self._limit = math.log(tests / self._settings.alpha)
        if self._progress.direction is None:
            listener.confirming(len(rest) + 1)
            if not self._confirm(listener):
                return self._finding("no_difference")
            save(self._progress)
        while rest := self._rest():
            if len(self._decided("undecided")) >= MOST_UNDECIDED:
                break
            number = len(self._progress.steps) + 1
            commit = self._repository.commit(rest[0])
            listener.testing(number, number - 1 + math.ceil(math.log2(len(rest) + 1)), commit)
            step = self._test(commit)
            self._progress.steps.append(step)
            save(self._progress)
            listener.tested(step, self._progress.direction or 0)
            self._evaluations.release(commit.sha)
        return self._finding("found" if not self._open_between() else "undecided")

    def _confirm(self, listener: Listener) -> bool:
        """Compare GOOD and BAD until they differ, in either direction. Return whether they do."""
        for count in self._sizes():
            good, bad = self._answers_of_ends(count)
            units = self._evaluations.draws(count)
            falls, rises = evidence_that_lower([good], [bad], units), evidence_that_lower([bad], [good], units)
            evidence = max(falls, rises, key=lambda each: each.peak)
            if evidence.peak >= self._limit + math.log(2):  # either direction
                self._progress.direction = -1 if evidence is falls else 1
                change = self._change()
                assert change is not None
                listener.confirmed(change, min(1.0, 2 * evidence.p_value), count)
                return True
        return False

    def _answers_of_ends(self, count: int) -> list[Answers]:
        """Return the answers of GOOD and BAD. Raises AgentvError if one of them cannot be evaluated."""
        answers: list[Answers] = []
        for name, commit in (("GOOD", self._good), ("BAD", self._bad)):
            try:
                answers.append(self._evaluations.evaluate(commit.sha, count))
            except CommitFailure as failure:
                hint = "Choose a commit where the evaluation works"
                raise AgentvError(f"{name} {commit} cannot be evaluated", str(failure), hint) from failure
        return answers

    def _test(self, commit: Commit) -> SearchStep:
        like_good = like_bad = Evidence()
        count = 0
        try:
            for count in self._sizes():
                answers = self._evaluations.evaluate(commit.sha, count)
                self._answers_of_ends(count)
                like_good, like_bad = self._evidence(answers, count)
                evidence = max(like_good, like_bad, key=lambda each: each.peak)
                if evidence.peak >= self._limit:
                    outcome: StepOutcome = "bad" if evidence is like_bad else "good"
                    return SearchStep(commit=commit, outcome=outcome, cases=count, p_value=evidence.p_value)
        except CommitFailure as failure:
            return SearchStep(commit=commit, outcome="skipped", reason=str(failure))
        p_value = min(like_good.p_value, like_bad.p_value)
        return SearchStep(commit=commit, outcome="undecided", cases=count, p_value=p_value)

    def _evidence(self, answers: Answers, count: int) -> tuple[Evidence, Evidence]:
        """Return the evidence that a commit differs from the bad ones, and that it differs from the good ones."""
        units = self._evaluations.draws(count)
        good, bad = self._side("good"), self._side("bad")
        if self._progress.direction == -1:
            return evidence_that_lower([answers], bad, units), evidence_that_lower(good, [answers], units)
        return evidence_that_lower(bad, [answers], units), evidence_that_lower([answers], good, units)

    def _side(self, outcome: StepOutcome) -> list[Answers]:
        """Return the answers of all commits known to be on one side of the change."""
        end = self._good if outcome == "good" else self._bad
        return [self._evaluations.known(sha) for sha in (end.sha, *self._decided(outcome))]

    def _change(self) -> ScoreChange | None:
        """Estimate the change from the cases that both sides answered."""
        good, bad = self._side("good"), self._side("bad")
        most = self._evaluations.units * self._settings.trials
        units = self._evaluations.draws(most)
        mean = BettingMean(largest=max(map(len, units)))
        total = cases = 0.0
        for unit in units:
            before = [_scores(good, key) for key in unit]
            after = [_scores(bad, key) for key in unit]
            pairs = [(b, a) for b, a in zip(before, after, strict=True) if b and a]
            differences = [difference(a, b) for b, a in pairs]
            mean.add(sum((1 + (value or 0.0)) / 2 for value in differences), len(differences))
            total += sum(sum(b) / len(b) for b, _ in pairs)
            cases += len(pairs)
        if mean.mean is None:
            return None
        low, high = mean.interval
        moved = 2 * mean.mean - 1
        start = total / cases
        interval = 2 * low - 1, 2 * high - 1
        return ScoreChange(before=start, after=start + moved, difference=moved, ci95=interval, cases=int(cases))

    def _finding(self, outcome: Literal["found", "undecided", "no_difference"]) -> SearchResult:
        evaluations, commit = self._evaluations, self._repository.commit
        good = self._decided("good")
        trials = evaluations.trials
        return SearchResult(
            outcome=outcome,
            good=self._good,
            bad=self._bad,
            last_good=commit(good[-1]) if good else self._good,
            suspects=() if outcome == "no_difference" else tuple(map(commit, (*self._open_between(), self._last_bad))),
            change=self._change(),
            steps=tuple(self._progress.steps),
            usage=evaluations.usage,
            full_answers=evaluations.commits * evaluations.cases * trials,
            commits=evaluations.commits,
            cases=evaluations.cases,
            trials=trials,
        )

    def _decided(self, outcome: StepOutcome) -> list[str]:
        return [step.commit.sha for step in self._progress.steps if step.outcome == outcome]

    @property
    def _last_bad(self) -> str:
        return [self._bad.sha, *self._decided("bad")][-1]

    def _all_between(self) -> list[str]:
        return self._repository.between([self._good.sha], self._bad.sha, self._flags, self._settings.paths)

    def _open_between(self) -> list[str]:
        """Return the commits that may be the first bad one, except the last bad one itself."""
        good = [self._good.sha, *self._decided("good")]
        return self._repository.between(good, self._last_bad, self._flags, self._settings.paths)

    def _rest(self) -> list[str]:
        """Return the commits left to test, the best one first."""
        tested = {step.commit.sha for step in self._progress.steps}
        return [sha for sha in self._open_between() if sha not in tested]

    def _sizes(self) -> Iterator[int]:
        """Yield growing numbers of draws, up to all cases and trials."""
        most = self._evaluations.units * self._settings.trials
        # After GOOD and BAD were compared, the number of cases that a step takes is roughly known.
        count = max(FIRST_BATCH, len(self._evaluations.known(self._good.sha)) // 4)
        while count < most:
            yield count
            count = max(count + FIRST_BATCH, int(count * GROWTH))
        yield most


def _scores(side: list[Answers], key: tuple[str, str, int]) -> list[float]:
    return [score for answers in side if (score := answers.get(key)) is not None]
