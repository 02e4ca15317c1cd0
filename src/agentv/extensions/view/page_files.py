"""The files of the page: its HTML, its script and its style. Modules are bundled: one request instead of 70."""

from functools import cache

from aiohttp import web

from agentv.report.page_bundle import filled_page, joined, page_style
from agentv.report.page_bundle import page_file as read_page_file
from agentv.version import __version__


async def page(request: web.Request) -> web.Response:  # noqa: ARG001  # the same for everyone
    """Return the page itself."""
    return web.Response(text=filled_page("served.html", {"version": __version__}), content_type="text/html")


async def page_file(request: web.Request) -> web.Response:
    """Return the script or the style."""
    if (file := _files().get(request.match_info["name"])) is None:
        raise web.HTTPNotFound(text="There is no such file.")
    text, kind = file
    return web.Response(text=text, content_type=kind, charset="utf-8")


@cache
def _files() -> dict[str, tuple[str, str]]:
    """Return the files of the page by name, with their types."""
    return {
        "served.js": (joined(read_page_file, "served.js"), "text/javascript"),
        "page.css": (page_style(), "text/css"),
    }
