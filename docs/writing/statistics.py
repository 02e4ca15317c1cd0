"""The page of agentv.stats, from its functions and their docstrings."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from agentv import stats
from writing.markup import Lines, cell


def page() -> Lines:
    """Every function with its formula and reference."""
    yield from ("# Statistics", "")
    yield "What `agentv.stats` has: pure functions over numbers, which `agentv eval`, `compare` and `plan` use and that"
    yield "may be used by themselves. Each is held against closed forms, scipy and statsmodels in the tests; how often"
    yield "intervals hold the truth is in the [table of coverage](../explanation/coverage.md), and how to use them in"
    yield "[Is my change real?](../how-to/compare.md)."
    yield from ("", "| name | what it is |", "|---|---|")
    for name in stats.__all__:
        yield f"| [`{name}`](#{name.lower()}) | {cell(_first_sentence(getattr(stats, name)))} |"
    for module, names in stats.NAMES.items():
        home = import_module(f"agentv.stats.{module}")
        yield from ("", f"## {module}", "", (home.__doc__ or "").split("\n", 1)[0])
        for name in names:
            yield from ("", f"### {name}", "", *_stats_entry(getattr(home, name)))


def _stats_entry(entry: Any) -> Lines:
    """A function with its parameters and its docstring as it is written: formulas are no Markdown."""
    parameters = ", ".join(map(_parameter, inspect.signature(entry).parameters.values()))
    yield from ("```text", f"{entry.__name__}({parameters})", "", *inspect.cleandoc(entry.__doc__).split("\n"), "```")
    if inspect.isclass(entry):
        members = [(name, each) for name, each in vars(entry).items() if not name.startswith("_") and each.__doc__]
        yield from ("", "| member | meaning |", "|---|---|")
        for name, each in members:
            call = "" if isinstance(each, property) else "()"
            yield f"| `{name}{call}` | {cell(inspect.cleandoc(each.__doc__).replace(chr(10), ' '))} |"


def _parameter(parameter: inspect.Parameter) -> str:
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"


def _first_sentence(entry: Any) -> str:
    return str(inspect.cleandoc(entry.__doc__).split("\n\n", 1)[0].replace("\n", " "))
