"""Field accuracy: the fields of a JSON answer against those of the expected output."""

from __future__ import annotations

import math
import re
from datetime import date
from functools import lru_cache
from typing import Any, Literal

import msgspec
from rapidfuzz.distance.Indel import normalized_similarity

from agentv.evaluators.base import Evaluator, Limit, Weight, at_most, cut, missed, quoted
from agentv.model.evaluator import EvaluatorFailure, Needs, Score
from agentv.model.job import Judgement
from agentv.support.json_values import MISSING, same, steps_of, value_at

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
    """The date that a text is, or None.

    `formats` are tried in their order, before anything else; they are made of YYYY, MM, MMM, DD and the like. ISO dates
    are always read. Without `formats`, 03/04/2025 is the month first, unless only the other way is a date.
    """
    text = text.strip()
    found = _in_forms(text, formats)
    iso = _ISO.fullmatch(text)
    if found is not None or iso or formats:
        return found if found is not None or not iso else _date(iso)
    numeric = _DAY_FIRST if _DOTTED.fullmatch(text) else (*_MONTH_FIRST, *_DAY_FIRST)
    return _in_forms(text, (*_COMMON, *numeric))


def is_date_format(form: str) -> bool:
    """Whether a format names a year, a month and a day; others would match no date at all."""
    named = _pattern(form).groupindex.keys()
    return "year" in named and "day" in named and bool(named & {"month", "name"})


def _in_forms(text: str, forms: tuple[str, ...]) -> date | None:
    found = (_date(match) for form in forms if (match := _pattern(form).fullmatch(text)))
    return next((each for each in found if each is not None), None)


@lru_cache(maxsize=256)
def _pattern(form: str) -> re.Pattern[str]:
    pattern, end, named = "", 0, set()
    for token in _TOKEN.finditer(form):
        part = _PARTS.get(token[0], _TIME_PART)
        # A part that is named twice must only be there the second time.
        name = part[4 : part.index(">")] if part.startswith("(?P<") else ""
        pattern += re.escape(form[end : token.start()])
        pattern += part if name not in named else part.replace(f"?P<{name}>", "?:")
        named |= {name} if name else set()
        end = token.end()
    return re.compile(pattern + re.escape(form[end:]), re.IGNORECASE)


def _date(found: re.Match[str]) -> date | None:
    parts = found.groupdict()
    year, day = int(parts.get("year") or 0), int(parts.get("day") or 0)
    if len(parts.get("year") or "") == 2:
        year += 2000 if year < 70 else 1900
    month = int(parts.get("month") or 0)
    if name := (parts.get("name") or "").lower():
        month = next((number for number, known in enumerate(_MONTHS, 1) if known.startswith(name)), 0)
    try:
        return date(year, month, day)
    except ValueError:
        return None


_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)?(\.\d+)?([eE][+-]?\d+)?")
_NEAR = 0.8
"""A fuzzy field that is at least this near is told among the hits; its score is its nearness all the same."""

FieldScore = tuple[float, str]
"""The score of one field, and the sentence about it."""


class FieldRule(msgspec.Struct, frozen=True, kw_only=True):
    """One field. `tolerance` is absolute, with `relative` a share of the expected number; `formats` are for dates."""

    path: str
    match: Literal["exact", "numeric_tolerance", "date", "fuzzy"] = "exact"
    required: bool = True
    weight: Weight = 1.0
    tolerance: Limit = 0.0
    relative: bool = False
    formats: list[str] = []


