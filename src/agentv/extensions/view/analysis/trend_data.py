"""Handler for trends: the means over time of the runs with the same datasets and target."""

import asyncio
from typing import Any

from aiohttp import web

from agentv.extensions.view.state import STATE, json_response


async def trend(request: web.Request) -> web.Response:
    """Return the series of the datasets and the target that the request names; the same figures as `runs trend`."""
    state = request.app[STATE]
    datasets = tuple(sorted(request.query.getall("dataset", [])))
    target = request.query.get("target", "")

    def found() -> dict[str, Any] | None:
        state.runs.refresh()
        return state.trends.series(state.runs.runs(), datasets, target)

    return json_response({"series": await asyncio.to_thread(found)})
