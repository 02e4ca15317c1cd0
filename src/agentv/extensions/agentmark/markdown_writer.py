"""Write nodes as Markdown, as the serializer of AgentMark's templates does (mdast-util-to-markdown)."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from agentv.extensions.agentmark.attention import Attention, Item, write_items
from agentv.extensions.agentmark.nodes import PHRASING, Node, utf16_length

_SPANS = frozenset(("destinationLiteral", "destinationRaw", "titleQuote"))
_LANGUAGE, _META = "codeLanguage", "codeMeta"
_SIZES = {"emphasis": 1, "strong": 2}
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_BACKSLASH = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_BLANKS = re.compile(r"[\x00-\x20\x7f]")


class _Unsafe(NamedTuple):
    """A character that would start a construct: where, and between which characters."""

    character: str
    within: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    is_at_break: bool = False
    is_in_spans: bool = True

    def is_in_scope(self, constructs: list[str]) -> bool:
        if self.within and not any(name in constructs for name in self.within):
            return False
        return self.is_in_spans or not any(name in constructs for name in _SPANS)


_ONE_LINE = (_LANGUAGE, _META, "destinationLiteral", "headingAtx")
_TEXT = ("phrasing",)
_UNSAFE = (
    *(_Unsafe(blank, _TEXT, after=r"[\r\n]") for blank in "\t "),
    *(_Unsafe(blank, _TEXT, before=r"[\r\n]") for blank in "\t "),
    *(_Unsafe(blank, (_LANGUAGE,)) for blank in "\t "),
    *(_Unsafe(end, _ONE_LINE) for end in "\r\n"),
    _Unsafe("\n", _TEXT, before=r"\n"),
    _Unsafe("\n", _TEXT, after=r"[\r\n]"),
    _Unsafe("!", _TEXT, after=r"\[", is_in_spans=False),
    _Unsafe('"', ("titleQuote",)),
    _Unsafe("#", is_at_break=True),
    _Unsafe("#", ("headingAtx",), after=r"(?:[\r\n]|$)"),
    _Unsafe("&", (*_TEXT, _LANGUAGE, _META, *_SPANS), after="[#A-Za-z]"),
    _Unsafe("(", ("destinationRaw",)),
    _Unsafe("(", _TEXT, before=r"\]", is_in_spans=False),
    _Unsafe(")", before=r"\d+", is_at_break=True),
    _Unsafe(")", ("destinationRaw",)),
    _Unsafe("*", after=r"[ \t\r\n*]", is_at_break=True),
    *(_Unsafe(mark, _TEXT, is_in_spans=False) for mark in "*[_`"),
    _Unsafe("+", after=r"[ \t\r\n]", is_at_break=True),
    _Unsafe("-", after=r"[ \t\r\n-]", is_at_break=True),
    _Unsafe(".", before=r"\d+", after=r"(?:[ \t\r\n]|$)", is_at_break=True),
    *(_Unsafe(mark, ("destinationLiteral",)) for mark in "<>"),
    *(_Unsafe(mark, is_at_break=True) for mark in "=>[_`~<{"),
    *(_Unsafe(mark, ("label",)) for mark in "[]"),
    _Unsafe("\\", _TEXT, after=r"[\r\n]"),
    _Unsafe("`", (_LANGUAGE, _META)),
    *(_Unsafe(mark, _TEXT) for mark in "<{"),
)


@cache
def _pattern(unsafe: _Unsafe) -> re.Pattern[str]:
    before = (r"[\r\n][\t ]*" if unsafe.is_at_break else "") + unsafe.before
    return re.compile(f"({before}){re.escape(unsafe.character)}(?={unsafe.after})")


def to_markdown(children: list[Node]) -> str:
    """Return the Markdown of nodes."""
    return _Writer().container(Node("root", children))


class _Writer:
    """Writes nodes; `constructs` are those around the current node, outermost first."""

    def __init__(self) -> None:
        self._constructs: list[str] = []
        self._places: list[int] = []
        self._bullet = ""
        self._last_bullet = ""
        self._writers: dict[str, Callable[[Node, str, str], str]] = {
            "text": lambda node, before, after: self._safe(node.value, before, after),
            "paragraph": lambda node, before, after: self._within("phrasing", node, before, after),
            "heading": self._heading,
            "thematicBreak": lambda *_: "***",
            "blockquote": self._blockquote,
            "list": self._list,
            "listItem": lambda node, *_: self._marked(node, self._bullet or "*"),  # of a list that was taken apart
            "code": self._code,
            "inlineCode": lambda node, *_: _inline_code(node.value),
            "break": lambda *_: "\\\n",
            "emphasis": lambda node, before, after: write_items(self._attention(node), before, after),
            "strong": lambda node, before, after: write_items(self._attention(node), before, after),
            "link": self._link,
            "image": self._link,
            "flowTag": self._tag,
            "textTag": self._tag,
            "flowExpression": _expression,
            "textExpression": _expression,
            "esm": lambda node, *_: node.value,
        }

    def container(self, node: Node) -> str:
        """Return the children of a node: joined as a text if one of them is inline, else as blocks."""
        if any(child.type in PHRASING for child in node.children):
            return self._within("phrasing", node, "\n", "\n")
        return self._blocks(node)

    @contextmanager
    def _in(self, *constructs: str) -> Iterator[None]:
        self._constructs += constructs
        yield
        del self._constructs[-len(constructs) :]

    def _within(self, construct: str, node: Node, before: str, after: str) -> str:
        with self._in(construct):
            return self._phrasing(node, before, after)

    def _write(self, node: Node, before: str, after: str) -> str:
        return self._writers[node.type](node, before, after)

    def _blocks(self, parent: Node) -> str:
        parts: list[str] = []
        self._places.append(0)
        for position, child in enumerate(parent.children):
            self._places[-1] = position
            if position:
                parts.append("\n" * (1 + _blank_lines(parent.children[position - 1], child, parent)))
            parts.append(self._item(parent, position) if parent.type == "list" else self._write(child, "\n", "\n"))
            if child.type != "list":
                self._last_bullet = ""
        self._places.pop()
        return "".join(parts)

    def _phrasing(self, parent: Node, before: str, after: str) -> str:
        return write_items(self._items(parent, before, after), before, after)

    def _items(self, parent: Node, before: str, after: str) -> list[Item]:
        """Return the inline content of a node: texts, and emphasis whose marks are chosen later."""
        items: list[Item] = []
        for position, child in enumerate(parent.children):
            following = parent.children[position + 1] if position + 1 < len(parent.children) else None
            if child.type in _SIZES:
                item = self._attention(child)
                items += item
                before = "*" if item else before
                continue
            text = self._write(child, before, after if following is None else self._first_character(following))
            if text:
                items.append(text)
                before = text[-1]
        return items

    def _attention(self, node: Node) -> list[Item]:
        """Return emphasis, unless it has no content."""
        size = _SIZES[node.type]
        with self._in(node.type):
            children = self._items(node, "*" * size, "*" * size)
        return [Attention(children, size)] if children else []

    def _first_character(self, node: Node) -> str:
        peeks = {"emphasis": "*", "strong": "*", "inlineCode": "`", "link": "[", "image": "!"}
        if node.is_tag:
            return "<"
        return peeks.get(node.type) or self._write(node, "", "")[:1]

    def _heading(self, node: Node, *_: str) -> str:
        depth = node.settings["depth"]
        if depth < 3 and _has_line_break(node):
            with self._in("headingSetext"):
                text = self._within("phrasing", node, "\n", "\n")
            return f"{text}\n{('=' if depth == 1 else '-') * utf16_length(text.rpartition(chr(10))[2])}"
        with self._in("headingAtx"):
            text = self._within("phrasing", node, "# ", "\n")
        if text[:1] in ("\t", " "):
            text = _reference(text[0]) + text[1:]
        return f"{'#' * depth} {text}" if text else "#" * depth

    def _blockquote(self, node: Node, *_: str) -> str:
        with self._in("blockquote"):
            return "\n".join(f"> {line}" if line else ">" for line in self._blocks(node).split("\n"))

    def _list(self, node: Node, *_: str) -> str:
        is_ordered = node.settings["ordered"]
        bullet, other = (".", ")") if is_ordered else ("*", "-")
        starts_with_rule = any(item.children and item.children[0].type == "thematicBreak" for item in node.children)
        is_bare = bool(node.children) and not node.children[0].children
        is_nested = self._constructs[-3:] == ["listItem", "list", "listItem"] and self._places[-3:] == [0, 0, 0]
        if bullet == self._last_bullet or (not is_ordered and (starts_with_rule or (is_bare and is_nested))):
            bullet = other
        outer, self._bullet = self._bullet, bullet
        with self._in("list"):
            text = self._blocks(node)
        self._bullet, self._last_bullet = outer, bullet
        return text

    def _item(self, parent: Node, position: int) -> str:
        bullet = self._bullet
        if parent.settings["ordered"]:
            bullet = f"{parent.settings.get('start', 1) + position}{bullet}"
        return self._marked(parent.children[position], bullet)

    def _marked(self, item: Node, bullet: str) -> str:
        with self._in("listItem"):
            first, *rest = self._blocks(item).split("\n")
        indent = " " * (len(bullet) + 1)
        return "\n".join((f"{bullet} {first}" if first else bullet, *(indent + line if line else "" for line in rest)))

    def _code(self, node: Node, *_: str) -> str:
        longest = max((len(run) for run in re.findall("`+", node.value)), default=0)
        fence = "`" * max(3, longest + 1)
        language, _separator, meta = node.settings.get("info", "").partition(" ")
        head = fence
        if language:
            with self._in("codeFenced", _LANGUAGE):
                head += self._safe(language, head, " ", is_encoded=True)
        if language and meta.strip():
            with self._in("codeFenced", _META):
                head += " " + self._safe(meta.strip(), head, "\n", is_encoded=True)
        return "\n".join((head, *([node.value] if node.value else ()), fence))

    def _link(self, node: Node, *_: str) -> str:
        start = "![" if node.type == "image" else "["
        with self._in(node.type, "label"):
            label = self._safe(node.value, start, "]") if node.type == "image" else self._phrasing(node, start, "](")
        url, title = node.settings["url"], node.settings.get("title", "")
        if (not url and title) or _BLANKS.search(url):
            with self._in(node.type, "destinationLiteral"):
                target = f"<{self._safe(url, '<', '>')}>"
        else:
            with self._in(node.type, "destinationRaw"):
                target = self._safe(url, "(", " " if title else ")")
        if title:
            with self._in(node.type, "titleQuote"):
                target += f' "{self._safe(title, chr(34), chr(34))}"'
        return f"{start}{label}]({target})"

    def _tag(self, node: Node, *_: str) -> str:
        name = node.settings["name"] or ""
        is_flow = node.type == "flowTag"
        indent = "  " * self._depth() if is_flow else ""
        attributes = "".join(f" {attribute}" for attribute in node.settings.get("source", ()))
        if name and not node.children:
            return f"{indent}<{name}{attributes} />"
        with self._in(node.type):
            inside = self._tag_children(node) if is_flow else self._phrasing(node, ">", "<")
        return f"{indent}<{name}{attributes}>{inside}{indent}</{name}>"

    def _tag_children(self, node: Node) -> str:
        indent = "  " * self._depth()
        parts: list[str] = []
        for child in node.children:
            lines = self._write(child, "\n", "\n")
            if child.type != "flowTag":
                lines = "\n".join(indent + line if line else "" for line in lines.split("\n"))
            parts.append(lines)
        return "\n" + "\n\n".join(parts) + "\n" if parts else ""

    def _depth(self) -> int:
        """Return the number of tags around the current node, up to a list or quote."""
        depth = 0
        for construct in reversed(self._constructs):
            if construct in ("blockquote", "listItem"):
                break
            depth += construct == "flowTag"
        return depth

    def _safe(self, text: str, before: str, after: str, *, is_encoded: bool = False) -> str:
        """Escape what would be read as Markdown between these characters."""
        whole, offset, end = before + text + after, len(before), len(before) + len(text)
        conditions = self._unsafe_positions(whole)
        positions = sorted(conditions)
        parts: list[str] = []
        start = offset
        index = 0
        while index < len(positions):
            position = positions[index]
            index += 1
            if position < start or position >= end:
                continue
            if run := _word_underscores(whole, position, (offset, end), conditions):
                index += run - 1
                continue
            if _is_covered(position, offset, end, conditions):
                continue
            parts.append(_BACKSLASH.sub(r"\\\\", whole[start:position] + "\\")[:-1] if start != position else "")
            character = whole[position]
            is_escapable = _PUNCTUATION.match(character) and not (is_encoded and character == "`")
            parts.append("\\" + character if is_escapable else _reference(character))
            start = position + 1
        rest = whole[start:end]
        parts.append(_escape_backslashes(rest, after))
        return "".join(parts)

    def _unsafe_positions(self, whole: str) -> dict[int, tuple[bool, bool]]:
        """Return the positions of unsafe characters, and whether each depends on what is before and after it."""
        conditions: dict[int, tuple[bool, bool]] = {}
        for unsafe in _UNSAFE:
            if unsafe.character not in whole or not unsafe.is_in_scope(self._constructs):
                continue
            for match in _pattern(unsafe).finditer(whole):
                before, after = bool(unsafe.before or unsafe.is_at_break), bool(unsafe.after)
                position = match.end(1)
                earlier = conditions.get(position, (True, True))
                conditions[position] = (earlier[0] and before, earlier[1] and after)
        return conditions


def _is_covered(position: int, offset: int, end: int, conditions: dict[int, tuple[bool, bool]]) -> bool:
    """Whether a neighbour that is always escaped makes a conditional escape needless."""
    free = (False, False)
    before, after = conditions[position]
    return (after and position + 1 < end and conditions.get(position + 1) == free) or (
        before and position - 1 >= offset and conditions.get(position - 1) == free
    )


def _word_underscores(
    whole: str, position: int, bounds: tuple[int, int], conditions: dict[int, tuple[bool, bool]]
) -> int:
    """Return the length of a run of underscores inside a word, which needs no escape; 0 if it is not one."""
    start, end = bounds
    if whole[position] != "_" or not position or not _is_word(whole[position - 1]) or position - 1 in conditions:
        return 0
    if position - 1 == start and whole[start - 1 : start] in ("*", "_"):  # the letter may become a reference
        return 0
    stop = position + 1
    while stop < end and whole[stop] == "_":
        stop += 1
    is_inside = stop < len(whole) and _is_word(whole[stop]) and stop not in conditions
    return stop - position if is_inside and not (stop == end - 1 and whole[end : end + 1] in ("*", "_")) else 0


def _is_word(character: str) -> bool:
    return not character.isspace() and unicodedata.category(character)[0] not in "PS"


def _escape_backslashes(text: str, after: str) -> str:
    return _BACKSLASH.sub(r"\\\\", text + after)[: len(text) + len(_BACKSLASH.findall(text + after))]


def _expression(node: Node, *_: str) -> str:
    first, *rest = node.value.split("\n")
    return "{" + "\n".join((first, *(f"  {line}" if line else "" for line in rest))) + "}"


def _reference(character: str) -> str:
    return f"&#x{ord(character):X};"


def _has_line_break(node: Node) -> bool:
    return node.type == "break" or "\n" in node.value or any(map(_has_line_break, node.children))


def _inline_code(value: str) -> str:
    fence = "`"
    while re.search(f"(^|[^`]){fence}([^`]|$)", value):
        fence += "`"
    is_padded = value[:1] in ("\n", " ") and value[-1:] in ("\n", " ")
    if value.strip("\n ") and (is_padded or value[:1] == "`" or value[-1:] == "`"):
        value = f" {value} "
    return f"{fence}{value}{fence}"


def _blank_lines(one: Node, two: Node, parent: Node) -> int:
    """Return the number of blank lines between two children of a node."""
    if "spread" not in parent.settings or parent.settings["spread"]:
        return 1
    if one.type == two.type == "blockquote":
        return 1
    if one.type == "paragraph" and two.type == "list":
        is_empty = bool(two.children) and not two.children[0].children
        return int((two.settings["ordered"] and two.settings.get("start", 1) != 1) or is_empty)
    tail = one
    while tail.type in ("blockquote", "list", "listItem") and tail.children:
        tail = tail.children[-1]
    return int(tail.type == "paragraph" and two.type == "paragraph")
