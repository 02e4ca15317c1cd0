"""Format figures and text for reports: scores, percentages, money, durations, tables, Markdown."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import TextIOWrapper
from typing import NamedTuple, TextIO

from agentv.lazy_regex import lazy_regex

_BLOCKS = "▁▂▃▄▅▆▇█"
_DIGITS = "12345678"
NONE = "-"

_FITTING = "agentv-fitting"
_PLAIN = {"−": "-", "\u2013": "-", "…": "...", "·": "|", "→": "->"}
"""Replacements for characters that an encoding lacks."""


def number(value: float | None) -> str:
    """Format a score or a mean."""
    return NONE if value is None else f"{value:.3f}"


def interval(bounds: tuple[float, float] | None) -> str:
    """Format an interval."""
    return NONE if bounds is None else f"{bounds[0]:.3f} to {bounds[1]:.3f}"


def bounds_text(bounds: tuple[float, float] | None, text: Callable[[float], str], none: str = NONE) -> str:
    """Format an interval with a format of its own for its ends."""
    return none if bounds is None else " to ".join(map(text, bounds))


def letter(index: int) -> str:
    """Return the name of a run in a comparison: A, B, …, then #27, #28, …"""
    return chr(ord("A") + index) if index < 26 else f"#{index + 1}"


def signed(value: float | None) -> str:
    """Format a difference with its sign."""
    return NONE if value is None else f"{value:+.3f}".replace("-", "−") if round(value, 3) else "0.000"


def signed_interval(bounds: tuple[float, float] | None) -> str:
    """Format the interval of a difference."""
    return NONE if bounds is None else f"{signed(bounds[0])} to {signed(bounds[1])}"


def p_value(value: float | None) -> str:
    """Format a p-value for a table cell."""
    return NONE if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def p_equals(value: float | None) -> str:
    """Format a p-value for a sentence: `p = 0.012`, `p < 0.001`."""
    text = p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def percent(share: float | None) -> str:
    """Format a fraction as a percentage."""
    return NONE if share is None else f"{share * 100:.1f} %"


def percent_interval(bounds: tuple[float, float] | None) -> str:
    """Format an interval of fractions in whole percent."""
    return NONE if bounds is None else f"{bounds[0] * 100:.0f} to {bounds[1] * 100:.0f} %"


