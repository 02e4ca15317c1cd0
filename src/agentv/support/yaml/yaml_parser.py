"""Parse YAML 1.2 (core schema) to plain data with line numbers; depth and aliases are limited, no tag runs code.

PyYAML's C parser produces the events; this module decides the values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import yaml

from agentv.model.diagnostics import KeyPath
from agentv.model.values import MAX_DEPTH
from agentv.support.yaml.yaml_writer import resolve

ALIAS_ALLOWANCE = 1_000_000
"""Nodes that aliases may add to any document, in addition to ten times its written nodes."""


class YamlError(Exception):
    """Text that is not YAML, or not YAML that we support. Line and column count from 1."""

    def __init__(self, what: str, line: int, column: int | None, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.column = column
        self.hint = hint


class Mark(NamedTuple):
    """A position in the text, counted from 1."""

    line: int
    column: int


class Map(dict[str, Any]):
    """A mapping with its position and the positions of its keys, as PyYAML's marks."""

    __slots__ = ("marks", "start")

    start: Any
    marks: dict[str, Any]

    def without(self, keys: Collection[str]) -> Map:
        """Return a copy without some keys; positions are kept."""
        return self.with_values({key: value for key, value in self.items() if key not in keys})

    def with_values(self, values: dict[str, Any]) -> Map:
        """Return a mapping of other values at the same position."""
        copy = Map(values)
        copy.start, copy.marks = self.start, self.marks
        return copy


class Seq(list[Any]):
    """A sequence with its position and the positions of its items, as PyYAML's marks."""

    __slots__ = ("marks", "start")

    start: Any
    marks: list[Any]


def locate(node: Any, path: KeyPath) -> Mark | None:
    """Return the position of the value at `path`, or that of the last step that exists."""
    mark = getattr(node, "start", None)
    try:
        for step in path:
            mark, node = node.marks[step], node[step]
    except (AttributeError, LookupError, TypeError):
        pass  # a step that does not exist
    return None if mark is None else Mark(mark.line + 1, mark.column + 1)


def parse_yaml(data: bytes, plain: Callable[[str], Any] = resolve) -> Any:
    """Parse one document to Map, Seq and scalars; None for an empty document. Raises YamlError.

    `plain` returns the value of a scalar that is not quoted.
    """
    text, restore = _without_breaks(_decode(data))
    try:
        return _Builder(restore, plain).build(text)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text) from None
    except yaml.reader.ReaderError as error:
        raise _character_error(error, text) from None


def composed(text: str) -> Any:
    """Return the node tree of valid YAML, with the start and end of each node in the text."""
    return yaml.compose(_without_breaks(text)[0], Loader=yaml.CSafeLoader)


_BREAKS = "\x85\u2028\u2029"


def _without_breaks(text: str) -> tuple[str, dict[int, str]]:
    """Replace U+0085, U+2028 and U+2029, which PyYAML takes for line breaks; return the text and how to restore it."""
    if not any(char in text for char in _BREAKS):
        return text, {}
    # A replacement character must not occur in the text, neither literally nor as an escape.
    lower = text.lower()
    free = (code for code in range(0xE000, 0xF900) if chr(code) not in text and f"{code:04x}" not in lower)
    swap = dict(zip(map(ord, _BREAKS), free, strict=False))
    return text.translate(swap), {code: chr(char) for char, code in swap.items()}


class _Frame:
    """A container that is still open. Not a struct: setting an attribute of a struct takes twice as long."""

    __slots__ = ("anchor", "height", "key", "merges", "node", "nodes_before")

    def __init__(self, node: Any, anchor: str | None, nodes_before: int) -> None:
        self.node, self.anchor, self.nodes_before, self.height = node, anchor, nodes_before, 1
        self.key: str | None = None
        self.merges: list[tuple[Map, Any]] | None = None


class _Anchored(NamedTuple):
    """A node with an anchor, and the size that each alias of it adds."""

    value: Any
    nodes: int
    height: int


