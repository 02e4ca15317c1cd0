"""Deterministic checks of the answer's text: equality, parts of it, patterns, JSON, nearness."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.evaluators.base import OTHER_TOOLS, Count, Evaluator, Limit, Share
from agentv.evaluators.json_schemas import compiled_schema, schema_errors, schema_in
from agentv.evaluators.reference import reference_text, reference_value, text_of
from agentv.evaluators.scoring import cut, file_finder, missed, passed, quoted
from agentv.json_values import same
from agentv.model.judgement import Judgement
from agentv.model.score import EvaluatorFailure, Score

if TYPE_CHECKING:
    from jsonschema_rs import Validator

Scalar = str | int | float | bool
"""What stands for a text: YAML gives `value: 42` as a number."""

Scalars = Annotated[list[Scalar], Meta(min_length=1)]

FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "a": re.ASCII}
NO_EFFECT = "gu"
"""Flags of JavaScript that change nothing here: a search stops at the first match and text is Unicode."""

_BLANK = "is blank, so every answer would pass"


class _AgainstReference(Evaluator, frozen=True, kw_only=True, dict=True):
    """A check that takes the reference answer when no `value` is given. Subclasses say what a value is."""

    @property
    def needs_reference(self) -> bool:
        """Without `value` the expected output takes its place."""
        return getattr(self, "value", None) is None


class _TextCheck(_AgainstReference, frozen=True, kw_only=True, dict=True):
    """A check that holds or does not; `says` is the sentence for when it does, `denies` for when it does not."""

    says: ClassVar[str]
    denies: ClassVar[str]

    value: Scalar | None = None

    def score(self, judgement: Judgement) -> Score:
        """1 when it holds, else 0."""
        fixed = self._fixed
        if fixed is None:
            text = reference_text(judgement)
            if not text:
                raise EvaluatorFailure(f"The text to look for {_BLANK}")
            return self._outcome(self._holds(judgement.candidate_answer, self._folded(text)), text)
        text, hit, miss = fixed
        return hit if self._holds(judgement.candidate_answer, text) else miss

    def complaints(self) -> list[str]:
        """A text that every answer would have."""
        return [f"'value' {_BLANK}"] if self.value is not None and not text_of(self.value) else []

    @cached_property
    def _fixed(self) -> tuple[str, Score, Score] | None:
        """The text to look for and both outcomes, made once; None when each case brings its own."""
        if self.value is None:
            return None
        text = text_of(self.value)
        return self._folded(text), self._outcome(True, text), self._outcome(False, text)

    def _outcome(self, holds: bool, text: str) -> Score:
        return passed(f"{self.says} {quoted(text)}") if holds else missed(f"{self.denies} {quoted(text)}")

    @staticmethod
    def _folded(text: str) -> str:
        return text

    @staticmethod
    def _holds(answer: str, text: str) -> bool:
        raise NotImplementedError


class _ListCheck(_AgainstReference, frozen=True, kw_only=True, dict=True):
    aliases: ClassVar[dict[str, str]] = {"values": "value"}

    value: Scalars | None = None

    def complaints(self) -> list[str]:
        """A text that every answer would have."""
        return [f"'value[{index}]' {_BLANK}" for index, item in enumerate(self.value or ()) if not text_of(item)]

    @cached_property
    def _given(self) -> list[str] | None:
        return None if self.value is None else [text_of(item) for item in self.value]

    def _texts(self, judgement: Judgement) -> list[str]:
        texts = self._given
        if texts is None:
            reference = reference_value(judgement)
            texts = [text_of(item) for item in reference] if isinstance(reference, list) else [text_of(reference)]
        if not texts or not all(texts):
            raise EvaluatorFailure(f"A text to look for {_BLANK}")
        return texts


class Equals(_AgainstReference, frozen=True, kw_only=True, dict=True):
    """The answer is this text, or this JSON value."""

    value: Scalar | dict[str, Any] | list[Any] | None = None

    def score(self, judgement: Judgement) -> Score:
        """1 when text and text, or value and value, are equal, else 0."""
        wanted = reference_value(judgement) if self.value is None else self.value
        answer = judgement.candidate_answer.strip()
        if isinstance(wanted, str):
            holds = answer == wanted.strip()
        else:
            # A number also equals its text as it was written, which JSON may write in another way.
            holds = (isinstance(wanted, int | float) and answer == text_of(wanted)) or _is_json_value(answer, wanted)
        if holds:
            return passed(f"equals {quoted(wanted)}")
        return missed(f"is {quoted(answer)} and not {quoted(wanted)}")


class Contains(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The text occurs in the answer."""

    says: ClassVar[str] = "contains"
    denies: ClassVar[str] = "does not contain"

    @staticmethod
    def _holds(answer: str, text: str) -> bool:
        return text in answer


