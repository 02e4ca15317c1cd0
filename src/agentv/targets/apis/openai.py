"""OpenAI and compatible APIs: Azure, OpenRouter, vLLM, Ollama, llama.cpp and gateways."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import parse_qs, quote, urlsplit

import msgspec
from msgspec import Meta

from agentv.errors import UsageError
from agentv.model.call_trace import TRACE_WAIT_S
from agentv.model.job import CallOverrides
from agentv.model.response import Responder
from agentv.registry import service
from agentv.settings.addresses import address_complaints, host_of, is_loopback
from agentv.targets.apis.model_api import ApiResponder, WireApi, embeddings_wire, find_api_key, open_api
from agentv.targets.apis.openai_wire import Dialect, chat_wire, responses_wire
from agentv.targets.target import HostedApi, ModelApi, NonNegative, PriceKey, Target, missing_keys
from agentv.trust.env_file import environment_of
from agentv.trust.inventory import ANY_HOST, NamedUse

if TYPE_CHECKING:
    from agentv.targets.apis.batch_api import BatchApi

OPENAI_URL = "https://api.openai.com/v1"
PATHS = {"chat": "/chat/completions", "responses": "/responses"}

Logprobs = bool | Annotated[int, Meta(ge=0, le=20)] | None


class OpenAI(HostedApi, frozen=True, kw_only=True):
    """OpenAI, and any server with an OpenAI-compatible API at another `base_url`.

    The key defaults to `OPENAI_API_KEY`, for OpenAI itself only. With `traces`, the spans that the server exports to
    agentv become the messages and tool calls of its answers, if it is an agent; see `trace_wait`.
    """

    aliases: ClassVar[dict[str, str]] = {**HostedApi.aliases, "api_base": "base_url", "api_format": "api"}
    price_list_name: ClassVar[str | None] = "openai"
    vendor_url: ClassVar[str] = OPENAI_URL
    vendor_keys: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)

    api: Literal["chat", "responses"] = "chat"
    """Which of OpenAI's two APIs to use."""

    logprobs: Logprobs = None
    """Store log probabilities of the tokens in the record; a number: of that many alternatives per token."""

    batch: bool = False
    """Send requests through the [batch API](../how-to/batch-mode.md): half the price, up to 24 hours."""

    traces: bool = False
    """Receive the spans of the agent, and use its [tool calls](../how-to/traces.md)."""

    trace_wait: NonNegative = TRACE_WAIT_S
    """Seconds to wait for the spans of a call."""

    def complaints(self) -> list[str]:
        """Check the model and the address, and that calls in batches are not traced."""
        both = self.batch and self.traces
        return super().complaints() + (["'traces' cannot be used in batch mode"] if both else [])

    def open(self, home: str) -> ApiResponder:
        """Open the endpoint."""
        return self._open_at(home, PATHS[self.api], _wire_of(self, self.dialect))

    def open_batches(self, home: str) -> BatchApi:
        """Open the endpoint for batches."""
        base, query = self._base(home)
        batches: BatchApi = service("openai-batches", "`batch`")(self.open(home), base, query, PATHS[self.api])
        return batches

    def open_embeddings(self, home: str) -> Responder:
        """Open the endpoint for embeddings by `model`."""
        return self._open_at(home, "/embeddings", embeddings_wire(self.model))

    def _base(self, home: str) -> tuple[str, str]:
        """Return the base URL, which may be set to one of the paths below it, and the query."""
        base, _, query = self.address(home)[0].partition("?")
        base = base.rstrip("/")
        for path in (*PATHS.values(), "/embeddings"):
            base = base.removesuffix(path)
        return base, query

    def _open_at(self, home: str, path: str, wire: WireApi) -> ApiResponder:
        """Open a path below the base URL."""
        base, query = self._base(home)
        key = self.address(home)[1]
        url = base + path + (f"?{query}" if query else "")
        auth = {"Authorization": f"Bearer {key}"} if key else {}
        return open_api(self, url, auth, wire, base=base)

    def address(self, home: str) -> tuple[str, str | None]:
        """Return the base URL, which ends with `/v1`, and the API key."""
        return self.base_url or OPENAI_URL, find_api_key(self, home, *self.vendor_keys)

    @property
    def dialect(self) -> Dialect:
        """The server's parameter names."""
        # OpenAI's newer models reject the old name; many compatible servers accept no other.
        is_openai = (self.base_url or OPENAI_URL).rstrip("/") == OPENAI_URL
        return Dialect(output_limit="max_completion_tokens") if is_openai else Dialect()


def _wire_of(settings: OpenAI | Azure, dialect: Dialect) -> WireApi:
    if settings.api == "responses":
        return responses_wire(settings, settings.logprobs)
    return chat_wire(settings, dialect, settings.logprobs)


