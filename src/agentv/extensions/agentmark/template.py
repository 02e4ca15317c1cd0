"""Render a parsed prompt: evaluate its tags and expressions, and write each message as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from agentv.extensions.agentmark.expressions import inserted_text, parse_expression
from agentv.extensions.agentmark.markdown_writer import to_markdown
from agentv.extensions.agentmark.mdx import parse_mdx
from agentv.extensions.agentmark.nodes import Copies, MdxError, Node, text_node
from agentv.model.message import ImagePart, Message, Role, TextPart
from agentv.support.javascript.values import UNDEFINED
from agentv.support.templates import TemplateProblem

ROLES: dict[str, Role] = {"System": "system", "User": "user", "Assistant": "assistant"}
ROLES |= {"ImagePrompt": "user", "SpeechPrompt": "user"}
_CONTENT = frozenset(("If", "ElseIf", "Else", "ForEach", "Raw"))
TAGS = {
    "image_config": _CONTENT | {"ImagePrompt"},
    "speech_config": _CONTENT | {"System", "SpeechPrompt"},
    "": _CONTENT | {"System", "User", "Assistant", "ImageAttachment", "FileAttachment"},
}
"""The tags of each kind of prompt."""
_MEDIA_TYPES = {"iVBOR": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""The types of images by how they begin in Base64."""
_ARROW = re.compile(r"\s*+\(?\s*+(?P<item>[\w$]+)\s*+(?:,\s*+(?P<index>[\w$]+)\s*+)?\)?\s*+=>\s*")
_PROPERTY = re.compile(r"props\.(\w+)")
_LITERAL = re.compile(r"""['"].*['"]|\d+(\.\d+)?""", re.DOTALL)


class Components(dict[str, list[Node]]):
    """The blocks of imported components by name. `copies` are those of all files of a prompt."""

    def __init__(self, copies: Copies) -> None:
        super().__init__()
        self.copies = copies


class MissingVariable(Exception):
    """A variable that the prompt uses and the row lacks."""


class Properties(dict[str, Any]):
    """The variables of a row. A missing one is an error, unless it is optional."""

    def __init__(self, variables: Mapping[str, Any], optional: frozenset[str]) -> None:
        super().__init__(variables)
        self._optional = optional

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self and key not in self._optional:
            raise MissingVariable(key)
        return super().get(key, default)


@dataclass
class _Scope:
    """The names of one place, and whether a branch of its conditions was chosen."""

    names: dict[str, Any]
    has_branch: bool = False

    def child(self, **names: Any) -> _Scope:
        return _Scope({**self.names, **names})


def check_nodes(nodes: Iterable[Node], components: Components, tags: Set[str]) -> None:
    """Raise MdxError for a tag or an expression that AgentMark's engine does not know. Loops get their blocks."""
    for node in nodes:
        name = node.settings.get("name") if node.is_tag else None
        if name == "Raw":
            continue
        if name and name[0].isupper() and name not in tags and name not in components:
            raise MdxError(f"<{name}> is not a tag of AgentMark, nor an imported component", node.line)
        if name == "ForEach":
            node.settings["loop"], node.children = _loop_body(node)
        _check_expressions(node)
        check_nodes(node.children, components, tags)


def _check_expressions(node: Node) -> None:
    attributes = node.settings.get("attributes", {}) if node.is_tag else {}
    codes = [value for value, is_code in attributes.values() if is_code]
    for code in [*codes, *([node.value] if node.is_expression and not _is_comment(node.value) else ())]:
        try:
            parse_expression(code)
        except TemplateProblem as problem:
            raise MdxError(str(problem), node.line) from None


def _is_comment(code: str) -> bool:
    code = code.strip()
    return (code.startswith("/*") and code.endswith("*/")) or code.startswith("//")


def _loop_body(node: Node) -> tuple[re.Match[str], list[Node]]:
    """Return the parameters of the function in a ForEach, and its blocks. Raises MdxError."""
    body = node.children
    is_block = len(body) == 1 and body[0].type == "flowExpression"
    arrow = _ARROW.match(body[0].value) if is_block else None
    if arrow is None:
        what = "<ForEach> needs lines of its own, with one function such as {(item) => …}"
        raise MdxError(what, node.line)
    code = body[0].value[arrow.end() :].strip()
    is_enclosed = code.startswith("(") and code.endswith(")")
    return arrow, _unwrap(parse_mdx(code[1:-1].strip() if is_enclosed else code, body[0].line))