class IContains(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The text occurs in the answer, in upper or lower case."""

    says: ClassVar[str] = "contains, in upper or lower case,"
    denies: ClassVar[str] = "does not contain, in upper or lower case,"

    @staticmethod
    def _folded(text: str) -> str:
        return text.casefold()

    @staticmethod
    def _holds(answer: str, text: str) -> bool:
        return text in answer.casefold()


class StartsWith(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The answer begins with the text."""

    says: ClassVar[str] = "begins with"
    denies: ClassVar[str] = "does not begin with"

    @staticmethod
    def _holds(answer: str, text: str) -> bool:
        return answer.lstrip().startswith(text)


class EndsWith(_TextCheck, frozen=True, kw_only=True, dict=True):
    """The answer ends with the text."""

    says: ClassVar[str] = "ends with"
    denies: ClassVar[str] = "does not end with"

    @staticmethod
    def _holds(answer: str, text: str) -> bool:
        return answer.rstrip().endswith(text)


class ContainsAny(_ListCheck, frozen=True, kw_only=True, dict=True):
    """One of the texts occurs in the answer."""

    def score(self, judgement: Judgement) -> Score:
        """1 when one is there, else 0."""
        return _any_of(self._texts(judgement), judgement.candidate_answer)


class ContainsAll(_ListCheck, frozen=True, kw_only=True, dict=True):
    """All of the texts occur in the answer."""

    def score(self, judgement: Judgement) -> Score:
        """1 when all are there, else 0."""
        return _all_of(self._texts(judgement), judgement.candidate_answer)


class IContainsAny(_ListCheck, frozen=True, kw_only=True, dict=True):
    """One of the texts occurs in the answer, in upper or lower case."""

    def score(self, judgement: Judgement) -> Score:
        """1 when one is there, else 0."""
        return _any_of(self._texts(judgement), judgement.candidate_answer.casefold(), fold=True)


class IContainsAll(_ListCheck, frozen=True, kw_only=True, dict=True):
    """All of the texts occur in the answer, in upper or lower case."""

    def score(self, judgement: Judgement) -> Score:
        """1 when all are there, else 0."""
        return _all_of(self._texts(judgement), judgement.candidate_answer.casefold(), fold=True)


class Regex(_AgainstReference, frozen=True, kw_only=True, dict=True):
    """The pattern is found in the answer. `flags` are letters: i, m, s, x, a."""

    aliases: ClassVar[dict[str, str]] = {"pattern": "value"}

    value: str | None = None
    flags: str = ""

    def score(self, judgement: Judgement) -> Score:
        """1 when the pattern is found, else 0."""
        pattern = self._pattern or self._compiled(reference_text(judgement))
        found = pattern.search(judgement.candidate_answer.strip())
        if found is None:
            return missed(f"does not match {quoted(pattern.pattern)}")
        return passed(f"matches {quoted(pattern.pattern)} with {quoted(found[0])}")

    def complaints(self) -> list[str]:
        """Unknown flags, or a pattern that is blank or does not compile."""
        unknown = sorted(set(self.flags) - set(FLAGS) - set(NO_EFFECT))
        if unknown:
            return [f"Unknown regex flag '{unknown[0]}' in 'flags'; known are {', '.join(FLAGS)}"]
        if self.value == "":
            return [f"'value' {_BLANK}"]
        try:
            re.compile(self.value or "", self.compile_flags)
        except (re.error, OverflowError, RecursionError) as error:
            return [f"'value' is no regular expression: {error}"]
        return []

    @property
    def compile_flags(self) -> int:
        """The flags as the `re` module takes them."""
        return sum(flag for letter, flag in FLAGS.items() if letter in self.flags)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return None if self.value is None else self._compiled(self.value)

    def _compiled(self, pattern: str) -> re.Pattern[str]:
        if not pattern:
            raise EvaluatorFailure(f"The pattern {_BLANK}")
        try:
            return re.compile(pattern, self.compile_flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise EvaluatorFailure(f"{quoted(pattern)} is no regular expression: {error}") from None


class _SchemaCheck(Evaluator, frozen=True, kw_only=True, dict=True):
    """A check that the answer is JSON and fits a schema, where one is given."""

    aliases: ClassVar[dict[str, str]] = {"value": "schema"}
    files: ClassVar[tuple[str, ...]] = ("schema",)

    def score(self, judgement: Judgement) -> Score:
        """1 when the answer is JSON that fits, else 0."""
        answer = judgement.candidate_answer.strip()
        try:
            value = msgspec.json.decode(answer)
        except (ValueError, RecursionError) as error:
            fence = "; `transform: {strip: [fences]}` takes the code fence off" if answer.startswith("```") else ""
            return missed(f"is no JSON: {error}{fence}")
        validator = self._validator or self._from_file(judgement)
        if validator is None:
            return passed("is JSON")
        errors = schema_errors(validator, value)
        return missed(*errors) if errors else passed("is JSON that fits the schema")

    def complaints(self) -> list[str]:
        """A schema that is none."""
        try:
            _ = self._validator
        except EvaluatorFailure as failure:
            return [str(failure)]
        return []

    @cached_property
    def _validator(self) -> Validator | None:
        """The schema of the settings, made ready once; None when there is none or it lies in a file."""
        schema = getattr(self, "schema", None)
        return compiled_schema(msgspec.json.encode(schema).decode()) if isinstance(schema, dict) else None

    def _from_file(self, judgement: Judgement) -> Validator | None:
        schema = getattr(self, "schema", None)
        if not isinstance(schema, str):
            return None
        try:
            path = file_finder(judgement)(schema)
            return schema_in(path)
        except EvaluatorFailure:
            raise
        except Exception as error:
            raise EvaluatorFailure(f"The schema '{schema}' cannot be read: {error}") from None


class IsJson(_SchemaCheck, frozen=True, kw_only=True, dict=True):
    """The answer is JSON, and fits `schema` where one is given."""

    schema: dict[str, Any] | str | None = None


class JsonSchema(_SchemaCheck, frozen=True, kw_only=True, dict=True):
    """The answer is JSON that fits `schema`, an object or a file's path."""

    schema: dict[str, Any] | str


class Levenshtein(_AgainstReference, frozen=True, kw_only=True, dict=True):
    """One minus the share of characters to change; with `threshold` or `max_distance` (a number of edits), 0 or 1."""

    value: Scalar | None = None
    threshold: Limit | None = None
    max_distance: Count | None = None

    def score(self, judgement: Judgement) -> Score:
        """How little of the longer text must change, or whether that is little enough."""
        from rapidfuzz.distance.Levenshtein import distance  # late: few datasets need it, and it takes 30 ms

        wanted = reference_text(judgement) if self.value is None else text_of(self.value)
        answer = judgement.candidate_answer.strip()
        edits = distance(answer, wanted)
        share = 1.0 - edits / max(len(answer), len(wanted), 1)
        sentence = f"{edits} {'edit' if edits == 1 else 'edits'} away from {quoted(wanted)}, similarity {share:.3g}"
        if self.max_distance is not None:
            return _limited(edits <= self.max_distance, f"{sentence}; at most {self.max_distance} edits wanted")
        return _near(share, self.threshold, sentence)

    def complaints(self) -> list[str]:
        """A threshold that is meant as a number of edits, or both limits."""
        if self.threshold is not None and self.max_distance is not None:
            return ["Give 'threshold' or 'max_distance', not both"]
        if self.threshold is not None and self.threshold > 1:
            return ["'threshold' is a share from 0 to 1; a number of edits goes into 'max_distance'"]
        return []


class Similarity(_AgainstReference, frozen=True, kw_only=True, dict=True):
    """How alike the texts are, the best of several; with `threshold`, 0 or 1."""

    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        "config": "Texts are compared letter by letter here, without an embedding model",
    }

    value: Scalar | Scalars | None = None
    threshold: Share | None = None

    def score(self, judgement: Judgement) -> Score:
        """The ratio of letters that both texts have in the same order."""
        from rapidfuzz.distance.Indel import normalized_similarity  # late: few datasets need it, and it takes 30 ms

        wanted: Any = reference_value(judgement) if self.value is None else self.value
        texts = [text_of(item) for item in wanted] if isinstance(wanted, list) else [text_of(wanted)]
        answer = judgement.candidate_answer.strip()
        share, text = max((normalized_similarity(answer, text), text) for text in texts)
        return _near(share, self.threshold, f"similarity {share:.3g} to {quoted(text)}")


def _is_json_value(answer: str, wanted: Any) -> bool:
    try:
        return same(msgspec.json.decode(answer), wanted)
    except (ValueError, RecursionError):
        return False


def _any_of(texts: list[str], answer: str, *, fold: bool = False) -> Score:
    for text in texts:
        if (text.casefold() if fold else text) in answer:
            return passed(f"contains {quoted(text)}")
    return missed(cut(f"contains none of {', '.join(map(quoted, texts))}"))


def _all_of(texts: list[str], answer: str, *, fold: bool = False) -> Score:
    hits, misses = [], []
    for text in texts:
        if (text.casefold() if fold else text) in answer:
            hits.append(f"contains {quoted(text)}")
        else:
            misses.append(f"does not contain {quoted(text)}")
    return Score(0.0 if misses else 1.0, tuple(hits), tuple(misses))


def _near(share: float, threshold: float | None, sentence: str) -> Score:
    if threshold is None:
        return Score(share, reasoning=sentence)
    return _limited(round(share, 12) >= threshold, f"{sentence}; at least {threshold:.3g} wanted")


def _limited(holds: bool, sentence: str) -> Score:
    return passed(sentence) if holds else missed(sentence)
