"""Rules of Markdown in MDX, where a line may have only tags and expressions, and indented code does not exist."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock

OPEN, CLOSE = "\u2e22", "\u2e23"
"""Brackets around the number of a tag or expression while its text is parsed as Markdown."""
PLACEHOLDER = re.compile(f"{OPEN}(\\d+){CLOSE}")
_FLOW = re.compile(rf"(?:{OPEN}\d+{CLOSE}[ \t]*)+\Z")
_STATEMENT = re.compile(r"(?:import|export)\s")


def _flow(state: StateBlock, start: int, _end: int, silent: bool) -> bool:
    """Read a line that has only tags and expressions. Text between two expressions is a paragraph, even if empty."""
    text = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    if _FLOW.match(text) is None or _has_pair(text, state.env["expressions"]):
        return False
    if not silent:
        _push(state, "mdx", text, start)
    return True


def _has_pair(text: str, expressions: set[str]) -> bool:
    """Whether an expression follows an expression."""
    are_expressions = (number in expressions for number in PLACEHOLDER.findall(text))
    return any(one and two for one, two in pairwise(are_expressions))


def _statement(state: StateBlock, start: int, _end: int, silent: bool) -> bool:
    """Read an `import` or `export` at the start of a line. It does not interrupt a paragraph."""
    text = state.src[state.bMarks[start] : state.eMarks[start]]
    if silent or state.level or _STATEMENT.match(text) is None:
        return False
    _push(state, "esm", text, start)
    return True


def _push(state: StateBlock, kind: str, text: str, start: int) -> None:
    token = state.push(kind, "", 0)
    token.content, token.map = text, [start, start + 1]
    state.line = start + 1


def _paragraph(state: StateBlock, start: int, end: int, _silent: bool) -> bool:
    """Read a paragraph. Indented lines may end it too, as MDX has no indented code."""
    line, outer = start + 1, state.parentType
    state.parentType = "paragraph"
    rules = state.md.block.ruler.getRules("paragraph")
    while line < end and not state.isEmpty(line):
        if state.sCount[line] >= 0 and any(rule(state, line, end, True) for rule in rules):
            break
        line += 1
    text = state.getLines(start, line, state.blkIndent, False).strip()
    for kind, nesting in (("paragraph_open", 1), ("inline", 0), ("paragraph_close", -1)):
        token = state.push(kind, "p", nesting)  # type: ignore[arg-type]
        token.map, token.children = [start, line], []
        token.content = "" if nesting else text
    state.line, state.parentType = line, outer
    return True


def _list(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a list, without the limit of indents that indented code needs."""
    from markdown_it.rules_block.list import list_block

    outer, state.listIndent = state.listIndent, -1
    is_list = list_block(state, start, end, silent)
    state.listIndent = outer
    return is_list


@cache
def markdown_parser() -> MarkdownIt:
    """Return the parser of Markdown in MDX: without HTML and indented code."""
    from markdown_it import MarkdownIt  # late: few projects have prompt files

    parser = MarkdownIt("commonmark", {"html": False})
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    alternatives = ["paragraph", "reference", "blockquote"]
    parser.block.ruler.before("fence", "mdx", _flow, {"alt": [*alternatives, "list"]})
    parser.block.ruler.before("fence", "esm", _statement)
    parser.block.ruler.at("paragraph", _paragraph)
    parser.block.ruler.at("list", _list, {"alt": alternatives})
    return parser.disable(["code", "html_block", "html_inline", "autolink"])
