"""Field accuracy: compare the fields of a JSON answer with those of the expected output."""

import math
import re
from datetime import date
from functools import lru_cache
from typing import Any, Literal

import msgspec
from rapidfuzz.distance.Indel import normalized_similarity

from agentv.evaluators.base import Evaluator, Limit, Weight, cut, missed, quoted, within
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement
from agentv.support.json_values import MISSING, json_or, same, steps_of, value_at

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_TOKEN = re.compile(r"YYYY|YY|MMMM|MMM|MM|M|DD|D|HH|H|hh|mm|ss|Z")
_PARTS = {
    "YYYY": r"(?P<year>\d{4})",
    "YY": r"(?P<year>\d{2})",
    **dict.fromkeys(("MMMM", "MMM"), r"(?P<name>[A-Za-z]{3,9})\.?"),
    **dict.fromkeys(("MM", "M"), r"(?P<month>\d{1,2})"),
    **dict.fromkeys(("DD", "D"), r"(?P<day>\d{1,2})"),
    "Z": r"(?:Z|[+-]\d{2}:?\d{2})",
}
_TIME_PART = r"\d{1,2}"
_ISO = re.compile(r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})(?:[T ]\d{2}:\d{2}.*)?")
_COMMON = ("YYYY/MM/DD", "YYYY.MM.DD", "DD-MMM-YYYY", "DD MMM YYYY", "DD. MMM YYYY", "MMM DD, YYYY", "MMM DD YYYY")
_DAY_FIRST = ("DD/MM/YYYY", "DD-MM-YYYY", "DD.MM.YYYY")
_MONTH_FIRST = ("MM/DD/YYYY", "MM-DD-YYYY")
_DOTTED = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}")


def read_date(text: str, formats: tuple[str, ...] = ()) -> date | None:
    """Parse a date, or return None.

    `formats` are tried first, in order; they consist of YYYY, MM, MMM, DD and similar parts. ISO dates are always
    accepted. Without `formats`, 03/04/2025 is read month first, unless only day first gives a valid date.
    """
    text = text.strip()
    if (day := _first_date(text, formats)) is not None:
        return day
    if iso := _ISO.fullmatch(text):
        return _date(iso)
    if formats:
        return None
    numeric = _DAY_FIRST if _DOTTED.fullmatch(text) else (*_MONTH_FIRST, *_DAY_FIRST)
    return _first_date(text, (*_COMMON, *numeric))


def is_date_format(form: str) -> bool:
    """Return whether a format has a year, a month and a day."""
    groups = _pattern(form).groupindex.keys()
    return "year" in groups and "day" in groups and bool(groups & {"month", "name"})


def _first_date(text: str, formats: tuple[str, ...]) -> date | None:
    dates = (_date(match) for form in formats if (match := _pattern(form).fullmatch(text)))
    return next((day for day in dates if day is not None), None)


@lru_cache(maxsize=256)
def _pattern(form: str) -> re.Pattern[str]:
    pattern, end = "", 0
    for token in _TOKEN.finditer(form):
        part = _PARTS.get(token[0], _TIME_PART)
        # A group name may be used only once in a pattern.
        name = re.match(r"\(\?P<\w+>", part)
        pattern += re.escape(form[end : token.start()])
        pattern += part.replace(name[0], "(?:") if name and name[0] in pattern else part
        end = token.end()
    return re.compile(pattern + re.escape(form[end:]), re.IGNORECASE)


def _date(match: re.Match[str]) -> date | None:
    parts = match.groupdict()
    year, day = int(parts.get("year") or 0), int(parts.get("day") or 0)
    if len(parts.get("year") or "") == 2:
        year += 2000 if year < 70 else 1900
    month = int(parts.get("month") or 0)
    if name := (parts.get("name") or "").lower():
        month = next((number for number, full_name in enumerate(_MONTHS, 1) if full_name.startswith(name)), 0)
    try:
        return date(year, month, day)
    except ValueError:
        return None


