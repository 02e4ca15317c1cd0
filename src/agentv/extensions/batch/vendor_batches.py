"""The batch APIs of OpenAI and Anthropic: many requests in one file, answered within a day at half the price."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec

from agentv.model.response import Request, TargetFailure
from agentv.model.values import to_json
from agentv.support.json_values import json_or
from agentv.targets.apis.batch_api import BatchState, Outcome, Submission, UnreadableResults
from agentv.targets.apis.http_client import HttpResponse

if TYPE_CHECKING:
    from agentv.targets.apis.model_api import ApiResponder

_STATE_TIMEOUT_S, _TRANSFER_TIMEOUT_S = 60.0, 1800.0
_MAX_RESULT_BYTES = 4 * 2**30
_PAGE, _MOST_PAGES = 100, 50
_CLOCK_SKEW_S = 300.0


class _Batches:
    """The calls of a batch API, below one address, with the headers of a target."""

    def __init__(self, responder: ApiResponder, base: str, query: str) -> None:
        self._responder = responder
        self._base = base
        self._query = query
        responder.client.max_bytes = _MAX_RESULT_BYTES

    async def aclose(self) -> None:
        """Close the connections."""
        await self._responder.aclose()

    async def _call(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        timeout_s = _STATE_TIMEOUT_S if body is None else _TRANSFER_TIMEOUT_S
        response = await self._responder.client.send(method, self._url(path), body, timeout_s, headers)
        data = json_or(response.body, None)
        if not isinstance(data, dict):
            raise self._responder.client.unreadable(response, "The response is not a JSON object")
        return data

    async def _lines(self, path: str) -> Iterator[bytes]:
        response = await self._responder.client.send("GET", self._url(path), None, _TRANSFER_TIMEOUT_S)
        return (line for line in response.body.split(b"\n") if line.strip())

    async def _listed(self, path: str, after: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the batches of the account, newest first."""
        cursor = ""
        for _ in range(_MOST_PAGES):
            page = await self._call("GET", f"{path}?limit={_PAGE}{cursor}")
            for batch in page.get("data") or ():
                yield batch
            if not page.get("has_more") or not page.get("last_id"):
                return
            cursor = f"&{after}={page['last_id']}"

    def _read(self, status: int, body: bytes) -> Outcome:
        """Return the response in a result, or its failure."""
        if status >= 300:
            return self._reported(body, status)
        whole = HttpResponse(status, cast("Any", {"content-length": str(len(body))}), body, self._base)
        try:
            return self._responder.read(whole, cast("Request", None))  # only embeddings depend on the request
        except TargetFailure as failure:
            return failure

    def _reported(self, body: bytes, status: int) -> TargetFailure:
        """Return the failure in a result; the type of an error decides if the status is that of success."""
        return self._responder.client.reported(json_or(body, body.decode(errors="replace")), status, {})

    def _url(self, path: str) -> str:
        if not self._query:
            return self._base + path
        return f"{self._base}{path}{'&' if '?' in path else '?'}{self._query}"


class _Response(msgspec.Struct):
    status_code: int = 200
    body: msgspec.Raw = msgspec.Raw(b"null")


class _OpenAILine(msgspec.Struct):
    custom_id: str
    response: _Response | None = None
    error: Any = None


_decode_openai_line = msgspec.json.Decoder(_OpenAILine).decode
_OVER = frozenset({"completed", "failed", "expired", "cancelled"})


class OpenAIBatchApi(_Batches):
    """OpenAI's batches: a file of requests is uploaded first. The label is in the metadata of the batch."""

    max_requests, max_bytes = 50_000, 200_000_000

    def __init__(self, responder: ApiResponder, base: str, query: str, path: str) -> None:
        super().__init__(responder, base, query)
        self._path = f"/v1{path}"

    def line(self, id: str, request: Request) -> bytes:
        """Return one request of a batch as JSON."""
        body = self._responder.sends(request)
        return to_json({"custom_id": id, "method": "POST", "url": self._path, "body": body})

    async def submit(self, label: str, lines: list[bytes]) -> str:
        """Upload the requests and create the batch."""
        boundary, body = _form(f"{label}.jsonl", b"\n".join(lines) + b"\n")
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        file = await self._call("POST", "/files", body, kind)
        settings = {"input_file_id": file["id"], "endpoint": self._path, "completion_window": "24h"}
        batch = await self._call("POST", "/batches", to_json({**settings, "metadata": {"agentv": label}}))
        return str(batch["id"])

    async def find(self, submission: Submission, known_ids: Collection[str]) -> str | None:  # noqa: ARG002  # labels suffice
        """Look for the label in the metadata of recent batches."""
        async for batch in self._listed("/batches", "after"):
            if (batch.get("metadata") or {}).get("agentv") == submission.label:
                return str(batch["id"])
            if float(batch.get("created_at") or 0) < submission.at_s - _CLOCK_SKEW_S:
                return None
        return None

    async def state(self, id: str) -> BatchState:
        """Return the state of a batch."""
        batch = await self._call("GET", f"/batches/{id}")
        status, counts = str(batch.get("status")), batch.get("request_counts") or {}
        errors = (batch.get("errors") or {}).get("data") or ()
        why = "; ".join(str(error.get("message")) for error in errors if isinstance(error, dict))
        done_count = int(counts.get("completed") or 0) + int(counts.get("failed") or 0)
        return BatchState(status in _OVER, done_count, int(counts.get("total") or 0), _failure(status, why))

    async def results(self, id: str) -> AsyncIterator[tuple[str, Outcome]]:
        """Yield the results: answers and errors are in separate files."""
        batch = await self._call("GET", f"/batches/{id}")
        bad: list[str] = []
        for name in ("output_file_id", "error_file_id"):
            if batch.get(name):
                for line in _decoded(_decode_openai_line, await self._lines(f"/files/{batch[name]}/content"), bad):
                    yield line.custom_id, self._outcome(line)
        _check_lines(bad)

    def _outcome(self, line: _OpenAILine) -> Outcome:
        if line.response is not None:
            return self._read(line.response.status_code, bytes(line.response.body))
        code = str(line.error.get("code") if isinstance(line.error, dict) else "")
        if code.startswith("batch_"):
            return _failure(code.removeprefix("batch_"))
        return self._read(500, to_json({"error": line.error}))


