"""Find the names that a Python file defines by parsing it, without running it."""

import ast
from collections.abc import Callable, Iterator
from typing import Any

from agentv.evaluators.code.inline_python import PARAMETERS
from agentv.model.diagnostics import KeyPath, Problems, did_you_mean
from agentv.model.evaluator import FileReference, FindFile
from agentv.settings.transform import code_of, script_file
from agentv.support.code_outline import read_module


def function_reference(path: KeyPath, function: str) -> FileReference:
    """Return a reference to a function or class. Only files are checked; a module would have to be imported."""
    file = function.rpartition(":")[0]
    if not file.endswith(".py"):
        return FileReference(path, function, executes="code")

    def check(find_file: FindFile, _: str) -> Problems:
        return function_problems(function, find_file(file))

    return FileReference(path, function, check, executes="code")


def transform_references(transform: Any) -> Iterator[FileReference]:
    """Yield the references to the functions and the JavaScript of a transform, or of several in a list."""
    for function in code_of(transform, "function"):
        if (script := script_file(function)) is None:
            yield function_reference(("transform", "function"), function)
        else:
            yield FileReference(("transform", "function"), script[0], file_check(script[0]))
            yield FileReference(("transform", "function"), ["node", script[0]], executes="command")
    for code in code_of(transform, "javascript"):
        yield FileReference(("transform", "javascript"), code, executes="script")


def file_check(file: str) -> Callable[[FindFile, str], Problems]:
    """Return a check that a file can be found."""

    def check(find_file: FindFile, _: str) -> Problems:
        find_file(file)
        return Problems()

    return check


def function_problems(reference: str, path: str) -> Problems:
    """Check that a file is valid Python and that a name in it can be called with one argument.

    `reference` is `file.py:name`; `path` is where the file is.
    """
    problems = Problems()
    file, _, name = reference.rpartition(":")
    first = name.split(".")[0]
    try:
        module = read_module(path)
    except SyntaxError as error:
        problems.error((), f"File '{file}' is not valid Python: {error.msg}, line {error.lineno}")
        return problems
    except (OSError, ValueError) as error:
        problems.error((), f"Cannot read file '{file}': {error}")
        return problems
    if module.is_dynamic:
        return problems
    if first not in module.names:
        hint = did_you_mean(first, module.names) or f"It defines: {', '.join(sorted(module.names)) or 'nothing'}"
        problems.error((), f"There is no '{first}' in file '{file}'", hint)
        return problems
    node = module.defined.get(name)
    is_plain = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list
    why = _needs(node.args) if is_plain and not isinstance(node, ast.ClassDef | None) else ""
    if why:
        problems.error((), f"'{name}' in file '{file}' cannot be called: {why}", "It is called with one argument")
    return problems


def _needs(arguments: ast.arguments) -> str:
    """Return why a function cannot be called with one argument; empty if it can."""
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    required = positional[: len(positional) - len(arguments.defaults)]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    required += [argument.arg for argument, default in pairs if default is None]
    if not positional and arguments.vararg is None:
        return "it takes no arguments"
    return f"it requires {', '.join(required)}" if len(required) > 1 and required != PARAMETERS else ""
