"""Google's Gemini API."""

from __future__ import annotations

from typing import ClassVar

from agentv.targets.base import Count, ModelApi, address_complaints, without


class Gemini(ModelApi, frozen=True, kw_only=True):
    """`thinking_budget` is the number of tokens the model may think for."""

    aliases: ClassVar[dict[str, str]] = {
        **ModelApi.aliases,
        "deployment": "model",
        "variant": "model",
        "endpoint": "base_url",
    }

    model: str | None = "gemini-2.5-flash"
    base_url: str | None = None
    api_key: str | None = None
    thinking_budget: Count | None = None

    def complaints(self) -> list[str]:
        """A blank model, or an address that is none."""
        return without(self, "model") + address_complaints("base_url", self.base_url)
