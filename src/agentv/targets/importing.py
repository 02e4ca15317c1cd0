"""Imports what users name in settings: `file.py:name` or `module:name`, attributes of it included."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from types import ModuleType, TracebackType
from typing import Any

from agentv.errors import AgentvError
from agentv.suggest import did_you_mean


def import_reference(reference: str, home: str) -> Any:
    """The object behind `file.py:name` (relative to `home`) or `module:name`; dots in the name lead to attributes."""
    place, _, name = reference.rpartition(":")
    module = _import_file(place, home) if place.endswith(".py") else _import_module(place, home)
    found: Any = module
    for step in name.split("."):
        if isinstance(found, type):
            found = built(found, reference, home)
        try:
            found = getattr(found, step)
        except AttributeError:
            public = [known for known in dir(found) if not known.startswith("_")]
            raise AgentvError(
                f"Cannot use '{reference}'", f"There is no '{step}' in {place}", did_you_mean(step, public)
            ) from None
    return found


def built(kind: type, reference: str, home: str) -> Any:
    """An object of a user's class, made without arguments."""
    try:
        return kind()
    except (Exception, SystemExit) as error:
        hint = "A class is made without arguments; name an object instead, or a function"
        raise AgentvError(f"Cannot use '{reference}'", in_one_line(error, home), hint) from error


def user_place(error: BaseException, folder: str) -> str:
    """`file.py:12`: the last line below `folder` that an exception went through, else the last of all; may be empty."""
    places = _places(error.__traceback__)
    own = [place for place in places if os.path.abspath(place[0]).startswith(os.path.join(folder, ""))]
    if not places:
        return ""
    file, line = (own or places)[-1]
    short = os.path.relpath(file, folder) if own else file
    return f"{short}:{line}"


def in_one_line(error: BaseException, folder: str) -> str:
    """An exception as a user reads it: what it says, and where in the user's own code it came from."""
    said = traceback.format_exception_only(error)[-1].strip() or type(error).__name__
    place = user_place(error, folder)
    return f"{said} ({place})" if place else said


def _import_file(file: str, home: str) -> ModuleType:
    path = os.path.realpath(os.path.join(home, file))
    if not os.path.isfile(path):
        raise AgentvError(
            f"Cannot find '{file}'", f"Looked for {path}", "Paths in a targets file start from its project"
        )
    # Named by its path: two files of one name are two modules, and a file is imported once.
    name = f"agentv_user_{os.path.basename(path)[:-3]}_{hashlib.blake2b(path.encode(), digest_size=6).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _make_importable(os.path.dirname(path))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise AgentvError(f"Cannot import '{file}'", in_one_line(error, os.path.dirname(path))) from error
    return module


def _import_module(name: str, home: str) -> ModuleType:
    _make_importable(str(home))
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        hint = f"The module is looked up where Python finds its packages, and in {home}"
        raise AgentvError(f"Cannot import '{name}'", in_one_line(error, home), hint) from error


def _make_importable(folder: str) -> None:
    # At the end: neighbours of the user's file are found, and none of them hides a module of Python's own.
    if folder not in sys.path:
        sys.path.append(folder)


def _places(found: TracebackType | None) -> list[tuple[str, int]]:
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(found)]
    return [(file, line) for file, line in places if not file.startswith((own, "<frozen"))]
