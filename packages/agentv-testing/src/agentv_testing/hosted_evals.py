"""The API of OpenAI's hosted Evals for the model server: lists of evals, runs and their output items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

from agentv_testing.openai_chat import OpenAIFormat
from agentv_testing.wire import Answer, NotUnderstood, RawReply, ReceivedRequest

Objects = list[dict[str, Any]]


class HostedEvals(OpenAIFormat):
    """`FaultyServer(formats=[HostedEvals(evals, runs, items)])`. Lists have pages of at most `page` objects.

    `runs` has the runs of each eval by its id, `items` the output items of each run, `files` uploaded files. The first
    `refused` requests get the status 429.
    """

    def __init__(
        self,
        evals: Objects,
        runs: Mapping[str, Objects],
        items: Mapping[str, Objects],
        files: Mapping[str, bytes] | None = None,
        *,
        page: int = 2,
        refused: int = 0,
    ) -> None:
        self.refused = refused
        self._evals = evals
        self._runs = runs
        self._items = items
        self._files = files or {}
        self._page = page

    def serves(self, path: str) -> bool:
        """Return whether the path is that of evals or files."""
        return path.startswith(("/v1/evals", "/v1/files/"))

    def read(self, received: ReceivedRequest) -> ReceivedRequest:
        """Return the request with its response. Raises NotUnderstood."""
        if not received.headers.get("Authorization", "").startswith("Bearer "):
            raise NotUnderstood("You did not provide an API key", status=401)
        if self.refused > 0:
            self.refused -= 1
            raise NotUnderstood("Too many requests", status=429)
        parts = received.path.removeprefix("/v1/").split("/")
        if parts[0] == "files":
            return replace(received, reply=RawReply(self._files[parts[1]]))
        match parts:
            case ["evals"]:
                found = self._listed(self._evals, received.query)
            case ["evals", name]:
                found = next((each for each in self._evals if each["id"] == name), {})
            case ["evals", name, "runs"]:
                found = self._listed(self._runs.get(name, []), received.query)
            case ["evals", _, "runs", run, "output_items"]:
                found = self._listed(self._items.get(run, []), received.query)
            case _:
                found = {}
        if not found:
            raise NotUnderstood(f"Nothing is stored at {received.path}", status=404)
        return replace(received, reply=found)

    def _listed(self, objects: Objects, query: str) -> dict[str, Any]:
        asked = parse_qs(query)
        ids = [each["id"] for each in objects]
        start = ids.index(asked["after"][0]) + 1 if "after" in asked else 0
        size = min(self._page, int(asked.get("limit", ["20"])[0]))
        page = objects[start : start + size]
        more = start + size < len(objects)
        return {"object": "list", "data": page, "has_more": more, "last_id": page[-1]["id"] if page else None}

    def whole(self, received: ReceivedRequest, answer: Answer) -> Any:
        """Never called: `read` has the response."""
        raise NotImplementedError

    def pieces(self, received: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """Never called: nothing is streamed."""
        raise NotImplementedError