_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)?(\.\d+)?([eE][+-]?\d+)?")
_NEAR = 0.8
"""A fuzzy field with at least this similarity is listed among the hits; its score is the similarity."""

FieldScore = tuple[float, str]
"""The score of one field, and a sentence about it."""


class FieldRule(msgspec.Struct, frozen=True, kw_only=True):
    """One field. `tolerance` is absolute, or relative to the expected number if `relative`; `formats` is for dates."""

    path: str
    match: Literal["exact", "numeric_tolerance", "date", "fuzzy"] = "exact"
    required: bool = True
    weight: Weight = 1.0
    tolerance: Limit = 0.0
    relative: bool = False
    formats: list[str] = []


class FieldAccuracy(Evaluator, frozen=True, kw_only=True):
    """Fields of a JSON answer, each compared with the same field of the expected output.

    The JSON is the whole answer, a code fence in it, or the part between its outermost braces. An answer without JSON
    scores 0. A field is named by a path: `order.lines[0].price`, `['a key']`.

    - `match: exact`: the values are equal as JSON. 5 equals 5.0, but not `"5"`; `true` does not equal 1.
    - `match: numeric_tolerance`: the numbers differ by at most `tolerance`, or with `relative: true` by at most that
      fraction of the expected number. A string that contains a number counts as one.
    - `match: date`: both are the same day, in ISO or another common format. `formats`, such as `DD/MM/YYYY`, are tried
      first, in order.
    - `match: fuzzy`: the similarity of the texts, ignoring case and whitespace; with `tolerance`, whether they differ
      by at most that fraction.

    A `required` field that is missing from the answer scores 0; a missing optional field is excluded from the mean. A
    field that the expected output does not have scores 1; if it has none of the fields, that is an error. The score is
    the mean weighted by `weight`, or with `aggregation: all_or_nothing` 1 only if every field with a weight scores 1.
    """

    fields: list[FieldRule]
    aggregation: Literal["weighted_average", "all_or_nothing"] = "weighted_average"

    def complaints(self) -> list[str]:
        """No fields, invalid paths or date formats, or only zero weights."""
        if not self.fields:
            return ["'fields' is an empty list"]
        complaints = []
        for index, rule in enumerate(self.fields):
            if not rule.path.strip():
                complaints.append(f"'fields[{index}].path' is blank")
                continue
            try:
                steps_of(rule.path)
            except ValueError as error:
                complaints.append(f"'fields[{index}].path': {error}")
            complaints += [
                f"'fields[{index}].formats': '{form}' lacks a year, month or day; use YYYY, MM or MMM, and DD"
                for form in rule.formats
                if not is_date_format(form)
            ]
        if not any(rule.weight for rule in self.fields):
            complaints.append("Every entry of 'fields' has weight 0, so there is nothing to score")
        return complaints

    @property
    def needs(self) -> Needs:
        """The expected output."""
        return Needs(reference=True)

    def score(self, judgement: Judgement) -> Score:
        """Score the weighted fraction of correct fields, or whether all are correct."""
        expected = _expected_data(judgement)
        values = {rule.path: value_at(expected, rule.path) for rule in self.fields}
        if all(value is MISSING for value in values.values()):
            raise EvaluatorFailure(f"The expected output has none of the fields: {cut(', '.join(values))}")
        if (answer := _json_in(judgement.candidate_answer)) is MISSING:
            return missed("the answer contains no JSON")
        hits: list[str] = []
        misses: list[str] = []
        details: dict[str, float] = {}
        counted: list[tuple[float, float]] = []
        for rule in self.fields:
            if (outcome := _outcome(rule, value_at(answer, rule.path), values[rule.path])) is None:
                hits.append(f"{rule.path}: missing, but optional")
                continue
            score, sentence = outcome
            (hits if score >= _NEAR else misses).append(cut(sentence))
            details[rule.path] = score
            counted.append((rule.weight, score))
        if not (total := math.fsum(weight for weight, _ in counted)):
            return Score(0.0, tuple(hits), (*misses, "the answer has none of the fields that count"), details=details)
        if self.aggregation == "all_or_nothing":
            mean = float(all(score >= 1 for weight, score in counted if weight))
        else:
            mean = min(1.0, math.fsum(weight * score for weight, score in counted) / total)
        return Score(mean, tuple(hits), tuple(misses), details=details)


