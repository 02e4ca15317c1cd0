"""The OpenAI API and everything that speaks it: OpenAI, vLLM, Ollama, OpenRouter, llama.cpp, gateways."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, NamedTuple
from urllib.parse import parse_qs, quote

import msgspec
from msgspec import Meta

from agentv.errors import UsageError
from agentv.model.job import CallOverrides
from agentv.model.response import Responder
from agentv.settings.environment import environment_of
from agentv.targets.apis.model_api import WireApi, embeddings_wire, find_api_key, merge_headers, open_api
from agentv.targets.apis.openai_wire import Dialect, chat_wire, responses_wire
from agentv.targets.target import (
    HostedApi,
    ModelApi,
    PriceKey,
    Target,
    address_complaints,
    is_loopback,
    missing_settings,
)

OPENAI_URL = "https://api.openai.com/v1"
PATHS = {"chat": "/chat/completions", "responses": "/responses"}

Logprobs = bool | Annotated[int, Meta(ge=0, le=20)] | None


class Address(NamedTuple):
    """An address up to `/v1`, and the key that goes there."""

    url: str
    key: str | None


class OpenAI(HostedApi, frozen=True, kw_only=True):
    """OpenAI, and every server that speaks its API at another `base_url`.

    Where no `api_key` is written, `OPENAI_API_KEY` is taken, for OpenAI itself.
    """

    aliases: ClassVar[dict[str, str]] = {**HostedApi.aliases, "api_base": "base_url", "api_format": "api"}
    price_list_name: ClassVar[str | None] = "openai"

    api: Literal["chat", "responses"] = "chat"
    logprobs: Logprobs = None

    def open(self, home: str) -> Responder:
        """The endpoint, ready to be asked."""
        address = self.address(home)
        wire = wire_of(self, self.api, self.logprobs, self.dialect(address))
        return self._open_at(address, PATHS[self.api], wire)

    def open_embeddings(self, home: str) -> Responder:
        """Embeddings of `model`, ready to be asked for."""
        return self._open_at(self.address(home), "/embeddings", embeddings_wire(self.model))

    def _open_at(self, address: Address, path: str, wire: WireApi) -> Responder:
        """A path below an address up to `/v1`; an address that has one of the paths already is cut."""
        base, _, query = address.url.partition("?")
        base = base.rstrip("/")
        for known in (*PATHS.values(), "/embeddings"):
            base = base.removesuffix(known)
        url = base + path + (f"?{query}" if query else "")
        headers = {"Authorization": f"Bearer {address.key}"} if address.key else {}
        return open_api(url, address.key, merge_headers(headers, self.headers), wire, base=base)

    def address(self, home: str) -> Address:
        """Where the endpoint is, and the key for it."""
        return Address(self.base_url or OPENAI_URL, find_api_key(self, home, "OPENAI_API_KEY"))

    def dialect(self, address: Address) -> Dialect:
        """Where the server differs from others that speak this API."""
        # OpenAI's newer models refuse the old name; many of the servers that speak its API know no other.
        return Dialect(output_limit="max_completion_tokens") if address.url.rstrip("/") == OPENAI_URL else Dialect()


def wire_of(settings: ModelApi, api: str, logprobs: bool | int | None, dialect: Dialect) -> WireApi:
    """The form of one of the two APIs."""
    if api == "responses":
        return responses_wire(settings, logprobs)
    return chat_wire(settings, dialect, logprobs)


NEW_VERSIONS = frozenset({"v1", "preview", "latest"})
"""The versions of the address without a date, in which a deployment is named in the body alone."""

_KEY, _TOKEN = "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"
_OLD_NAME_UNTIL = "2024-09"
_RESOURCE = re.compile(r"[\w-]+(?:\.[\w.-]+(?:[:/?]\S*)?)?")
"""The name of a resource, or its address without the scheme."""


class _Place(NamedTuple):
    """An endpoint taken apart: scheme and host, and the version that is asked for; empty for none."""

    base: str
    version: str


class Azure(ModelApi, frozen=True, kw_only=True):
    """Models deployed on Azure OpenAI.

    `endpoint` is an address or the name of a resource; `model` is the deployment. With a date as `version` calls go
    to the older address, which has the deployment and `api-version` in it; without one, or as `v1`, to `/openai/v1`.
    Where no `api_key` is written, `AZURE_OPENAI_API_KEY` is taken, else `AZURE_OPENAI_AD_TOKEN`, a token of Entra.
    """

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
    price_list_name: ClassVar[str | None] = "azure"

    endpoint: str | None = None
    api_key: str | None = None
    version: str | None = None
    api: Literal["chat", "responses"] = "chat"
    logprobs: Logprobs = None

    def complaints(self) -> list[str]:
        """No endpoint or no model, or an endpoint that is neither an address nor the name of a resource."""
        found = missing_settings(self, "endpoint", "model")
        endpoint = self.endpoint or ""
        if endpoint.startswith(("http://", "https://")):
            return found + address_complaints("endpoint", endpoint)
        if endpoint.strip() and "{{" not in endpoint and not _RESOURCE.fullmatch(endpoint):
            found.append(f"'endpoint' must be an address or the name of a resource, got '{endpoint}'")
        return found

    def open(self, home: str) -> Responder:
        """The deployment, ready to be asked."""
        version = self._place.version
        # Old versions know the limit of tokens by its old name only, new models by its new one only.
        is_old = version[:1].isdigit() and version < _OLD_NAME_UNTIL
        dialect = Dialect(output_limit="max_tokens" if is_old else "max_completion_tokens")
        return self._open_at(home, PATHS[self.api], wire_of(self, self.api, self.logprobs, dialect))

    def open_embeddings(self, home: str) -> Responder:
        """Embeddings of the deployment, ready to be asked for."""
        return self._open_at(home, "/embeddings", embeddings_wire(self.model))

    @property
    def _place(self) -> _Place:
        place = _place(str(self.endpoint))
        return _Place(place.base, (self.version or place.version or "v1").removeprefix("api-version="))

    def _open_at(self, home: str, path: str, wire: WireApi) -> Responder:
        headers = self._credentials(home)
        key = next(iter(headers.values()))
        base, version = self._place
        return open_api(base + self._path(path, version), key, merge_headers(headers, self.headers), wire, base=base)

    def _path(self, path: str, version: str) -> str:
        if version in NEW_VERSIONS:
            return f"/openai/v1{path}" + ("?api-version=preview" if version == "preview" else "")
        deployment = "" if path == PATHS["responses"] else f"/deployments/{quote(str(self.model), safe='')}"
        return f"/openai{deployment}{path}?api-version={quote(version)}"

    def _credentials(self, home: str) -> dict[str, str]:
        known = environment_of(home).variables
        key, token = self.api_key or known.get(_KEY), known.get(_TOKEN)
        if key:
            return {"api-key": key}
        if token:
            return {"Authorization": f"Bearer {token}"}
        raise UsageError(
            f"Target '{self.name}' has no 'api_key'",
            hint=f"Set {_KEY}, or {_TOKEN} to a token of Entra, in the environment or in .env",
        )


def _place(endpoint: str) -> _Place:
    """The place of an endpoint: a resource's name, its address, or an address copied with its path and version."""
    if not endpoint.startswith(("http://", "https://")):
        if "." not in endpoint:
            return _Place(f"https://{endpoint}.openai.azure.com", "")
        endpoint = f"https://{endpoint}"
    address, _, query = endpoint.partition("?")
    base = re.split(r"/openai(?:/|$)", address.rstrip("/"), maxsplit=1)[0]
    return _Place(base, next(iter(parse_qs(query).get("api-version", ())), ""))


