"""Download the evals of OpenAI's hosted service: criteria and items as datasets, and the answers of their runs."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from agentv.cli import output
from agentv.datasets.foreign.values import object_at
from agentv.engine.calls.retry import RetryPolicy
from agentv.errors import AgentvError, UsageError, plural
from agentv.extensions.generate.command import FromOpenAIArguments
from agentv.model.response import TargetFailure
from agentv.model.values import to_json
from agentv.settings.project import project_root
from agentv.support.json_values import json_or
from agentv.targets.apis.http_client import HttpClient
from agentv.trust.env_file import load_environment

_PAGE = 100
_TIMEOUT_S = 120.0
_MOST_RETRIES = 6
_STATUS_CODES = (408, 429, 500, 502, 503, 504)
_KEPT = ("id", "name", "testing_criteria", "data_source_config", "metadata")
_UNSAFE = re.compile(r"[^\w.-]+")


def from_openai(args: FromOpenAIArguments) -> None:
    """Download hosted evals to a folder."""
    variables = load_environment(os.getcwd(), project_root(os.getcwd())).variables
    if not (key := variables.get("OPENAI_API_KEY")):
        raise UsageError("OPENAI_API_KEY is not set", hint="Export the key of the project whose evals you want to keep")
    base_url = args.base_url or variables.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    note = output.discard if args.quiet else output.note

    async def run() -> list[DownloadedEval]:
        async with aclosing(HostedEvals(base_url, key)) as api:
            return await download(api, args.out, args.evals, note)

    downloads = asyncio.run(run())
    for dataset in downloads:
        runs = f"{plural(dataset.runs, 'run')}, {dataset.new_runs:,} new"
        output.message(f"Wrote {dataset.path}: {plural(dataset.items, 'item')}, {runs}")
    if not downloads:
        output.message("There are no evals with items")


class DownloadedEval(msgspec.Struct):
    """One eval that was downloaded: its dataset, and how many items and runs it has."""

    path: str
    items: int = 0
    runs: int = 0
    new_runs: int = 0


class HostedEvals:
    """The API of the hosted service. Failed requests are retried."""

    def __init__(self, base_url: str, key: str) -> None:
        self._base = base_url.rstrip("/")
        self._client = HttpClient(self._base, {"Authorization": f"Bearer {key}"}, (key,))
        self._retries = RetryPolicy(_MOST_RETRIES, status_codes=_STATUS_CODES)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def listed(self, path: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects of a list, page by page."""
        after = ""
        while True:
            page = await self.get(f"{path}?limit={_PAGE}&order=asc{after}")
            items = page.get("data") if isinstance(page, dict) else None
            if not isinstance(items, list):
                raise AgentvError(f"{self._base}/{path} did not return a list", hint="Check the base URL")
            for item in items:
                yield item
            if not items or not page.get("has_more"):
                return
            last = page.get("last_id") or items[-1].get("id")
            if f"&after={quote(str(last))}" == after:
                raise AgentvError(f"{self._base}/{path} returned the same page twice")
            after = f"&after={quote(str(last))}"

    async def get(self, path: str) -> Any:
        """Return the JSON at a path. Raises AgentvError."""
        return json_or(await self.read(path), None)

    async def read(self, path: str) -> bytes:
        """Return the body at a path. Raises AgentvError after the last attempt."""
        retries = 0
        while True:
            try:
                return (await self._client.send("GET", f"{self._base}/{path}", None, _TIMEOUT_S)).body
            except TargetFailure as failure:
                if retries == _MOST_RETRIES or not self._retries.is_retryable(failure):
                    raise _explained(failure, path) from None
                await asyncio.sleep(self._retries.delay_s(failure, retries))
                retries += 1


def _explained(failure: TargetFailure, path: str) -> AgentvError:
    hint = "The same command continues where it stopped"
    if failure.error_class == "auth":
        hint = "Check OPENAI_API_KEY: it needs permission to read evals"
    return AgentvError(f"Cannot download {path.partition('?')[0]}", str(failure), hint)


async def download(
    api: HostedEvals, folder: str, eval_names: Iterable[str], note: Callable[[str], None]
) -> list[DownloadedEval]:
    """Download evals to a folder; all of them if none is named. Runs that are there already are not read again."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    names = list(eval_names)
    by_name = [await api.get(f"evals/{quote(name)}") for name in names]
    downloads = []
    for data in by_name if names else [data async for data in api.listed("evals")]:
        if (result := await _download_eval(api, folder, data, note)) is not None:
            downloads.append(result)
    return downloads


async def _download_eval(
    api: HostedEvals, folder: str, data: dict[str, Any], note: Callable[[str], None]
) -> DownloadedEval | None:
    name = data.get("name") or data["id"]
    path = os.path.join(folder, f"{_UNSAFE.sub('-', name).strip('-.')[:80] or 'eval'}-{_UNSAFE.sub('-', data['id'])}")
    result = DownloadedEval(f"{path}.json")
    items: dict[bytes, Any] = {}
    messages: Any = None
    async for run in api.listed(f"evals/{quote(data['id'])}/runs"):
        result.runs += 1
        source = object_at(run, "data_source")
        messages = source.get("input_messages") or messages
        for item in [*await _source_items(api, source.get("source")), *await _run_items(api, path, run, result)]:
            items.setdefault(to_json(item), item)
    result.items = len(items)
    if not items:
        note(f"{name}: it has no items, so that there is no dataset; its data are in logs of the service")
        return None
    fields = {key: data[key] for key in _KEPT if key in data}
    content = {**fields, **({"input_messages": messages} if messages else {}), "items": list(items.values())}
    _write(result.path, [to_json(content)])
    return result


async def _source_items(api: HostedEvals, source: Any) -> list[dict[str, Any]]:
    """Return the items of a run's source: in the run itself, or in an uploaded file."""
    if not isinstance(source, dict):
        return []
    rows: list[Any] = source.get("content") or []
    if source.get("type") == "file_id" and isinstance(source.get("id"), str):
        text = await api.read(f"files/{quote(source['id'])}/content")
        rows = [json_or(line, None) for line in text.splitlines() if line.strip()]
    return [{"item": row["item"]} for row in rows if isinstance(row, dict) and isinstance(row.get("item"), dict)]


async def _run_items(api: HostedEvals, path: str, run: dict[str, Any], result: DownloadedEval) -> list[dict[str, Any]]:
    """Return the items that a run answered. Its answers and grades are written to a file, once the run has ended."""
    file = f"{path}.{_UNSAFE.sub('-', run['id'])}.jsonl"
    if os.path.exists(file):
        outputs = [json_or(line, {}) for line in Path(file).read_bytes().splitlines()]
    else:
        where = f"evals/{quote(run.get('eval_id') or '')}/runs/{quote(run['id'])}/output_items"
        outputs = [output async for output in api.listed(where)]
        if outputs and run.get("status") not in ("queued", "in_progress"):
            _write(file, map(to_json, outputs))
            result.new_runs += 1
    items = (output.get("datasource_item") for output in outputs if isinstance(output, dict))
    return [{"item": item} for item in items if isinstance(item, dict)]


def _write(path: str, lines: Iterable[bytes]) -> None:
    """Write a file that is complete as soon as it exists."""
    partial = f"{path}.part"
    with open(partial, "wb") as stream:
        stream.writelines(line + b"\n" for line in lines)
    os.replace(partial, path)
