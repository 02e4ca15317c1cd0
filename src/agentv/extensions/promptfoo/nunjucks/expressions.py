"""Parse the code in a tag of a template to functions that take a scope and return a value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from agentv.extensions.promptfoo.functions import CodeNotRun
from agentv.extensions.promptfoo.nunjucks.filters import test_named
from agentv.extensions.promptfoo.nunjucks.methods import call_method, member
from agentv.extensions.promptfoo.nunjucks.scope import Expression, Scope
from agentv.support.javascript import values as js
from agentv.support.templates import TemplateProblem

_DELIMITERS = r"()\[\]{}%*\-+~/#,:|.<>=!"
_TOKEN = re.compile(
    rf"""(?P<space>[ \n\t\r\xa0]+)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<end>-?%\}}|-?\}}\}})
    |(?P<pattern>r/)
    |(?P<operator>===|!==|==|!=|<=|>=|//|\*\*|[{_DELIMITERS}])
    |(?P<number>[0-9]+(?:\.[0-9]*)?(?=[ \n\t\r\xa0{_DELIMITERS}]))
    |(?P<name>[^ \n\t\r\xa0{_DELIMITERS}]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_COMPARISONS = ("==", "===", "!=", "!==", "<", ">", "<=", ">=")
_OPERATORS = ("+", "-", "*", "/", "//", "%", "**")
"""From weakest to strongest: each binds less than the next, also `*` than `/`."""
_CONSTANTS = {"true": True, "false": False, "none": None, "null": None}


class Token(NamedTuple):
    """A part of a tag: its kind, and its text."""

    kind: str
    text: str


class Tag(NamedTuple):
    """The code of a tag, where it ends in the template, and whether white space after it is dropped."""

    tokens: list[Token]
    end: int
    drops_space: bool


def read_tag(text: str, place: int) -> Tag:
    """Return the tag whose code begins at a place. Raises TemplateProblem if it does not end."""
    tokens: list[Token] = []
    while (match := _TOKEN.match(text, place)) is not None:
        place = match.end()
        if match.lastgroup == "end":
            return Tag(tokens, place, match[0][0] == "-")
        if match.lastgroup == "pattern":
            raise TemplateProblem("regular expressions in a template are not supported")
        if match.lastgroup != "space":
            tokens.append(Token(str(match.lastgroup), match[0]))
    raise TemplateProblem("a tag is not closed")


class Code:
    """A parser for the tokens of one tag. `names` receives the variables that are used."""

    def __init__(self, tokens: list[Token], names: set[str]) -> None:
        self._tokens = tokens
        self._place = 0
        self._names = names

    @property
    def next(self) -> Token:
        """The next token; one without text at the end."""
        return self._tokens[self._place] if self._place < len(self._tokens) else Token("end", "")

    def take(self, *texts: str) -> str:
        """Return the text of the next token, if it is one of these names or operators, and go on after it."""
        token = self.next
        if token.kind in ("name", "operator") and token.text in texts:
            self._place += 1
            return token.text
        return ""

    def expect(self, text: str) -> None:
        """Go on after a token. Raises TemplateProblem if it is another one."""
        if not self.take(text):
            raise TemplateProblem(f"expected '{text}', got '{self.next.text or 'the end of the tag'}'")

    def name(self) -> str:
        """Return the next token, which must be a name."""
        token = self.next
        if token.kind != "name":
            raise TemplateProblem(f"expected a name, got '{token.text or 'the end of the tag'}'")
        self._place += 1
        return token.text

    def finish(self) -> None:
        """Raise TemplateProblem if there are more tokens."""
        if self.next.kind != "end":
            raise TemplateProblem(f"unexpected '{self.next.text}'")

    def expression(self) -> Expression:
        """Return the next expression."""
        value = self._alternatives()
        if not self.take("if"):
            return value
        condition = self._alternatives()
        other: Expression = self._alternatives() if self.take("else") else lambda _: ""
        return lambda scope: value(scope) if js.is_truthy(condition(scope)) else other(scope)

    def _alternatives(self) -> Expression:
        value = self._conjunction()
        while self.take("or"):
            value = _either(value, self._conjunction(), stops_if=True)
        return value

    def _conjunction(self) -> Expression:
        value = self._negation()
        while self.take("and"):
            value = _either(value, self._negation(), stops_if=False)
        return value

    def _negation(self) -> Expression:
        if self.take("not"):
            value = self._negation()
            return lambda scope: not js.is_truthy(value(scope))
        return self._membership()

    def _membership(self) -> Expression:
        value = self._test()
        while True:
            is_negated = self.next.text == "not" and self._tokens[self._place + 1 : self._place + 2] == [("name", "in")]
            if is_negated:
                self.take("not")
            if not self.take("in"):
                return value
            value = _membership(value, self._test(), is_negated)

    def _test(self) -> Expression:
        value = self._comparison()
        if not self.take("is"):
            return value
        is_negated = bool(self.take("not"))
        name = self.next.text
        self._place += 1
        arguments, _ = self._arguments() if self.next.text == "(" else ([], {})
        argument: Expression = arguments[0] if arguments else lambda _: js.UNDEFINED
        test = test_named("null" if name == "none" else name)
        return lambda scope: js.is_truthy(test(value(scope), argument(scope))) is not is_negated

    def _comparison(self) -> Expression:
        value = self._concatenation()
        while operator := self.take(*_COMPARISONS):
            value = _combined(js.compare, operator, value, self._concatenation())
        return value

    def _concatenation(self) -> Expression:
        value = self._arithmetic(0)
        while self.take("~"):
            value = _combined(_joined, "~", value, self._arithmetic(0))
        return value

    def _arithmetic(self, level: int) -> Expression:
        if level == len(_OPERATORS):
            return self._unary()
        value = self._arithmetic(level + 1)
        while self.take(_OPERATORS[level]):
            value = _combined(js.calculate, _OPERATORS[level], value, self._arithmetic(level + 1))
        return value

    def _unary(self, with_filters: bool = True) -> Expression:
        sign = self.take("-", "+")
        value = _signed(sign, self._unary(False)) if sign else self._primary()
        while with_filters and self.take("|"):
            value = self.filtered(value)
        return value

    def filtered(self, value: Expression) -> Expression:
        """Return an expression with the filter that comes next."""
        name = self.name()
        arguments, kwargs = self._arguments() if self.next.text == "(" else ([], {})
        if kwargs and name == "default":
            arguments, kwargs = [*arguments, *kwargs.values()], {}
        return lambda scope: _called(name, scope.rendering.filter(name), [value, *arguments], kwargs, scope)

    def _arguments(self) -> tuple[list[Expression], dict[str, Expression]]:
        self.expect("(")
        arguments: list[Expression] = []
        kwargs: dict[str, Expression] = {}
        while not self.take(")"):
            if arguments or kwargs:
                self.expect(",")
            if self.next.kind == "name" and self._tokens[self._place + 1 : self._place + 2] == [("operator", "=")]:
                name = self.name()
                self.expect("=")
                kwargs[name] = self.expression()
            else:
                arguments.append(self.expression())
        return arguments, kwargs

    def _primary(self) -> Expression:
        token = self.next
        self._place += 1
        value: Expression
        if token.kind == "text":
            text = re.sub(r"\\(.)", lambda part: _ESCAPES.get(part[1], part[1]), token.text[1:-1], flags=re.DOTALL)
            value = _constant(text)
        elif token.kind == "number":
            value = _constant(js.to_number(token.text))
        elif token.kind == "name" and token.text in _CONSTANTS:
            value = _constant(_CONSTANTS[token.text])
        elif token.kind == "name":
            return self._parts(self._variable(token.text))
        elif token.text in ("(", "[", "{"):
            value = self._aggregate(token.text)
        else:
            raise TemplateProblem(f"unexpected '{token.text or 'end of the tag'}'")
        return self._parts(value)

    def _variable(self, name: str) -> Expression:
        self._names.add(name)
        if self.next.text == "(":
            arguments, kwargs = self._arguments()
            return lambda scope: _called(name, scope.lookup(name), arguments, kwargs, scope)
        return lambda scope: scope.lookup(name)

    def _parts(self, value: Expression) -> Expression:
        while mark := self.take(".", "[", "("):
            if mark == "(":
                raise TemplateProblem("only functions and methods can be called by name")
            key: Expression
            if mark == "[":
                key = self.expression()
                self.expect("]")
            else:
                key = _constant(self.name())
            value = _method(value, key, self._arguments()) if self.next.text == "(" else _member(value, key)
        return value

    def _aggregate(self, mark: str) -> Expression:
        items: list[Expression] = []
        keys: list[Expression] = []
        while not self.take(")", "]", "}"):
            if items:
                self.expect(",")
            if mark == "{":
                keys.append(_constant(self.name()) if self.next.kind == "name" else self._primary())
                self.expect(":")
            items.append(self.expression())
        if mark == "(":
            if not items:
                raise TemplateProblem("'()' has no value")
            return items[-1]
        if mark == "[":
            return lambda scope: [item(scope) for item in items]
        return lambda scope: {js.to_text(key(scope)): item(scope) for key, item in zip(keys, items, strict=True)}


def _constant(value: Any) -> Expression:
    return lambda _: value


def _signed(sign: str, value: Expression) -> Expression:
    return lambda scope: js.calculate("-", 0, value(scope)) if sign == "-" else js.to_number(value(scope))


def _either(one: Expression, two: Expression, stops_if: bool) -> Expression:
    def chosen(scope: Scope) -> Any:
        value = one(scope)
        return value if js.is_truthy(value) is stops_if else two(scope)

    return chosen


def _membership(part: Expression, value: Expression, is_negated: bool) -> Expression:
    def is_in(scope: Scope) -> bool:
        item = part(scope)
        return js.contains(value(scope), item) is not is_negated

    return is_in


def _combined(function: Callable[[str, Any, Any], Any], operator: str, one: Expression, two: Expression) -> Expression:
    return lambda scope: function(operator, one(scope), two(scope))


def _joined(_: str, one: Any, two: Any) -> str:
    return js.limited(js.to_text(one) + js.to_text(two))


def _member(value: Expression, key: Expression) -> Expression:
    return lambda scope: member(value(scope), key(scope))


def _method(value: Expression, key: Expression, args: tuple[list[Expression], dict[str, Expression]]) -> Expression:
    arguments, kwargs = args
    if kwargs:
        raise TemplateProblem("a method has no named arguments")

    def call(scope: Scope) -> Any:
        receiver, name = value(scope), js.to_text(key(scope))
        values = [argument(scope) for argument in arguments]
        return _called(name, lambda: call_method(receiver, name, values), [], {}, scope)

    return call


def _called(name: str, function: Any, arguments: list[Expression], kwargs: dict[str, Expression], scope: Scope) -> Any:
    if not callable(function):
        raise TemplateProblem(f"'{name}' is not a function")
    scope.rendering.step()
    values = [argument(scope) for argument in arguments]
    try:
        return function(*values, **{key: argument(scope) for key, argument in kwargs.items()})
    except CodeNotRun:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise TemplateProblem(f"'{name}' cannot be used with these arguments: {error}") from None
