"""The page of agentv.stats, from its functions and their docstrings."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from agentv import stats
from writing.markup import Lines, cell


def index() -> Lines:
    """List every function with its first sentence."""
    yield from ("# Statistics", "")
    yield "`agentv.stats` has the functions that `agentv eval`, `compare` and `plan` use. They work on plain numbers,"
    yield "so you can use them on their own:"
    yield from ("", "```python", "from agentv import stats", "", "print(stats.wilson(0.75, 60))", "```", "")
    yield "The tests check each function against closed forms, scipy and statsmodels."
    yield "[Coverage](../coverage.md) shows how often the intervals contain the true value, and"
    yield "[Statistics](../explanation/statistics.md) explains when each method is used."
    yield from ("", "| name | description |", "|---|---|")
    for module, names in stats.NAMES.items():
        for name in names:
            summary = cell(_first_sentence(getattr(stats, name)))
            yield f"| [`{name}`](stats/{module}.md#{name.lower()}) | {summary} |"


def page(module: str) -> Lines:
    """Describe the functions of one module with their formulas and sources."""
    home = import_module(f"agentv.stats.{module}")
    yield from (f"# stats: {module}", "", (home.__doc__ or "").split("\n", 1)[0])
    for name in stats.NAMES[module]:
        yield from ("", f"## {name}", "", *_stats_entry(getattr(home, name)))


def _stats_entry(entry: Any) -> Lines:
    """Yield a function with its parameters and its docstring as plain text, because formulas are not Markdown."""
    parameters = ", ".join(map(_parameter, inspect.signature(entry).parameters.values()))
    yield from ("```text", f"{entry.__name__}({parameters})", "", *inspect.cleandoc(entry.__doc__).split("\n"), "```")
    if inspect.isclass(entry):
        members = [
            (name, each) for name, each in vars(entry).items() if not name.startswith("_") and _has_meaning(each)
        ]
        if not members:
            return
        yield from ("", "| member | meaning |", "|---|---|")
        for name, each in members:
            call = "" if isinstance(each, property) else "()"
            yield f"| `{name}{call}` | {cell(inspect.cleandoc(each.__doc__).replace(chr(10), ' '))} |"


def _has_meaning(member: Any) -> bool:
    """Whether a member has a docstring of its own, unlike the fields of a named tuple."""
    return bool(member.__doc__) and not member.__doc__.startswith("Alias for field number")


def _parameter(parameter: inspect.Parameter) -> str:
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"


def _first_sentence(entry: Any) -> str:
    return str(inspect.cleandoc(entry.__doc__).split("\n\n", 1)[0].replace("\n", " "))
