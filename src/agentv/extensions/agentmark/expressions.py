"""Expressions of AgentMark's templates: a part of JavaScript's, with its values and the built-in filters."""

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from agentv.extensions.agentmark.nodes import utf16_length
from agentv.support.javascript import values as js
from agentv.support.templates import TemplateProblem

Scope = Mapping[str, Any]
Expression = Callable[[Scope], Any]
"""A parsed expression: returns its value for the names in scope."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|(?P<name>[A-Za-z_$][\w$]*)"
    r"|(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<operator>===|!==|==|!=|<=|>=|&&|\|\||\?\.|\?\?|[-+*/%<>!()\[\]{},.:?=]))",
    re.DOTALL,
)
_PRECEDENCE = {"||": 1, "&&": 2, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7}
_PRECEDENCE |= {"+": 9, "-": 9, "*": 10, "/": 10, "%": 10}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v"}
_LITERALS = {"true": True, "false": False, "null": None}


@lru_cache(maxsize=1024)
def parse_expression(code: str) -> Expression:
    """Parse an expression. Raises TemplateProblem for what AgentMark's engine does not evaluate either."""
    parser = _Parser(code)
    expression = parser.expression(0)
    if parser.token:
        raise parser.problem()
    return expression


class _Parser:
    """Parses from left to right; `token` is the next token, empty at the end."""

    def __init__(self, code: str) -> None:
        self._code = code.strip()
        self._position = 0
        self._kind = self.token = ""
        self._advance()

    def problem(self) -> TemplateProblem:
        return TemplateProblem(f"the expression {{{self._code}}} is not supported at '{self.token or 'its end'}'")

    def _advance(self) -> str:
        """Go to the next token, and return the current one."""
        current = self.token
        if (match := _TOKEN.match(self._code, self._position)) is None:
            if rest := self._code[self._position :].strip():
                self.token = rest[0]
                raise self.problem()
            self._kind = self.token = ""
        else:
            self._position = match.end()
            self._kind, self.token = match.lastgroup or "", match[match.lastgroup or 0]
        return current

    def _expect(self, token: str) -> None:
        if self.token != token or self._kind != "operator":
            raise self.problem()
        self._advance()

    def expression(self, least: int) -> Expression:
        """Parse operators of at least this precedence."""
        left = self._unary()
        while self._kind == "operator" and _PRECEDENCE.get(self.token, 0) > least:
            precedence = _PRECEDENCE[self.token]
            left = _binary(self._advance(), left, self.expression(precedence))
        if self._kind == "operator" and self.token in ("===", "!==", "?", "??"):
            raise TemplateProblem(f"the operator '{self.token}' is not supported in {{{self._code}}}")
        return left

    def _unary(self) -> Expression:
        if self._kind != "operator" or self.token not in ("!", "-", "+"):
            return self._member()
        operator, operand = self._advance(), self._unary()
        if operator == "!":
            return lambda scope: not js.is_truthy(operand(scope))
        sign = -1 if operator == "-" else 1
        return lambda scope: sign * js.to_number(operand(scope))

    def _member(self) -> Expression:
        value, name = self._primary()
        while self._kind == "operator" and self.token in (".", "?.", "[", "("):
            if self.token == "(":
                if name is None or name not in FILTERS:
                    raise TemplateProblem(f"the function '{name or self._code}' is not supported")
                value = _call(FILTERS[name], self._items(")"))
            elif self._advance() == "[":
                value = _access(value, self.expression(0))
                self._expect("]")
            elif self._kind == "name":
                value = _access(value, _constant(self._advance()))
            else:
                raise self.problem()
            name = None
        return value

    def _primary(self) -> tuple[Expression, str | None]:
        """Parse a value, and return its name if it is one."""
        kind, token = self._kind, self.token
        if kind == "number":
            return _constant(js.to_number(self._advance())), None
        if kind == "text":
            return _constant(_unescape(self._advance()[1:-1])), None
        if kind == "name":
            self._advance()
            if token == "this":
                raise self.problem()
            if token in _LITERALS:
                return _constant(_LITERALS[token]), None
            return lambda scope: scope.get(token, js.UNDEFINED), token
        if token == "(":
            self._advance()
            value = self.expression(0)
            self._expect(")")
            return value, None
        if token == "[":
            items = self._items("]")
            return lambda scope: [item(scope) for item in items], None
        if token == "{":
            return self._object(), None
        raise self.problem()

    def _items(self, end: str) -> list[Expression]:
        self._advance()
        items: list[Expression] = []
        while self.token != end:
            items.append(self.expression(0))
            if self.token != end:
                self._expect(",")
        self._advance()
        return items

    def _object(self) -> Expression:
        self._advance()
        members: dict[str, Expression] = {}
        while self.token != "}":
            if self._kind not in ("name", "text", "number"):
                raise self.problem()
            is_quoted = self._kind == "text"
            key = self._advance()
            self._expect(":")
            members[_unescape(key[1:-1]) if is_quoted else key] = self.expression(0)
            if self.token != "}":
                self._expect(",")
        self._advance()
        return lambda scope: {key: value(scope) for key, value in members.items()}


