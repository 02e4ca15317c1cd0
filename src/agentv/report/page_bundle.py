"""A page as one file: its scripts bundled into one, its style sheets, and blocks of compressed data.

Data is never parsed as HTML: it is embedded as blocks of compressed JSON in base64, which the page unpacks on demand.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Callable
from functools import cache
from html import escape
from importlib.resources import files
from posixpath import dirname, join, normpath
from typing import BinaryIO

from agentv.report.figures import one_line
from agentv.version import __version__

_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "(?P<file>\.{1,2}/[\w./]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?P<kind>async function\*?|function\*?|class|const) (?P<name>\w+)", re.MULTILINE)
_LEFT_OVER = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)
_STYLES = (
    *("page.css", "run/run.css", "case/case.css", "compare/compare.css", "grid/grid.css"),
    *("runs/runs.css", "labels/labels.css"),
)
"""The style sheets, in their order. A later one may override an earlier one."""
_BLOCK_BYTES = 512 * 1024
_LEVEL = 9


@cache
def page_file(name: str) -> str:
    """Return the text of a file of the page."""
    return (files("agentv.report") / "page" / name).read_text(encoding="utf-8")


def page_style() -> str:
    """Return all style sheets as one."""
    return "".join(map(page_file, _STYLES))


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
    for match in _IMPORT.finditer(text):
        target = _target(name, match)
        _check_names(name, match, target, read(target))
        _add(target, read, parts, (*on_the_way, name))
    exported = [match["name"] for match in _EXPORT.finditer(text)]
    body = _IMPORT.sub(lambda match: _bound(name, match), text)
    body = _EXPORT.sub(lambda match: f"{match['kind']} {match['name']}", body)
    if left_over := _LEFT_OVER.search(body):
        raise ValueError(f"{name} has an import or export in an unknown form: {left_over[0].strip()}")
    parts[name] = f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();\n"


def _check_names(name: str, match: re.Match[str], target: str, text: str) -> None:
    """Raise ValueError if a module imports what another does not export."""
    exported = {item["name"] for item in _EXPORT.finditer(text)}
    names = {item.partition(" as ")[0].strip() for item in match["names"].split(",") if item.strip()}
    if missing := sorted(names - exported):
        raise ValueError(f"{name} imports {', '.join(missing)}, which {target} does not export")


def _target(name: str, match: re.Match[str]) -> str:
    """Return the module that an import names, relative to the folder of the page."""
    return normpath(join(dirname(name), match["file"]))


def _bound(name: str, match: re.Match[str]) -> str:
    names = ", ".join(item.strip().replace(" as ", ": ") for item in match["names"].split(",") if item.strip())
    return f"const {{ {names} }} = {_variable(_target(name, match))};"


def _variable(file: str) -> str:
    return "module_" + re.sub(r"\W", "_", file)


def page_beginning(title: str, script: str) -> bytes:
    """Return the page up to its data. Its policy allows only this script and its style, and no network access."""
    style = page_style()
    policy = (
        f"default-src 'none'; script-src '{hash_of(script)}'; style-src '{hash_of(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    parts = {
        "policy": policy,
        "version": __version__,
        "title": escape(one_line(f"{title} · agentv", 120)),
        "style": style,
    }
    return filled_page("page.html", parts).encode()


def filled_page(name: str, parts: dict[str, str]) -> str:
    """Return an HTML file of the page with `{{ name }}` replaced."""
    page = page_file(name)
    for part, text in parts.items():
        page = page.replace(f"{{{{ {part} }}}}", text, 1)
    return page


def page_end(script: str) -> bytes:
    """Return the end of the page, after its data."""
    return f'<script type="module">{script}</script>\n</body>\n</html>\n'.encode()


def hash_of(text: str) -> str:
    """Return the hash of a script or a style, for a policy of a page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_block(stream: BinaryIO, kind: str, data: bytes, first: int = 0) -> None:
    """Compress JSON and write it as one element; `first` is the number of its first item."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
    packed = base64.b64encode(packer.compress(data) + packer.flush())
    head = f'<script type="text/plain" data-block="{kind}" data-first="{first}">'
    stream.write(head.encode() + packed + b"</script>\n")


class BlockPile:
    """Items that are buffered until they fill a block."""

    def __init__(self, stream: BinaryIO, kind: str) -> None:
        self._stream = stream
        self._kind = kind
        self._items: list[bytes] = []
        self._bytes = 0
        self.count = 0

    def add(self, item: bytes) -> None:
        self._items.append(item)
        self._bytes += len(item)
        self.count += 1
        if self._bytes >= _BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._items:
            data = b"[" + b",".join(self._items) + b"]"
            write_block(self._stream, self._kind, data, self.count - len(self._items))
        self._items, self._bytes = [], 0
