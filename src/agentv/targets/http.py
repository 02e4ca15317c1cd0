"""The HTTP target: any endpoint that takes a request made from a template and answers with text or JSON."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from agentv.targets.base import COMMON_ALIASES, OTHER_TOOLS, Target, address_complaints


class Http(Target, frozen=True, kw_only=True):
    """`body` is a template, as text or as JSON with templates in its strings; `response_path` leads to the answer."""

    aliases: ClassVar[dict[str, str]] = {**COMMON_ALIASES, "endpoint": "url"}
    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        "transform_response": "Use `response_path`, or a target of provider `python`",
        "transform_request": "Use `body`, or a target of provider `python`",
        "query_params": "Write them into `url`",
    }

    url: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: dict[str, str] = {}
    body: str | dict[str, Any] | list[Any] | None = None
    response_path: str | None = None

    def complaints(self) -> list[str]:
        """An address that is none, or a body on a request that has none."""
        complaints = address_complaints("url", self.url)
        if self.method == "GET" and self.body is not None:
            complaints.append("A GET request has no 'body'; use another 'method'")
        return complaints