class _Builder:
    """Builds values from parser events. An explicit stack keeps deep nesting from overflowing Python's own."""

    def __init__(self, restore: dict[int, str], plain: Callable[[str], Any]) -> None:
        self._restore = restore
        self._plain = plain
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchored | None] = {}
        self._nodes = 0
        self._aliased = 0
        self._root: Any = None

    def build(self, text: str) -> Any:
        parser = yaml.CSafeLoader(text)
        try:
            self._read(parser.get_event)
        finally:
            parser.dispose()
        return self._root

    def _read(self, next_event: Any) -> None:
        documents, scalar_kind, end_kind, scalar = 0, yaml.ScalarEvent, yaml.StreamEndEvent, self._scalar
        while (kind := type(event := next_event())) is not end_kind:
            if kind is scalar_kind:
                scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._open(event, kind is yaml.MappingStartEvent)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._close()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise _error(event, "found a second document", "Split the file at the `---`: one document per file")

    def _scalar(self, event: Any) -> None:
        value = event.value
        if self._restore:
            value = value.translate(self._restore)
        self._nodes += 1
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.key is None and type(frame.node) is Map:
            if event.tag is not None and event.tag not in ("!", _STR):
                raise _error(event, f"found the tag {event.tag!r} on a key", "Keys are plain text. Remove the tag")
            if value == "<<" and not event.style:
                frame.merges = frame.merges or []
            self._key(frame, event, value)
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(value, 1, 0)
            return
        if event.tag is not None:
            value = _tagged_scalar(event, value)
        elif event.style is None or event.style == "":
            value = _resolve_plain(event, value, self._plain)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, 1, 0)
        self._put(value, event.start_mark)

    def _key(self, frame: _Frame, event: Any, key: str) -> None:
        """Add a key. Keys stay strings as written, even if they look like numbers, as in JSON."""
        marks = frame.node.marks
        if key in marks:
            first = marks[key].line + 1
            raise _error(event, f"found the key {key!r} a second time (first on line {first})", "Remove one of the two")
        frame.key = key
        marks[key] = event.start_mark

    def _open(self, event: Any, is_mapping: bool) -> None:
        if event.tag is not None and event.tag not in ("!", _MAP if is_mapping else _SEQ):
            raise _bad_tag(event)
        if len(self._stack) >= MAX_DEPTH:
            raise _error(event, f"nested more than {MAX_DEPTH} levels deep")
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.key is None and type(frame.node) is Map:
            raise _error(event, "found a mapping or list as a key", "Keys are plain text")
        node: Any = Map() if is_mapping else Seq()
        node.marks = {} if is_mapping else []
        node.start = event.start_mark
        self._nodes += 1
        if event.anchor:
            self._anchors[event.anchor] = None
        self._stack.append(_Frame(node, event.anchor, self._nodes + self._aliased))

    def _close(self) -> None:
        frame = self._stack.pop()
        if frame.merges:
            _merge(frame)
        if frame.anchor:
            nodes = self._nodes + self._aliased - frame.nodes_before + 1
            self._anchors[frame.anchor] = _Anchored(frame.node, nodes, frame.height)
        if self._stack and frame.height >= self._stack[-1].height:
            self._stack[-1].height = frame.height + 1
        self._put(frame.node, frame.node.start)

    def _alias(self, event: Any) -> None:
        if (name := event.anchor) not in self._anchors:
            raise _error(event, f"found the alias *{name} with no anchor &{name} before it")
        if (anchored := self._anchors[name]) is None:
            raise _error(event, f"found the alias *{name} inside its own anchor")
        self._aliased += anchored.nodes
        if self._aliased > ALIAS_ALLOWANCE + 10 * self._nodes:
            raise _error(event, "aliases expand to too much data", "Replace the aliases by their values, or use JSONL")
        if len(self._stack) + anchored.height > MAX_DEPTH:
            raise _error(event, f"nested more than {MAX_DEPTH} levels deep")
        frame = self._stack[-1] if self._stack else None
        if frame is not None:
            frame.height = max(frame.height, anchored.height + 1)
            if frame.key is None and type(frame.node) is Map:
                if not isinstance(anchored.value, str):
                    raise _error(event, "found an alias as a key whose value is not text", "Keys are plain text")
                self._key(frame, event, anchored.value)
                return
        self._put(anchored.value, event.start_mark)

    def _put(self, value: Any, mark: Any) -> None:
        if not self._stack:
            self._root = value
            return
        frame = self._stack[-1]
        node = frame.node
        if type(node) is Seq:
            node.append(value)
            node.marks.append(mark)
        elif frame.key == "<<" and frame.merges is not None:
            frame.merges.extend(_merge_sources(value, mark))
            del node.marks["<<"]
            frame.key = None
        else:
            node[frame.key] = value
            frame.key = None


def _merge_sources(value: Any, mark: Any) -> list[tuple[Map, Any]]:
    sources = value if isinstance(value, Seq) else [value]
    if not all(isinstance(source, Map) for source in sources):
        what = "found '<<' with a value that is not a mapping"
        raise YamlError(what, mark.line + 1, mark.column + 1, "Merge a mapping: `<<: *name`")
    return [(source, mark) for source in sources]


def _merge(frame: _Frame) -> None:
    for source, mark in frame.merges or ():
        for key, value in source.items():
            if key not in frame.node:
                frame.node[key] = value
                frame.node.marks[key] = mark


_STR = "tag:yaml.org,2002:str"
_MAP = "tag:yaml.org,2002:map"
_SEQ = "tag:yaml.org,2002:seq"
_LM_EVAL = "agentv does not call lm-eval functions. Write a template, or run lm-eval --log_samples and read its results"


def _resolve_plain(event: Any, text: str, plain: Callable[[str], Any] = resolve) -> Any:
    try:
        return plain(text)
    except ValueError as error:
        raise _error(event, f"found {error}", "Quote the value to make it text") from None


