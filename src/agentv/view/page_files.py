"""The files of the page: its HTML, modules and styles, from a list of packaged files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

from agentv import __version__
from agentv.report.page_bundle import STYLES

_TYPES = {".js": "text/javascript", ".css": "text/css"}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="agentv {version}">
<title>agentv</title>
<link rel="icon" href="data:,">
{styles}
<script type="module" src="/page/served.js"></script>
</head>
<body>
<div id="app"><p class="opening">Opening the page…</p></div>
<noscript><p class="opening">This page needs JavaScript.
Without it, read the reports of <code>agentv report RUN</code>.</p></noscript>
</body>
</html>
"""


async def page(request: web.Request) -> web.Response:  # noqa: ARG001  # the same for everyone
    """Return the page itself."""
    styles = (f'<link rel="stylesheet" href="/page/{name}">' for name in STYLES)
    text = _PAGE.format(version=__version__, styles="\n".join(styles))
    return web.Response(text=text, content_type="text/html")


async def page_file(request: web.Request) -> web.Response:
    """Return a module or a style."""
    name = request.match_info["name"]
    found = packaged_files().get(name)
    if found is None:
        raise web.HTTPNotFound(text="There is no such file.")
    return web.Response(body=found.read_bytes(), content_type=_type(name), charset="utf-8")


@cache
def packaged_files() -> dict[str, Traversable]:
    """Return the files of the page by name."""
    return dict(_files_in(files("agentv.report") / "page", ""))


def _files_in(folder: Traversable, before: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files_in(entry, f"{before}{entry.name}/")
        elif _type(entry.name):
            yield f"{before}{entry.name}", entry


def _type(name: str) -> str:
    return next((kind for ending, kind in _TYPES.items() if name.endswith(ending)), "")
