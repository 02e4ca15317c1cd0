"""Handlers for the list of runs and their trends, for the head, rows, records and cases of one run, and its labels."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from agentv.extensions.view.answer_rows import AnswerRows
from agentv.extensions.view.served_run import ServedRun
from agentv.extensions.view.state import STATE, ViewState, json_response
from agentv.report.services import LabelError, PageLabels

_MOST_ROWS = 2_000


async def runs(request: web.Request) -> web.Response:
    """Return the list of runs."""
    state = request.app[STATE]
    await asyncio.to_thread(state.runs.refresh)
    data: dict[str, Any] = {
        "title": state.title,
        "label": state.labels is not None,
        "labeller": "" if state.labels is None else state.labels.labeller,
        "runs": [{**run.data, **state.progress(run)} for run in state.runs.runs()],
    }
    return json_response(data)


async def trend(request: web.Request) -> web.Response:
    """Return the series of the datasets and the target that the request names; the same figures as `runs trend`."""
    state = request.app[STATE]
    datasets = tuple(sorted(request.query.getall("dataset", [])))
    target = request.query.get("target", "")

    def series() -> dict[str, Any] | None:
        state.runs.refresh()
        return state.trends.series(state.runs.runs(), datasets, target)

    return json_response({"series": await asyncio.to_thread(series)})


async def head(request: web.Request) -> web.Response:
    """Return the figures of a run, and the names that its rows refer to."""
    run = request.app[STATE].served_run(request.match_info["id"])
    data = await asyncio.to_thread(run.head)
    return json_response({**data, "label": request.app[STATE].labels is not None})


async def rows(request: web.Request) -> web.Response:
    """Return a block of rows."""
    run = request.app[STATE].served_run(request.match_info["id"])
    body = await asyncio.to_thread(run.rows, whole_number(request, "first"))
    return web.Response(body=body, content_type="application/json")


async def results(request: web.Request) -> web.Response:
    """Return the fields of records that are not in their rows; of fewer rows than asked for, if they are large."""
    run = request.app[STATE].served_run(request.match_info["id"])
    row_texts = request.query.get("rows", "").split(",")
    if len(row_texts) > _MOST_ROWS:
        raise web.HTTPBadRequest(text=f"A request names at most {_MOST_ROWS:,} rows")
    body = await asyncio.to_thread(run.results, [_whole(text, "rows") for text in row_texts if text])
    return _versioned(run, body)


async def case(request: web.Request) -> web.Response:
    """Return the case of a row; null if the run has none."""
    run = request.app[STATE].served_run(request.match_info["id"])
    data = await asyncio.to_thread(run.case, whole_number(request, "row"))
    return _versioned(run, msgspec.json.encode(data))


def _versioned(run: ServedRun, body: bytes) -> web.Response:
    """Return JSON with the version of the run, so that the page does not mix records of two runs."""
    return web.Response(body=body, content_type="application/json", headers={"Agentv-Version": run.reader.version})


def whole_number(request: web.Request, name: str) -> int:
    """Return a number from the address; 0 without one."""
    return _whole(request.query.get(name, "0"), name)


def _whole(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise web.HTTPBadRequest(text=f"{name} has to be a number, got {text[:40]!r}")
    return int(text)


async def labels(request: web.Request) -> web.Response:
    """Return the labels of one labeller in a run, and the next answer to label."""
    return await _answer(request, lambda labels, _, answers: labels.overview(answers))


async def agreement(request: web.Request) -> web.Response:
    """Return how often labellers agree with each other, and this one with the judge."""
    return await _answer(request, lambda labels, run, _: labels.agreement(run))


async def add_label(request: web.Request) -> web.Response:
    """Append a label to the file, and return it with the next answer to label."""
    body = await request.read()
    try:
        return await _answer(request, lambda labels, run, answers: labels.add(run, answers, body))
    except LabelError as error:
        raise web.HTTPBadRequest(text=str(error)) from None


async def _answer(
    request: web.Request, respond: Callable[[PageLabels, ServedRun, AnswerRows], dict[str, Any]]
) -> web.Response:
    state = request.app[STATE]
    run, labels = state.served_run(request.match_info["id"]), state.labels
    if labels is None:
        raise web.HTTPForbidden(
            text="The page shows no labels. Start agentv view with --label FILE to see and save labels."
        )
    return json_response(await asyncio.to_thread(lambda: respond(labels, run, _answers(state, labels, run))))


def _answers(state: ViewState, labels: PageLabels, run: ServedRun) -> AnswerRows:
    answers = state.answers.get(run) or state.answers.setdefault(run, AnswerRows(run.store, labels.rank))
    answers.follow()
    return answers
