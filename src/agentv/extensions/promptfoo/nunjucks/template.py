"""Read a template, and render it with variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from agentv.extensions.promptfoo.nunjucks.expressions import Code, Tag, read_tag
from agentv.extensions.promptfoo.nunjucks.filters import FUNCTIONS
from agentv.extensions.promptfoo.nunjucks.methods import member
from agentv.extensions.promptfoo.nunjucks.scope import Expression, Filter, Rendering, Scope, Statement
from agentv.support.javascript import values as js
from agentv.support.templates import TemplateProblem

_MARK = re.compile(r"\{%-?|\{\{-?|\{#-?|#\}")
_RAW = {
    name: re.compile(rf"(?P<text>.*?)\{{%-?\s*end{name}\s*(?P<drop>-?)%\}}", re.DOTALL) for name in ("raw", "verbatim")
}
_Parsed = tuple[Statement, Code | None]


class Template:
    """A valid template. `names` are the variables that it uses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._drops_space = False
        self._bound: set[str] = {"loop", "caller"}
        self._names: set[str] = set()
        try:
            self._body, _ = self._statements(())
        except RecursionError:
            raise TemplateProblem("the template is nested too deeply") from None
        self.names = frozenset(self._names - self._bound - FUNCTIONS.keys())

    def render(
        self,
        variables: Mapping[str, Any],
        print_value: Callable[[Any], str] = js.printed,
        filters: Mapping[str, Filter] = {},
    ) -> str:
        """Return the text. Raises TemplateProblem, also for filters and methods that do not exist here."""
        values = {name: _narrowed(value) for name, value in variables.items() if name in self.names}
        scope = Scope(Rendering(values, print_value, filters))
        try:
            self._body(scope)
        except RecursionError:
            raise TemplateProblem("the template is nested too deeply") from None
        return _widened("".join(scope.texts))

    def _statements(self, stops: tuple[str, ...]) -> _Parsed:
        """Return the statements up to a tag with one of the names, and that tag."""
        body: list[Statement] = []
        while (mark := _MARK.search(self._text, self._place)) is not None:
            self._add_text(body, self._text[self._place : mark.start()], mark[0].endswith("-"))
            self._place = mark.end()
            if mark[0] == "#}":
                raise TemplateProblem("'#}' ends no comment")
            if mark[0].startswith("{#"):
                self._skip_comment()
                continue
            code = Code(self._tag().tokens, self._names)
            if mark[0].startswith("{{"):
                body.append(_output(code.expression()))
                code.finish()
            elif code.next.text in stops:
                return _sequence(body), code
            else:
                body.append(self._statement(code))
        self._add_text(body, self._text[self._place :], False)
        self._place = len(self._text)
        if stops:
            raise TemplateProblem(f"'{stops[-1]}' is missing")
        return _sequence(body), None

    def _tag(self) -> Tag:
        tag = read_tag(self._text, self._place)
        self._place, self._drops_space = tag.end, tag.drops_space
        return tag

    def _add_text(self, body: list[Statement], text: str, drops_end: bool) -> None:
        if not text:
            return
        text = text.lstrip(js.SPACES) if self._drops_space else text
        text = _narrowed(text.rstrip(js.SPACES) if drops_end else text)
        self._drops_space = False
        body.append(lambda scope: scope.print_text(text))

    def _skip_comment(self) -> None:
        end = self._text.find("#}", self._place)
        if end == -1:
            raise TemplateProblem("a comment is not closed")
        self._drops_space = self._text[end - 1] == "-"
        self._place = end + 2

    def _statement(self, code: Code) -> Statement:
        kinds: dict[str, Callable[[Code], Statement]] = {
            **{"if": self._if, "for": self._for, "set": self._set, "macro": self._macro, "filter": self._filter},
            **{"switch": self._switch, "raw": lambda _: self._raw("raw"), "verbatim": lambda _: self._raw("verbatim")},
        }
        name = code.name()
        if name not in kinds:
            raise TemplateProblem(f"the statement '{name}' is not supported. Known: {', '.join(kinds)}")
        return kinds[name](code)

    def _if(self, code: Code) -> Statement:
        condition = code.expression()
        code.finish()
        body, end = self._statements(("elif", "elseif", "else", "endif"))
        other: Statement | None = None
        if end is not None and end.take("elif", "elseif"):
            other = self._if(end)
        elif end is not None and end.take("else"):
            other, _ = self._statements(("endif",))

        def run(scope: Scope) -> None:
            if js.is_truthy(condition(scope)):
                body(scope)
            elif other is not None:
                other(scope)

        return run

    def _for(self, code: Code) -> Statement:
        names = self._targets(code)
        code.expect("in")
        values = code.expression()
        code.finish()
        body, end = self._statements(("else", "endfor"))
        other: Statement | None = None
        if end is not None and end.take("else"):
            other, _ = self._statements(("endfor",))

        def run(scope: Scope) -> None:
            rows = _rows(values(scope), len(names))
            inner = Scope(scope.rendering, scope)
            inner.texts = scope.texts
            for number, row in enumerate(rows):
                scope.rendering.step()
                inner.names.update(zip(names, row, strict=False), loop=_loop(number, len(rows)))
                body(inner)
            if not rows and other is not None:
                other(scope)

        return run

    def _targets(self, code: Code) -> list[str]:
        names = [code.name()]
        while code.take(","):
            names.append(code.name())
        self._bound.update(names)
        return names

    def _set(self, code: Code) -> Statement:
        names = self._targets(code)
        if code.take("="):
            value = code.expression()
            code.finish()
        else:
            body, _ = self._statements(("endset",))
            value = lambda scope: scope.captured(body)  # noqa: E731

        def run(scope: Scope) -> None:
            new = value(scope)
            for name in names:
                scope.assign(name, new)

        return run

    def _macro(self, code: Code) -> Statement:
        name = code.name()
        self._bound.add(name)
        code.expect("(")
        defaults: dict[str, Expression] = {}
        while not code.take(")"):
            if defaults:
                code.expect(",")
            argument = code.name()
            self._bound.add(argument)
            defaults[argument] = code.expression() if code.take("=") else lambda _: js.UNDEFINED
        code.finish()
        body, _ = self._statements(("endmacro",))

        def run(scope: Scope) -> None:
            def call(*values: Any, **kwargs: Any) -> str:
                inner = Scope(scope.rendering)
                for argument, default in defaults.items():
                    inner.names[argument] = kwargs.get(argument, js.UNDEFINED)
                    if inner.names[argument] is js.UNDEFINED:
                        inner.names[argument] = default(inner)
                inner.names.update(zip(defaults, values, strict=False))
                return inner.captured(body)

            scope.assign(name, call)

        return run

    def _filter(self, code: Code) -> Statement:
        holder: list[Statement] = []
        value = code.filtered(lambda scope: scope.captured(holder[0]))
        code.finish()
        body, _ = self._statements(("endfilter",))
        holder.append(body)
        return _output(value)

    def _switch(self, code: Code) -> Statement:
        value = code.expression()
        code.finish()
        cases: list[tuple[Expression, Statement, bool]] = []
        other: Statement | None = None
        _, end = self._statements(("case", "default", "endswitch"))
        while end is not None and not end.take("endswitch"):
            if end.take("case"):
                choice, start = end.expression(), self._place
                body, end = self._statements(("case", "default", "endswitch"))
                cases.append((choice, body, self._text[start : self._place].startswith("{%")))
            else:
                other, end = self._statements(("endswitch",))

        def run(scope: Scope) -> None:
            subject, matches = value(scope), False
            for choice, body, is_empty in cases:
                matches = matches or js.is_identical(subject, choice(scope))
                if matches and not is_empty:
                    body(scope)
                    return
            if other is not None:
                other(scope)

        return run

    def _raw(self, name: str) -> Statement:
        match = _RAW[name].match(self._text, self._place)
        if match is None:
            raise TemplateProblem(f"'end{name}' is missing")
        self._place, self._drops_space = match.end(), bool(match["drop"])
        text = _narrowed(match["text"])
        return lambda scope: scope.print_text(text)


