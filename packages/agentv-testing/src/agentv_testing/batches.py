"""The batch APIs of OpenAI and Anthropic for the model server: uploaded files, batches and their results."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from agentv_testing.openai_chat import OpenAIFormat
from agentv_testing.wire import Answer, NotUnderstood, RawReply, ReceivedRequest

AnswerLine = Callable[[str, dict[str, Any]], tuple[int, Any]]
"""Answers one request of a batch, given its path and body; returns a status and a response body."""

_UNITS = {"completed": "succeeded", "expired": "expired", "cancelled": "canceled"}


@dataclass
class BatchScript:
    """How batches run. They are over after `polls` requests for their state.

    `ending` is `completed`, `expired`, `cancelled` or `failed`; with the second and third, only the first `finished`
    requests have an answer. Results are in reverse order. Requests at the positions in `missing` have no result, those
    in `doubled` two, those in `cut` half a line. `watch` is called with `file`, `created`, `poll` or `results` before
    the response is sent. `submitted` has the ids of all requests that were accepted, `billed` those that were answered.
    """

    polls: int = 1
    ending: str = "completed"
    finished: int = 0
    missing: Sequence[int] = ()
    doubled: Sequence[int] = ()
    cut: Sequence[int] = ()
    watch: Callable[[str], None] = lambda _: None
    submitted: list[str] = field(default_factory=list)
    billed: list[str] = field(default_factory=list)


@dataclass
class _Batch:
    id: str
    requests: list[tuple[str, str, dict[str, Any]]]
    metadata: dict[str, str]
    created: float
    endpoint: str = ""
    ending: str = "completed"
    polls: int = 0
    is_over: bool = False
    results: list[tuple[str, int | None, Any]] = field(default_factory=list)


class _Batches:
    """Batches in memory, shared by both formats."""

    def __init__(self, script: BatchScript, answer: AnswerLine, prefix: str) -> None:
        self.script = script
        self.batches: dict[str, _Batch] = {}
        self._answer = answer
        self._prefix = prefix

    def create(self, requests: list[tuple[str, str, dict[str, Any]]], **known: Any) -> _Batch:
        ids = [id for id, _, _ in requests]
        if len(set(ids)) < len(ids) or not ids:
            raise NotUnderstood("The custom_id of each request must be unique")
        batch = _Batch(f"{self._prefix}{len(self.batches) + 1}", requests, created=time.time(), **known)
        self.batches[batch.id] = batch
        self.script.submitted += ids
        self.script.watch("created")
        return batch

    def poll(self, id: str) -> _Batch:
        batch = self.get(id)
        batch.polls += 1
        self.script.watch("poll")
        if not batch.is_over and batch.polls > self.script.polls:
            self._run(batch)
        return batch

    def get(self, id: str) -> _Batch:
        if id not in self.batches:
            raise NotUnderstood(f"No batch '{id}'", 404)
        return self.batches[id]

    def listed(self, query: str, after: str) -> dict[str, Any]:
        """Return a page of batches, newest first."""
        found = list(reversed(self.batches.values()))
        cursor = re.search(rf"(?:^|&){after}=([^&]+)", query)
        limit = re.search(r"(?:^|&)limit=(\d+)", query)
        if cursor:
            found = found[1 + next(index for index, batch in enumerate(found) if batch.id == cursor[1]) :]
        page = found[: int(limit[1]) if limit else 20]
        return {"page": page, "has_more": len(page) < len(found), "last_id": page[-1].id if page else None}

    def _run(self, batch: _Batch) -> None:
        script = self.script
        batch.is_over, batch.ending = True, script.ending
        if script.ending == "failed":
            return
        answered = len(batch.requests) if script.ending == "completed" else script.finished
        for position, (id, path, body) in enumerate(batch.requests):
            if position >= answered:
                batch.results.append((id, None, script.ending))
                continue
            status, reply = self._answer(path, body)
            script.billed += [id] if status < 300 else []
            if position not in script.missing:
                batch.results += [(id, status, reply)] * (2 if position in script.doubled else 1)
        batch.results.reverse()

    def encode(self, batch: _Batch, lines: Iterable[dict[str, Any]]) -> bytes:
        """Return the lines of a file of results."""
        cut = {batch.requests[position][0] for position in self.script.cut}
        made = [(msgspec.json.encode(line), line["custom_id"] in cut) for line in lines]
        return b"".join((line[: len(line) // 2] if is_cut else line) + b"\n" for line, is_cut in made)


class OpenAIBatches(OpenAIFormat):
    """`…/files` and `…/batches`."""

    def __init__(self, script: BatchScript, answer: AnswerLine) -> None:
        self._files: dict[str, bytes] = {}
        self._batches = _Batches(script, answer, "batch_")

    def serves(self, path: str) -> bool:
        """Return whether the path is that of files or batches."""
        return bool(re.search(r"/(files|batches)(/|$)", path)) and "/messages/" not in path

    def read(self, received: ReceivedRequest) -> ReceivedRequest:
        """Carry out a request, and return it with its response."""
        parts = received.path.rpartition("/v1/")[2].split("/")
        if parts == ["files"]:
            reply: Any = self._upload(received)
        elif parts[0] == "files" and parts[2:] == ["content"]:
            self._batches.script.watch("results")
            reply = RawReply(self._files[parts[1]])
        elif parts == ["batches"] and received.method == "POST":
            reply = self._view(self._create(received.json()))
        elif parts == ["batches"]:
            found = self._batches.listed(received.query, "after")
            reply = {"object": "list", "data": [self._view(each) for each in found.pop("page")], **found}
        else:
            reply = self._view(self._batches.poll(parts[1]))
        return replace(received, reply=reply)

    def _upload(self, received: ReceivedRequest) -> dict[str, Any]:
        kind = received.headers.get("Content-Type", "")
        boundary = re.search(r'boundary="?([^";]+)', kind)
        if not kind.startswith("multipart/form-data") or boundary is None:
            raise NotUnderstood("A file must be sent as multipart/form-data")
        fields = {}
        for part in received.raw.split(b"--" + boundary[1].encode())[1:-1]:
            head, _, content = part.partition(b"\r\n\r\n")
            name = re.search(rb'name="([^"]+)"', head)
            fields[name[1].decode() if name else ""] = content.removesuffix(b"\r\n")
        if fields.get("purpose") != b"batch" or "file" not in fields:
            raise NotUnderstood("A file needs the purpose 'batch'")
        id = self._keep(fields["file"])
        self._batches.script.watch("file")
        return {"id": id, "object": "file", "bytes": len(fields["file"]), "purpose": "batch"}

    def _keep(self, content: bytes) -> str:
        id = f"file-{len(self._files) + 1}"
        self._files[id] = content
        return id

    def _create(self, body: dict[str, Any]) -> _Batch:
        if body.get("completion_window") != "24h" or body.get("input_file_id") not in self._files:
            raise NotUnderstood("A batch needs an 'input_file_id' and the completion window '24h'")
        lines = [msgspec.json.decode(line) for line in self._files[body["input_file_id"]].splitlines()]
        if any(line["url"] != body["endpoint"] or line["method"] != "POST" for line in lines):
            raise NotUnderstood("Every request must be a POST to the endpoint of the batch")
        requests = [(line["custom_id"], line["url"], line["body"]) for line in lines]
        return self._batches.create(requests, metadata=body.get("metadata") or {}, endpoint=body["endpoint"])

    def _view(self, batch: _Batch) -> dict[str, Any]:
        total = len(batch.requests)
        done = sum(status is not None and status < 300 for _, status, _ in batch.results)
        view: dict[str, Any] = {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.endpoint,
            "errors": None,
            "completion_window": "24h",
            "status": batch.ending if batch.is_over else "in_progress",
            "created_at": int(batch.created),
            "metadata": batch.metadata,
            "request_counts": {"total": total, "completed": done, "failed": len(batch.results) - done},
            "output_file_id": None,
            "error_file_id": None,
        }
        if batch.is_over and batch.ending == "failed":
            view["errors"] = {"object": "list", "data": [{"code": "invalid_request", "message": "Bad line", "line": 1}]}
        elif batch.is_over:
            answers = _lines(each for each in batch.results if each[1] and each[1] < 300)
            view["output_file_id"] = self._keep(self._batches.encode(batch, answers))
            errors = self._batches.encode(
                batch, _lines(each for each in batch.results if not each[1] or each[1] >= 300)
            )
            view["error_file_id"] = self._keep(errors) if errors else None
        return view

    def whole(self, received: ReceivedRequest, answer: Answer) -> Any:
        """Never called: `read` has the response."""
        raise NotImplementedError

    def pieces(self, received: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """Never called: batches are not streamed."""
        raise NotImplementedError


def _lines(results: Iterable[tuple[str, int | None, Any]]) -> Iterator[dict[str, Any]]:
    for number, (id, status, body) in enumerate(results):
        line: dict[str, Any] = {"id": f"batch_req_{number}", "custom_id": id, "response": None, "error": None}
        if status is None:
            line["error"] = {"code": f"batch_{body}", "message": f"This request was not executed: the batch is {body}."}
        else:
            line["response"] = {"status_code": status, "request_id": f"req_{number}", "body": body}
        yield line


class AnthropicBatches:
    """`…/messages/batches`."""

    def __init__(self, script: BatchScript, answer: AnswerLine) -> None:
        self._batches = _Batches(script, answer, "msgbatch_")

    def serves(self, path: str) -> bool:
        """Return whether the path is that of message batches."""
        return "/messages/batches" in path

    def read(self, received: ReceivedRequest) -> ReceivedRequest:
        """Carry out a request, and return it with its response."""
        parts = received.path.partition("/messages/batches")[2].strip("/").split("/")
        if parts == [""] and received.method == "POST":
            reply: Any = _message_batch(self._create(received.json()))
        elif parts == [""]:
            found = self._batches.listed(received.query, "after_id")
            reply = {"data": [_message_batch(each) for each in found.pop("page")], **found}
        elif parts[1:] == ["results"]:
            batch = self._batches.get(parts[0])
            self._batches.script.watch("results")
            lines = ({"custom_id": id, "result": _message_result(*rest)} for id, *rest in batch.results)
            reply = RawReply(self._batches.encode(batch, lines))
        else:
            reply = _message_batch(self._batches.poll(parts[0]))
        return replace(received, reply=reply)

    def _create(self, body: dict[str, Any]) -> _Batch:
        requests = [(each["custom_id"], "/v1/messages", each["params"]) for each in body["requests"]]
        for id, _, _ in requests:
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", id):
                raise NotUnderstood(f"Invalid custom_id '{id}'")
        return self._batches.create(requests, metadata={})

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return an error in Anthropic's format."""
        kind = "not_found_error" if status == 404 else "invalid_request_error"
        return {"type": "error", "error": {"type": kind, "message": message}}

    def whole(self, received: ReceivedRequest, answer: Answer) -> Any:
        """Never called: `read` has the response."""
        raise NotImplementedError

    def pieces(self, received: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """Never called: batches are not streamed."""
        raise NotImplementedError


def _message_batch(batch: _Batch) -> dict[str, Any]:
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    counts["processing"] = 0 if batch.is_over else len(batch.requests)
    for _, status, body in batch.results:
        kind = _UNITS[str(body)] if status is None else "succeeded" if status < 300 else "errored"
        counts[kind] += 1
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if batch.is_over else "in_progress",
        "request_counts": counts,
        "created_at": datetime.fromtimestamp(batch.created, UTC).isoformat(),
        "results_url": f"http://other.invalid/{batch.id}" if batch.is_over else None,
    }


def _message_result(status: int | None, body: Any) -> dict[str, Any]:
    if status is None:
        return {"type": _UNITS[body]}
    return {"type": "succeeded", "message": body} if status < 300 else {"type": "errored", "error": body}