def inline_components(nodes: list[Node], components: Components, *, is_loop: bool = False) -> list[Node]:
    """Replace the tags of components by their blocks; in a loop, these are in a fragment, as in AgentMark's engine."""
    expanded: list[Node] = []
    for node in nodes:
        if node.is_tag and node.settings["name"] in components:
            if is_loop and (node.type == "textTag" or node.children):
                what = f"<{node.settings['name']}> in a <ForEach> needs a line of its own, and no content"
                raise MdxError(what, node.line)
            blocks = _component(node, {}, components)
            fragment = Node("flowTag", blocks, settings={"name": None, "attributes": {}}, line=node.line)
            expanded += [fragment] if is_loop else blocks
            continue
        starts_loop = node.is_tag and node.settings["name"] == "ForEach"
        node.children = inline_components(node.children, components, is_loop=is_loop or starts_loop)
        if starts_loop:
            node.children = _unwrap(node.children)
        expanded.append(node)
    return expanded


def _component(tag: Node, outer: Mapping[str, str], components: Components) -> list[Node]:
    attributes = {
        name: _substitute(value, outer) if is_code else json.dumps(value)
        for name, (value, is_code) in tag.settings["attributes"].items()
    }
    body = components.copies.of(components[tag.settings["name"]], tag.line)
    return [node for child in body for node in _with_properties(child, attributes, tag.children, components)]


def _with_properties(
    node: Node, attributes: Mapping[str, str], children: list[Node], components: Components
) -> list[Node]:
    if node.is_expression:
        if node.value.strip() == "props.children":
            return _paragraph(inline_components(components.copies.of(children, node.line), components))
        if "props." in node.value:
            code = _substitute(node.value, attributes)
            if _LITERAL.fullmatch(code):
                try:
                    value = code[1:-1] if code[0] == "'" else json.loads(code)
                except ValueError:
                    what = f"The expression {{{code}}} is not supported in a component"
                    raise MdxError(what, node.line) from None
                return [text_node(str(value))]
            node.value = code
        return [node]
    if node.is_tag and node.settings["name"] in components:
        return _component(node, attributes, components)
    parts = (_with_properties(child, attributes, children, components) for child in node.children)
    node.children = [child for part in parts for child in part]
    return [node]


def _substitute(code: str, attributes: Mapping[str, str]) -> str:
    return _PROPERTY.sub(lambda match: attributes.get(match[1], match[0]), code)


def _paragraph(nodes: list[Node]) -> list[Node]:
    """Return the children of a component as one paragraph."""
    parts: list[Node] = []
    for position, node in enumerate(nodes):
        parts += [text_node("\n")] if position else []
        parts += node.children if node.type in ("paragraph", "list") else [node]
    return [Node("paragraph", parts)] if parts else []


def render_messages(nodes: list[Node], properties: Properties, kind: str) -> list[Message]:
    """Return the messages for one row. Raises TemplateProblem or MissingVariable."""
    messages = _Renderer().messages(nodes, _Scope({"props": properties}))
    if not kind:
        return messages
    prompts = [message for message in messages if message.role == "user"]
    if not prompts or not prompts[0].content:
        raise TemplateProblem("it has no text")
    instructions = [message for message in messages if message.role == "system" and message.content]
    return [*instructions[:1], prompts[0]]


_Entry = TypeVar("_Entry", Message, ImagePart)
_Moment = tuple[tuple[int, int], ...]
"""When AgentMark's engine renders a node: the conditions around it, and its position in them if it is not the first."""


def _in_order(items: list[tuple[_Moment, _Entry]], tag: str) -> list[_Entry]:
    """Return items in the order in which AgentMark's engine, which is asynchronous, adds them."""
    ordered = sorted(items, key=lambda item: item[0])
    for (one, _), (two, _) in pairwise(ordered):
        step = next((pair for pair in zip(one, two, strict=False) if pair[0] != pair[1]), None)
        if step and step[0][0] != step[1][0]:
            raise TemplateProblem(f"{tag} is not the first tag of two conditions, so its place is not certain")
    return [item for _, item in ordered]