def _sequence(body: list[Statement]) -> Statement:
    def run(scope: Scope) -> None:
        for statement in body:
            statement(scope)

    return run


def _output(value: Expression) -> Statement:
    return lambda scope: scope.print_text(scope.rendering.print_value(value(scope)))


def _rows(value: Any, count: int) -> list[Any]:
    """Return the values of the loop variables in each pass."""
    if not js.is_truthy(value):
        return []
    if count == 1:
        return [(item,) for item in value] if isinstance(value, str) or js.is_list(value) else []
    if js.is_list(value):
        if any(map(js.is_missing, value)):
            raise TemplateProblem("a loop with several variables needs an object, or a list of lists")
        return [tuple(member(item, place) for place in range(count)) for item in value]
    return list(value.items()) if isinstance(value, Mapping) else []


def _loop(number: int, length: int) -> dict[str, Any]:
    return {
        **{"index": number + 1, "index0": number, "revindex": length - number, "revindex0": length - number - 1},
        **{"first": number == 0, "last": number == length - 1, "length": length},
    }


def _narrowed(value: Any) -> Any:
    """Return a value whose texts have UTF-16 units as characters, which JavaScript counts."""
    if isinstance(value, str):
        if value.isascii() or max(value) <= "\uffff":
            return value
        data = value.encode("utf-16-le", "surrogatepass")
        return "".join(data[place : place + 2].decode("utf-16-le", "surrogatepass") for place in range(0, len(data), 2))
    if isinstance(value, list | tuple):
        return [_narrowed(item) for item in value]
    return {str(key): _narrowed(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _widened(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@lru_cache(maxsize=256)
def read_template(text: str) -> Template:
    """Return a template. Raises TemplateProblem."""
    return Template(text)
