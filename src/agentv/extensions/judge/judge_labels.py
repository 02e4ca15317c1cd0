"""The labels of the project as evidence in comparisons: the judge's agreement, labelled pairs, and pairs to label."""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.joined_cases import JoinedCases
from agentv.comparison.judge_evidence import Agreement
from agentv.comparison.scores import JudgeUse, RunScores
from agentv.engine.named_runs import existing_run, run_path
from agentv.engine.run_defaults import load_defaults
from agentv.extensions.judge.calibrate import Answers, answers_of, calibrate
from agentv.extensions.judge.corrected_rate import next_labels
from agentv.extensions.judge.label_file import read_labels
from agentv.extensions.judge.labelled_difference import FEWEST_IN_A_STRATUM, LabelledPairs, compare_labelled
from agentv.extensions.judge.labels import LABELS_FILE, AnswerKey, Card, Labels, answer_key, cards, draw_order
from agentv.model.result import Result
from agentv.runs.folder import RunFolder
from agentv.settings.project import project_root
from agentv.stats.judge_calibration import Labelled, Stratum
from agentv.stats.paired_comparison import Paired

Name = tuple[str | None, ...]


class ProjectLabels:
    """The service `judge-labels`, with the labels in `.agentv/labels.jsonl`."""

    def __init__(self, labels: Labels | None = None) -> None:
        root = project_root(".")
        file = os.path.join(root, LABELS_FILE)
        self.must_agree = load_defaults(".", root, lambda _: None).judge_must_agree
        self.labels = Labels(read_labels(file) if os.path.exists(file) else ()) if labels is None else labels

    def agreement(self, runs: Sequence[RunScores]) -> Agreement:
        """Return the agreement with the labels of these runs, and of others that the same judges scored.

        Only runs with labels count, with all their answers.
        """
        if not self.labels.keys:
            return Agreement()
        sides = [answers_of(results_of(run)) for run in (*runs, *self._runs_like(runs[0]))]
        sides = [side for side in sides if any(self.labels.verdict(each.key) for each in side.judged)]
        answers = Answers(judged=list({each.key: each for side in sides for each in side.judged}.values()))
        calibration = calibrate(answers, self.labels, "", 0)
        if calibration.kappa is None:
            return Agreement(labels=calibration.labelled)
        return Agreement(labels=calibration.labelled, kappa=calibration.kappa.value, kappa_ci95=calibration.kappa.ci95)

    def decide(self, joined: JoinedCases, paired: Paired) -> tuple[Paired | None, int]:
        """Return the comparison by labels of both runs with the judge's help, None if few, and their number."""
        pairs = self.pairs(joined)
        if pairs is None:
            return None, 0
        first, second = joined.scores
        return compare_labelled(paired, second - first, pairs, joined.clusters), len(pairs.rows)

    def pairs(self, joined: JoinedCases) -> LabelledPairs | None:
        """Return the labelled cases of both runs; None without any."""
        means = [self._means(side.run, joined.parts) for side in joined.sides]
        names = (joined.name(row) for row in range(len(joined.index)))
        if not (rows := [row for row, name in enumerate(names) if all(name in side for side in means)]):
            return None
        first, second = (np.array([np.mean(side[joined.name(row)]) for row in rows]) for side in means)
        return LabelledPairs(np.array(rows), second - first, not self._has_suggested(joined))

    def _runs_like(self, run: RunScores) -> Iterator[RunScores]:
        """Yield the other labelled runs of the project with the same judges, of the same fingerprints."""
        measure = _judges(run)
        for run_id in sorted({run_id for key in self.labels.keys for run_id in self.labels.runs(key)}):
            path = run_path(run_id) if run_id and run_id != run.run.run_id else ""
            if measure[1] and path and RunFolder(path).manifest_path.is_file():
                other = RunScores(path, run_id)
                if _judges(other) == measure:
                    yield other

    def _means(self, run: RunScores, parts: Sequence[int]) -> dict[Name, list[float]]:
        """Return the labels of each case of a run, 1 for pass and 0 for fail, without answers that people picked."""
        labels: dict[Name, list[float]] = {}
        for result in results_of(run):
            key = answer_key(result)
            verdict = None if key is None else self.labels.verdict(key)
            if key is None or verdict not in ("pass", "fail") or self.labels.drawn(key) == "chosen":
                continue
            name = (result.dataset, result.eval_id, result.target, result.prompt)
            labels.setdefault(tuple(name[part] for part in parts), []).append(float(verdict == "pass"))
        return labels

    def _has_suggested(self, joined: JoinedCases) -> bool:
        keys = filter(None, (answer_key(result) for side in joined.sides for result in results_of(side.run)))
        return any(self.labels.verdict(key) is not None and self.labels.drawn(key) == "suggested" for key in keys)


