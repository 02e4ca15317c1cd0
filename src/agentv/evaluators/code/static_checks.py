"""What a Python file defines, by its text alone: nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentv.model.evaluator import FileReference
from agentv.settings.diagnostics import KeyPath, Problems, did_you_mean

_DYNAMIC = frozenset({"exec", "globals", "setattr", "vars", "__getattr__"})
"""Names whose use may define others."""


def function_reference(path: KeyPath, function: str) -> FileReference:
    """A reference to a function or class. What a module defines is only known once it is imported."""
    file = function.rpartition(":")[0]
    if not file.endswith(".py"):
        return FileReference(path, function)
    return FileReference(path, function, lambda find_file, _: function_problems(function, find_file(file)))


def transform_references(transform: Any) -> Iterator[FileReference]:
    """The function that a transform names, if it does."""
    function = transform.get("function") if isinstance(transform, Mapping) else getattr(transform, "function", None)
    if isinstance(function, str):
        yield function_reference(("transform", "function"), function)


def function_problems(reference: str, path: str) -> Problems:
    """What is wrong with `file.py:name`, the file being at `path`: no Python, no such name, no use for one argument."""
    problems = Problems()
    file, _, name = reference.rpartition(":")
    first = name.split(".")[0]
    try:
        stat = Path(path).stat()
        names = _defined(path, stat.st_mtime_ns, stat.st_size)
    except SyntaxError as error:
        problems.error((), f"File '{file}' is no Python: {error.msg}, line {error.lineno}")
    except (OSError, ValueError, RecursionError) as error:
        problems.error((), f"File '{file}' cannot be read: {error}")
    else:
        if names is not None and first not in names:
            hint = did_you_mean(first, names) or f"It defines: {', '.join(sorted(names)) or 'nothing'}"
            problems.error((), f"There is no '{first}' in file '{file}'", hint)
        elif names is not None and names[first] and first == name:
            message = f"'{name}' in file '{file}' cannot be called: {names[first]}"
            problems.error((), message, "It is given one argument")
    return problems


@lru_cache(maxsize=256)
def _defined(path: str, changed: int, size: int) -> dict[str, str] | None:  # noqa: ARG001 - another version is another
    """The names that a file has once it is imported; None where only running it would tell.

    Beside each name, why it cannot be called with one argument, as far as its text says so.
    """
    tree = ast.parse(Path(path).read_bytes())
    names: dict[str, str] = {}
    for node in _outside_functions(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name] = "" if node.name in names or node.decorator_list else _needs(node.args)
        elif isinstance(node, ast.ClassDef):
            names[node.name] = ""
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(dict.fromkeys((alias.asname or alias.name.split(".")[0] for alias in node.names), ""))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = ""
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            names[node.name] = ""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    made = any(isinstance(node, ast.Global) for node in ast.walk(tree))
    return None if made or "*" in names or (names.keys() | used) & _DYNAMIC else names


def _needs(arguments: ast.arguments) -> str:
    """What a function wants besides the one argument that it gets; empty when it is content with that."""
    by_place = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    required = by_place[: len(by_place) - len(arguments.defaults)]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    required += [each.arg for each, default in named if default is None]
    if not by_place and arguments.vararg is None:
        return "it takes no argument"
    return f"it asks for {', '.join(required)}" if len(required) > 1 else ""


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that belongs to the file itself, those under `if`, `try` and `with` too."""
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