def usd(amount: float | None) -> str:
    """Format an amount; small amounts get four decimals."""
    if amount is None:
        return NONE
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def duration(milliseconds: float | None) -> str:
    """Format a duration in at most two units: `812 ms`, `3.4 s`, `2m 05s`, `1h 02m`."""
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
    """Format counts by name, most frequent first: `rate_limit 30, timeout 10`."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered)


def job_name(eval_id: str, prompt: str | None, trial: int) -> str:
    """Return the case id with its prompt and trial, if the case has several."""
    further = ", ".join([*([prompt] if prompt else []), *([f"trial {trial}"] if trial > 1 else [])])
    return f"{eval_id} ({further})" if further else eval_id


def bars(counts: Sequence[int], drawn: bool) -> str:
    """Draw a histogram with one character per bin, as blocks or as digits."""
    if not (most := max(counts, default=0)):
        return ""
    marks = _BLOCKS if drawn else _DIGITS
    # Every bin that is not empty is visible.
    return "".join(" " if drawn and not n else "0" if not n else marks[round(7 * n / most)] for n in counts)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out rows as a table with two spaces between columns."""
    rows = [[cell.replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


class Table(NamedTuple):
    """The lines of a table, header first, and the columns that did not fit."""

    lines: list[str]
    left_out: list[str]


def fitted(rows: Sequence[Sequence[str]], width: int | None, spare: Sequence[str]) -> Table:
    """Lay out rows, dropping `spare` columns in order until they fit the width. None means any width."""
    left_out: list[str] = []
    lines = aligned(rows)
    for name in spare:
        if width is None or max(map(len, lines)) <= width:
            break
        left_out.append(name)
        places = [place for place, column in enumerate(rows[0]) if column not in left_out]
        lines = aligned([[row[place] for place in places] for row in rows])
    return Table(lines, left_out)


def fitting(text: str, encoding: str | None) -> str:
    """Replace characters that an encoding lacks with ASCII or a question mark."""
    codec = encoding or "utf-8"
    return text.encode(codec, _registered()).decode(codec)


def fit_stream(stream: TextIO) -> None:
    """Make the stream replace characters that its encoding lacks, as `fitting` does."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors=_registered())


@cache
def _registered() -> str:
    """Register the codec error handler and return its name."""
    codecs.register_error(_FITTING, _replace_characters)
    return _FITTING


def _replace_characters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


def can_show_bars(encoding: str | None) -> bool:
    """Return whether an encoding has the block characters."""
    try:
        _BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


_BACKTICKS = lazy_regex("`+")

# C0 and C1 controls without tab and newline; soft hyphen, Arabic letter mark, zero-width space, marks, embeddings,
# overrides, isolates, separators, word joiner and other invisible operators, byte order mark, interlinear annotation,
# tags. Joiners (U+200C, U+200D) stay: Persian and emoji need them.
_INVISIBLE = lazy_regex(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_BUILD_SERVER = r"##(?=\[|vso\[|teamcity\[)"
# JSON escapes the other controls itself, and is otherwise printed as it is.
_UNSAFE_JSON = lazy_regex(f"[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]|{_BUILD_SERVER}")
# GitHub runs `::name::` at the start of a line, and like other build servers `##[name]` anywhere.
_WORKFLOW_COMMAND = lazy_regex(rf"^[^\S\n]*::|{_BUILD_SERVER}", re.MULTILINE)
_SURROGATE = lazy_regex("[\ud800-\udfff]")
_BREAKS = lazy_regex("\r\n|[\r\x0b\x0c\u0085\u2028\u2029]")
_MARKDOWN = lazy_regex(r"[\\`*_{}\[\]<>#&|~!$@:=^]")
_STARTS_BLOCK = lazy_regex(r"(?=[-+]|\d+[.)])")
_NO_MENTION = "\u2060"


def visible(text: str) -> str:
    """Escape invisible and control characters. Tabs and newlines stay; `\\r\\n` becomes a newline."""
    if text.replace("\n", "").isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return _SURROGATE.sub("\ufffd", _INVISIBLE.sub(_escape, text))


def safe_text(text: str) -> str:
    """Escape what a terminal or a build server would execute: control characters and workflow commands."""
    return disarm_commands(visible(text))


def disarm_commands(text: str) -> str:
    """Escape the commands that build servers find in the output of a program."""
    return _WORKFLOW_COMMAND.sub(_disarmed, text) if "::" in text or "##" in text else text


def _disarmed(match: re.Match[str]) -> str:
    return match[0].replace("::", "\\::").replace("##", "#\\#")


def safe_json(data: bytes) -> bytes:
    """Escape what a terminal or a build server would execute in JSON. The values stay the same."""
    if data.isascii() and b"##" not in data:
        return data
    return _UNSAFE_JSON.sub(lambda match: "".join(map(_json_escape, match[0])), data.decode()).encode()


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def one_line(text: str, longest: int) -> str:
    """Return at most `longest` characters on one line; a cut is marked with `…`."""
    # Only the start of a long text is read.
    start = text[: 4 * longest + 16]
    words = start if start.isprintable() else visible(_BREAKS.sub(" ", start))
    line = disarm_commands(" ".join(words.split()))
    return line if len(line) <= longest and len(start) == len(text) else line[: longest - 1].rstrip() + "…"


def lines(text: str, most: int, longest: int) -> list[str]:
    """Return the first lines of a text, each cut; if anything is cut, a last line with the total length."""
    start = text[: most * (longest + 1) * 4]
    rows = visible(_BREAKS.sub("\n", start)).expandtabs(4).split("\n")
    result = [line if len(line) <= longest else line[: longest - 1] + "…" for line in rows[:most]]
    if len(rows) > most or len(start) < len(text) or any(len(line) > longest for line in rows[:most]):
        result.append(f"[{len(text):,} characters in total]")
    return result


def excerpt(text: str, longest: int) -> str:
    """Return the start of a text, and how many characters are missing."""
    if len(text) <= longest:
        return safe_text(text)
    return f"{safe_text(text[:longest])}… [{len(text) - longest:,} more characters]"


def markdown(text: str, longest: int) -> str:
    """Escape text for Markdown, so that nothing in it is markup, a link, a mention, a reference or a list."""
    escaped = _MARKDOWN.sub(_entity, one_line(text, longest))
    escaped = re.sub(r"(?i)\bwww\.", lambda match: match[0][:-1] + "&#46;", escaped)
    escaped = re.sub(r"(?i)\b(gh-)(?=\d)", rf"\1{_NO_MENTION}", escaped)
    return _STARTS_BLOCK.sub(_NO_MENTION, escaped, count=1) if _STARTS_BLOCK.match(escaped) else escaped


def code(text: str, longest: int) -> str:
    """Return a Markdown code span, or an empty string for blank text."""
    if not (line := one_line(text, longest)):
        return ""
    fence = _fence(line, 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def cell(text: str, longest: int) -> str:
    """Return a Markdown code span for a table cell."""
    return code(text, longest).replace("|", "\\|")


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a Markdown table. The cells are escaped already."""
    yield from (f"| {' | '.join(head)} |", f"|{'---|' * len(head)}")
    for row in rows:
        yield f"| {' | '.join(row)} |"


def fenced(text: str, longest: int, language: str = "text") -> str:
    """Return a Markdown code block."""
    body = excerpt(text, longest)
    fence = _fence(body, 3)
    return f"{fence}{language}\n{body}\n{fence}"


def _fence(text: str, shortest: int) -> str:
    """Return more backticks in a row than the text contains."""
    return "`" * max(shortest, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))


def _escape(match: re.Match[str]) -> str:
    code_point = ord(match[0])
    return f"\\x{code_point:02x}" if code_point < 0x100 else f"\\u{{{code_point:x}}}"


def _entity(match: re.Match[str]) -> str:
    # GitHub finds mentions and references after it resolves entities; a word joiner prevents that.
    return f"&#{ord(match[0])};" + (_NO_MENTION if match[0] in "@#" else "")