class FieldAccuracy(Evaluator, frozen=True, kw_only=True):
    """Fields of a JSON answer, each held against the same field of the expected output.

    The JSON is the answer itself, or what stands in a code fence or between the outermost braces of it; an answer
    without any scores 0. A field is named by a path: `order.lines[0].price`, `['a key']`.

    - `match: exact`: both values are equal as JSON. 5 is 5.0; `"5"` and `true` are neither 5 nor 1.
    - `match: numeric_tolerance`: the numbers differ by at most `tolerance`, with `relative: true` by at most that share
      of the expected one. A text that is a number counts as one.
    - `match: date`: both are the same day, in ISO or another common form. `formats`, such as `DD/MM/YYYY`, are tried
      first and in their order.
    - `match: fuzzy`: how alike the texts are, case and spacing aside; with `tolerance`, whether they differ by at most
      that share.

    A `required` field that is not in the answer scores 0; one that is not required is left out of the mean then. What
    the expected output does not have cannot be wrong and scores 1; one that has none of the fields is an error. The
    score is the mean by `weight`, or with `aggregation: all_or_nothing` whether every field that weighs scores 1.
    """

    fields: list[FieldRule]
    aggregation: Literal["weighted_average", "all_or_nothing"] = "weighted_average"

    def complaints(self) -> list[str]:
        """No fields, paths that are none, or nothing that weighs."""
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
                f"'fields[{index}].formats' has '{form}', which names no year, month and day: write YYYY, MM or MMM, DD"
                for form in rule.formats
                if not is_date_format(form)
            ]
        if not any(rule.weight for rule in self.fields):
            complaints.append("Every entry of 'fields' has weight 0, so there is nothing to score")
        return complaints

    @property
    def needs(self) -> Needs:
        """The fields are compared with those of the expected output."""
        return Needs(reference=True)

    def score(self, judgement: Judgement) -> Score:
        """The weighted share of fields that are right, or whether all are."""
        expected = _expected_data(judgement)
        wanted = {rule.path: value_at(expected, rule.path) for rule in self.fields}
        if all(value is MISSING for value in wanted.values()):
            raise EvaluatorFailure(f"The expected output has none of the fields: {cut(', '.join(wanted))}")
        answer = _json_in(judgement.candidate_answer)
        if answer is MISSING:
            return missed("the answer holds no JSON")
        return self._aggregated(
            [_outcome(rule, value_at(answer, rule.path), wanted[rule.path]) for rule in self.fields]
        )

    def _aggregated(self, outcomes: list[FieldScore | None]) -> Score:
        """A field that is optional and not there has no outcome: it is told of and does not count."""
        hits: list[str] = []
        misses: list[str] = []
        details: dict[str, float] = {}
        counted: list[tuple[float, float]] = []
        for rule, outcome in zip(self.fields, outcomes, strict=True):
            if outcome is None:
                hits.append(f"{rule.path}: not there, and optional")
                continue
            score, sentence = outcome
            (hits if score >= _NEAR else misses).append(cut(sentence))
            details[rule.path] = score
            counted.append((rule.weight, score))
        total = math.fsum(weight for weight, _ in counted)
        if not total:
            return Score(0.0, tuple(hits), (*misses, "the answer has none of the fields that count"), details=details)
        if self.aggregation == "all_or_nothing":
            share = float(all(score >= 1 for weight, score in counted if weight))
        else:
            share = min(1.0, math.fsum(weight * score for weight, score in counted) / total)
        return Score(share, tuple(hits), tuple(misses), details=details)


def _expected_data(judgement: Judgement) -> Any:
    """The data of the last assistant message that has any."""
    for message in reversed(judgement.case.expected_output):
        if message.role != "assistant":
            continue
        content = message.content
        if isinstance(content, dict | list):
            return content
        data = _json_in(content) if isinstance(content, str) else MISSING
        if data is not MISSING:
            return data
    raise EvaluatorFailure("Field accuracy needs an expected_output that is JSON data")


def _json_in(text: str) -> Any:
    """The object or list that a text is, or holds in a code fence or between its outermost braces; else MISSING."""
    for candidate in (text, *_FENCED.findall(text), text[text.find("{") : text.rfind("}") + 1]):
        try:
            value = msgspec.json.decode(candidate.strip())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list):
            return value
    return MISSING


def _outcome(rule: FieldRule, given: Any, wanted: Any) -> FieldScore | None:
    if wanted is MISSING:
        return 1.0, f"{rule.path}: nothing expected"
    if given is MISSING:
        return (0.0, f"{rule.path}: not there, {quoted(wanted)} expected") if rule.required else None
    score, note = _MATCHES[rule.match](rule, given, wanted)
    if score == 1.0 and not note:
        return score, f"{rule.path}: {quoted(given)}"
    return score, f"{rule.path}: {quoted(given)}, {quoted(wanted)} expected{note}"


def _numeric(rule: FieldRule, given: Any, wanted: Any) -> FieldScore:
    expected, actual = _number(wanted), _number(given)
    if expected is None:
        raise EvaluatorFailure(f"{rule.path}: the expected value {quoted(wanted)} is no number")
    if actual is None:
        return 0.0, " (no number)"
    difference = abs(actual - expected)
    # A share of nothing is nothing: against an expected 0 the tolerance is absolute.
    limit = rule.tolerance * abs(expected) if rule.relative and expected else rule.tolerance
    return float(at_most(difference, limit)), f" (off by {difference:.6g}, tolerance {limit:.6g})"


def _number(value: Any) -> float | None:
    """A number, or a text that is one, thousands set off by commas included."""
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


def _dated(rule: FieldRule, given: Any, wanted: Any) -> FieldScore:
    formats = tuple(rule.formats)
    expected = read_date(wanted, formats) if isinstance(wanted, str) else None
    if expected is None:
        raise EvaluatorFailure(f"{rule.path}: the expected value {quoted(wanted)} is no date in a known form")
    actual = read_date(given, formats) if isinstance(given, str) else None
    if actual is None:
        return 0.0, " (no date in a known form)"
    return float(actual == expected), f" ({actual.isoformat()}, {expected.isoformat()} expected)"


def _fuzzy(rule: FieldRule, given: Any, wanted: Any) -> FieldScore:
    """How alike two texts are, case and spacing aside; with a tolerance, whether they are alike but for that share."""
    share = normalized_similarity(_plain(given), _plain(wanted))
    note = f" (similarity {share:.3g})"
    if rule.tolerance:
        return float(round(share, 12) >= round(1 - rule.tolerance, 12)), note
    return share, note


def _exact(_: FieldRule, given: Any, wanted: Any) -> FieldScore:
    return float(same(given, wanted)), ""


_MATCHES = {"exact": _exact, "numeric_tolerance": _numeric, "date": _dated, "fuzzy": _fuzzy}


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return " ".join(text.casefold().split())
