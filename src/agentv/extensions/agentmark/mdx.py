"""Parse the text of a prompt: Markdown with tags and expressions (MDX)."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from agentv.extensions.agentmark.nodes import MdxError, Node, text_node

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_NAME = re.compile(r"[A-Za-z_$][\w$]*(?:[-.:][\w$]+)*")
_ATTRIBUTE = re.compile(r"\s*(?P<name>[A-Za-z_$][\w$:-]*)\s*(?P<equals>=\s*)?")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_FENCE = re.compile(r"[ \t]*(?P<marks>`{3,}(?=[^`\n]*$)|~{3,})", re.MULTILINE)
_OPEN, _CLOSE = "\u2e22", "\u2e23"
"""Brackets around the number of a tag or expression while its text is parsed as Markdown."""
_PLACEHOLDER = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_ONLY_EXPRESSION = re.compile(rf"\s*{_PLACEHOLDER.pattern}\s*")


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
    if (match := _PLACEHOLDER.search(text)) is not None:
        raise MdxError(f"The text {match[0]} is not supported", first_line + text.count("\n", 0, match.start()))
    return _Parser(text, first_line).blocks()


class _Parser:
    """Splits a text into lines of tags and expressions, and Markdown between them."""

    def __init__(self, text: str, first_line: int) -> None:
        self._text = text
        self._first_line = first_line

    def _line(self, position: int) -> int:
        return self._first_line + self._text.count("\n", 0, position)

    def _error(self, message: str, position: int) -> MdxError:
        return MdxError(message, self._line(position))

    def blocks(self) -> list[Node]:
        root = Node("root")
        parents = [root]
        position = start = 0
        while position < len(self._text):
            if (fence := _FENCE.match(self._text, position)) is not None:
                position = self._end_of_fence(fence)
                continue
            if not (items := self._flow_items(position)):
                position = self._end_of_paragraph_line(position)
                continue
            parents[-1].children += self._markdown(start, position)
            for item in items:
                self._add_flow(item, parents)
            position = start = self._next_line(items[-1].end)
        parents[-1].children += self._markdown(start, len(self._text))
        if len(parents) > 1:
            name = parents[-1].settings["name"] or ""
            raise MdxError(f"<{name}> is not closed", parents[-1].line)
        return root.children

    def _next_line(self, position: int) -> int:
        end = self._text.find("\n", position)
        return len(self._text) if end < 0 else end + 1

    def _end_of_fence(self, fence: re.Match[str]) -> int:
        marks = fence["marks"]
        closing = re.compile(rf"^[ \t]*{re.escape(marks[0])}{{{len(marks)},}}[ \t]*$", re.MULTILINE)
        match = closing.search(self._text, self._next_line(fence.end()))
        return len(self._text) if match is None else self._next_line(match.end())

    def _end_of_paragraph_line(self, position: int) -> int:
        """Return the start of the next line; code spans, tags and expressions may span lines."""
        while position < len(self._text) and self._text[position] != "\n":
            position = self._skip(position)[1]
        return min(position + 1, len(self._text))

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

    def _flow_items(self, position: int) -> list[_Item]:
        """Return the tags and expressions of a line that has nothing else; empty for other lines."""
        items: list[_Item] = []
        while True:
            position = _skip_blanks(self._text, position)
            if position >= len(self._text) or self._text[position] == "\n":
                return items
            follows_expression = bool(items) and isinstance(items[-1].part, _Code)
            item = self._item(position) if self._text[position] in ("<" if follows_expression else "<{") else None
            if item is None:
                return []
            items.append(item)
            position = item.end

    def _item(self, position: int) -> _Item | None:
        """Return the tag or expression that begins at a position; None for a `<` that is not a tag."""
        if self._text[position] == "{":
            end = self._end_of_braces(position)
            return _Item(_Code(self._text[position + 1 : end - 1]), position, end)
        return self._tag(position)

    def _tag(self, start: int) -> _Item | None:
        text, position = self._text, start + 1
        is_closing = text.startswith("/", position)
        position += is_closing
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
                attributes[attribute["name"]] = (text[begin + 1 : position - 1], True)
            else:
                if (quoted := _QUOTED.match(text, position)) is None:
                    raise self._error(f"The attribute '{attribute['name']}' of <{name[0]}> has no value", position)
                position = quoted.end()
                attributes[attribute["name"]] = (quoted[0][1:-1], False)
            source.append(f"{attribute['name']}={text[begin:position]}")
        if (end := re.compile(r"\s*(/?)>").match(text, position)) is None:
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

    def _add_flow(self, item: _Item, parents: list[Node]) -> None:
        part, line = item.part, self._line(item.start)
        if isinstance(part, _Code):
            parents[-1].children.append(Node("flowExpression", value=part.code, line=line))
        else:
            self._add_tag(part, "flowTag", parents, line)

    def _add_tag(self, tag: _Tag, kind: str, parents: list[Node], line: int) -> None:
        if tag.is_closing:
            parent = parents.pop() if len(parents) > 1 else None
            if parent is None or not parent.is_tag or parent.settings["name"] != tag.name:
                raise MdxError(f"</{tag.name or ''}> does not close the last tag", line)
            return
        settings = {"name": tag.name, "attributes": tag.attributes, "source": tag.source}
        node = Node(kind, settings=settings, line=line)
        parents[-1].children.append(node)
        if not tag.is_self_closing:
            parents.append(node)

    def _markdown(self, start: int, end: int) -> list[Node]:
        """Parse a part of the text without lines of tags."""
        items: list[_Item] = []
        parts: list[str] = []
        position = begin = start
        while position < end:
            fence = (
                _FENCE.match(self._text, position)
                if position in (0, start) or self._text[position - 1] == "\n"
                else None
            )
            if fence is not None:
                position = min(self._end_of_fence(fence), end)
                continue
            item, following = self._skip(position)
            if item is not None:
                parts += (self._text[begin:position], f"{_OPEN}{len(items)}{_CLOSE}")
                items.append(item)
                begin = following
            position = following
        source = textwrap.dedent("".join((*parts, self._text[begin:end])))
        return [] if not source.strip() else _Markdown(self, items, self._line(start)).nodes(source)


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r":
        position += 1
    return position


class _Markdown:
    """Turns the tokens of Markdown into nodes, and placeholders into tags and expressions."""

    def __init__(self, parser: _Parser, items: list[_Item], line: int) -> None:
        self._parser = parser
        self._items = items
        self._line = line

    def nodes(self, source: str) -> list[Node]:
        parents = [root := Node("root")]
        definitions: dict[str, Any] = {}
        tokens = _markdown().parse(source, definitions)
        for name, at in definitions.get("references", {}).items():
            raise MdxError(f"'[{name.lower()}]: …' is not supported: write [text](address)", self._line + at["map"][0])
        for token in tokens:
            if token.nesting < 0:
                parents.pop()
                continue
            if token.type == "inline" and parents[-1].type == "paragraph" and self._is_expression(token.content):
                # In a list or quote. In other places, such lines are not parsed as Markdown.
                parents[-1].type, parents[-1].value = "flowExpression", self._raw(token.content.strip())[1:-1]
                continue
            for node in self._block(token):
                if token.type != "inline":
                    node.settings["end"] = self._line + (token.map[1] if token.map else 0)
                parents[-1].children.append(node)
                if token.nesting > 0:
                    parents.append(node)
        _set_spread(root)
        return root.children

    def _is_expression(self, text: str) -> bool:
        match = _ONLY_EXPRESSION.fullmatch(text)
        return match is not None and isinstance(self._items[int(match[1])].part, _Code)

    def _block(self, token: Token) -> Iterator[Node]:
        line = self._line + (token.map[0] if token.map else 0)
        if token.type == "inline":
            yield from self._inline(token.children or [], line)
        elif token.type == "fence":
            value = self._raw(token.content.removesuffix("\n"))
            yield Node("code", value=value, settings={"info": self._raw(token.info.strip())}, line=line)
        elif token.type == "hr":
            yield Node("thematicBreak", line=line)
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

    def _raw(self, text: str) -> str:
        """Return a text whose tags and expressions are text."""

        def source(match: re.Match[str]) -> str:
            item = self._items[int(match[1])]
            return self._parser._text[item.start : item.end]

        return _PLACEHOLDER.sub(source, text)

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
                parents[-1].children.append(Node("image", value=self._raw(token.content), settings=settings, line=line))
            elif token.type == "hardbreak":
                parents[-1].children.append(Node("break", line=line))
            else:
                self._add_text("\n" if token.type == "softbreak" else token.content, parents, line)
        if len(parents) > 1:
            raise MdxError(f"<{parents[-1].settings.get('name') or ''}> is not closed in its paragraph", line)
        return root.children

    def _link(self, token: Token) -> dict[str, str]:
        address = token.attrs.get("href", token.attrs.get("src", ""))
        return {"url": self._raw(str(address)), "title": self._raw(str(token.attrs.get("title", "")))}

    def _add_text(self, text: str, parents: list[Node], line: int) -> None:
        position = 0
        for match in _PLACEHOLDER.finditer(text):
            _append_text(parents[-1], text[position : match.start()])
            part = self._items[int(match[1])].part
            if isinstance(part, _Code):
                parents[-1].children.append(Node("textExpression", value=part.code, line=line))
            else:
                self._parser._add_tag(part, "textTag", parents, line)
            position = match.end()
        _append_text(parents[-1], text[position:])


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
        pairs = zip(node.children, node.children[1:], strict=False)
        node.settings["spread"] = any(_last_line(one) < two.line for one, two in pairs)


def _last_line(node: Node) -> int:
    """Return the line after a block."""
    return (
        node.settings["end"]
        if node.type not in ("list", "listItem", "blockquote")
        else max((_last_line(child) for child in node.children), default=node.line + 1)
    )


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt  # late: few projects have prompt files

    parser = MarkdownIt("commonmark", {"html": False})
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    return parser.disable(["code", "html_block", "html_inline", "autolink"])
