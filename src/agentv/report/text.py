"""Text that models and users wrote, made safe to show: it is read as text and never obeyed. Knows no report.

What can be in it: terminal escapes, bidirectional overrides, invisible characters, halves of surrogate pairs, Markdown,
HTML, mentions, a megabyte on one line. What comes out has none of their effects:

    visible(text)           characters that act instead of being seen are written out, as `\\x1b` or `\\u202e`
    one_line(text, 80)      for a terminal or a log: visible, blanks run together, cut with `…`
    lines(text, 20, 200)    for a terminal: visible, a few lines of limited length, with a note of what was left out
    excerpt(text, 2000)     visible, line ends kept, cut with a note of how much is missing
    markdown(text, 80)      one line of Markdown prose: shown letter by letter, no link, no mention, no HTML
    code(text, 80)          one line as a Markdown code span, which mentions and references do not reach into
    cell(text, 80)          the same inside a Markdown table, where a bar would end the cell
    fenced(text, 2000)      a Markdown code block, its fence longer than any in the text

HTML and CSV are escaped where they are written; they take `visible` text too.
"""

from __future__ import annotations

import re

_BACKTICKS = re.compile("`+")

# C0 and C1 controls without tab and newline; soft hyphen, Arabic letter mark, zero-width space, marks, embeddings,
# overrides, isolates, separators, word joiner and other invisible operators, byte order mark, interlinear annotation,
# tags. Joiners (U+200C, U+200D) stay: Persian and emoji need them.
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BREAKS = re.compile("\r\n|[\r\x0b\x0c\u0085\u2028\u2029]")
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#&|~!$@:=^]")
_STARTS_BLOCK = re.compile(r"(?=[-+]|\d+[.)])")
_NO_MENTION = "\u2060"


def visible(text: str) -> str:
    """The same text without characters that act: each is written out. Tabs and line ends stay, `\\r\\n` is one end."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return _SURROGATE.sub("\ufffd", _ACTING.sub(_written_out, text))


def one_line(text: str, longest: int) -> str:
    """At most `longest` characters on one line; `…` says that there was more."""
    # A megabyte is not looked at for the sake of its first few words.
    start = text[: 4 * longest + 16]
    line = " ".join(visible(_BREAKS.sub(" ", start)).split())
    return line if len(line) <= longest and len(start) == len(text) else line[: longest - 1].rstrip() + "…"


def lines(text: str, most: int, longest: int) -> list[str]:
    """The first lines of a text, each cut; the last one says how much was left out."""
    start = text[: most * (longest + 1) * 4]
    found = visible(_BREAKS.sub("\n", start)).expandtabs(4).split("\n")
    shown = [line if len(line) <= longest else line[: longest - 1] + "…" for line in found[:most]]
    if len(found) > most or len(start) < len(text) or any(len(line) > longest for line in found[:most]):
        shown.append(f"[{len(text):,} characters in all]")
    return shown


def excerpt(text: str, longest: int) -> str:
    """Its beginning, and a note of how much is missing where something is."""
    if len(text) <= longest:
        return visible(text)
    return f"{visible(text[:longest])}… [{len(text) - longest:,} more characters]"


def markdown(text: str, longest: int) -> str:
    """Prose that shows as it is written: nothing in it is markup, a link, a mention or the start of a list."""
    escaped = _MARKDOWN.sub(_entity, one_line(text, longest))
    escaped = re.sub(r"(?i)\bwww\.", lambda found: found[0][:-1] + "&#46;", escaped)
    return _STARTS_BLOCK.sub(_NO_MENTION, escaped, count=1) if _STARTS_BLOCK.match(escaped) else escaped


def code(text: str, longest: int) -> str:
    """A code span. Blank text gives an empty string, because an empty span is not one."""
    line = one_line(text, longest)
    if not line:
        return ""
    fence = _fence(line, 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def cell(text: str, longest: int) -> str:
    """A code span in a table: a bar is escaped, which a table takes off again before it reads the span."""
    return code(text, longest).replace("|", "\\|")


def fenced(text: str, longest: int) -> str:
    """A code block, from its own line to its own line."""
    body = excerpt(text, longest)
    fence = _fence(body, 3)
    return f"{fence}text\n{body}\n{fence}"


def _fence(text: str, shortest: int) -> str:
    """More backticks in a row than the text has anywhere."""
    return "`" * max(shortest, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))


def _written_out(found: re.Match[str]) -> str:
    code_point = ord(found[0])
    return f"\\x{code_point:02x}" if code_point < 0x100 else f"\\u{{{code_point:x}}}"


def _entity(found: re.Match[str]) -> str:
    # Mentions and references are looked for in the text after entities are resolved; a joiner breaks them.
    return f"&#{ord(found[0])};" + (_NO_MENTION if found[0] in "@#" else "")
