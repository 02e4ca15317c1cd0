"""Find the names that a Python file defines by parsing it, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentv.evaluators.base import stamp_of
from agentv.model.evaluator import FileReference
from agentv.settings.diagnostics import KeyPath, Problems, did_you_mean

_DYNAMIC = frozenset({"exec", "globals", "setattr", "vars", "__getattr__"})
"""Names whose use may define other names."""


def function_reference(path: KeyPath, function: str) -> FileReference:
    """Return a reference to a function or class. Only files are checked; a module would have to be imported."""
    file = function.rpartition(":")[0]
    if not file.endswith(".py"):
        return FileReference(path, function)
    return FileReference(path, function, lambda find_file, _: function_problems(function, find_file(file)))


def transform_references(transform: Any) -> Iterator[FileReference]:
    """Yield the reference to a transform's function, if it has one."""
    function = transform.get("function") if isinstance(transform, Mapping) else getattr(transform, "function", None)
    if isinstance(function, str):
        yield function_reference(("transform", "function"), function)


def function_problems(reference: str, path: str) -> Problems:
    """Check that a file is valid Python and that a name in it can be called with one argument.

    `reference` is `file.py:name`; `path` is where the file is.
    """
    problems = Problems()
    file, _, name = reference.rpartition(":")
    first = name.split(".")[0]
    try:
        names = _defined(path, stamp_of(path))
    except SyntaxError as error:
        problems.error((), f"File '{file}' is not valid Python: {error.msg}, line {error.lineno}")
    except (OSError, ValueError, RecursionError) as error:
        problems.error((), f"Cannot read file '{file}': {error}")
    else:
        if names is not None and first not in names:
            hint = did_you_mean(first, names) or f"It defines: {', '.join(sorted(names)) or 'nothing'}"
            problems.error((), f"There is no '{first}' in file '{file}'", hint)
        elif names is not None and names[first] and first == name:
            message = f"'{name}' in file '{file}' cannot be called: {names[first]}"
            problems.error((), message, "It is called with one argument")
    return problems


@lru_cache(maxsize=256)
def _defined(path: str, _stamp: tuple[int, int]) -> dict[str, str] | None:
    """Return the names that a file defines, or None if only running it would show them.

    Each name maps to the reason why it cannot be called with one argument, or to an empty string.
    """
    tree = ast.parse(Path(path).read_bytes())
    names: dict[str, str] = {}
    for node in _outside_functions(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name] = "" if node.name in names or node.decorator_list else _needs(node.args)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(dict.fromkeys((alias.asname or alias.name.split(".")[0] for alias in node.names), ""))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = ""
        elif isinstance(node, ast.ClassDef | ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            names[node.name] = ""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    made = any(isinstance(node, ast.Global) for node in ast.walk(tree))
    return None if made or "*" in names or (names.keys() | used) & _DYNAMIC else names


def _needs(arguments: ast.arguments) -> str:
    """Return why a function cannot be called with one argument; empty if it can."""
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    required = positional[: len(positional) - len(arguments.defaults)]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    required += [each.arg for each, default in named if default is None]
    if not positional and arguments.vararg is None:
        return "it takes no arguments"
    return f"it requires {', '.join(required)}" if len(required) > 1 else ""


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every node at module level, including those under `if`, `try` and `with`."""
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