NEW_VERSIONS = frozenset({"v1", "preview", "latest"})
"""API versions without a date, for which the deployment is named in the request body only."""

_KEY, _TOKEN = "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"
_AZURE_HOSTS = tuple(
    f".{service}.azure.{end}"
    for service in ("openai", "cognitiveservices", "services.ai")
    for end in ("com", "us", "cn")
)
"""Addresses that only Azure serves. Others, such as `cloudapp.azure.com`, are machines of its customers."""
_OLD_NAME_UNTIL = "2024-09"
_RESOURCE = re.compile(r"[\w-]+(?:\.[\w.-]+(?:[:/?]\S*)?)?")
"""A resource name, or its address without the scheme."""


class Azure(ModelApi, frozen=True, kw_only=True):
    """Models deployed on Azure OpenAI.

    If `version` is a date, calls go to the older URL, which contains the deployment and `api-version`; otherwise to
    `/openai/v1`. Keys from the environment are only sent to Azure's own addresses.
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

    model: str | None = None
    """Deployment."""

    endpoint: str | None = None
    """URL, or the name of a resource."""

    api_key: str | None = None
    """API key (default: `AZURE_OPENAI_API_KEY`, else `AZURE_OPENAI_AD_TOKEN`, an Entra token; for Azure's own addresses
    only).
    """

    version: str | None = None
    """A date for the older API with `api-version`; `v1`, the default, for `/openai/v1`."""

    api: Literal["chat", "responses"] = "chat"
    """Which of OpenAI's two APIs to use."""

    logprobs: Logprobs = None
    """Store log probabilities of the tokens in the record; a number: of that many alternatives per token."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterator[NamedUse]:
        """Return the host of the endpoint, and the variables with the key."""
        endpoint = settings.get("endpoint")
        yield "host", host_of(_endpoint_url(endpoint)) if isinstance(endpoint, str) and endpoint else ANY_HOST
        if not settings.get("api_key"):
            yield from (("variable", name) for name in (_KEY, _TOKEN))

    @classmethod
    def telemetry_name(cls, provider: str) -> str:  # noqa: ARG003
        """Return the name of the conventions."""
        return "azure.ai.openai"

    def complaints(self) -> list[str]:
        """Check that the endpoint and the model are set and that the endpoint is an address or a resource name."""
        complaints = super().complaints() + missing_keys(self, "endpoint", "model")
        endpoint = self.endpoint or ""
        if endpoint.startswith(("http://", "https://")):
            return complaints + address_complaints("endpoint", endpoint)
        if endpoint.strip() and "{{" not in endpoint and not _RESOURCE.fullmatch(endpoint):
            complaints.append(f"'endpoint' must be an address or a resource name, got '{endpoint}'")
        return complaints

    def open(self, home: str) -> Responder:
        """Open the deployment."""
        _, version = self._location()
        # Old API versions accept only the old name of the token limit, new models only the new name.
        is_old = version[:1].isdigit() and version < _OLD_NAME_UNTIL
        dialect = Dialect(output_limit="max_tokens" if is_old else "max_completion_tokens")
        return self._open_at(home, PATHS[self.api], _wire_of(self, dialect))

    def open_embeddings(self, home: str) -> Responder:
        """Open the deployment for embeddings."""
        return self._open_at(home, "/embeddings", embeddings_wire(self.model))

    def _location(self) -> tuple[str, str]:
        """Return the base URL and the API version. The endpoint is a resource name, its address, or a full URL."""
        address, _, query = _endpoint_url(str(self.endpoint)).partition("?")
        version = self.version or next(iter(parse_qs(query).get("api-version", ())), "v1")
        base = re.split(r"/openai(?:/|$)", address.rstrip("/"), maxsplit=1)[0]
        return base, version.removeprefix("api-version=")

    def _open_at(self, home: str, path: str, wire: WireApi) -> Responder:
        base, version = self._location()
        if version in NEW_VERSIONS:
            url = f"{base}/openai/v1{path}" + ("?api-version=preview" if version == "preview" else "")
        else:
            deployment = "" if path == PATHS["responses"] else f"/deployments/{quote(str(self.model), safe='')}"
            url = f"{base}/openai{deployment}{path}?api-version={quote(version)}"
        return open_api(self, url, self._credentials(home), wire, base=base)

    def _credentials(self, home: str) -> dict[str, str]:
        """Return the headers with the key. Other addresses than Azure's only receive the one in the settings."""
        if self.api_key or {"api-key", "authorization"} & {name.lower() for name in self.headers}:
            return {"api-key": self.api_key} if self.api_key else {}
        host = urlsplit(self._location()[0])
        if host.scheme != "https" or not f".{host.hostname}".endswith(_AZURE_HOSTS):
            hint = f"{_KEY} is sent only to Azure, not to {host.netloc}. To send it there: api_key: ${{{{ {_KEY} }}}}"
            raise UsageError(f"Target '{self.name}' has no 'api_key'", hint=hint)
        variables = environment_of(home).variables
        if variables.get(_KEY):
            return {"api-key": variables[_KEY]}
        if variables.get(_TOKEN):
            return {"Authorization": f"Bearer {variables[_TOKEN]}"}
        hint = f"Set {_KEY}, or {_TOKEN} to a Microsoft Entra token, in the environment or in .env"
        raise UsageError(f"Target '{self.name}' has no 'api_key'", hint=hint)