class ServicePreset(msgspec.Struct, frozen=True):
    """One service. Without a `key_variable` it runs on this machine and asks for no key. `model` is an example."""

    title: str
    base_url: str
    model: str
    key_variable: str | None = None
    price_list_name: str | None = None
    dialect: Dialect = Dialect()
    takes_schemas: bool = True
    reports_cost: bool = False


_FIREWORKS_MODEL = "accounts/fireworks/models/deepseek-v3p1"
_FIREWORKS_URL = "https://api.fireworks.ai/inference/v1"
_GPT_OSS = "openai/gpt-oss-120b"
_OPENROUTER_URL = "https://openrouter.ai/api/v1"

PRESETS: dict[str, ServicePreset] = {
    "openrouter": ServicePreset(
        "OpenRouter", _OPENROUTER_URL, "openai/gpt-5-mini", "OPENROUTER_API_KEY", "openrouter", reports_cost=True
    ),
    "groq": ServicePreset(
        "Groq", "https://api.groq.com/openai/v1", _GPT_OSS, "GROQ_API_KEY", "groq", Dialect("max_completion_tokens")
    ),
    "deepseek": ServicePreset(  # it takes JSON without a schema only
        "DeepSeek", "https://api.deepseek.com/v1", "deepseek-chat", "DEEPSEEK_API_KEY", "deepseek", takes_schemas=False
    ),
    "mistral": ServicePreset(
        "Mistral",
        "https://api.mistral.ai/v1",
        "mistral-large-latest",
        "MISTRAL_API_KEY",
        "mistral",
        Dialect(seed="random_seed"),
    ),
    "together": ServicePreset("Together AI", "https://api.together.xyz/v1", _GPT_OSS, "TOGETHER_API_KEY", "together"),
    "fireworks": ServicePreset("Fireworks AI", _FIREWORKS_URL, _FIREWORKS_MODEL, "FIREWORKS_API_KEY", "fireworks"),
    "xai": ServicePreset("xAI", "https://api.x.ai/v1", "grok-4", "XAI_API_KEY", "x-ai"),
    "github-models": ServicePreset(
        "GitHub Models", "https://models.github.ai/inference", "openai/gpt-5-mini", "GITHUB_TOKEN"
    ),
    "ollama": ServicePreset("Ollama", "http://localhost:11434/v1", "llama3.2"),
    "vllm": ServicePreset("vLLM", "http://localhost:8000/v1", "Qwen/Qwen3-8B"),
    "lm-studio": ServicePreset("LM Studio", "http://localhost:1234/v1", "qwen3-8b"),
    "llama-cpp": ServicePreset("llama.cpp", "http://localhost:8080/v1", "default"),
}