class _Renderer:
    """Evaluates nodes in document order, as conditions depend on it."""

    def __init__(self) -> None:
        self._messages: list[tuple[_Moment, Message]] = []
        self._images: list[tuple[_Moment, ImagePart]] = []
        self._moment: _Moment = ()
        self._conditions = 0
        self._copies = Copies()
        self._has_user = False
        self._tags: dict[str, Callable[[Node, _Scope], list[Node]]] = {
            "If": self._condition,
            "ElseIf": self._condition,
            "Else": self._condition,
            "ForEach": self._loop,
            "Raw": lambda node, _scope: [text_node(to_markdown(node.children) + "\n")],
            "ImageAttachment": self._image,
            "FileAttachment": self._file,
            **dict.fromkeys(ROLES, self._message),
        }

    def messages(self, nodes: list[Node], scope: _Scope) -> list[Message]:
        """Return the messages. As in AgentMark's engine, each one of the user has the images of all."""
        self._all(nodes, scope)
        messages = _in_order(self._messages, "A message")
        images = _in_order(self._images, "An attachment")
        if not images:
            return messages
        if any(moment for moment, _ in self._images) and sum(message.role == "user" for message in messages) > 1:
            raise TemplateProblem("an attachment is not the first tag of a condition, so its message is not certain")
        return [
            Message("user", (TextPart(str(message.content)), *images)) if message.role == "user" else message
            for message in messages
        ]

    def _all(self, nodes: list[Node], scope: _Scope) -> list[Node]:
        return [result for node in nodes for result in self._evaluate(node, scope)]

    def _evaluate(self, node: Node, scope: _Scope) -> list[Node]:
        if node.is_expression:
            if _is_comment(node.value):
                return []
            return [text_node(inserted_text(parse_expression(node.value)(scope.names)))]
        tag = self._tags.get(node.settings["name"] or "") if node.is_tag else None
        if tag is not None:
            return tag(node, scope)
        if not node.children:
            return [node]
        return [Node(node.type, self._all(node.children, scope), node.value, node.settings, node.line)]

    def _attributes(self, node: Node, scope: _Scope) -> dict[str, Any]:
        return {
            name: parse_expression(value)(scope.names) if is_code else value
            for name, (value, is_code) in node.settings["attributes"].items()
        }

    def _message(self, node: Node, scope: _Scope) -> list[Node]:
        name = node.settings["name"]
        self._has_user |= name == "User"
        moment = self._moment
        inner = scope.child() if name == "User" else scope
        text = to_markdown(self._all(node.children, inner)).strip()
        self._messages.append((moment, Message(ROLES[name], text)))
        return []

    def _condition(self, node: Node, scope: _Scope) -> list[Node]:
        """Return the first branch of a scope that holds. AgentMark's engine renders one per scope."""
        condition = node.settings["name"] == "Else" or self._attributes(node, scope).get("condition") is True
        if scope.has_branch or not condition:
            return []
        scope.has_branch = True
        self._conditions += 1
        number, moment, inner = self._conditions, self._moment, scope.child()
        results: list[Node] = []
        for place, child in enumerate(node.children):
            self._moment = (*moment, (number, place)) if place else moment
            results += self._evaluate(child, inner)
        self._moment = moment
        return results

    def _loop(self, node: Node, scope: _Scope) -> list[Node]:
        arrow, template = node.settings["loop"], node.children
        items = self._attributes(node, scope).get("arr", UNDEFINED)
        results: list[Node] = []
        for index, item in enumerate(items if isinstance(items, list | tuple) else ()):
            names = {arrow["item"]: item} | ({arrow["index"]: index} if arrow["index"] else {})
            results += self._all(self._copies.of(template, node.line), scope.child(**names))
        if all(result.type in ("list", "listItem") for result in results):
            entries = [entry for one in results for entry in (one.children if one.type == "list" else [one])]
            return [Node("list", entries, settings={"ordered": False, "spread": False})]
        return results

    def _image(self, node: Node, scope: _Scope) -> list[Node]:
        attributes = self._attributes(node, scope)
        if (image := attributes.get("image", UNDEFINED)) is UNDEFINED:
            raise TemplateProblem("<ImageAttachment> needs the attribute 'image'")
        detected = (kind for start, kind in _MEDIA_TYPES.items() if str(image).startswith(start))
        return self._attach(image, attributes.get("mimeType") or next(detected, ""), "<ImageAttachment>")

    def _file(self, node: Node, scope: _Scope) -> list[Node]:
        """Add a file that is an image. Other files are refused: targets receive texts and images."""
        attributes = self._attributes(node, scope)
        data, media_type = (attributes.get(name, UNDEFINED) for name in ("data", "mimeType"))
        if UNDEFINED in (data, media_type):
            raise TemplateProblem("<FileAttachment> needs the attributes 'data' and 'mimeType'")
        if not data or not media_type:
            return []
        if not str(media_type).startswith("image/"):
            raise TemplateProblem(
                f"<FileAttachment> of type '{media_type}' is not supported; add the file as a part of the input"
            )
        return self._attach(data, media_type, "<FileAttachment>")

    def _attach(self, data: Any, media_type: Any, tag: str) -> list[Node]:
        if not self._has_user:
            raise TemplateProblem(f"{tag} must be inside <User>")
        if data:
            is_address = str(data).startswith(("https://", "http://", "data:"))
            if not is_address and not media_type:
                raise TemplateProblem(f"{tag} needs a URL, or Base64 and the attribute 'mimeType'")
            image = ImagePart(str(data) if is_address else f"data:{media_type};base64,{data}")
            self._images.append((self._moment, image))
        return []


def _unwrap(nodes: list[Node]) -> list[Node]:
    """Replace fragments by their blocks."""
    unwrapped: list[Node] = []
    for node in nodes:
        is_fragment = node.type == "flowTag" and node.settings["name"] is None
        unwrapped += _unwrap(node.children) if is_fragment else [node]
    return unwrapped
