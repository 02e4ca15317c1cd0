"""Functions and classes that users name as `file.py:name` or `module:name`, imported once until their file changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from hashlib import blake2b
from importlib import import_module
from types import ModuleType
from typing import Any

from agentv.errors import AgentvError
from agentv.settings.diagnostics import did_you_mean

_LONGEST_MESSAGE = 500

_modules: dict[str, tuple[tuple[int, int], ModuleType]] = {}


class FunctionError(ValueError):
    """A function that cannot be had: one sentence that says why."""


def load(reference: str, find_file: Callable[[str], str] = str, *, make: Callable[[type], Any] | None = None) -> Any:
    """What `file.py:name` or `module:name` names; the name may go on with dots. Raises FunctionError.

    A file is imported again when it has changed. Its folder goes to the end of the search path, so that it may import
    its neighbours. A class that a further name follows goes through `make` first, where that is given.
    """
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise FunctionError(f"'{reference}' names no function: write 'file.py:name' or 'module:name'")
    module = _from_file(place, find_file) if place.endswith(".py") else _by_name(place)
    found: Any = module
    for part in name.split("."):
        if make is not None and isinstance(found, type):
            found = make(found)
        try:
            found = getattr(found, part)
        except AttributeError:
            known = [each for each in dir(found) if not each.startswith("_")]
            hint = did_you_mean(part, known)
            raise FunctionError(f"{place} has no '{part}'" + (f". {hint}" if hint else "")) from None
    return found


def import_reference(reference: str, home: str) -> Any:
    """The object behind a name in a project's settings; files and modules are looked up in `home`. Raises AgentvError.

    A class that is followed by a name is made into an object first: `agent.py:Agent.ask`.
    """
    if home not in sys.path:
        # At the end: what is there must not hide a module of Python's own.
        sys.path.append(str(home))
    try:
        return load(reference, lambda file: os.path.join(home, file), make=lambda kind: built(kind, reference, home))
    except FunctionError as error:
        hint = f"Files and modules are looked up in {home}"
        raise AgentvError(f"Cannot use '{reference}'", str(error), hint) from error


def built(kind: type, reference: str, home: str) -> Any:
    """An object of a user's class, made without arguments."""
    try:
        return kind()
    except (Exception, SystemExit) as error:
        hint = "A class is made without arguments; name an object instead, or a function"
        raise AgentvError(f"Cannot use '{reference}'", describe(error, home), hint) from error


def describe(error: BaseException, path: str = "") -> str:
    """An exception of the user's code in one line: its type, its message, and the innermost line of the user's.

    `path` says what is the user's: a file, or a folder with all that is in it.
    """
    try:
        message = str(error)
    except Exception:
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    if len(text) > _LONGEST_MESSAGE:
        text = text[: _LONGEST_MESSAGE - 1] + "…"
    file, line = _place_of(error, path)
    return f"{text} ({os.path.basename(file)}, line {line})" if line else text


def _place_of(error: BaseException, path: str) -> tuple[str, int]:
    """The innermost line in `path` that the error passed through; the innermost line of all when it is not there."""
    if isinstance(error, SyntaxError) and error.lineno:
        return error.filename or path, error.lineno
    innermost = own = ("", 0)
    folder = os.path.join(os.path.realpath(path), "") if path else None
    trace = error.__traceback__
    while trace is not None:
        innermost = (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        if innermost[0] == path or (folder is not None and os.path.realpath(innermost[0]).startswith(folder)):
            own = innermost
        trace = trace.tb_next
    return own if own[1] else innermost


def _from_file(place: str, find_file: Callable[[str], str]) -> ModuleType:
    try:
        path = os.path.realpath(find_file(place))
        status = os.stat(path)
    except FunctionError:
        raise
    except OSError as error:
        raise FunctionError(f"File '{place}' cannot be read: {error.strerror}") from None
    except Exception as error:
        raise FunctionError(str(error)) from None
    stamp = (status.st_mtime_ns, status.st_size)
    known = _modules.get(path)
    if known is not None and known[0] == stamp:
        return known[1]
    module = _imported(path, place)
    _modules[path] = (stamp, module)
    return module


def _imported(path: str, place: str) -> ModuleType:
    # Compiled here: the import system takes old bytecode for a file that changed within a second and kept its size.
    name = f"_agentv_{os.path.basename(path)[:-3]}_{blake2b(path.encode(), digest_size=6).hexdigest()}"
    module = ModuleType(name)
    module.__file__ = path
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.append(folder)
    # Dataclasses and pickles look their module up by name while the file is still running.
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), module.__dict__)  # noqa: S102 - the user's own file
    except BaseException as error:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        if isinstance(error, Exception | SystemExit):
            raise FunctionError(f"{place} cannot be imported: {describe(error, path)}") from error
        raise
    return module


def _by_name(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            message = f"There is no module '{name}'; a file is named with its ending, as in 'checks.py:grade'"
            raise FunctionError(message) from None
        raise FunctionError(f"{name} cannot be imported: {describe(error)}") from error
    except (Exception, SystemExit) as error:
        raise FunctionError(f"{name} cannot be imported: {describe(error)}") from error
