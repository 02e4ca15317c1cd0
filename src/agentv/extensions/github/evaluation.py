"""Compare the run of a pull request with those of its base branch: verdict, flipped cases, and the cases needed."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from agentv.comparison.behaviour.regressions import changed_records
from agentv.comparison.comparison import Comparison, Pair
from agentv.comparison.joined_cases import JoinedCases
from agentv.comparison.run_comparison import CompareOptions, compare_joined
from agentv.comparison.sample_size import Need, PlanOptions, plan
from agentv.comparison.scores import RunScores
from agentv.engine.named_runs import named_run, open_baseline
from agentv.errors import UsageError, file_errors
from agentv.model.result import reason_of

CANDIDATE = "this pull request"

_MAJORITY = 0.5
_MOST_READ = 100
_DIFFERENCES = (0.2, 0.1, 0.05, 0.02, 0.01)
_MOST_NEEDS = 2


class FlippedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case that passed before and fails now, or the other way round, with an answer of each run."""

    pair: Pair
    now_passes: bool
    answers: tuple[str | None, str | None]
    reason: str


class Flips(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of cases that flipped, by most of their trials, and the cases to show: first those that fail now."""

    now_fail: int = 0
    now_pass: int = 0
    cases: tuple[FlippedCase, ...] = ()


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The run of a pull request, compared with its baseline. Without a comparison or a run, `problem` is the reason.

    `needs` are numbers of cases that would show a difference, if the cases cannot tell.
    """

    run: RunScores | None = None
    baseline: RunScores | None = None
    comparison: Comparison | None = None
    problem: str = ""
    flips: Flips = Flips()
    needs: tuple[Need, ...] = ()


def evaluate_pull_request(name: str, baselines: Sequence[str]) -> Evaluation:
    """Compare a run with the baseline. A run that cannot be compared is not an error: the reader needs to know."""
    path, picked = named_run(name)
    _refuse_links(Path(path))
    run = RunScores(path, CANDIDATE, picked)
    datasets = {entry.name for entry in run.manifest.datasets} if run.manifest else set()
    try:
        baseline = RunScores(*open_baseline(baselines, [str(path)], datasets))
        joined = JoinedCases(baseline, run)
        comparison = compare_joined(joined, CompareOptions(changes=0))
    except UsageError as error:
        return Evaluation(run=run, problem=". ".join(filter(None, (error.headline, *error.detail.splitlines()))))
    return Evaluation(
        run=run,
        baseline=baseline,
        comparison=comparison,
        flips=_flips(joined, comparison),
        needs=_needs(baseline, run, comparison),
    )


def _refuse_links(folder: Path) -> None:
    """Raise UsageError for a run folder with symbolic links: the folder may come from someone else's workflow."""
    with file_errors(f"Cannot read {folder}"):
        links = [path.name for path in folder.iterdir() if path.is_symlink()] if folder.is_dir() else []
    if links:
        raise UsageError(f"{folder} has symbolic links, which are not followed here: {', '.join(sorted(links))}")


def _flips(joined: JoinedCases, comparison: Comparison) -> Flips:
    before, after = (
        side.means(side.run.passes)[joined.index[:, place]] >= _MAJORITY for place, side in enumerate(joined.sides)
    )
    deltas = joined.scores[1] - joined.scores[0]
    rows = np.flatnonzero(before != after)
    rows = rows[np.lexsort((-np.abs(deltas[rows]), after[rows]))]
    with joined.sides[0].run.run, joined.sides[1].run.run:
        first, second = changed_records(joined, rows[:_MOST_READ])
    cases = (
        FlippedCase(
            pair=comparison.pairs[row],
            now_passes=bool(after[row]),
            answers=(first[row].candidate_answer, second[row].candidate_answer),
            reason=reason_of(second[row], first[row]),
        )
        for row in rows[:_MOST_READ].tolist()
    )
    now_pass = int(after[rows].sum())
    return Flips(now_fail=len(rows) - now_pass, now_pass=now_pass, cases=tuple(cases))


def _needs(baseline: RunScores, run: RunScores, comparison: Comparison) -> tuple[Need, ...]:
    """Return what the largest differences need that the cases do not show; none if they decide."""
    paired = comparison.paired
    if paired is None or paired.answer != "cannot tell" or not comparison.is_comparable:
        return ()
    try:
        needs = plan((baseline, run), PlanOptions(differences=_DIFFERENCES, trials=(1,))).needs
    except UsageError:  # the scores do not vary, or there are too few cases
        return ()
    return tuple(need for need in needs if need.cases is not None and need.cases > paired.n)[:_MOST_NEEDS]