def _endpoint_url(endpoint: str) -> str:
    """Return the address of an endpoint, which may be a resource name or an address without its scheme."""
    if endpoint.startswith(("http://", "https://", "${{")):
        return endpoint
    return f"https://{endpoint}" + ("" if "." in endpoint else ".openai.azure.com")


class ServicePreset(msgspec.Struct, frozen=True):
    """A compatible service. Without `key_variable`, it runs locally and needs no key. `model` is an example."""

    title: str
    base_url: str
    model: str
    key_variable: str | None = None
    price_list_name: str | None = None
    dialect: Dialect = Dialect()
    takes_schemas: bool = True
    reports_cost: bool = False
    telemetry_name: str | None = None


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
    "deepseek": ServicePreset(  # JSON mode only, no schemas
        "DeepSeek", "https://api.deepseek.com/v1", "deepseek-chat", "DEEPSEEK_API_KEY", "deepseek", takes_schemas=False
    ),
    "mistral": ServicePreset(
        "Mistral",
        "https://api.mistral.ai/v1",
        "mistral-large-latest",
        "MISTRAL_API_KEY",
        "mistral",
        Dialect(seed="random_seed"),
        telemetry_name="mistral_ai",
    ),
    "together": ServicePreset("Together AI", "https://api.together.xyz/v1", _GPT_OSS, "TOGETHER_API_KEY", "together"),
    "fireworks": ServicePreset("Fireworks AI", _FIREWORKS_URL, _FIREWORKS_MODEL, "FIREWORKS_API_KEY", "fireworks"),
    "xai": ServicePreset("xAI", "https://api.x.ai/v1", "grok-4", "XAI_API_KEY", "x-ai"),
    "ollama": ServicePreset("Ollama", "http://localhost:11434/v1", "llama3.2"),
    "vllm": ServicePreset("vLLM", "http://localhost:8000/v1", "Qwen/Qwen3-8B"),
    "lm-studio": ServicePreset("LM Studio", "http://localhost:1234/v1", "qwen3-8b"),
    "llama-cpp": ServicePreset("llama.cpp", "http://localhost:8080/v1", "default"),
}


class Compatible(OpenAI, frozen=True, kw_only=True):
    """A service with an OpenAI-compatible API, whose address and key variable are built in."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterator[NamedUse]:
        """Return the host of the service, and the variable with its key if it is used."""
        preset = PRESETS[settings["provider"]]
        yield "host", host_of(str(settings.get("base_url") or preset.base_url))
        if preset.key_variable and not settings.get("base_url") and not settings.get("api_key"):
            yield "variable", preset.key_variable

    @classmethod
    def telemetry_name(cls, provider: str) -> str:
        """Return the name of the service in the conventions."""
        return PRESETS[provider].telemetry_name or provider

    @property
    def preset(self) -> ServicePreset:
        """The preset of this target's provider."""
        return PRESETS[self.provider]

    @property
    def is_free(self) -> bool:
        """Whether the server runs on this machine, and has no prices of its own."""
        is_local = self.preset.key_variable is None and (self.base_url is None or is_loopback(self.base_url))
        return is_local and self.prices is None

    @property
    def may_report_cost(self) -> bool:
        """Whether the service reports the cost of each call."""
        return self.preset.reports_cost

    @property
    def price_key(self) -> PriceKey | None:
        """The price key of the model at the service."""
        return self._price_key(self.preset.price_list_name)

    def address(self, home: str) -> tuple[str, str | None]:
        """Return the service's address and key. Other addresses only receive the key in the settings."""
        variable = self.preset.key_variable
        key = self.api_key or None if variable is None else find_api_key(self, home, variable)
        return self.base_url or self.preset.base_url, key

    def with_overrides(self, overrides: CallOverrides) -> Target:
        """Apply overrides, without the schema if the service does not support schemas."""
        is_refused = isinstance(overrides.schema, dict) and not self.preset.takes_schemas
        return super().with_overrides(msgspec.structs.replace(overrides, schema=None) if is_refused else overrides)

    @property
    def dialect(self) -> Dialect:
        """The service's parameter names, for any address."""
        return self.preset.dialect
