"""Whether an interpreter is as it was: what a judgement could leave behind for the next one is looked at.

Looked at are everything that the user's own modules hold, and the process: its folder, environment, threads, children,
open files. Where the user's code can set attributes at all, the names of all other modules are looked at too. What lies
inside objects of libraries is not. What cannot be looked through counts as changed.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` makes an enum of every answer
import _thread
import os
import re
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from opcode import opmap
from typing import Any

from agentv.evaluators.pool.open_files import OpenFile, places

MOST_VALUES = 50_000
"""More than this takes longer to look through than a new process takes to make."""

_ATOMS: tuple[type, ...] = (
    *(int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented), range, slice),
    *(re.Pattern, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.GenericAlias, types.ModuleType, types.CodeType),
)
_LIBRARY_VALUES = frozenset(
    {
        *("typing", "types", "enum", "datetime", "decimal", "fractions", "uuid", "pathlib", "logging"),
        *("_abc", "operator", "dataclasses"),
    }
)
"""Modules whose objects hold no state of a judge's: types, dates, numbers, paths, loggers."""

_SCALAR_BASES = (object, int, float, str, bytes)
_WRITTEN_IN_PYTHON = 1 << 9
_CONTAINER_HOMES = ("builtins", "collections")

_MODULES_OWN = frozenset({"__builtins__", "__loader__", "__spec__"})
_SETTING_OPERATIONS = frozenset({opmap["STORE_ATTR"], opmap["DELETE_ATTR"]})
_SETTING_NAMES = frozenset(
    {
        *("setattr", "delattr", "__setattr__", "__delattr__", "__dict__", "vars", "globals", "modules", "reload"),
        *("exec", "eval", "compile", "__import__", "import_module", "patch", "run_path", "run_module"),
    }
)
_WATCHED_SIGNALS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGALRM)


class Untouched:
    """The state of the interpreter at the moment of making. `trace()` says what is no longer as it was.

    A forked process inherits it and calls `begin` once, for its open files and threads are its own. `files` were open
    before.
    """

    def __init__(self, files: tuple[OpenFile, ...] = ()) -> None:
        self._files = files
        self._module_count = len(sys.modules)
        modules = [module for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)]
        self._held: list[tuple[Callable[[], Any], Any]] = []
        self._sets_attributes = False
        self._seen: set[int] = set()
        self._unseen = ""
        for module in modules:
            if is_users_module(module):
                self._look_into(module)
        watched = modules if self._sets_attributes else [each for each in modules if is_users_module(each)]
        self._names = [(vars(module), list(vars(module).values())) for module in watched]
        self._uses_random = any(_uses_random(vars(module)) for module in modules if is_users_module(module))
        self._process: list[Any] = []

    def begin(self) -> None:
        """From here on the process itself is watched too."""
        self._process = self._process_state()

    def trace(self) -> str:
        """What is not as it was, in a few words; nothing when all is."""
        if self._unseen:
            return f"{self._unseen} cannot be looked through"
        if len(sys.modules) != self._module_count:
            return "modules were imported"
        try:
            for names, values in self._names:
                names.pop("__warningregistry__", None)  # Python's own note of warnings that were shown
                if list(names.values()) != values:
                    return f"names of {names.get('__name__')} changed"
            for look, before in self._held:
                if look() != before:
                    return "a value that the judge's modules hold changed"
        except Exception:
            return "values that cannot be compared changed"
        return "" if self._process_state() == self._process else "the process changed"

    def _process_state(self) -> list[Any]:
        random = sys.modules.get("random") if self._uses_random else None
        return [*_process_state(), random.getstate() if random else None, places(self._files)]

    def _look_into(self, module: types.ModuleType) -> None:
        for name, value in list(vars(module).items()):
            if name not in _MODULES_OWN:
                self._look_at(value, f"{module.__name__}.{name}")
            if self._unseen:
                return

    def _look_at(self, first: Any, name: str) -> None:
        """Remembers everything that can be reached from a value and can be changed."""
        waiting = [first]
        while waiting:
            value = waiting.pop()
            if (isinstance(value, _ATOMS) and type(value) in _ATOMS) or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            if type(value) is types.FunctionType and not self._sets_attributes:
                self._sets_attributes = _sets_attributes(value.__code__)
            try:
                inside = _inside(value)
            except Exception:  # an object of the user's that answers for itself, and badly
                inside = None
            if inside is None or len(self._seen) > MOST_VALUES:
                self._unseen = name
                return
            look, values = inside
            if look is not None:
                self._held.append((look, look()))
            waiting.extend(values)


