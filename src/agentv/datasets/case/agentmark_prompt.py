"""Read a prompt file of AgentMark (`.prompt.mdx`): its front matter, and its messages as our templates.

`{props.x}` becomes `{{ x }}`, and the tags If, ElseIf, Else and ForEach become blocks. Other code is refused by name.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import msgspec

from agentv.model.message import Message, Role
from agentv.support.yaml.yaml_parser import Map, YamlError, parse_yaml

_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_TOKEN = re.compile(
    r"(?P<code>```.*?```|`[^`\n]+`)|\\(?P<escaped>[{}<>\\])|(?P<brace>\{)|<(?P<close>/?)(?P<tag>[A-Z]\w*)|(?P<fragment></?>)",
    re.DOTALL,
)
_IMPORT = re.compile(r"^\s*(?:import|export)\s.*$", re.MULTILINE)
_ATTRIBUTE = re.compile(r"\s*(?P<name>\w+)\s*=\s*")
_ARROW = re.compile(r"\s*\(\s*(?P<item>\w+)\s*(?:,\s*(?P<index>\w+)\s*)?\)\s*=>\s*")
_ROLES: dict[str, Role] = {"System": "system", "User": "user", "Assistant": "assistant"}
_BLOCKS = ("If", "ElseIf", "Else", "ForEach", "Raw")
_EXPRESSION = re.compile(
    r"(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<operator>===|!==|==|!=|<=|>=|&&|\|\||[-+*/%<>!()\[\],.?:])"
    r"|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<space>\s+)|(?P<other>.)",
    re.DOTALL,
)
_OPERATORS = {"===": "==", "!==": "!=", "&&": " and ", "||": " or ", "!": " not "}
_WORDS = {"true": "true", "false": "false", "null": "none", "undefined": "none"}
_FILTERS = {"capitalize": "capitalize", "upper": "upper", "lower": "lower", "abs": "abs", "join": "join"}
_FILTERS |= {"round": "round", "replace": "replace", "urlencode": "urlencode", "dump": "tojson"}


class PromptFileError(Exception):
    """A part of a prompt file that cannot be used. `line` counts from 1."""

    def __init__(self, message: str, line: int, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.hint = message, line, hint


class PromptFile(msgspec.Struct, frozen=True):
    """A prompt file: its front matter, and its messages, whose texts are templates."""

    settings: dict[str, Any]
    messages: list[Message]

    @property
    def optional(self) -> frozenset[str]:
        """The properties that the input schema declares and does not require; if missing, they are empty."""
        schema = self.settings.get("input_schema")
        if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
            return frozenset()
        required = schema.get("required")
        return frozenset(schema["properties"]).difference(required if isinstance(required, list) else ())


def parse_prompt_file(text: str) -> PromptFile:
    """Parse the text of a prompt file. Raises PromptFileError."""
    front = _FRONT.match(text)
    if front is None:
        raise PromptFileError("The file must begin with front matter between two lines of ---", 1)
    try:
        settings = parse_yaml(front["yaml"].encode())
    except YamlError as error:
        raise PromptFileError(f"The front matter is not valid YAML: {error.what}", error.line + 1, error.hint) from None
    if settings is not None and not isinstance(settings, Map):
        raise PromptFileError("The front matter must be a mapping", 2)
    found = _IMPORT.search(text, front.end())
    if found is not None:
        line = text.count("\n", 0, found.start() + len(found[0]) - len(found[0].lstrip())) + 1
        raise PromptFileError("Components of other files are not supported", line, "Copy their text into the prompt")
    messages = _Body(text, front.end()).messages()
    if not messages:
        raise PromptFileError("There is no <System>, <User> or <Assistant> message", text.count("\n") + 1)
    return PromptFile(settings or {}, messages)


class _Body:
    """Translates the text after the front matter, from left to right."""

    def __init__(self, text: str, position: int) -> None:
        self._text = text
        self._position = position

    def messages(self) -> list[Message]:
        found: list[Message] = []
        while (token := _TOKEN.search(self._text, self._position)) is not None:
            self._position = token.end()
            tag = token["tag"]
            if tag in _ROLES and not token["close"]:
                self._attributes(tag)
                content = textwrap.dedent(self._until(tag)).strip()
                found.append(Message(_ROLES[tag], content))
            elif tag is not None:
                raise self._error(f"<{tag}> is not supported outside of a message")
        return found

    def _until(self, tag: str) -> str:
        """Return the template of everything up to the end of a tag."""
        parts: list[str] = []
        while True:
            token = _TOKEN.search(self._text, self._position)
            if token is None:
                raise self._error(f"<{tag}> is not closed")
            parts.append(_literal(self._text[self._position : token.start()]))
            self._position = token.end()
            if token["close"] and token["tag"] is not None:
                self._expect(">")
                if token["tag"] != tag:
                    raise self._error(f"</{token['tag']}> closes <{tag}>")
                return "".join(parts)
            parts.append(self._part(token))

    def _part(self, token: re.Match[str]) -> str:
        if token["code"] is not None:
            return _literal(token["code"])
        if token["escaped"] is not None:
            return _literal(token["escaped"])
        if token["fragment"] is not None:
            return ""
        if token["brace"] is None:
            return self._block(token["tag"])
        inside = self._braces()
        return "" if inside.strip().startswith("/*") else f"{{{{ {self._expression(inside)} }}}}"

    def _block(self, tag: str) -> str:
        if tag not in _BLOCKS:
            raise self._error(f"<{tag}> is not supported", f"Supported tags: {', '.join(_BLOCKS)}")
        values = self._attributes(tag)
        if tag == "Raw":
            return self._until(tag)
        if tag in ("If", "ElseIf"):
            word = "if" if tag == "If" else "elif"
            return self._condition(f"{{% {word} {self._attribute(values, 'condition', tag)} %}}", tag)
        if tag == "Else":
            return self._condition("{% else %}", tag)
        return self._loop(self._attribute(values, "arr", tag))

    def _condition(self, opening: str, tag: str) -> str:
        """Translate a branch; the block ends with the last branch, so `endif` is written unless another one follows."""
        text = opening + self._until(tag)
        following = re.compile(r"\s*<(?:ElseIf|Else)\b").match(self._text, self._position)
        return text if following and tag != "Else" else text + "{% endif %}"

    def _loop(self, items: str) -> str:
        start = re.compile(r"\s*\{").match(self._text, self._position)
        if start is None:
            raise self._error("<ForEach> needs a function such as {(item) => …}")
        self._position = start.end()
        inside = self._braces()
        arrow = _ARROW.match(inside)
        if arrow is None:
            raise self._error("<ForEach> needs a function such as {(item) => …}")
        body = inside[arrow.end() :].strip()
        body = body[1:-1] if body.startswith("(") and body.endswith(")") else body
        inner = _Body(body + "</ForEach>", 0)._until("ForEach")
        index = f"{{% set {arrow['index']} = loop.index0 %}}" if arrow["index"] else ""
        if self._until("ForEach").strip():
            raise self._error("<ForEach> may contain only a function")
        return f"{{% for {arrow['item']} in {items} %}}{index}{inner}{{% endfor %}}"

    def _attributes(self, tag: str) -> dict[str, str]:
        """Read the attributes of a tag, up to its `>`, as expressions."""
        values: dict[str, str] = {}
        while (found := _ATTRIBUTE.match(self._text, self._position)) is not None:
            self._position = found.end()
            if self._text.startswith("{", self._position):
                self._position += 1
                values[found["name"]] = self._braces()
            else:
                quoted = re.compile(r"\"[^\"]*\"|'[^']*'").match(self._text, self._position)
                if quoted is None:
                    raise self._error(f"The attribute '{found['name']}' of <{tag}> has no value")
                self._position = quoted.end()
                values[found["name"]] = quoted[0]
        self._expect(">")
        return values

    def _attribute(self, values: dict[str, str], name: str, tag: str) -> str:
        if name not in values:
            raise self._error(f"<{tag}> needs the attribute '{name}'")
        return self._expression(values[name])

    def _braces(self) -> str:
        """Return the text up to the matching brace, outside of quotes."""
        start, depth, quote = self._position, 1, ""
        for position in range(start, len(self._text)):
            char = self._text[position]
            if quote:
                quote = "" if char == quote and self._text[position - 1] != "\\" else quote
            elif char in "\"'`" and depth == 1 and "=>" not in self._text[start:position]:
                quote = char
            elif char in "{}":
                depth += 1 if char == "{" else -1
                if not depth:
                    self._position = position + 1
                    return self._text[start:position]
        raise self._error("A { is not closed")

    def _expression(self, code: str) -> str:
        """Translate an expression of JavaScript."""
        parts: list[str] = []
        tokens = [token for token in _EXPRESSION.finditer(code.strip()) if token["space"] is None]
        for position, token in enumerate(tokens):
            before = parts[-1] if parts else ""
            if token["other"] is not None or token[0] in ("?", ":"):
                raise self._error(f"The expression {{{code.strip()}}} is not supported")
            if token["name"] is None:
                parts.append(_OPERATORS.get(token[0], token[0]))
            elif before.endswith("."):
                parts.append(token[0])
            elif token[0] == "props":
                if position + 1 >= len(tokens) or tokens[position + 1][0] != ".":
                    raise self._error("Write {props.name}, with the name of a variable")
                parts.append("\0")
            elif position + 1 < len(tokens) and tokens[position + 1][0] == "(":
                if token[0] not in _FILTERS:
                    raise self._error(f"The function '{token[0]}' is not supported")
                parts.append(f"\1{token[0]}")
            else:
                parts.append(_WORDS.get(token[0], token[0]))
        return _with_filters("".join(parts).replace("\0.", ""))

    def _expect(self, text: str) -> None:
        found = re.compile(rf"\s*{text}").match(self._text, self._position)
        if found is None:
            raise self._error("A tag is not closed, or has an attribute that is not supported")
        self._position = found.end()

    def _error(self, message: str, hint: str = "") -> PromptFileError:
        return PromptFileError(message, self._text.count("\n", 0, self._position) + 1, hint)


def _literal(text: str) -> str:
    """Escape text for a template."""
    return text.replace("{", "{{ '{' }}") if "{" in text else text


def _with_filters(code: str) -> str:
    """Write marked calls `\\1upper(x, …)` as filters: `(x)|upper(…)`."""
    while "\1" in code:
        start = code.rindex("\1")  # the innermost call has no further call after it
        opening = code.index("(", start)
        depth, commas, position = 0, [], opening
        for position in range(opening, len(code)):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(code[position], 0)
            if code[position] == "," and depth == 1:
                commas.append(position)
            if not depth:
                break
        first = code[opening + 1 : commas[0] if commas else position]
        rest = code[commas[0] + 1 : position] if commas else ""
        name = _FILTERS[code[start + 1 : opening]]
        code = f"{code[:start]}(({first})|{name}({rest})){code[position + 1 :]}"
    return code
