"""The OpenAI API and everything that speaks it: OpenAI, vLLM, Ollama, OpenRouter, llama.cpp, gateways."""

from __future__ import annotations

from typing import ClassVar, Literal

from agentv.targets.base import ModelApi, address_complaints, without


class OpenAI(ModelApi, frozen=True, kw_only=True):
    """`base_url` unset means OpenAI itself; `api` chooses between its two ways of asking."""

    aliases: ClassVar[dict[str, str]] = {
        **ModelApi.aliases,
        "endpoint": "base_url",
        "api_base": "base_url",
        "api_format": "api",
        "deployment": "model",
        "variant": "model",
    }

    base_url: str | None = None
    api_key: str | None = None
    api: Literal["chat", "responses"] = "chat"

    def complaints(self) -> list[str]:
        """No model, or an address that is none."""
        return without(self, "model") + address_complaints("base_url", self.base_url)