def _sets_attributes(code: types.CodeType) -> bool:
    """Whether code, or code in it, could make a name of another module mean something else."""
    if _SETTING_OPERATIONS.intersection(code.co_code[::2]) or _SETTING_NAMES.intersection(code.co_names):
        return True
    return any(_sets_attributes(each) for each in code.co_consts if isinstance(each, types.CodeType))


Inside = tuple[Callable[[], Any] | None, list[Any]]


def _inside(value: Any) -> Inside | None:
    """How to look at what can change in a value, and the values in it. None for what cannot be looked through."""
    kind = type(value)
    if isinstance(value, tuple | frozenset) and kind.__dictoffset__ == 0:
        return None, list(value)
    if kind.__module__ in _CONTAINER_HOMES and isinstance(value, list | set | bytearray | deque):
        return lambda: list(value), [] if kind is bytearray else list(value)
    if (kind.__module__ in _CONTAINER_HOMES and isinstance(value, dict)) or kind is types.MappingProxyType:
        return lambda: list(value.items()), [*value.values(), *value, getattr(value, "default_factory", None)]
    if kind is types.FunctionType:
        return _inside_function(value)
    if isinstance(value, type):
        return _inside_class(value)
    if kind is types.SimpleNamespace:
        return lambda: list(vars(value).items()), list(vars(value).values())
    if kind in _HOLDERS:
        return None, _HOLDERS[kind](value)
    if kind is types.CellType:
        return lambda: _content_of(value), [_content_of(value)]
    if (kind.__module__ in _LIBRARY_VALUES and kind.__name__ != "Context") or kind.__name__ == "_tuplegetter":
        return None, []
    return _inside_object(value)


_HOLDERS: dict[type, Callable[[Any], list[Any]]] = {
    staticmethod: lambda value: [value.__func__],
    classmethod: lambda value: [value.__func__],
    property: lambda value: [value.fget, value.fset, value.fdel],
    types.MethodType: lambda value: [value.__self__, value.__func__],
    partial: lambda value: [value.func, value.args, value.keywords, value.__dict__],
}
"""What cannot be changed itself, and the values that it holds."""


def _inside_function(value: types.FunctionType) -> Inside:
    def look() -> list[Any]:
        return [value.__code__, value.__defaults__, value.__kwdefaults__, *value.__dict__.items()]

    held = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *value.__dict__.values()]
    return look, [*held, *(value.__closure__ or ())]


def _inside_class(value: type) -> Inside:
    module = sys.modules.get(value.__module__)
    if module is None or not is_users_module(module):
        return None, []
    return lambda: list(vars(value).values()), [
        each for name, each in vars(value).items() if name not in ("__dict__", "__weakref__")
    ]


def _inside_object(value: Any) -> Inside | None:
    """Objects of the user's own classes that keep everything in their `__dict__`."""
    kind = type(value)
    module = sys.modules.get(kind.__module__)
    if module is None or not is_users_module(module) or not _keeps_all_in_its_dict(kind):
        return None
    return lambda: list(vars(value).items()), list(vars(value).values())


def _keeps_all_in_its_dict(kind: type) -> bool:
    return kind.__dictoffset__ != 0 and all(
        base in _SCALAR_BASES or (base.__flags__ & _WRITTEN_IN_PYTHON and not vars(base).get("__slots__"))
        for base in kind.__mro__
    )


def _content_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _libraries() -> Iterator[str]:
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield os.path.join(sysconfig.get_path(name), "")
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "")


_LIBRARY_FOLDERS = tuple(_libraries())


def is_users_file(file: str) -> bool:
    """Whether a file is the user's own: neither Python's, nor of an installed package, nor ours."""
    return not file.startswith((*_LIBRARY_FOLDERS, "<"))


def is_users_module(module: types.ModuleType) -> bool:
    """Whether a module comes from a file of the user's own."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and is_users_file(file)


def _uses_random(names: dict[str, Any]) -> bool:
    random = sys.modules.get("random")
    return random is not None and any(
        value is random or getattr(value, "__self__", None) is random._inst for value in names.values()
    )


def _process_state() -> list[Any]:
    """What a process has besides its objects, in the cheapest words. Children that nobody asked after count too."""
    children = False
    if hasattr(os, "waitid"):  # not on macOS, before Python 3.13
        with suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            children = True
    mask = os.umask(0o077)
    os.umask(mask)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    warnings = sys.modules.get("warnings")
    return [
        _folder(),
        mask,
        children,
        lowest_free,
        _thread._count(),
        dict(os.environ._data),  # type: ignore[attr-defined] # as bytes: decoding it takes longer than all the rest
        list(sys.path),
        sys.getrecursionlimit(),
        [_signal.getsignal(number) for number in _WATCHED_SIGNALS],
        list(warnings.filters) if warnings else None,
    ]


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""
