"""The cost of calls: reported by the API, else from the target's `prices`, else from the price list of the extra
`prices`, else unknown.

A price is never guessed: a model that is not in the list for the provider called has no price.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import msgspec

from agentv.errors import UsageError
from agentv.model.response import Request, Responder, ResponderWrapper, Response, TargetFailure
from agentv.model.result import TokenUsage
from agentv.settings.addresses import is_loopback
from agentv.targets.target import PriceKey, Prices, Target

BATCH_DISCOUNT = 0.5
_CHARACTERS_PER_TOKEN, _USUAL_OUTPUT = 4, 1000
"""For the cost of a reply that was cut off, if no other call of the target has a known cost."""
INSTALL = "pip install 'agentv[prices]'"


class UnknownPrice(UsageError):
    """A budget cannot be enforced for a target, because its price is unknown."""


class Price:
    """The price of one target's tokens. Each model is looked up once."""

    def __init__(self, key: PriceKey) -> None:
        self._model = key.model
        self._place = {"provider_id": key.provider} if key.address is None else {"provider_api_url": key.address}
        self._long_cache = key.has_long_cache
        self._found: dict[str, Any] = {}

    @property
    def is_known(self) -> bool:
        """Whether the target's model is in the price list."""
        return self._lookup(self._model) is not None

    def cost_usd(self, usage: TokenUsage, model: str | None = None) -> float | None:
        """Return the cost of a call. `model` is the model reported by the API, often a dated version."""
        entry = self._lookup(model or self._model) or self._lookup(self._model)
        if entry is None:
            return None
        provider, info = entry
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
            return None  # inconsistent token counts must not lose the answer

    def _lookup(self, model: str) -> Any:
        if model not in self._found:
            try:
                place = {"provider_id": None, "provider_api_url": None, **self._place}
                snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
                self._found[model] = snapshot.find_provider_model(model, None, **place)
            except LookupError:
                self._found[model] = None
        return self._found[model]


class OwnPrice:
    """The price in a target's own settings."""

    is_known = True

    def __init__(self, prices: Prices) -> None:
        self._prices = prices

    def cost_usd(self, usage: TokenUsage, model: str | None = None) -> float:  # noqa: ARG002
        """Return the cost of a call, whatever model the API reports."""
        prices, cached = self._prices, min(usage.cached or 0, usage.input)
        cached_price = prices.input if prices.cached is None else prices.cached
        total = (usage.input - cached) * prices.input + cached * cached_price + usage.output * prices.output
        return total / 1_000_000


class BatchPrice:
    """The price of requests in batches, from that of ordinary ones."""

    def __init__(self, price: Price | OwnPrice) -> None:
        self._price = price

    def cost_usd(self, usage: TokenUsage, model: str | None = None) -> float | None:
        """Return the cost of a call."""
        cost = self._price.cost_usd(usage, model)
        return None if cost is None else BATCH_DISCOUNT * cost


class PriceWrapper(ResponderWrapper):
    """Adds the cost to responses, and to failures that were paid for, of targets that do not report it.

    A reply that was cut off was paid for, but its tokens are unknown: its cost is estimated from the other calls.
    """

    def __init__(self, inner: Responder, price: Price | OwnPrice | BatchPrice, settings: Target) -> None:
        super().__init__(inner)
        self._price = price
        self._settings = settings
        self._known: TokenUsage | None = None

    async def respond(self, request: Request) -> Response:
        try:
            response = await self._inner.respond(request)
        except TargetFailure as failure:
            if failure.cost_usd is None and failure.usage is not None:
                failure.cost_usd = self._price.cost_usd(failure.usage, failure.model)
            elif failure.cost_usd is None and failure.is_billed:
                usage = self._known or expected_tokens(request, self._settings)
                failure.cost_usd = self._price.cost_usd(usage)
                failure.estimated_usd = failure.cost_usd or 0.0
            raise
        if response.cost_usd is not None or response.usage is None:
            return response
        self._known = response.usage
        return msgspec.structs.replace(response, cost_usd=self._price.cost_usd(response.usage, response.model))


def expected_tokens(request: Request, settings: Target | None) -> TokenUsage:
    """Return the tokens that a call is expected to use, as long as those of no other call are known."""
    most_output: int | None = getattr(settings, "max_output_tokens", None)
    return TokenUsage(len(request.prompt) // _CHARACTERS_PER_TOKEN, most_output or _USUAL_OUTPUT)


def price_of(settings: Target) -> Price | OwnPrice | None:
    """Return the price of a target; None if it is not billed by token, is local, or the extra is not installed.

    Prices in its settings come first.
    """
    if settings.prices is not None:
        return OwnPrice(settings.prices)
    key = settings.price_key
    return None if key is None or is_loopback(key.address) or _package() is None else Price(key)


def why_unpriced(settings: Target) -> str | None:
    """Return why a budget cannot be enforced for a target; None if its cost is known or may be reported.

    Commands, functions, HTTP endpoints and agents may report their cost; the first answer shows whether they do.
    """
    if settings.is_free or settings.may_report_cost:
        return None
    price = price_of(settings)
    if price is not None and price.is_known:
        return None
    if _package() is None:
        return f"The price list is not installed. Install it with: {INSTALL}"
    key = settings.price_key
    address = None if key is None else key.address
    where = f"of {settings.provider}" if address is None else f"at {urlsplit(address).hostname}"
    return f"The price list does not contain '{getattr(settings, 'model', None)}' {where}"


@cache
def _package() -> Any:
    """Import the price list, which takes half a second; None if it is not installed."""
    try:
        return import_module("genai_prices")
    except ImportError:
        return None
