"""The OpenAI API and everything that speaks it: OpenAI, vLLM, Ollama, OpenRouter, llama.cpp, gateways."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from agentv.environment import environment_of
from agentv.errors import UsageError
from agentv.model.message import Message
from agentv.model.response import Request, Responder, Response, TargetFailure
from agentv.model.values import digest, to_json
from agentv.targets.base import ModelApi, address_complaints, without
from agentv.targets.chat_completions import AnswerError, constant_body, read_completion, wire_messages

if TYPE_CHECKING:
    from agentv.targets.client import HttpClient, Reply

OPENAI_URL = "https://api.openai.com/v1"


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

    def open(self, home: str) -> Responder:
        """Chat completions, ready to be asked."""
        if self.api == "responses":
            raise UsageError(f"Target '{self.name}': 'api: responses' is not supported yet", hint="Use 'api: chat'")
        from agentv.targets.client import HttpClient  # late: aiohttp takes a quarter of a second to import

        key = self._key(home)
        base, _, query = (self.base_url or OPENAI_URL).partition("?")
        base = base.rstrip("/").removesuffix("/chat/completions")
        url = f"{base}/chat/completions" + (f"?{query}" if query else "")
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        return ChatResponder(
            HttpClient(url, overlaid(headers, self.headers)),
            url,
            endpoint=f"{base}#{digest(key)[:8] if key else 'no-key'}",
            # OpenAI's newer models refuse the old name; many of the servers that speak its API know no other.
            body=constant_body(self, "max_completion_tokens" if base == OPENAI_URL else "max_tokens"),
            system_prompt=self.system_prompt,
        )

    def open_embeddings(self, home: str) -> Responder:
        """Embeddings of `model`, ready to be asked for."""
        from agentv.targets.client import HttpClient  # late: as above
        from agentv.targets.embeddings import EmbeddingResponder

        key = self._key(home)
        base, _, query = (self.base_url or OPENAI_URL).partition("?")
        base = base.rstrip("/").removesuffix("/embeddings")
        url = f"{base}/embeddings" + (f"?{query}" if query else "")
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        endpoint = f"{base}#{digest(key)[:8] if key else 'no-key'}"
        return EmbeddingResponder(
            HttpClient(url, overlaid(headers, self.headers)), url, endpoint=endpoint, model=self.model
        )

    def _key(self, home: str) -> str | None:
        if self.api_key or self.base_url is not None:
            return self.api_key or None
        # OpenAI's own variable, for OpenAI alone: other hosts must not be sent its key.
        key = environment_of(home).variables.get("OPENAI_API_KEY")
        if not key:
            raise UsageError(
                f"Target '{self.name}' has no 'api_key'",
                hint="Set OPENAI_API_KEY and write api_key: ${{ OPENAI_API_KEY }}",
            )
        return key


class ChatResponder:
    """A chat completions endpoint that is alive."""

    def __init__(
        self, client: HttpClient, url: str, *, endpoint: str, body: dict[str, Any], system_prompt: str | None = None
    ) -> None:
        self.endpoint = endpoint
        self._client = client
        self._url = url
        self._body = body
        self._first = (Message("system", system_prompt),) if system_prompt else ()

    async def respond(self, request: Request) -> Response:
        """One call. Raises TargetFailure."""
        body = to_json(self.sends(request))
        start = time.perf_counter()
        reply = await self._client.send("POST", self._url, body, request.timeout_s)
        duration_ms = (time.perf_counter() - start) * 1000
        try:
            return read_completion(reply.body, duration_ms)
        except AnswerError as error:
            raise self._failure(error, reply) from None

    def sends(self, request: Request) -> dict[str, Any]:
        """The body of the call."""
        return {**self._body, "messages": wire_messages(self._first + request.messages)}

    def _failure(self, error: AnswerError, reply: Reply) -> TargetFailure:
        if error.refused:
            return self._client.failure("refused", error.message, status=reply.status)
        if error.error is not None:
            # Gateways report a provider's failure under status 200, with the status it had as its code.
            code = error.error.get("code") if isinstance(error.error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else reply.status
            return self._client.reported(error.error, status, reply.headers)
        return self._client.unreadable(reply, error.message)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


def overlaid(headers: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Headers with the user's own over them; names are the same in any case."""
    written = {name.lower() for name in own}
    return {name: value for name, value in headers.items() if name.lower() not in written} | own
