"""What calls cost: reported by the API, else by the list of prices that the extra `prices` brings, else unknown.

A price is never guessed: a model that the list does not have, at the provider that was called, has none.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import msgspec

from agentv.model.response import Request, Responder, Response
from agentv.model.result import TokenUsage
from agentv.targets.replay.stored_response import sent_by
from agentv.targets.target import ModelApi, Target

INSTALL = "pip install 'agentv[prices]'"

_FREE = frozenset({"mock", "replay"})
_FREE_AT_HOME = frozenset({"ollama", "vllm", "lm-studio", "llama-cpp"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_REPORTS_COST = frozenset({"openrouter"})
_LISTED_AS = {
    "openai": "openai",
    "azure": "azure",
    "anthropic": "anthropic",
    "gemini": "google",
    "openrouter": "openrouter",
    "groq": "groq",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "together": "together",
    "fireworks": "fireworks",
    "xai": "x-ai",
    "bedrock": "aws",
    "cohere": "cohere",
}
"""Our providers and what the list calls them."""


class Price:
    """What the tokens of one target cost. Models are looked up once each."""

    def __init__(self, settings: ModelApi, provider: str | None, address: str | None) -> None:
        self._model = settings.model or ""
        if settings.provider == "pydantic_ai":
            provider, _, self._model = self._model.partition(":")
        self._place = {"provider_id": provider} if address is None else {"provider_api_url": address}
        self._long_cache = getattr(settings, "prompt_caching", False) == "1h"
        self._found: dict[str, Any] = {}

    @property
    def is_known(self) -> bool:
        """Whether the list has the model that the target names."""
        return self._lookup(self._model) is not None

    def cost_usd(self, usage: TokenUsage, model: str | None = None) -> float | None:
        """The cost of a call; `model` is the one that says it has answered, which may be a dated one."""
        found = self._lookup(model or self._model) or self._lookup(self._model)
        if found is None:
            return None
        provider, info = found
        counts = {
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "cache_read_tokens": usage.cached or 0,
            "cache_write_tokens": usage.cache_write or 0,
            "cache_write_1h_tokens": usage.cache_write or 0 if self._long_cache else 0,
        }
        try:
            return float(info.calc_price(_package().Usage(**counts), provider).total_price)
        except ValueError:
            return None  # counts that do not add up are no reason to lose an answer

    def _lookup(self, model: str) -> Any:
        if model not in self._found:
            try:
                place = {"provider_id": None, "provider_api_url": None, **self._place}
                snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
                self._found[model] = snapshot.find_provider_model(model, None, **place)
            except LookupError:
                self._found[model] = None
        return self._found[model]


class PricedResponder:
    """A model API whose answers say what they cost."""

    def __init__(self, inner: Responder, price: Price) -> None:
        self.endpoint = inner.endpoint
        self._inner = inner
        self._price = price

    async def respond(self, request: Request) -> Response:
        """One call. What the API says about its cost stands."""
        response = await self._inner.respond(request)
        if response.cost_usd is not None or response.usage is None:
            return response
        return msgspec.structs.replace(response, cost_usd=self._price.cost_usd(response.usage, response.model))

    def sends(self, request: Request) -> dict[str, Any] | None:
        """What the target would send."""
        return sent_by(self._inner, request)

    async def aclose(self) -> None:
        """Closes the target."""
        await self._inner.aclose()


def price_of(settings: Target) -> Price | None:
    """What is known about a target's prices; None for one that is no model API or on this machine, and without the
    extra."""
    if not isinstance(settings, ModelApi):
        return None
    address = getattr(settings, "base_url", None)
    # A model of pydantic-ai names its provider itself, mostly as the list does.
    listed = _LISTED_AS.get(settings.provider, "" if settings.provider == "pydantic_ai" else None)
    if _is_at_home(address) or (listed is None and address is None) or _package() is None:
        return None
    return Price(settings, listed, address)


def is_free(settings: Target) -> bool:
    """Whether nobody sends a bill: for what calls no one, and for servers on this machine."""
    address = getattr(settings, "base_url", None)
    at_home = settings.provider in _FREE_AT_HOME and (address is None or _is_at_home(address))
    return at_home or settings.provider in _FREE


def why_unpriced(settings: Target) -> str | None:
    """Why a budget cannot be held with a target, and what to do; None when its cost is known, or may be reported.

    Commands, functions, addresses and agents may say what they cost; whether they do shows with the first answer.
    """
    if not isinstance(settings, ModelApi) or is_free(settings) or settings.provider in _REPORTS_COST:
        return None
    price = price_of(settings)
    if price is not None and price.is_known:
        return None
    if _package() is None:
        return f"Prices come with a package that is not installed: {INSTALL}"
    address = getattr(settings, "base_url", None)
    where = f"of {settings.provider}" if address is None else f"at {urlsplit(address).hostname}"
    return f"The list of prices does not have '{settings.model}' {where}"


def _is_at_home(address: str | None) -> bool:
    return address is not None and urlsplit(address).hostname in _LOOPBACK


@cache
def _package() -> Any:
    """The list of prices; None where it is not installed. Importing it takes half a second."""
    try:
        return import_module("genai_prices")
    except ImportError:
        return None
