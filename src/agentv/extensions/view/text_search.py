"""Search the texts of a run on the server: answers, findings and inputs, part by part."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from agentv.errors import AgentvError, UsageError, file_errors
from agentv.extensions.view.served_run import ServedRun
from agentv.extensions.view.state import STATE, error_data
from agentv.report.row_blocks import case_fields, remaining_fields

_ROWS_AT_ONCE = 8192
_CASE_BYTES = 4 << 20
_LONGEST_TEXT = 1000
_LIKE_ASCII = tuple(letter.encode() for letter in "\N{KELVIN SIGN}\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}")
"""The only letters outside ASCII whose lower case has letters of ASCII."""


async def search(request: web.Request) -> web.StreamResponse:
    """Send the rows whose texts contain a text, line by line while they are found."""
    run = request.app[STATE].served_run(request.match_info["id"])
    text = request.query.get("text", "").strip()
    if not text or len(text) > _LONGEST_TEXT:
        raise UsageError(f"A text to search for has 1 to {_LONGEST_TEXT:,} characters")
    await asyncio.to_thread(run.wait_for_rows)
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson; charset=utf-8"})
    await response.prepare(request)
    lines = _found_lines(run, text)
    with suppress(ConnectionResetError):  # the page was closed, or searches for something else
        while line := await asyncio.to_thread(next, lines, None):
            await response.write(line)
    return response


def _found_lines(run: ServedRun, text: str) -> Iterator[bytes]:
    """Yield the lines of the response. An error that occurs meanwhile is the last one."""
    try:
        for part in found_rows(run, text):
            yield msgspec.json.encode(part) + b"\n"
    except AgentvError as error:
        yield error_data(error) + b"\n"


def found_rows(run: ServedRun, text: str) -> Iterator[dict[str, Any]]:
    """Yield the rows that contain a text (case-insensitive), and how many were searched: records, then cases."""
    query = text.lower()
    may_contain = _filter(query)
    store, total = run.store, run.total
    hits: set[int] = set()
    for first in range(0, total, _ROWS_AT_ONCE):
        rows = range(first, min(first + _ROWS_AT_ONCE, total))
        data = run.record_bytes(rows)
        lines = zip(rows, _lines(data), strict=False) if may_contain(data) else ()  # more may have been written
        new = [row for row, line in lines if may_contain(line) and _has(remaining_fields(store.decode(line)), query)]
        hits.update(new)
        yield {"rows": new, "searched": rows.stop, "total": total}
    cases = _found_cases(store.folder.cases_path, query, may_contain)
    more = [row for row in run.reader.rows.rows_of(cases) if row < total and row not in hits] if cases else []
    yield {"rows": more, "searched": total, "total": total}


def _found_cases(path: Path, query: str, may_contain: Callable[[bytes], bool]) -> set[tuple[str, str]]:
    """Return the cases that contain a text, by dataset path and id."""
    cases: set[tuple[str, str]] = set()
    if not path.is_file():
        return cases
    with file_errors(f"Cannot read {path}"), path.open("rb") as file:
        while lines := file.readlines(_CASE_BYTES):
            for line in lines if may_contain(b"".join(lines)) else ():
                if line.endswith(b"\n") and may_contain(line):
                    case = msgspec.json.decode(line)
                    if _has(case_fields(case), query):
                        cases.add((case.get("dataset_path", ""), case["id"]))
    return cases


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield lines that are not blank."""
    return (line for line in data.split(b"\n") if line and not line.isspace())


def _filter(query: str) -> Callable[[bytes], bool]:
    """Return a fast test that no JSON with the text fails. JSON with escapes passes it, and has to be decoded."""
    query_bytes = msgspec.json.encode(query)[1:-1]
    decoded = (b"\\u", b"\\/", *(_LIKE_ASCII if query.isascii() else ()))

    def may_contain(data: bytes) -> bool:
        if any(pattern in data for pattern in decoded):
            return True
        return query_bytes in (data.lower() if query.isascii() else data.decode("utf-8", "replace").lower().encode())

    return may_contain


def _has(value: Any, query: str) -> bool:
    if isinstance(value, str):
        return query in value.lower()
    if isinstance(value, dict):
        return any(_has(item, query) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_has(item, query) for item in value)
    return False
