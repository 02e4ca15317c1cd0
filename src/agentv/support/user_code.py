"""Import functions and classes named as `file.py:name` or `module:name`; files are imported again if they change."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from agentv.errors import AgentvError, start_of
from agentv.model.diagnostics import did_you_mean
from agentv.support.hashes import file_of

_LONGEST_MESSAGE = 500

_may_import: ContextVar[bool] = ContextVar("may_import", default=True)

_modules: dict[str, tuple[tuple[int, int], ModuleType]] = {}


class FunctionError(ValueError):
    """A function or class that cannot be imported."""


class UninspectableError(FunctionError):
    """A function or class that only running its file would show, while nothing may be imported."""


@contextmanager
def importing_nothing() -> Iterator[None]:
    """Let `load` return outlines instead of importing user code, for commands that only check."""
    token = _may_import.set(False)
    try:
        yield
    finally:
        _may_import.reset(token)


def may_import() -> bool:
    """Whether user code may be imported."""
    return _may_import.get()


def load(reference: str, find_file: Callable[[str], str] = str, *, make: Callable[[type], Any] | None = None) -> Any:
    """Return the object that `file.py:name` or `module:name` names; the name may have dots. Raises FunctionError.

    A file is imported again if it has changed. Its folder is appended to the search path, so that it can import
    modules next to it. If the name continues after a class, the class is passed to `make` first.
    """
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise FunctionError(f"'{reference}' does not name a function. Write 'file.py:name' or 'module:name'")
    if not _may_import.get():
        return _outlined(reference, find_file)
    module = _from_file(place, find_file) if place.endswith(".py") else _by_name(place)
    value: Any = module
    for part in name.split("."):
        if make is not None and isinstance(value, type):
            value = make(value)
        try:
            value = getattr(value, part)
        except AttributeError:
            names = [attribute for attribute in dir(value) if not attribute.startswith("_")]
            hint = did_you_mean(part, names)
            raise FunctionError(f"{place} has no '{part}'" + (f". {hint}" if hint else "")) from None
    return value


def _outlined(reference: str, find_file: Callable[[str], str]) -> Any:
    """Return the outline of a function or class, read without running its file."""
    from agentv.support.code_outline import OutlineError, UnknownOutline, outline  # late: only checks need it

    place, _, name = reference.rpartition(":")
    try:
        path = find_file(place) if place.endswith(".py") else file_of(reference, os.getcwd())
    except Exception as error:
        raise FunctionError(str(error)) from None
    if path is None:
        raise UninspectableError(reference)
    try:
        return outline(path, name)
    except OutlineError as error:
        raise FunctionError(str(error)) from None
    except UnknownOutline:
        raise UninspectableError(reference) from None


def import_reference(reference: str, home: str) -> Any:
    """Import an object for a project's settings; files and modules are looked up in `home`. Raises AgentvError.

    A class before the last name is instantiated: `agent.py:Agent.ask`.
    """
    if _may_import.get() and home not in sys.path:
        # At the end, so that files in it cannot shadow Python's own modules.
        sys.path.append(str(home))
    try:
        return load(reference, lambda file: os.path.join(home, file), make=lambda kind: built(kind, reference, home))
    except UninspectableError:
        raise
    except FunctionError as error:
        hint = f"Files and modules are looked up in {home}"
        raise AgentvError(f"Cannot use '{reference}'", str(error), hint) from error


def built(kind: type, reference: str, home: str) -> Any:
    """Instantiate a user's class without arguments."""
    try:
        return kind()
    except (Exception, SystemExit) as error:
        hint = "Classes are instantiated without arguments. Name an object or a function instead"
        raise AgentvError(f"Cannot use '{reference}'", describe(error, home), hint) from error


def describe(error: BaseException, path: str = "") -> str:
    """Describe an exception of user code in one line: type, message, and the innermost line of user code.

    `path` is the file or folder of the user code.
    """
    try:
        message = str(error)
    except Exception:
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    text = start_of(text, _LONGEST_MESSAGE)
    file, line = _place_of(error, path)
    return f"{text} ({os.path.basename(file)}, line {line})" if line else text


def _place_of(error: BaseException, path: str) -> tuple[str, int]:
    """Return the innermost line of the traceback that is in `path`, or else the innermost line."""
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
    entry = _modules.get(path)
    if entry is not None and entry[0] == stamp:
        return entry[1]
    module = _imported(path, place)
    _modules[path] = (stamp, module)
    return module


def _imported(path: str, place: str) -> ModuleType:
    # Compile it here: the import system would use stale bytecode for a change within a second that keeps the size.
    name = f"_agentv_{os.path.basename(path)[:-3]}_{blake2b(path.encode(), digest_size=6).hexdigest()}"
    module = ModuleType(name)
    module.__file__ = path
    if (folder := os.path.dirname(path)) not in sys.path:
        sys.path.append(folder)
    # Dataclasses and pickle look up their module by name while the file is being executed.
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
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            message = f"There is no module '{name}'; name a file with its extension, as in 'checks.py:grade'"
            raise FunctionError(message) from None
        raise FunctionError(f"{name} cannot be imported: {describe(error)}") from error


def is_plain_function(call: object) -> bool:
    """Whether a value is a function in a file, without a closure. Objects, methods and closures may have state."""
    return isinstance(call, FunctionType) and not call.__closure__ and os.path.isfile(call.__code__.co_filename)
