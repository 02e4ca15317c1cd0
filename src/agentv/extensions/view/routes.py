"""The routes of the served page. Handlers are imported when they are first used."""

from importlib import import_module
from typing import NamedTuple

from aiohttp import web


class Route(NamedTuple):
    """A method and a path, and the handler as `module:function` in this package."""

    method: str
    path: str
    handler: str

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Import the handler and call it."""
        module, _, function = self.handler.partition(":")
        response: web.StreamResponse = await getattr(import_module(f"agentv.extensions.view.{module}"), function)(
            request
        )
        return response


ROUTES = (
    Route("GET", "/", "page_files:page"),
    Route("GET", "/page/{name:.+}", "page_files:page_file"),
    Route("GET", "/api/runs", "run_data:runs"),
    Route("GET", "/api/runs/{id}/head", "run_data:head"),
    Route("GET", "/api/runs/{id}/rows", "run_data:rows"),
    Route("GET", "/api/runs/{id}/results", "run_data:results"),
    Route("GET", "/api/runs/{id}/case", "run_data:case"),
    Route("GET", "/api/runs/{id}/search", "text_search:search"),
    Route("GET", "/api/events", "live:events"),
    Route("GET", "/api/labels/{id}", "run_data:labels"),
    Route("POST", "/api/labels/{id}", "run_data:add_label"),
    Route("GET", "/api/labels/{id}/agreement", "run_data:agreement"),
    Route("GET", "/api/compare", "analysis.comparison_data:compare"),
    Route("GET", "/api/compare/rows", "analysis.comparison_data:rows"),
    Route("GET", "/api/compare/case", "analysis.comparison_data:case"),
    Route("GET", "/api/trend", "run_data:trend"),
)
