"""The OpenAI API and everything that speaks it: OpenAI, vLLM, Ollama, OpenRouter, llama.cpp, gateways."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple

from msgspec import Meta

from agentv.model.response import Responder
from agentv.targets.base import ModelApi, address_complaints, without
from agentv.targets.chat_completions import Dialect, chat_wire
from agentv.targets.model_api import WireApi, key_of, open_api, overlaid

OPENAI_URL = "https://api.openai.com/v1"
PATHS = {"chat": "/chat/completions", "responses": "/responses"}

Logprobs = bool | Annotated[int, Meta(ge=0, le=20)] | None


class Address(NamedTuple):
    """An address up to `/v1`, and the key that goes there."""

    url: str
    key: str | None


class OpenAI(ModelApi, frozen=True, kw_only=True):
    """OpenAI, and every server that speaks its API at another `base_url`.

    Where no `api_key` is written, `OPENAI_API_KEY` is taken, for OpenAI itself.
    """

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
    logprobs: Logprobs = None

    def complaints(self) -> list[str]:
        """No model, or an address that is none."""
        return without(self, "model") + address_complaints("base_url", self.base_url)

    def open(self, home: str) -> Responder:
        """The endpoint, ready to be asked."""
        address = self.address(home)
        wire = wire_of(self, self.api, self.logprobs, self.dialect(address))
        return self._open_at(address, PATHS[self.api], wire)

    def open_embeddings(self, home: str) -> Responder:
        """Embeddings of `model`, ready to be asked for."""
        from agentv.targets.embeddings import embeddings_wire  # late: few runs need any

        return self._open_at(self.address(home), "/embeddings", embeddings_wire(self.model))

    def _open_at(self, address: Address, path: str, wire: WireApi) -> Responder:
        """A path below an address up to `/v1`; an address that has one of the paths already is cut."""
        base, _, query = address.url.partition("?")
        base = base.rstrip("/")
        for known in (*PATHS.values(), "/embeddings"):
            base = base.removesuffix(known)
        url = base + path + (f"?{query}" if query else "")
        headers = {"Authorization": f"Bearer {address.key}"} if address.key else {}
        return open_api(url, address.key, overlaid(headers, self.headers), wire, base=base)

    def address(self, home: str) -> Address:
        """Where the endpoint is, and the key for it."""
        # OpenAI's own variable, for OpenAI alone: other hosts must not be sent its key.
        is_openai = self.base_url is None
        key = key_of(self, home, "OPENAI_API_KEY", given=self.api_key) if is_openai else self.api_key or None
        return Address(self.base_url or OPENAI_URL, key)

    def dialect(self, address: Address) -> Dialect:
        """Where the server differs from others that speak this API."""
        # OpenAI's newer models refuse the old name; many of the servers that speak its API know no other.
        return Dialect(output_limit="max_completion_tokens") if address.url.rstrip("/") == OPENAI_URL else Dialect()


def wire_of(settings: ModelApi, api: str, logprobs: bool | int | None, dialect: Dialect) -> WireApi:
    """The form of one of the two APIs."""
    if api == "responses":
        from agentv.targets.responses import responses_wire  # late: few targets need it

        return responses_wire(settings, logprobs)
    return chat_wire(settings, dialect, logprobs)
