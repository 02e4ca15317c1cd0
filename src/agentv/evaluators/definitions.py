"""What a Python file defines, by its text alone: nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentv.problems import Problems
from agentv.suggest import did_you_mean

_DYNAMIC = frozenset({"exec", "globals", "setattr", "vars", "__getattr__"})
"""Names whose use may define others."""


def transform_problems(transform: Any, find_file: Callable[[str], str]) -> Problems:
    """What is wrong with the function of a transform; what `find_file` raises, it raises."""
    reference = transform.get("function") if isinstance(transform, Mapping) else getattr(transform, "function", None)
    file = str(reference or "").rpartition(":")[0]
    return function_problems(str(reference), find_file(file)) if file.endswith(".py") else Problems()


def function_problems(reference: str, path: str) -> Problems:
    """What is wrong with `file.py:name`, the file being at `path`: it is no Python, or has no such name."""
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
    return problems


@lru_cache(maxsize=256)
def _defined(path: str, changed: int, size: int) -> frozenset[str] | None:  # noqa: ARG001 - another version is another
    """The names that a file has once it is imported; None where only running it would tell."""
    tree = ast.parse(Path(path).read_bytes())
    names: set[str] = set()
    for node in _outside_functions(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            names.add(node.name)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    made = any(isinstance(node, ast.Global) for node in ast.walk(tree))
    return None if made or "*" in names or (names | used) & _DYNAMIC else frozenset(names)


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that belongs to the file itself, those under `if`, `try` and `with` too."""
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