class Compatible(OpenAI, frozen=True, kw_only=True):
    """A service that speaks OpenAI's API. Its address and the variable with its key need not be written."""

    @property
    def preset(self) -> ServicePreset:
        """The row of this target's provider."""
        return PRESETS[self.provider]

    @property
    def is_free(self) -> bool:
        """A server on this machine."""
        return self.preset.key_variable is None and (self.base_url is None or is_loopback(self.base_url))

    @property
    def may_report_cost(self) -> bool:
        """Some services state the cost of each call."""
        return self.preset.reports_cost

    @property
    def price_key(self) -> PriceKey | None:
        """The model under the service's own name."""
        return self._price_key(self.preset.price_list_name)

    def address(self, home: str) -> Address:
        """The service's own address and key; another address is sent the key that is written, and no other."""
        variable = self.preset.key_variable
        key = self.api_key or None if variable is None else find_api_key(self, home, variable)
        return Address(self.base_url or self.preset.base_url, key)

    def with_overrides(self, wanted: CallOverrides) -> Target:
        """As every model API, without a schema where the service takes none."""
        return super().with_overrides(
            wanted if self.preset.takes_schemas else msgspec.structs.replace(wanted, schema=None)
        )

    def dialect(self, address: Address) -> Dialect:  # noqa: ARG002
        """Where the service differs, whatever its address."""
        return self.preset.dialect