def _judges(run: RunScores) -> tuple[frozenset[JudgeUse], frozenset[str]]:
    """Return the calls of judges in a run, and the fingerprints of the evaluators that made them."""
    uses = frozenset(use for uses in run.judge_sets for use in uses)
    names = {name for name, _, _ in uses}
    prints = (case.evaluator_fingerprints for case in run.run.cases())
    return uses, frozenset(value for each in prints for name, value in each.items() if name in names)


def results_of(run: RunScores) -> Iterator[Result]:
    """Yield the results of a run, of the selected target or prompt."""
    for _, result in run.run.entries():
        if run.picked is None or run.picked in (result.target, result.prompt):
            yield result


_KINDS = {-1: "loss", 0: "tie", 1: "win"}


def pair_cards(names: tuple[str, str], labels: Labels, labeller: str, count: int, seed: int) -> list[Card]:
    """Return the answers of up to `count` cases in both runs, pair by pair, without those that have a label.

    The numbers of the judge's wins, ties and losses are chosen to narrow the interval of the difference most: labels
    go where they disagreed with the judge, or where there are few. Within them, cases are drawn at random, and so is
    the order of the two answers.
    """
    runs = [RunScores(existing_run(name), name) for name in names]
    joined = JoinedCases(*runs)
    ranks = {name: place for place, name in enumerate(_suggested_cases(joined, labels, count, seed))}
    places: dict[AnswerKey, bytes] = {}
    for run in runs:
        for result in results_of(run):
            key = answer_key(result)
            fields = (result.dataset, result.eval_id, result.target, result.prompt)
            rank = ranks.get(tuple(fields[part] for part in joined.parts))
            if key is not None and rank is not None and labels.of(key, labeller) is None:
                places[key] = rank.to_bytes(4) + draw_order(key, seed)
    answers = [(run.run.run_id, card) for run in runs for card in cards(results_of(run), len(places), places.get)]
    ordered = sorted(answers, key=lambda each: places[each[1].key])
    return [msgspec.structs.replace(card, run_id=run_id) for run_id, card in ordered]


def _suggested_cases(joined: JoinedCases, labels: Labels, count: int, seed: int) -> list[Name]:
    """Return the names of the cases to label next, in random order."""
    first, second = joined.scores
    signs = np.sign(np.round(second - first, 9)).astype(int)
    pairs = ProjectLabels(labels).pairs(joined)
    labels_by_row = {} if pairs is None else dict(zip(pairs.rows.tolist(), pairs.labels.tolist(), strict=True))
    keys = (AnswerKey(str(name[0]), str(name[-1]), "") for name in map(joined.name, range(len(signs))))
    order = [draw_order(key, seed) for key in keys]
    return [joined.name(row) for row in next_rows(signs, labels_by_row, order, count)]


def next_rows(signs: NDArray[Any], labels: Mapping[int, float], order: Sequence[bytes], count: int) -> list[int]:
    """Return the rows of the cases to label next, given the judge's wins and losses and the labels so far.

    Every kind gets the labels without which it cannot be estimated.
    """
    kinds, strata = [np.flatnonzero(signs == kind).tolist() for kind in _KINDS], []
    for (kind, title), rows in zip(_KINDS.items(), kinds, strict=True):
        labelled = (Labelled(bool(np.sign(labels[row]) != kind), True, 0.0) for row in rows if row in labels)
        strata.append(Stratum(title, len(rows), tuple(labelled)))
    counts = next_labels(strata, count, FEWEST_IN_A_STRATUM)
    rows_by_kind = (
        sorted((row for row in rows if row not in labels), key=order.__getitem__)[:number]
        for rows, number in zip(kinds, counts, strict=True)
    )
    return sorted(chain.from_iterable(rows_by_kind), key=order.__getitem__)