def _expected_data(judgement: Judgement) -> Any:
    """Return the data of the last assistant message that has any."""
    for message in reversed(judgement.case.expected_output):
        data = _json_in(message.content) if isinstance(message.content, str) else message.content
        if message.role == "assistant" and isinstance(data, dict | list):
            return data
    raise EvaluatorFailure("field_accuracy needs an expected_output that is JSON data")


def _json_in(text: str) -> Any:
    """Return the object or list in a text: all of it, a code fence or the outermost braces; otherwise MISSING."""
    for candidate in (text, *_FENCED.findall(text), text[text.find("{") : text.rfind("}") + 1]):
        if isinstance(value := json_or(candidate.strip(), None), dict | list):
            return value
    return MISSING


def _outcome(rule: FieldRule, value: Any, reference: Any) -> FieldScore | None:
    if reference is MISSING:
        return 1.0, f"{rule.path}: nothing expected"
    if value is MISSING:
        return (0.0, f"{rule.path}: missing, expected {quoted(reference)}") if rule.required else None
    score, note = _MATCHES[rule.match](rule, value, reference)
    if score == 1.0 and not note:
        return score, f"{rule.path}: {quoted(value)}"
    return score, f"{rule.path}: {quoted(value)}, expected {quoted(reference)}{note}"


def _exact(_: FieldRule, value: Any, reference: Any) -> FieldScore:
    return float(same(value, reference)), ""


def _numeric(rule: FieldRule, value: Any, reference: Any) -> FieldScore:
    expected, actual = _number(reference), _number(value)
    if expected is None:
        raise EvaluatorFailure(f"{rule.path}: the expected value {quoted(reference)} is not a number")
    if actual is None:
        return 0.0, " (not a number)"
    difference = abs(actual - expected)
    # A relative tolerance of an expected 0 would be 0, so the tolerance is absolute then.
    limit = rule.tolerance * abs(expected) if rule.relative and expected else rule.tolerance
    return float(within(difference, limit)), f" (off by {difference:.6g}, tolerance {limit:.6g})"


def _number(value: Any) -> float | None:
    """Convert a number, or a string with a number, which may have thousands separators."""
    if isinstance(value, str):
        text = value.strip()
        if not any(character.isdecimal() for character in text) or not _NUMBER.fullmatch(text):
            return None
        value = float(text.replace(",", ""))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _dated(rule: FieldRule, value: Any, reference: Any) -> FieldScore:
    formats = tuple(rule.formats)
    expected = read_date(reference, formats) if isinstance(reference, str) else None
    if expected is None:
        raise EvaluatorFailure(f"{rule.path}: the expected value {quoted(reference)} is not a date in a known format")
    actual = read_date(value, formats) if isinstance(value, str) else None
    if actual is None:
        return 0.0, " (not a date in a known format)"
    return float(actual == expected), f" ({actual.isoformat()}, expected {expected.isoformat()})"


def _fuzzy(rule: FieldRule, value: Any, reference: Any) -> FieldScore:
    texts = (item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in (value, reference))
    similarity = normalized_similarity(*(" ".join(text.casefold().split()) for text in texts))
    note = f" (similarity {similarity:.3g})"
    if rule.tolerance:
        return float(round(similarity, 12) >= round(1 - rule.tolerance, 12)), note
    return similarity, note


_MATCHES = {"exact": _exact, "numeric_tolerance": _numeric, "date": _dated, "fuzzy": _fuzzy}
