"""Handlers for the list of runs, and for the head, rows, records and cases of one run."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from agentv.view.served_run import ServedRun
from agentv.view.state import STATE, json_response

_MOST_ROWS = 2_000


async def runs(request: web.Request) -> web.Response:
    """Return the list of runs."""
    state = request.app[STATE]
    await asyncio.to_thread(state.runs.refresh)
    data: dict[str, Any] = {
        "title": state.title,
        "label": state.label_file is not None,
        "labeller": state.labeller,
        "runs": [{**run.data, **state.progress(run)} for run in state.runs.runs()],
    }
    return json_response(data)


async def head(request: web.Request) -> web.Response:
    """Return the figures of a run, and the names that its rows refer to."""
    run = request.app[STATE].served_run(request.match_info["id"])
    found = await asyncio.to_thread(run.head)
    return json_response({**found, "label": request.app[STATE].label_file is not None})


async def rows(request: web.Request) -> web.Response:
    """Return a block of rows."""
    run = request.app[STATE].served_run(request.match_info["id"])
    body = await asyncio.to_thread(run.rows, whole_number(request, "first"))
    return web.Response(body=body, content_type="application/json")


async def results(request: web.Request) -> web.Response:
    """Return the fields of records that are not in their rows; of fewer rows than asked for, if they are large."""
    run = request.app[STATE].served_run(request.match_info["id"])
    given = request.query.get("rows", "").split(",")
    if len(given) > _MOST_ROWS:
        raise web.HTTPBadRequest(text=f"A request names at most {_MOST_ROWS:,} rows")
    body = await asyncio.to_thread(run.results, [_whole(each, "rows") for each in given if each])
    return _versioned(run, body)


async def case(request: web.Request) -> web.Response:
    """Return the case of a row; null if the run has none."""
    run = request.app[STATE].served_run(request.match_info["id"])
    found = await asyncio.to_thread(run.case, whole_number(request, "row"))
    return _versioned(run, msgspec.json.encode(found))


def _versioned(run: ServedRun, body: bytes) -> web.Response:
    """Return JSON with the version of the run, so that the page does not mix records of two runs."""
    return web.Response(body=body, content_type="application/json", headers={"Agentv-Version": run.version})


def whole_number(request: web.Request, name: str) -> int:
    """Return a number from the address; 0 without one."""
    return _whole(request.query.get(name, "0"), name)


def _whole(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise web.HTTPBadRequest(text=f"{name} has to be a number, got {text[:40]!r}")
    return int(text)