class _Result(msgspec.Struct):
    type: str = ""
    message: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class _AnthropicLine(msgspec.Struct):
    custom_id: str
    result: _Result


_decode_anthropic_line = msgspec.json.Decoder(_AnthropicLine).decode


class AnthropicBatchApi(_Batches):
    """Anthropic's message batches. They have no metadata: a lost one is recognized by the ids of its results."""

    max_requests, max_bytes = 100_000, 256_000_000

    def __init__(self, responder: ApiResponder, base: str, query: str) -> None:
        super().__init__(responder, f"{base}/v1/messages/batches", query)

    def line(self, id: str, request: Request) -> bytes:
        """Return one request of a batch as JSON."""
        return to_json({"custom_id": id, "params": self._responder.sends(request)})

    async def submit(self, label: str, lines: list[bytes]) -> str:  # noqa: ARG002  # there is no field for it
        """Create the batch."""
        batch = await self._call("POST", "", b'{"requests":[' + b",".join(lines) + b"]}")
        return str(batch["id"])

    async def find(self, submission: Submission, known_ids: Collection[str]) -> str | None:
        """Look for a recent batch with as many requests whose results have our ids; this waits until it is over."""
        async for batch in self._listed("", "after_id"):
            if _unix(batch.get("created_at")) < submission.at_s - _CLOCK_SKEW_S:
                return None
            is_same_size = sum((batch.get("request_counts") or {}).values()) == len(submission.ids)
            if is_same_size and batch["id"] not in known_ids and await self._is_ours(str(batch["id"]), submission):
                return str(batch["id"])
        return None

    async def _is_ours(self, id: str, submission: Submission) -> bool:

        delay_s = 1.0
        while not (await self.state(id)).is_over:
            await asyncio.sleep(delay_s)
            delay_s = min(60.0, delay_s * 1.5)
        async for custom_id, _ in self.results(id):
            return custom_id in submission.ids
        return False

    async def state(self, id: str) -> BatchState:
        """Return the state of a batch."""
        batch = await self._call("GET", f"/{id}")
        counts = {name: int(count) for name, count in (batch.get("request_counts") or {}).items()}
        total = sum(counts.values())
        status = str(batch.get("processing_status"))
        return BatchState(status == "ended", total - counts.get("processing", 0), total, _failure(status))

    async def results(self, id: str) -> AsyncIterator[tuple[str, Outcome]]:
        """Yield the results. The address is ours, not `results_url`: no other host receives the key."""
        bad: list[str] = []
        for line in _decoded(_decode_anthropic_line, await self._lines(f"/{id}/results"), bad):
            yield line.custom_id, self._outcome(line.result)
        _check_lines(bad)

    def _outcome(self, result: _Result) -> Outcome:
        if result.type == "succeeded":
            return self._read(200, bytes(result.message))
        if result.type == "errored":
            error = bytes(result.error)
            return self._reported(error, 400 if b"invalid_request" in error else 200)
        return _failure("cancelled" if result.type == "canceled" else result.type)


def _failure(status: str, why: str = "") -> TargetFailure:
    """Return what happened to a request without a result, by the status of its batch."""
    detail = f": {why}" if why else ""
    if status == "expired":
        return TargetFailure("timeout", f"The batch expired before this request was answered{detail}")
    if status == "cancelled":
        return TargetFailure("refused", f"The batch was cancelled before this request was answered{detail}")
    if status == "failed":
        return TargetFailure("invalid_response", f"The provider rejected the batch{detail}")
    return TargetFailure("invalid_response", f"The batch has no result for this request{detail}")


def _decoded(decode: Any, lines: Iterable[bytes], bad: list[str]) -> Iterator[Any]:
    """Yield the results in lines, and add the problem of a bad line to `bad`: the others are still results."""
    for line in lines:
        try:
            yield decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            bad.append(str(error))


def _check_lines(bad: list[str]) -> None:
    if bad:
        what = "A line of the results cannot" if len(bad) == 1 else f"{len(bad)} lines of the results cannot"
        raise UnreadableResults("invalid_response", f"{what} be read: {bad[0]}")


def _form(name: str, content: bytes) -> tuple[str, bytes]:
    """Return the boundary and the body of a form that uploads a file for a batch."""
    boundary = os.urandom(16).hex()
    purpose = f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    file = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
    head = f"{purpose}{file}Content-Type: application/jsonl\r\n\r\n".encode()
    return boundary, head + content + f"\r\n--{boundary}--\r\n".encode()


def _unix(moment: Any) -> float:
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return 0.0
