"""What every target shares: the settings around a provider's own, and their fingerprint, which holds no secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from agentv.errors import UsageError
from agentv.model.job import CallOverrides
from agentv.model.response import Responder
from agentv.model.values import digest
from agentv.settings.diagnostics import KeyPath
from agentv.settings.environment import REFERENCE, is_secret_field
from agentv.support.hashes import contents, file_of
from agentv.support.patterns import upward
from agentv.support.transform import Transform

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]

COMMON_ALIASES = {"grader_target": "judge_target", "grader": "judge_target"}
OTHER_TOOLS = {
    "use_target": "Write the settings of that target out, or name it where this one is named",
    "fallback_targets": "A target that fails is retried and then recorded as an error",
    "provider_batching": "Only provider `cli` answers many cases with one call",
    "subagent_mode_allowed": "The setting has no counterpart",
    "stream_log": "Use `log_dir` and `log_format` of a coding agent, or `agentv eval --dump-traces`",
    "max_budget_usd": "Use `agentv eval --budget-usd`",
    "workspace_template": "Give the case a `workspace` with a `template`",
    "label": "A target's name is its `name`",
    "config": "The provider's settings stand beside `name` and `provider`",
    "prompts": "Prompts belong to the dataset",
    "delay": "Use `workers` to send fewer requests at a time",
}
"""Keys of AgentV 4.x, 5.x and promptfoo that no provider has unless it declares them itself."""


class PriceKey(NamedTuple):
    """Where to find a target's prices in the price list: by provider, or by address where one is given."""

    model: str
    provider: str | None = None
    address: str | None = None
    has_long_cache: bool = False


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Settings every provider takes. `aliases` and `unsupported` as `agentv.settings.settings_reader` reads them.

    `cache` says whether `agentv eval --cache` keeps its answers; unset, it does for model APIs and `http` only.
    """

    aliases: ClassVar[dict[str, str]] = COMMON_ALIASES
    unsupported: ClassVar[dict[str, str]] = OTHER_TOOLS

    is_api: ClassVar[bool] = False
    """Whether calls go to an API: concurrency adapts to it, its time limit is shorter, and answers can be cached."""

    is_live: ClassVar[bool] = True
    """Whether something answers now; false for stored answers, which exist only for their own cases."""

    responder: ClassVar[str] = ""
    """What `open` calls with the settings and the home, as `module:name`: settings are checked without importing it."""

    writes_logs: ClassVar[bool] = False
    """Whether it writes a log of its own while it works."""

    name: str
    provider: str
    judge_target: str | None = None
    workers: Annotated[int, Meta(ge=1)] | None = None
    timeout_seconds: Positive | None = None
    transform: Transform | None = None
    cache: bool | None = None
    max_retries: Count | None = None
    retry_initial_delay_ms: Count = 1000
    retry_max_delay_ms: Count = 60000
    retry_backoff_factor: Positive = 2.0
    retry_status_codes: tuple[int, ...] = (408, 429, 500, 502, 503, 504)

    def open(self, home: str) -> Responder:
        """Open the target for calls. `home` is the folder of the targets file, for paths in its settings."""
        if not self.responder:
            raise NotImplementedError
        module, _, name = self.responder.partition(":")
        opened: Responder = getattr(import_module(module), name)(self, home)
        return opened

    def open_embeddings(self, home: str) -> Responder:  # noqa: ARG002
        """What makes vectors of texts; see `agentv.targets.apis.model_api`. Most providers make none."""
        message = f"Target '{self.name}': provider '{self.provider}' makes no embeddings"
        raise UsageError(
            message, hint="Providers that do: openai (and what speaks its API), azure, python, sentence-transformers"
        )

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Where files and folders lie, or may lie, that the settings name and that shape the answers.

        `home` is as for `open`, `folders` are those of the datasets. What is not there is passed over.
        """
        return ()

    def check_note(self, home: str) -> str:  # noqa: ARG002
        """A remark about where `agentv targets check` calls it; usually empty."""
        return ""

    @property
    def has_stable_fingerprint(self) -> bool:
        """Whether its settings, with the files they name, determine its answers."""
        return True

    @property
    def needs_workspace(self) -> bool:
        """Whether each job gets a folder of its own when the case has none."""
        return False

    @property
    def is_free(self) -> bool:
        """Whether calls cost nothing."""
        return not self.is_live

    @property
    def may_report_cost(self) -> bool:
        """Whether its responses may state their cost."""
        return True

    @property
    def price_key(self) -> PriceKey | None:
        """Where its prices are listed; None for a target that is not billed by tokens."""
        return None

    @property
    def is_cacheable(self) -> bool:
        """Whether its answers may be cached; by default those of APIs, because others may do more than answer."""
        return self.is_api if self.cache is None else self.cache

    def complaints(self) -> list[str]:
        """What is wrong with settings that are each of the right type: one sentence each, none when all is well."""
        return []

    def with_overrides(self, wanted: CallOverrides) -> Target:  # noqa: ARG002
        """The same target for calls that want something special; unchanged where its provider has no such settings."""
        return self