def _constant(value: Any) -> Expression:
    return lambda _scope: value


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)


def _binary(operator: str, left: Expression, right: Expression) -> Expression:
    if operator in ("&&", "||"):
        is_and = operator == "&&"

        def choose(scope: Scope) -> Any:
            value = left(scope)
            return right(scope) if js.is_truthy(value) == is_and else value

        return choose
    operate = js.calculate if operator in "+-*/%" else js.compare
    return lambda scope: operate(operator, left(scope), right(scope))


def _access(value: Expression, key: Expression) -> Expression:
    """Return the expression of a member; what does not exist is an empty text."""

    def member(scope: Scope) -> Any:
        owner, name = value(scope), key(scope)
        if js.is_list(owner):
            if name == "length":
                return len(owner)
            index = js.to_number(name)
            return owner[int(index)] if index == index // 1 and 0 <= index < len(owner) else ""
        if isinstance(owner, Mapping):
            item = owner.get(js.to_text(name), js.UNDEFINED)
            return "" if item is js.UNDEFINED else item
        return ""

    return member


def _call(function: Callable[..., Any], arguments: list[Expression]) -> Expression:
    return lambda scope: function(*(argument(scope) for argument in arguments))


def inserted_text(value: Any) -> str:
    """Return the text that an expression inserts: lists joined, objects as JSON."""
    if js.is_list(value):
        return _joined(value, "")
    return str(js.stringify(value)) if isinstance(value, Mapping) else js.to_text(value)


def _truncate(value: Any = js.UNDEFINED, length: Any = js.UNDEFINED, *_: Any) -> Any:
    limit = js.to_number(length)
    if not isinstance(value, str) or utf16_length(value) <= limit:
        return value
    end = 0 if math.isnan(limit) else 2 * max(0, int(limit))
    return value.encode("utf-16-le", "surrogatepass")[:end].decode("utf-16-le", "replace") + "..."


def _round(value: Any = js.UNDEFINED, decimals: Any = 0, *_: Any) -> Any:
    shifted = js.to_number(f"{js.to_text(value)}e{js.to_text(decimals)}")
    if not math.isfinite(shifted):
        return shifted
    return js.to_number(f"{js.number_text(math.floor(shifted + 0.5))}e-{js.to_text(decimals)}")


def _join(value: Any = js.UNDEFINED, separator: Any = ", ", *_: Any) -> Any:
    return _joined(value, js.to_text(separator)) if js.is_list(value) else value


def _joined(items: Any, separator: str) -> str:
    return separator.join("" if js.is_missing(item) else js.to_text(item) for item in items)


def _replace(value: Any = js.UNDEFINED, old: Any = js.UNDEFINED, new: Any = js.UNDEFINED, *_: Any) -> Any:
    if not isinstance(value, str):
        return value
    return js.to_text(new).join(value.split(part) if (part := js.to_text(old)) else value)


def _of_text(convert: Callable[[str], str]) -> Callable[[Any], Any]:
    """Return a filter that leaves other values as they are."""

    def apply(value: Any = js.UNDEFINED, *_: Any) -> Any:
        return convert(value) if isinstance(value, str) else value

    return apply


FILTERS: dict[str, Callable[..., Any]] = {
    "capitalize": _of_text(lambda text: text[:1].upper() + text[1:]),
    "upper": _of_text(str.upper),
    "lower": _of_text(str.lower),
    "urlencode": _of_text(lambda text: quote(text, safe="!'()*-._~")),
    "truncate": _truncate,
    "abs": lambda value=js.UNDEFINED, *_: abs(js.to_number(value)),
    "join": _join,
    "round": _round,
    "replace": _replace,
    "dump": lambda value=js.UNDEFINED, *_: js.stringify(value),
}
"""The filters of AgentMark's engine by name. As in JavaScript, they ignore further arguments."""
