"""ES modules joined into one script, for a page that is opened from disk, where browsers import nothing.

The modules stay what they are: a server may serve them one by one. Each becomes a function that returns what it
exports, so that names of different modules never meet. The forms of `import` and `export` that are read here are the
only ones that the modules use; any other is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "\./(?P<file>[\w.]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?P<kind>async function\*?|function\*?|class|const) (?P<name>\w+)", re.MULTILINE)
_LEFT_OVER = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)


def joined(read: Callable[[str], str], entry: str) -> str:
    """One module script that does what `entry` does with everything it imports. `read` gives a module's text."""
    parts: dict[str, str] = {}
    _add(entry, read, parts, ())
    return "".join(parts.values())


def _add(name: str, read: Callable[[str], str], parts: dict[str, str], on_the_way: tuple[str, ...]) -> None:
    """Adds a module behind those it imports."""
    if name in parts:
        return
    if name in on_the_way:
        raise ValueError(f"modules import each other in a ring: {' → '.join((*on_the_way, name))}")
    text = read(name)
    for found in _IMPORT.finditer(text):
        _add(found["file"], read, parts, (*on_the_way, name))
    exported = [found["name"] for found in _EXPORT.finditer(text)]
    body = _EXPORT.sub(lambda found: f"{found['kind']} {found['name']}", _IMPORT.sub(_bound, text))
    left_over = _LEFT_OVER.search(body)
    if left_over:
        raise ValueError(f"{name} has an import or export in an unknown form: {left_over[0].strip()}")
    parts[name] = f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();\n"


def _bound(found: re.Match[str]) -> str:
    names = ", ".join(name.strip().replace(" as ", ": ") for name in found["names"].split(",") if name.strip())
    return f"const {{ {names} }} = {_variable(found['file'])};"


def _variable(file: str) -> str:
    return "module_" + re.sub(r"\W", "_", file)
