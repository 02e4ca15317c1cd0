"""The files of the page: scripts that are bundled into one for a report, and its style sheets."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from posixpath import dirname, join, normpath

_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "(?P<file>\.{1,2}/[\w./]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?P<kind>async function\*?|function\*?|class|const) (?P<name>\w+)", re.MULTILINE)
_LEFT_OVER = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)
STYLES = ("page.css", "runs/runs.css")
"""The style sheets, in their order. A later one may override an earlier one."""


@cache
def page_file(name: str) -> str:
    """Return the text of a file of the page."""
    return (files("agentv.report") / "page" / name).read_text(encoding="utf-8")


def page_style() -> str:
    """Return all style sheets as one."""
    return "".join(map(page_file, STYLES))


def joined(read: Callable[[str], str], entry: str) -> str:
    """Bundle a module and its imports into one script. `read` returns the text of a module."""
    parts: dict[str, str] = {}
    _add(entry, read, parts, ())
    return "".join(parts.values())


def _add(name: str, read: Callable[[str], str], parts: dict[str, str], on_the_way: tuple[str, ...]) -> None:
    """Add a module after the modules it imports."""
    if name in parts:
        return
    if name in on_the_way:
        raise ValueError(f"circular import: {' → '.join((*on_the_way, name))}")
    text = read(name)
    for found in _IMPORT.finditer(text):
        _add(_target(name, found), read, parts, (*on_the_way, name))
    exported = [found["name"] for found in _EXPORT.finditer(text)]
    body = _IMPORT.sub(lambda found: _bound(name, found), text)
    body = _EXPORT.sub(lambda found: f"{found['kind']} {found['name']}", body)
    left_over = _LEFT_OVER.search(body)
    if left_over:
        raise ValueError(f"{name} has an import or export in an unknown form: {left_over[0].strip()}")
    parts[name] = f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();\n"


def _target(name: str, found: re.Match[str]) -> str:
    """Return the module that an import names, relative to the folder of the page."""
    return normpath(join(dirname(name), found["file"]))


def _bound(name: str, found: re.Match[str]) -> str:
    names = ", ".join(each.strip().replace(" as ", ": ") for each in found["names"].split(",") if each.strip())
    return f"const {{ {names} }} = {_variable(_target(name, found))};"


def _variable(file: str) -> str:
    return "module_" + re.sub(r"\W", "_", file)
