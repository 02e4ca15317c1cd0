"""Human labels of answers: their values, majority verdicts, and cards to label, in random order."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from agentv.engine.answers.stored_answers import StoredCases
from agentv.engine.job.request import CaseRequest
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.job import Judgement
from agentv.model.response import answer
from agentv.model.result import Result
from agentv.model.values import hash_bytes, to_json
from agentv.runs.store import RunStore

LABELS_FILE = Path(".agentv", "labels.jsonl")

LabelValue = Literal["pass", "fail", "skip"]
Drawn = Literal["random", "suggested", "chosen"]
"""How an answer came to be labelled: in random order, suggested by `calibrate`, or picked by the labeller."""

LONGEST_LABELLER = 100


class AnswerKey(NamedTuple):
    """The identity of an answer to a case. A label applies to the same text in any run and from any target."""

    dataset: str
    eval_id: str
    answer: str


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the label file: all that a labeller has to say about an answer, and it replaces their earlier lines.

    A `label` of null withdraws the earlier one; a `comment` without a label is a note. `answer` is a hash of the
    answer's text. `drawn` is how the answer was chosen, which affects the estimates. `label` is the verdict on the
    `score`, if there is one.
    """

    schema_version: int = 1
    timestamp: str
    dataset: str
    eval_id: str
    answer: str
    label: LabelValue | None
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    comment: str = ""
    drawn: Drawn = "random"
    labeller: str = ""
    run_id: str = ""

    @property
    def key(self) -> AnswerKey:
        return AnswerKey(self.dataset, self.eval_id, self.answer)


def answer_key(result: Result) -> AnswerKey | None:
    """Return the key of a record's answer; None for a record without one."""
    if result.candidate_answer is None:
        return None
    return AnswerKey(result.dataset, result.eval_id, answer_hash(result.candidate_answer))


def answer_hash(text: str) -> str:
    """Return the hash of an answer's text."""
    return hash_bytes(text.encode("utf-8", "replace"))


def checked_labeller(name: str) -> str:
    """Return the name of a labeller. Raises UsageError if it is too long or not printable."""
    if len(name) > LONGEST_LABELLER:
        raise UsageError(
            f"The labeller's name is longer than {LONGEST_LABELLER} characters", hint="Choose a shorter one"
        )
    if not name.isprintable():
        raise UsageError(f"The labeller's name has characters that cannot be printed: {name!r}")
    return name