def _tagged_scalar(event: Any, text: str) -> Any:
    if event.tag in ("!", _STR):
        return text
    name = event.tag.removeprefix("tag:yaml.org,2002:")
    kind: Any = {"null": type(None), "bool": bool, "int": int, "float": (int, float)}.get(name)
    if kind is None or not event.tag.startswith("tag:yaml.org,2002:"):
        raise _bad_tag(event)
    value = _resolve_plain(event, text)
    if not isinstance(value, kind) or (name != "bool" and isinstance(value, bool)):
        raise _error(event, f"found {text!r} with the tag !!{name}", "Remove the tag, or correct the value")
    return float(value) if name == "float" else value


def _bad_tag(event: Any) -> YamlError:
    tag = event.tag.replace("tag:yaml.org,2002:", "!!")
    advice = "Only the core types of YAML are supported. Remove the tag"
    return _error(event, f"found the tag {tag}", _LM_EVAL if tag == "!function" else advice)


def _error(event: Any, what: str, hint: str = "") -> YamlError:
    return YamlError(what, event.start_mark.line + 1, event.start_mark.column + 1, hint)


def _decode(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise YamlError("the text is UTF-16", 1, 1, "Save the file as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = data.rfind(b"\n", 0, error.start) + 1
        column = len(data[start : error.start].decode("utf-8", "replace")) + 1
        line = data.count(b"\n", 0, error.start) + 1
        what = f"the byte 0x{data[error.start]:02x} is not valid UTF-8"
        raise YamlError(what, line, column, "Save the file as UTF-8") from None


# Compiled when there is an error: the second takes as long as importing 20 modules.
_BREAK = r"\r\n?|\n"
_NOT_PRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ufffd\U00010000-\U0010ffff]"
_NO_TABS = "Indent with spaces: YAML does not allow tabs here"
_SYNTAX_HINTS = {
    "tab character": _NO_TABS,
    "mapping values are not allowed": "Quote text that contains a colon followed by a space",
    "invalid Unicode character escape": "Write the character itself: YAML does not support surrogate pairs",
}


def _syntax_error(error: yaml.MarkedYAMLError, text: str) -> YamlError:
    mark = error.problem_mark or error.context_mark
    what = error.problem or error.context or "cannot be read"
    hint = next((hint for words, hint in _SYNTAX_HINTS.items() if words in what), "")
    if mark is None:
        return YamlError(what, 1, None, hint)

    lines = re.split(_BREAK, text)
    hint = indentation_hint(what, lines, mark.line, mark.column) or hint
    if "cannot start any token" in what and lines[mark.line][mark.column :].startswith("\t"):
        what, hint = "found a tab where tabs are not allowed", _NO_TABS
    return YamlError(what, mark.line + 1, mark.column + 1, hint)


def _character_error(error: yaml.reader.ReaderError, text: str) -> YamlError:
    match = re.search(_NOT_PRINTABLE, text)
    bad = match.start() if match else 0
    line = text.count("\n", 0, bad) + 1
    column = bad - text.rfind("\n", 0, bad)
    what = f"found the character U+{ord(text[bad]):04X}" if text else str(error)
    return YamlError(what, line, column, 'Escape the character in double quotes, for example "\\x00"')


_LINE = r"^(?P<indent> *)(?P<item>- +)?(?P<key>[^\s:#'\"\[{][^:#]*)?(?P<colon>:(?=\s|$))?"
_PROBLEMS = ("did not find expected key", "did not find expected '-' indicator", "could not find expected ':'")


def indentation_hint(what: str, lines: list[str], line: int, column: int) -> str:
    """Return a hint if a syntax error is caused by indentation; empty otherwise. Line and column count from 0."""
    bad = re.match(_LINE, lines[line]) if line < len(lines) else None
    if bad is None:
        return ""
    if "mapping values are not allowed" in what:
        # The parser stops at the colon: the first one of the line means that the key itself is misplaced.
        if not bad["key"] or not bad["colon"] or bad.start("colon") != column or bad["item"]:
            return ""
    elif not any(problem in what for problem in _PROBLEMS):
        return ""
    above = _similar(lines[:line], is_item=bad["item"] is not None)
    if above is None or not bad["key"]:
        return "Check the indentation of this line and of the line before it"
    number, place, name = above
    if place == (bad.start("item") if bad["item"] else bad.start("key")):
        return "Check the indentation of this line and of the line before it"
    noun = "this item" if bad["item"] else f"'{bad['key'].strip()}'"
    return (
        f"Check the indentation: {noun} should probably start in column {place + 1}, like {name} on line {number + 1}"
    )


def _similar(above: list[str], *, is_item: bool) -> tuple[int, int, str] | None:
    """Return line, column and name of the nearest key, or list item, above."""
    for number in range(len(above) - 1, -1, -1):
        match = re.match(_LINE, above[number])
        if match is None or not match["key"]:
            continue
        if is_item and match["item"]:
            return number, match.start("item"), "the item"
        if not is_item and match["colon"]:
            return number, match.start("key"), f"'{match['key'].strip()}'"
    return None
