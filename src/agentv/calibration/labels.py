"""People's labels of answers: cards to label, an append-only file, and majority verdicts."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from agentv.engine.answers.stored import StoredCases
from agentv.engine.job.request import Question
from agentv.errors import AgentvError, file_errors
from agentv.model.case import EvalCase
from agentv.model.job import Judgement
from agentv.model.response import answer
from agentv.model.result import Result
from agentv.model.values import hash_bytes, to_json
from agentv.runs.store import RunStore
from agentv.runs.writer import ResultWriter

LABELS_FILE = Path(".agentv", "labels.jsonl")

LabelValue = Literal["pass", "fail", "skip"]
Drawn = Literal["random", "suggested"]


class AnswerKey(NamedTuple):
    """The identity of an answer to a case. A label holds for the same words in any run and of any target."""

    dataset: str
    eval_id: str
    answer: str


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file. A `label` of null withdraws the labeller's last one.

    `answer` is a hash of the answer's text. `drawn` says how the case was chosen: figures depend on it.
    """

    schema_version: int = 1
    timestamp: str
    dataset: str
    eval_id: str
    answer: str
    label: LabelValue | None
    drawn: Drawn = "random"
    labeller: str = ""
    run_id: str = ""

    @property
    def key(self) -> AnswerKey:
        return AnswerKey(self.dataset, self.eval_id, self.answer)


def answer_key(result: Result) -> AnswerKey | None:
    """The key of a record's answer; None for a record without one."""
    if result.candidate_answer is None:
        return None
    return AnswerKey(result.dataset, result.eval_id, answer_hash(result.candidate_answer))


def answer_hash(text: str) -> str:
    """The hash of an answer's text."""
    return hash_bytes(text.encode("utf-8", "replace"))


class Labels:
    """The last label of each labeller for each answer."""

    def __init__(self, labels: list[Label]) -> None:
        self._said: dict[AnswerKey, dict[str, Label]] = {}
        for label in labels:
            self.add(label)

    def add(self, label: Label) -> None:
        """Add a label."""
        said = self._said.setdefault(label.key, {})
        said.pop(label.labeller, None)
        if label.label is not None:
            said[label.labeller] = label

    def of(self, key: AnswerKey, labeller: str) -> Label | None:
        """The label that one labeller gave an answer."""
        return self._said.get(key, {}).get(labeller)

    def verdict(self, key: AnswerKey) -> Literal["pass", "fail", "disputed"] | None:
        """The majority verdict on an answer; None if nobody passed or failed it."""
        said = Counter(label.label for label in self._said.get(key, {}).values() if label.label in ("pass", "fail"))
        if not said:
            return None
        if said["pass"] == said["fail"]:
            return "disputed"
        return "pass" if said["pass"] > said["fail"] else "fail"

    def skipped(self, key: AnswerKey) -> bool:
        """Whether the answer was only skipped."""
        return bool(self._said.get(key)) and self.verdict(key) is None

    def drawn(self, key: AnswerKey) -> Drawn:
        """How an answer was chosen: at random if any labeller got it that way."""
        ways = {label.drawn for label in self._said.get(key, {}).values()}
        return "random" if "random" in ways else "suggested"

    def counts(self, labeller: str) -> Counter[str]:
        """The number of each label of one labeller."""
        own = (said.get(labeller) for said in self._said.values())
        return Counter(label.label for label in own if label is not None and label.label is not None)

    @property
    def keys(self) -> list[AnswerKey]:
        """The answers with a verdict."""
        return [key for key in self._said if self.verdict(key) is not None]


def read_labels(path: Path | str) -> list[Label]:
    """Read a file of labels; empty if there is none. A torn last line is ignored."""
    path = Path(path)
    if not path.is_file():
        return []
    decode = msgspec.json.Decoder(Label).decode
    found = []
    with file_errors(f"Cannot read {path}"), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace() or not line.endswith(b"\n"):
                continue
            try:
                found.append(decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise AgentvError(f"Not a label at line {number} in {path}", str(error)) from None
    return found


class LabelFile:
    """A file of labels; each is on disk when `add` returns."""

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        with file_errors(f"Cannot create {path.parent}"):
            path.parent.mkdir(parents=True, exist_ok=True)
        self.labels = Labels(read_labels(path))
        self._writer = ResultWriter(path, go_on="run the same command again")

    def add(self, label: Label) -> None:
        """Append a label."""
        self._writer.write(msgspec.json.encode(label) + b"\n")
        self._writer.sync()
        self.labels.add(label)

    def __enter__(self) -> LabelFile:
        return self

    def __exit__(self, *ended: object) -> None:
        self._writer.close()


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to label. `calls` are its tool calls, a line each."""

    key: AnswerKey
    answer: str
    calls: tuple[str, ...] = ()
    question: str = ""
    expected_outcome: str = ""
    reference: str = ""
    context: tuple[str, ...] = ()


def cards(results: Iterable[Result], count: int, order: Callable[[AnswerKey], bytes | None]) -> list[Card]:
    """The first `count` answers by their `order`, each once; None leaves an answer out. Holds no more than that."""
    seen: set[AnswerKey] = set()

    def ranked() -> Iterator[tuple[bytes, AnswerKey, Result]]:
        for result in results:
            key = answer_key(result)
            if key is not None and key not in seen and (place := order(key)) is not None:
                seen.add(key)
                yield place, key, result

    chosen = heapq.nsmallest(count, ranked(), key=lambda each: each[0])
    return [Card(key=key, answer=result.candidate_answer or "", calls=_calls(result)) for _, key, result in chosen]


def with_cases(found: list[Card], cases: Iterable[EvalCase]) -> list[Card]:
    """Fill the cards from their cases; a card without a case stays as it is."""
    wanted = {(card.key.dataset, card.key.eval_id) for card in found} | {("", card.key.eval_id) for card in found}
    known: dict[tuple[str, str], EvalCase] = {}
    for case in cases:
        for name in (case.dataset, ""):
            if (name, case.id) in wanted:
                known[name, case.id] = case
    return [_filled(card, known.get((card.key.dataset, card.key.eval_id))) for card in found]


def stored_cases(run: RunStore) -> StoredCases:
    """The cases in a run's folder. Raises UsageError for files of results, which have none."""
    run.check_cases("Name the datasets that were run, after the run")
    return StoredCases(run)


def _filled(card: Card, case: EvalCase | None) -> Card:
    if case is None:
        return card
    question = Question(case, prompt_id=case.prompts[0].id if case.prompts else None)
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
