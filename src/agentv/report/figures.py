"""Figures as people read them: shares, money, durations, intervals, bars. Plain text without control characters."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from functools import cache
from io import TextIOWrapper
from typing import NamedTuple, TextIO

_BLOCKS = "▁▂▃▄▅▆▇█"
_DIGITS = "12345678"
NONE = "-"

_FITTING = "agentv-fitting"
_PLAIN = {"−": "-", "\u2013": "-", "…": "...", "·": "|", "→": "->"}
"""Signs of our own where an encoding does not have them. A number without its minus would be another number."""


def number(value: float | None) -> str:
    """A score or a mean."""
    return NONE if value is None else f"{value:.3f}"


def interval(bounds: tuple[float, float] | None) -> str:
    """Its two ends."""
    return NONE if bounds is None else f"{bounds[0]:.3f} to {bounds[1]:.3f}"


def signed(value: float | None) -> str:
    """A difference, with its sign."""
    return NONE if value is None else f"{value:+.3f}".replace("-", "−") if round(value, 3) else "0.000"


def signed_interval(bounds: tuple[float, float] | None) -> str:
    """The two ends of a difference."""
    return NONE if bounds is None else f"{signed(bounds[0])} to {signed(bounds[1])}"


def p_value(value: float | None) -> str:
    """How likely chance alone is to do this."""
    return NONE if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def percent(share: float | None) -> str:
    """A share of something whose size is told beside it."""
    return NONE if share is None else f"{share * 100:.1f} %"


def percent_interval(bounds: tuple[float, float] | None) -> str:
    """Its two ends, as whole percent."""
    return NONE if bounds is None else f"{bounds[0] * 100:.0f} to {bounds[1] * 100:.0f} %"


def usd(amount: float | None) -> str:
    """Money; parts of a cent where it is little."""
    if amount is None:
        return NONE
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def duration(milliseconds: float | None) -> str:
    """Two units at most: `812 ms`, `3.4 s`, `2m 05s`, `1h 02m`."""
    if milliseconds is None:
        return NONE
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m {rest:02d}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02d}m"


def counted(counts: Mapping[str, int]) -> str:
    """`rate_limit 30, timeout 10`, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered)


def bars(counts: Sequence[int], drawn: bool) -> str:
    """One character a bin, its height relative to the fullest; digits where blocks cannot be shown."""
    most = max(counts, default=0)
    if not most:
        return ""
    marks = _BLOCKS if drawn else _DIGITS
    # A bin with anything in it is higher than an empty one.
    return "".join(" " if drawn and not n else "0" if not n else marks[round(7 * n / most)] for n in counts)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells under one another, two blanks apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


class Table(NamedTuple):
    """A table as lines, the head first, and the columns that there was no room for."""

    lines: list[str]
    left_out: list[str]


def fitted(rows: Sequence[Sequence[str]], width: int | None, spare: Sequence[str]) -> Table:
    """Rows under their head, without as many of the `spare` columns, in that order, as make it fit; None fits all."""
    left_out: list[str] = []
    lines = aligned(rows)
    for name in spare:
        if width is None or max(map(len, lines)) <= width:
            break
        left_out.append(name)
        kept = [place for place, column in enumerate(rows[0]) if column not in left_out]
        lines = aligned([[row[place] for place in kept] for row in rows])
    return Table(lines, left_out)


def fitting(text: str, encoding: str | None) -> str:
    """The text in what a stream's encoding has: our own signs in plain ones, a question mark for anything else."""
    known = encoding or "utf-8"
    return text.encode(known, _registered()).decode(known)


def fit_stream(stream: TextIO) -> None:
    """From now on nothing that is written to the stream fails because its encoding does not have it."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors=_registered())


@cache
def _registered() -> str:
    """The name under which encodings know what to do with a character that they do not have."""
    codecs.register_error(_FITTING, _in_plain_signs)
    return _FITTING


def _in_plain_signs(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(each, "?") for each in error.object[error.start : error.end]), error.end


def can_show_bars(encoding: str | None) -> bool:
    """Whether a stream's encoding has the block characters."""
    try:
        _BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