class Labels:
    """The last label of each labeller for each answer."""

    def __init__(self, labels: Iterable[Label]) -> None:
        self._by_answer: dict[AnswerKey, dict[str, Label]] = {}
        self._comments: dict[tuple[AnswerKey, str], str] = {}
        for label in labels:
            self.add(label)

    def add(self, label: Label) -> None:
        """Add a label. It replaces the labeller's earlier one."""
        by_labeller = self._by_answer.setdefault(label.key, {})
        by_labeller.pop(label.labeller, None)
        if label.label is not None:
            by_labeller[label.labeller] = label
        self._comments[label.key, label.labeller] = label.comment

    def of(self, key: AnswerKey, labeller: str) -> Label | None:
        """Return the label that one labeller gave an answer."""
        return self._by_answer.get(key, {}).get(labeller)

    def comment(self, key: AnswerKey, labeller: str) -> str:
        """Return the comment of one labeller on an answer, with or without a label."""
        return self._comments.get((key, labeller), "")

    def by(self, labeller: str) -> Labels:
        """Return the labels of one labeller."""
        return Labels(self.all_by(labeller))

    def all_by(self, labeller: str) -> list[Label]:
        """Return the last labels of one labeller, without notes."""
        return [labels[labeller] for labels in self._by_answer.values() if labeller in labels]

    def all_of(self, key: AnswerKey) -> list[Label]:
        """Return the last label of each labeller for an answer."""
        return list(self._by_answer.get(key, {}).values())

    def noted_by(self, labeller: str) -> list[AnswerKey]:
        """Return the answers with a comment of one labeller."""
        return [key for (key, name), comment in self._comments.items() if name == labeller and comment]

    def labellers(self, keys: Iterable[AnswerKey] | None = None) -> Counter[str]:
        """Count the pass and fail labels of each labeller, of some answers or of all."""
        label_sets = (self._by_answer.get(key, {}) for key in (self._by_answer if keys is None else keys))
        return Counter(name for labels in label_sets for name, label in labels.items() if label.label != "skip")

    def verdict(self, key: AnswerKey) -> Literal["pass", "fail", "disputed"] | None:
        """Return the majority verdict on an answer; None if it has no pass or fail label."""
        counts = Counter(label.label for label in self._by_answer.get(key, {}).values())
        if counts["pass"] == counts["fail"]:
            return "disputed" if counts["pass"] else None
        return "pass" if counts["pass"] > counts["fail"] else "fail"

    def skipped(self, key: AnswerKey) -> bool:
        """Return whether the answer was skipped by everyone who saw it."""
        return bool(self._by_answer.get(key)) and self.verdict(key) is None

    def drawn(self, key: AnswerKey) -> Drawn:
        """Return how an answer was chosen: at random, or else suggested, if that holds for any labeller."""
        ways = {label.drawn for label in self._by_answer.get(key, {}).values()}
        return "random" if "random" in ways else "suggested" if "suggested" in ways else "chosen"

    def runs(self, key: AnswerKey) -> frozenset[str]:
        """Return the runs whose answer was labelled as pass or fail."""
        return frozenset(label.run_id for label in self._by_answer.get(key, {}).values() if label.label != "skip")

    def counts(self, labeller: str) -> Counter[str]:
        """Count the labels of one labeller by value."""
        own = (labels.get(labeller) for labels in self._by_answer.values())
        return Counter(label.label for label in own if label is not None and label.label is not None)

    @property
    def keys(self) -> list[AnswerKey]:
        """The answers with a verdict."""
        return [key for key in self._by_answer if self.verdict(key) is not None]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to label. `calls` are its tool calls, one line each; `run_id` is set for cards of several runs."""

    key: AnswerKey
    answer: str
    calls: tuple[str, ...] = ()
    question: str = ""
    expected_outcome: str = ""
    reference: str = ""
    context: tuple[str, ...] = ()
    run_id: str = ""


def cards(results: Iterable[Result], count: int, order: Callable[[AnswerKey], bytes | None]) -> list[Card]:
    """Return the first `count` answers by `order`, each once; None excludes an answer. Keeps only these in memory."""
    keys: set[AnswerKey] = set()

    def ranked() -> Iterator[tuple[bytes, AnswerKey, Result]]:
        for result in results:
            key = answer_key(result)
            if key is not None and key not in keys and (rank := order(key)) is not None:
                keys.add(key)
                yield rank, key, result

    picks = heapq.nsmallest(count, ranked(), key=lambda each: each[0])
    return [Card(key=key, answer=result.candidate_answer or "", calls=_calls(result)) for _, key, result in picks]


def with_cases(card_list: list[Card], cases: Iterable[EvalCase]) -> list[Card]:
    """Fill the cards from their cases. A card whose case is not found stays unchanged."""
    keys = {(card.key.dataset, card.key.eval_id) for card in card_list}
    places = (((name, case.id), case) for case in cases for name in (case.dataset, ""))
    by_key = {place: case for place, case in places if place in keys}
    return [_filled(card, by_key.get((card.key.dataset, card.key.eval_id))) for card in card_list]


def stored_cases(run: RunStore) -> StoredCases:
    """Return the cases stored in a run folder. Raises UsageError for result files, which have none."""
    run.check_cases("Pass the run's datasets after the run")
    return StoredCases(run)


def _filled(card: Card, case: EvalCase | None) -> Card:
    if case is None:
        return card
    question = CaseRequest(case, prompt_id=case.prompts[0].id if case.prompts else None)
    return msgspec.structs.replace(
        card,
        question=question.prompt,
        expected_outcome=case.expected_outcome,
        reference=Judgement(question, answer(""), candidate_answer="").reference_answer,
        context=case.context,
    )


def _calls(result: Result) -> tuple[str, ...]:
    calls = (call for message in result.output_messages for call in message.get("tool_calls") or ())
    return tuple(
        f"{call.get('tool', '?')} {to_json(call['input']).decode() if call.get('input') is not None else ''}".strip()
        for call in calls
        if isinstance(call, dict)
    )


def draw_order(key: AnswerKey, seed: int) -> bytes:
    """Return the rank of an answer in a random order that is determined by the seed."""
    return hashlib.blake2b("\0".join((str(seed), *key)).encode("utf-8", "replace"), digest_size=8).digest()


def passed_over(labels: Labels, labeller: str, is_passed: Callable[[AnswerKey], bool]) -> list[Label]:
    """Return the labels of picked answers whose turn has come, now as drawn at random.

    An answer that was picked before its turn is not asked for again. Once a later one is drawn, it belongs to the
    random sample: without it, answers that people like to pick would be missing there.
    """
    picked = (label for label in labels.all_by(labeller) if label.drawn == "chosen")
    return [msgspec.structs.replace(label, drawn="random") for label in picked if is_passed(label.key)]
