"""Azure OpenAI: a model deployed under the user's own endpoint."""

from __future__ import annotations

from typing import ClassVar, Literal

from agentv.targets.base import ModelApi, without


class Azure(ModelApi, frozen=True, kw_only=True):
    """`endpoint` is an address or the name of a resource; `model` is the deployment; `version` that of the API."""

    takes_schema: ClassVar[bool] = True
    aliases: ClassVar[dict[str, str]] = {
        **ModelApi.aliases,
        "resource": "endpoint",
        "resource_name": "endpoint",
        "base_url": "endpoint",
        "deployment": "model",
        "deployment_name": "model",
        "api_version": "version",
        "api_format": "api",
    }

    endpoint: str | None = None
    api_key: str | None = None
    version: str | None = None
    api: Literal["chat", "responses"] = "chat"

    def complaints(self) -> list[str]:
        """No endpoint or no model."""
        return without(self, "endpoint", "model")