class ModelApi(Target, frozen=True, kw_only=True):
    """Settings every model API takes. `response_format` may be a JSON Schema, by itself or in OpenAI's form."""

    aliases: ClassVar[dict[str, str]] = {
        **COMMON_ALIASES,
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning",
    }
    is_api: ClassVar[bool] = True
    price_list_name: ClassVar[str | None] = None
    """The provider's name in the price list."""

    model: str | None = None
    system_prompt: str | None = None
    temperature: NonNegative | None = None
    max_output_tokens: Count | None = None
    seed: int | None = None
    tools: tuple[dict[str, Any], ...] = ()
    response_format: dict[str, Any] | str | None = None
    reasoning: dict[str, Any] | str | None = None
    headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}

    @property
    def may_report_cost(self) -> bool:
        """Model APIs report tokens, not cost."""
        return False

    @property
    def price_key(self) -> PriceKey | None:
        """The model at its provider."""
        return None if self.price_list_name is None else PriceKey(self.model or "", self.price_list_name)

    def with_overrides(self, wanted: CallOverrides) -> Target:
        """With the model and temperature that are wanted, and the schema where the user asks for no form himself."""
        changes: dict[str, Any] = {
            name: value
            for name, value in (("model", wanted.model), ("temperature", wanted.temperature))
            if value is not None
        }
        own_form = self.response_format is not None or "response_format" in self.extra_body
        if wanted.schema is not None and not own_form:
            changes["response_format"] = dict(wanted.schema)
        return msgspec.structs.replace(self, **changes) if changes else self


class HostedApi(ModelApi, frozen=True, kw_only=True):
    """A model API with a key, at its vendor's address or another one."""

    aliases: ClassVar[dict[str, str]] = {
        **ModelApi.aliases,
        "deployment": "model",
        "variant": "model",
        "endpoint": "base_url",
    }

    base_url: str | None = None
    api_key: str | None = None

    @property
    def price_key(self) -> PriceKey | None:
        """The model at its provider, or at another address."""
        return self._price_key(self.price_list_name)

    def _price_key(self, provider: str | None) -> PriceKey | None:
        return (
            None if provider is None and self.base_url is None else PriceKey(self.model or "", provider, self.base_url)
        )

    def complaints(self) -> list[str]:
        """No model, or an address that is none."""
        return missing_settings(self, "model") + address_complaints("base_url", self.base_url)


def missing_settings(target: Target, *names: str) -> list[str]:
    """A complaint for each of the settings that a provider cannot do without and that is not given or blank."""
    return [
        f"Provider '{target.provider}' needs '{name}'" for name in names if not str(getattr(target, name) or "").strip()
    ]


def address_complaints(field: str, address: str | None) -> list[str]:
    """What is wrong with an address; one that starts with a variable is taken on trust."""
    if address is None or REFERENCE.match(address):
        return []
    if not address.startswith(("http://", "https://")):
        return [f"'{field}' must be an address that starts with http:// or https://, got '{address}'"]
    if "{{" in address or _has_host(address):  # what a variable or a template gives is not known yet
        return []
    return [f"'{field}' must be an address with a host, and a number for its port if it has one"]


def _has_host(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_loopback(address: str | None) -> bool:
    """Whether an address is on this machine."""
    return address is not None and urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1")


MASK = "[secret]"

_NOT_IN_THE_ANSWER = ("name", "judge_target", "workers", "timeout_seconds", "max_retries", "cache")
"""Settings that say how a target is called and not what it answers; `retry_…` besides."""


def fingerprint_of(settings: Target, secrets: Iterable[str], files: Mapping[str, str]) -> str:
    """A hash of what shapes a target's answers, `files_of` it included. Empty: nobody can say whether it is the same.

    A new key, name or number of workers does not change it.
    """
    if not settings.has_stable_fingerprint:
        return ""
    found = digest(
        {
            key: mask_secrets(value, (key,), dict.fromkeys(secrets, MASK))
            for key, value in explicit_settings(settings).items()
            if key not in _NOT_IN_THE_ANSWER and not key.startswith("retry_") and not is_secret_field((key,))
        }
    )
    return digest([found, files]) if files else found


def file_hashes(settings: Target, home: str, folders: Iterable[str]) -> dict[str, str]:
    """A hash of each file that a target's settings name, by its path; `folders` are those of the datasets.

    What these files import or read in their turn is not looked for.
    """
    folders = tuple(folders)
    named = list(settings.files_named(home, folders))
    if ".py:" in settings.provider:
        named.append(file_of(settings.provider, home) or "")
    if settings.transform is not None and settings.transform.function is not None:
        parents = dict.fromkeys(parent for folder in folders for parent in upward(folder, home))
        named += [file_of(settings.transform.function, parent) or "" for parent in parents]
    return contents(filter(None, named), home)


def explicit_settings(settings: Target) -> dict[str, Any]:
    """The settings that differ from their defaults, as plain data."""
    return {
        field.encode_name: msgspec.to_builtins(value, enc_hook=_name_of)
        for field in msgspec.structs.fields(type(settings))
        if (value := getattr(settings, field.name)) != _default(field)
    }


def mask_secrets(value: Any, path: KeyPath, replaceable: Mapping[str, str]) -> Any:
    """A value without secrets. What a secret field holds is never shown, however short it is."""
    if isinstance(value, str):
        text = value
        for secret in sorted(replaceable, key=len, reverse=True):
            text = text.replace(secret, replaceable[secret])
        return MASK if text == value and is_secret_field(path) else text
    if isinstance(value, dict):
        return {key: mask_secrets(item, (*path, key), replaceable) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_secrets(item, (*path, index), replaceable) for index, item in enumerate(value)]
    return value


def _name_of(value: Any) -> str:
    """A function that a program gives stands there by its name; the rest of it is in its file."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory: Any = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()
