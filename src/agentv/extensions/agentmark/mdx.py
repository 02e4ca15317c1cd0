"""Parse the text of a prompt: Markdown with tags and expressions (MDX)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from agentv.extensions.agentmark.markdown_rules import CLOSE, OPEN, PLACEHOLDER, markdown_parser
from agentv.extensions.agentmark.nodes import MdxError, Node, text_node

if TYPE_CHECKING:
    from markdown_it.token import Token

_NAME = re.compile(r"[A-Za-z_$][\w$]*(?:[-.:][\w$]+)*")
_ATTRIBUTE = re.compile(r"\s*(?P<name>[A-Za-z_$][\w$:-]*)\s*(?P<equals>=\s*)?")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_FENCE = re.compile(r"(?:[ \t]|>|[-*+][ \t]|\d+[.)][ \t])*(?P<marks>`{3,}(?=[^`\n]*$)|~{3,})", re.MULTILINE)
_INDENT = re.compile(r"\n {1,2}")
"""The part of the indent of a line that is not in the code of an expression."""


class _Tag(NamedTuple):
    """A tag of MDX: `<Name a={b}>`, `</Name>` or `<Name />`. A fragment has no name."""

    name: str | None
    attributes: dict[str, tuple[str, bool]]
    """The value of each attribute, and whether it is an expression."""
    source: tuple[str, ...]
    is_closing: bool
    is_self_closing: bool


class _Code(NamedTuple):
    """An expression in braces."""

    code: str


class _Item(NamedTuple):
    """A tag or expression, and where it begins and ends."""

    part: _Tag | _Code
    start: int
    end: int


def parse_mdx(text: str, first_line: int = 1) -> list[Node]:
    """Return the blocks of a text. Raises MdxError."""
    if (match := PLACEHOLDER.search(text)) is not None:
        raise MdxError(f"The text {match[0]} is not supported", first_line + text.count("\n", 0, match.start()))
    return _Markdown(_Scanner(text, first_line)).nodes()


class _Scanner:
    """Finds the tags and expressions of a text. `source` is the text with a placeholder for each of the `items`."""

    def __init__(self, text: str, first_line: int) -> None:
        self._text = text
        self._first_line = first_line
        self.items: list[_Item] = []
        self.source = self._scan()

    def line(self, position: int) -> int:
        """Return the line of a position in the text."""
        return self._first_line + self._text.count("\n", 0, position)

    def lines(self) -> list[int]:
        """Return the line of the text for each line of the source."""
        numbers, line = [self._first_line], self._first_line
        for row in self.source.split("\n"):
            line += 1 + sum(self.raw(match[0]).count("\n") for match in PLACEHOLDER.finditer(row))
            numbers.append(line)
        return numbers

    def raw(self, text: str) -> str:
        """Return a text whose tags and expressions are text."""
        return PLACEHOLDER.sub(lambda match: self.original(int(match[1])), text)

    def original(self, number: int) -> str:
        """Return the text of an item."""
        item = self.items[number]
        return self._text[item.start : item.end]

    def _scan(self) -> str:
        parts: list[str] = []
        position = begin = 0
        while position < len(self._text):
            is_line_start = position == 0 or self._text[position - 1] == "\n"
            if is_line_start and (fence := _FENCE.match(self._text, position)) is not None:
                position = self._end_of_fence(fence)
                continue
            item, following = self._skip(position)
            if item is not None:
                parts += (self._text[begin:position], f"{OPEN}{len(self.items)}{CLOSE}")
                self.items.append(item)
                begin = following
            position = following
        return "".join((*parts, self._text[begin:]))

    def _error(self, message: str, position: int) -> MdxError:
        return MdxError(message, self.line(position))

    def _next_line(self, position: int) -> int:
        end = self._text.find("\n", position)
        return len(self._text) if end < 0 else end + 1

    def _end_of_fence(self, fence: re.Match[str]) -> int:
        marks = fence["marks"]
        closing = re.compile(rf"^[ \t>]*{re.escape(marks[0])}{{{len(marks)},}}[ \t]*$", re.MULTILINE)
        match = closing.search(self._text, self._next_line(fence.end()))
        return len(self._text) if match is None else self._next_line(match.end())

    def _skip(self, position: int) -> tuple[_Item | None, int]:
        """Return the tag or expression at a position, if there is one, and where the next character is."""
        if (character := self._text[position]) == "\\":
            return None, min(position + 2, len(self._text))
        if character == "`":
            marks = re.compile("`+").match(self._text, position)
            run = marks[0] if marks else "`"
            paragraph_end = self._text.find("\n\n", position)
            limit = len(self._text) if paragraph_end < 0 else paragraph_end
            closing = re.compile(rf"(?<!`){run}(?!`)").search(self._text, position + len(run), limit)
            return None, position + len(run) if closing is None else closing.end()
        if character in "<{" and (item := self._item(position)) is not None:
            return item, item.end
        return None, position + 1

    def _item(self, position: int) -> _Item | None:
        """Return the tag or expression that begins at a position; None for a `<` that is not a tag."""
        if self._text[position] == "{":
            end = self._end_of_braces(position)
            return _Item(_Code(_INDENT.sub("\n", self._text[position + 1 : end - 1])), position, end)
        return self._tag(position)

    def _tag(self, start: int) -> _Item | None:
        text, position = self._text, start + 1
        is_closing = text.startswith("/", position)
        if is_closing:
            position = _skip_blanks(text, position + 1)
        if (name := _NAME.match(text, position)) is None:
            return (
                _Item(_Tag(None, {}, (), is_closing, False), start, position + 1)
                if text[position : position + 1] == ">"
                else None
            )
        position = name.end()
        attributes: dict[str, tuple[str, bool]] = {}
        source: list[str] = []
        while (attribute := _ATTRIBUTE.match(text, position)) is not None:
            position = attribute.end()
            if not attribute["equals"]:
                attributes[attribute["name"]] = ("", False)
                source.append(attribute["name"])
                continue
            begin = position
            if text.startswith("{", position):
                position = self._end_of_braces(position)
                attributes[attribute["name"]] = (_INDENT.sub("\n", text[begin + 1 : position - 1]), True)
            else:
                if (quoted := _QUOTED.match(text, position)) is None:
                    raise self._error(f"The attribute '{attribute['name']}' of <{name[0]}> has no value", position)
                position = quoted.end()
                value = unescape(quoted[0][1:-1])
                attributes[attribute["name"]] = (value, False)
                source.append(f'{attribute["name"]}="{value.replace(chr(34), "&#x22;")}"')
                continue
            source.append(f"{attribute['name']}={text[begin:position]}")
        if (end := re.compile(r"\s*(/?)\s*>").match(text, position)) is None:
            raise self._error(f"<{name[0]}> is not closed, or has an attribute that is not supported", position)
        tag = _Tag(name[0], attributes, tuple(source), is_closing, bool(end[1]))
        return _Item(tag, start, end.end())

    def _end_of_braces(self, start: int) -> int:
        """Return the position after the matching brace; braces in quotes do not count outside of functions."""
        depth, quote, position = 0, "", start
        is_function = False
        while position < len(self._text):
            character = self._text[position]
            if quote:
                position += character == "\\"
                quote = "" if character == quote else quote
            elif self._text.startswith("/*", position):
                position = self._text.find("*/", position) + 1 or len(self._text)
            elif self._text.startswith("=>", position):
                is_function = True  # its body is text, where an apostrophe is not a quote
            elif character in "\"'`" and not is_function:
                quote = character
            elif character in "{}":
                depth += 1 if character == "{" else -1
                if not depth:
                    return position + 1
            position += 1
        raise self._error("A { is not closed", start)


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r":
        position += 1
    return position


class _Markdown:
    """Turns the tokens of Markdown into nodes, and placeholders into tags and expressions."""

    def __init__(self, scanner: _Scanner) -> None:
        self._scanner = scanner
        self._raw = scanner.raw
        self._lines = scanner.lines()
        self._end = 0

    def nodes(self) -> list[Node]:
        parents = [root := Node("root")]
        items = self._scanner.items
        expressions = {str(number) for number, item in enumerate(items) if isinstance(item.part, _Code)}
        definitions: dict[str, Any] = {"expressions": expressions}
        tokens = markdown_parser().parse(self._scanner.source, definitions)
        for name, at in definitions.get("references", {}).items():
            raise MdxError(f"'[{name.lower()}]: …' is not supported: write [text](address)", self._lines[at["map"][0]])
        for token in tokens:
            self._end = self._lines[token.map[1]] if token.map else self._end
            if token.nesting < 0:
                self._check_closed(parents)
                parents.pop()
            elif token.type == "mdx":
                self._add_items(token.content, "flow", parents, self._line(token))
            else:
                for node in self._block(token):
                    if token.type != "inline":
                        node.settings["end"] = self._end
                    parents[-1].children.append(node)
                    if token.nesting > 0:
                        parents.append(node)
        self._check_closed(parents)
        _set_spread(root)
        return root.children

    def _line(self, token: Token) -> int:
        return self._lines[token.map[0] if token.map else 0]

    def _check_closed(self, parents: list[Node]) -> None:
        if parents[-1].is_tag:
            raise MdxError(f"<{parents[-1].settings['name'] or ''}> is not closed", parents[-1].line)

    def _add_tag(self, tag: _Tag, kind: str, parents: list[Node], line: int) -> None:
        if tag.is_closing:
            parent = parents.pop() if len(parents) > 1 else None
            if parent is None or not parent.is_tag or parent.settings["name"] != tag.name:
                raise MdxError(f"</{tag.name or ''}> does not close the last tag", line)
            parent.settings["end"] = self._end
            return
        settings = {
            "opened": self._end,
            "end": self._end,
            "name": tag.name,
            "attributes": tag.attributes,
            "source": tag.source,
        }
        node = Node(kind, settings=settings, line=line)
        parents[-1].children.append(node)
        if not tag.is_self_closing:
            parents.append(node)

    def _block(self, token: Token) -> Iterator[Node]:
        line = self._line(token)
        if token.type == "inline":
            yield from self._inline(token.children or [], line)
        elif token.type == "fence":
            value = self._raw(token.content.removesuffix("\n"))
            yield Node("code", value=value, settings={"info": self._raw(token.info.strip())}, line=line)
        elif token.type == "hr":
            yield Node("thematicBreak", line=line)
        elif token.type == "esm":
            yield Node("esm", value=self._raw(token.content), line=line)
        elif token.type == "heading_open":
            yield Node("heading", settings={"depth": int(token.tag[1])}, line=line)
        elif token.type in ("bullet_list_open", "ordered_list_open"):
            start = token.attrs.get("start", 1)
            settings = {"ordered": token.type == "ordered_list_open", "start": int(start), "spread": False}
            yield Node("list", settings=settings, line=line)
        elif token.type == "list_item_open":
            yield Node("listItem", settings={"spread": False}, line=line)
        else:
            kind = "blockquote" if token.type == "blockquote_open" else "paragraph"
            yield Node(kind, line=line)

    def _inline(self, tokens: list[Token], line: int) -> list[Node]:
        root = Node("root")
        parents = [root]
        for token in tokens:
            if token.nesting < 0:
                parents.pop()
            elif token.type in ("em_open", "strong_open", "link_open"):
                kind = {"em_open": "emphasis", "strong_open": "strong", "link_open": "link"}[token.type]
                node = Node(kind, settings=self._link(token) if kind == "link" else {}, line=line)
                parents[-1].children.append(node)
                parents.append(node)
            elif token.type == "code_inline":
                parents[-1].children.append(Node("inlineCode", value=self._raw(token.content), line=line))
            elif token.type == "image":
                settings = self._link(token)
                alternative = "".join(map(_plain, self._inline(token.children or [], line)))
                parents[-1].children.append(Node("image", value=alternative, settings=settings, line=line))
            elif token.type == "hardbreak":
                parents[-1].children.append(Node("break", line=line))
            else:
                self._add_items("\n" if token.type == "softbreak" else token.content, "text", parents, line)
        if len(parents) > 1:
            raise MdxError(f"<{parents[-1].settings.get('name') or ''}> is not closed in its paragraph", line)
        return root.children

    def _link(self, token: Token) -> dict[str, str]:
        address = self._raw(str(token.attrs.get("href", token.attrs.get("src", ""))))
        if address[:1] == "<" and address[-1:] == ">":  # it looks like a tag
            address = address[1:-1]
        return {"url": address, "title": self._raw(str(token.attrs.get("title", "")))}

    def _add_items(self, text: str, kind: str, parents: list[Node], line: int) -> None:
        """Add a text: in a `flow`, tags and expressions in lines of their own."""
        position = 0
        for match in PLACEHOLDER.finditer(text):
            if kind == "text":
                _append_text(parents[-1], text[position : match.start()])
            part = self._scanner.items[int(match[1])].part
            if isinstance(part, _Code):
                settings = {"end": self._end}
                parents[-1].children.append(Node(f"{kind}Expression", value=part.code, settings=settings, line=line))
            else:
                self._add_tag(part, f"{kind}Tag", parents, line)
            position = match.end()
        if kind == "text":
            _append_text(parents[-1], text[position:])


def _plain(node: Node) -> str:
    return node.value + "".join(map(_plain, node.children))


def _append_text(parent: Node, text: str) -> None:
    if not text:
        return
    if parent.children and parent.children[-1].type == "text":
        parent.children[-1].value += text
    else:
        parent.children.append(text_node(text))


def _set_spread(node: Node) -> None:
    """Mark lists and items that have blank lines between their blocks."""
    for child in node.children:
        _set_spread(child)
    if node.type in ("list", "listItem"):
        node.settings["spread"] = any(end < start for (_, end), (start, _) in pairwise(_spans(node.children)))


def _spans(nodes: list[Node]) -> Iterator[tuple[int, int]]:
    """Yield the first line of each block, and the line after it. Tags are blocks next to their content."""
    for node in nodes:
        if node.type == "flowTag" and node.children:
            yield node.line, node.settings["opened"]
            yield from _spans(node.children)
            yield node.settings["end"] - 1, node.settings["end"]
        else:
            yield node.line, _last_line(node)


def _last_line(node: Node) -> int:
    """Return the line after a block."""
    return (
        node.settings["end"]
        if node.type not in ("list", "listItem", "blockquote")
        else max((_last_line(child) for child in node.children), default=node.line + 1)
    )
