"""Dates in the forms that documents have them. The day is taken as written: no time zone moves it to another."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_TOKEN = re.compile(r"YYYY|YY|MMMM|MMM|MM|M|DD|D|HH|H|hh|mm|ss|Z")
_PARTS = {
    "YYYY": r"(?P<year>\d{4})",
    "YY": r"(?P<year>\d{2})",
    "MMMM": r"(?P<name>[A-Za-z]{3,9})\.?",
    "MMM": r"(?P<name>[A-Za-z]{3,9})\.?",
    "MM": r"(?P<month>\d{1,2})",
    "M": r"(?P<month>\d{1,2})",
    "DD": r"(?P<day>\d{1,2})",
    "D": r"(?P<day>\d{1,2})",
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
    for form in formats:
        found = _in_form(text, form)
        if found is not None:
            return found
    iso = _ISO.fullmatch(text)
    if iso:
        return _date(iso)
    if formats:
        return None
    numeric = (*_DAY_FIRST,) if _DOTTED.fullmatch(text) else (*_MONTH_FIRST, *_DAY_FIRST)
    return next((found for form in (*_COMMON, *numeric) if (found := _in_form(text, form)) is not None), None)


def is_date_format(form: str) -> bool:
    """Whether a format names a year, a month and a day; others would match no date at all."""
    named = _pattern(form).groupindex.keys()
    return "year" in named and "day" in named and bool(named & {"month", "name"})


def _in_form(text: str, form: str) -> date | None:
    found = _pattern(form).fullmatch(text)
    return _date(found) if found else None


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
    month = _month(parts["name"]) if parts.get("name") else int(parts.get("month") or 0)
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _month(name: str) -> int:
    """The number of a month by its English name or the first letters of it; 0 when it is none."""
    return next((number for number, month in enumerate(_MONTHS, 1) if month.startswith(name.lower())), 0)
