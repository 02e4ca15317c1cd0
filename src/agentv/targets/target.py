"""Base classes of targets: common settings, validation, and a fingerprint without secrets."""

# Without `from __future__ import annotations`: types are read here, and parsing them would take longer.

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.errors import UsageError
from agentv.model.job import CallOverrides
from agentv.model.response import Responder
from agentv.model.values import digest
from agentv.model.workspace_settings import WorkspaceFile
from agentv.settings.addresses import address_complaints, host_of
from agentv.settings.environment import MASK, SecretTexts, is_secret_field, mask_secrets
from agentv.settings.settings_reader import fields_of
from agentv.settings.transform import Transform, code_of
from agentv.support.hashes import contents, file_of
from agentv.support.patterns import upward
from agentv.targets.tools.tool import are_stable, declared_tools, files_of_tools, local_tools, tool_complaints
from agentv.trust.inventory import ANY_HOST, NamedUse

if TYPE_CHECKING:
    from agentv.targets.apis.batch_api import BatchApi
    from agentv.targets.tools.toolbox import Toolbox

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]

COMMON_ALIASES = {"grader_target": "judge_target", "grader": "judge_target"}
OTHER_TOOLS = {
    "provider_batching": "Only provider `cli` can answer several cases in one call",
    "max_turns": "Only model APIs with `tools` and `claude-code` have turns to limit",
    "max_budget_usd": "Use `agentv eval --budget-usd`",
    "workspace_template": "Set `workspace.template` on the case",
    "label": "Use `name`",
    "config": "Move these settings up, next to `name` and `provider`",
    "prompts": "Define prompts in the dataset",
    "delay": "Use `workers` to limit concurrent calls",
}
"""Keys of AgentV (TypeScript) 4.x and 5.x and of promptfoo that are rejected unless a provider declares them."""

_LOG_KEYS = "stream_log log_dir log_directory log_format log_output_format verbose cli_verbose"
HARMLESS = dict.fromkeys(f"subagent_mode_allowed {_LOG_KEYS} keep_temp_files keep_output_files".split(), "")
"""Keys of AgentV (TypeScript) that only affect its logs and its own agents: accepted, without effect."""


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of a model without a list price, in USD per million tokens. Cached input costs the same by default."""

    input: NonNegative
    output: NonNegative
    cached: NonNegative | None = None


class PriceKey(msgspec.Struct, frozen=True):
    """The key of a target's prices in the price list: the model, and its provider or address."""

    model: str
    provider: str | None = None
    address: str | None = None
    has_long_cache: bool = False


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of all providers. `agentv.settings.settings_reader` explains `aliases`, `unsupported` and `ignored`."""

    aliases: ClassVar[dict[str, str]] = COMMON_ALIASES
    unsupported: ClassVar[dict[str, str]] = OTHER_TOOLS
    ignored: ClassVar[dict[str, str]] = HARMLESS
    optional_variables: ClassVar[tuple[str, ...]] = ()
    """Settings that get their default if they are just a variable, and that variable is not set."""

    is_api: ClassVar[bool] = False
    """Whether calls go to an API: concurrency is adaptive, the timeout is shorter, and responses can be cached."""

    is_live: ClassVar[bool] = True
    """Whether calls are made; false for stored answers, which exist only for certain cases."""

    extra: ClassVar[str] = ""
    """The extra of agentv with its packages."""
    responder: ClassVar[str] = ""
    """The responder class as `module:name`. `open` imports it, so that checking settings does not."""

    takes_skills: ClassVar[bool] = False  # if true, it is a `SkillTarget`
    reports_calls: ClassVar[bool] = False
    """Whether it always reports its tool calls, so that an answer without any had none."""
    writes_logs: ClassVar[bool] = False
    """Whether it writes a log while it works."""
    is_command: ClassVar[bool] = False
    """Whether a call runs a command of the settings."""

    name: str
    """Name in files and on the command line; unique in its file."""

    provider: str
    """One of [these](#providers), or `file.py:Class`."""

    use_target: str | None = None
    """Another target of the file, whose settings apply unless they are set here; replaces `provider`."""

    fallback_targets: tuple[str, ...] = ()
    """Targets that answer, in order, when all attempts of a call have failed."""

    judge_target: str | None = None
    """Judge for its answers."""

    workers: Annotated[int, Meta(ge=1)] | None = None
    """Maximum concurrent calls (default: [adaptive](../how-to/retry-and-resume.md#rate-limits-and-concurrency))."""

    timeout_seconds: Positive | None = None
    """Time limit for one attempt: 300 for models and HTTP, 1,800 for agents, commands and functions."""

    transform: Transform | tuple[Transform, ...] | None = None
    """Cleaning steps for every answer before it is scored."""

    prices: Prices | None = None
    """[prices](#prices) of a model without a list price, for costs and budgets."""

    cache: bool | None = None
    """Cache its responses with [`--cache`](../how-to/cache.md) (default: for model APIs and `http`)."""

    max_retries: Count | None = None
    """Maximum retries of a failed call (default: 3)."""

    retry_initial_delay_ms: Count = 1000
    """Maximum delay before the first retry."""

    retry_max_delay_ms: Count = 60000
    """Maximum delay before any retry."""

    retry_backoff_factor: Positive = 2.0
    """Growth factor of the delay."""

    retry_status_codes: tuple[int, ...] = (408, 429, 500, 502, 503, 504)
    """HTTP status codes to retry; overloads count as 503 whatever their status."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:  # noqa: ARG003
        """Return the hosts, variables and programs that settings would use. Each kind declares its own.

        The settings are by field, as written: not validated, with `${{ VAR }}` in place. `declared_uses` adds the rest.
        """
        return (("host", ANY_HOST),)

    @classmethod
    def telemetry_name(cls, provider: str) -> str:
        """Return the provider's name in the GenAI conventions of OpenTelemetry."""
        return provider

    def open(self, home: str) -> Responder:
        """Open the target for calls. Paths in the settings are relative to `home`, the folder of the targets file."""
        return self.responder_class(self, home)

    @property
    def responder_class(self) -> Callable[..., Responder]:
        """The class that `responder` names."""
        if not self.responder:
            raise NotImplementedError
        module, _, name = self.responder.partition(":")
        responder: Callable[..., Responder] = getattr(import_module(module), name)
        return responder

    def open_embeddings(self, home: str) -> Responder:  # noqa: ARG002
        """Open the target for embeddings; see `agentv.targets.apis.model_api`. Most providers do not support them."""
        message = f"Target '{self.name}': provider '{self.provider}' does not support embeddings"
        hint = "Providers that do: openai and compatible services, azure, python, sentence-transformers"
        raise UsageError(message, hint=hint)

    def open_batches(self, home: str) -> "BatchApi":
        """Open the provider's batch API, for a target in batch mode."""
        raise NotImplementedError

    @property
    def is_batched(self) -> bool:
        """Whether requests are sent in batches, which take up to a day and cost half."""
        return bool(getattr(self, "batch", False))

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return paths in the settings that affect the answers; those that do not exist are ignored.

        `home` is as for `open`, `folders` are those of the datasets.
        """
        return ()

    def check_note(self, home: str) -> str:  # noqa: ARG002
        """Return a note for `agentv targets check`, or an empty string."""
        return ""

    @property
    def has_stable_fingerprint(self) -> bool:
        """Whether its settings and the files in them determine its answers."""
        return True

    @property
    def needs_workspace(self) -> bool:
        """Whether each job needs its own folder if the case has no workspace."""
        return False

    def added_files(self, home: str) -> tuple[WorkspaceFile, ...]:  # noqa: ARG002
        """Return the files that it adds to the workspace of every job. `home` is as for `open`."""
        return ()

    @property
    def is_free(self) -> bool:
        """Whether calls cost nothing."""
        return not self.is_live

    @property
    def may_report_cost(self) -> bool:
        """Whether its responses may include their cost."""
        return True

    @property
    def price_key(self) -> PriceKey | None:
        """The key of its prices; None for a target that is not billed by tokens."""
        return None

    @property
    def is_cacheable(self) -> bool:
        """Whether its responses may be cached; by default only those of APIs, because others may have side effects."""
        return self.is_api if self.cache is None else self.cache

    def complaints(self) -> list[str]:
        """Return the problems in the settings that their types do not exclude, one sentence each."""
        return []

    def check_ready(self, home: str) -> None:
        """Raise UsageError if this machine lacks what every call needs, such as a program."""

    def advice(self, home: str) -> str:  # noqa: ARG002
        """Return a warning for a run that uses the target, or an empty string."""
        return ""

    def shell_risk(self) -> str:
        """Return why a shell would execute the prompt and how to avoid it, or an empty string."""
        return ""

    def with_overrides(self, overrides: CallOverrides) -> "Target":  # noqa: ARG002
        """Return the target with overrides for a call; unchanged if its provider has no such settings."""
        return self


class ModelApi(Target, frozen=True, kw_only=True):
    """Settings of all model APIs. `response_format` may be a JSON Schema, either bare or in OpenAI's format.

    Tools with `function: file.py:name`, `command`, `mcp` or `recorded` run on this machine: the target calls the model
    until it answers, at most `max_turns` times (20 by default). Other entries are only declared to the model."""

    aliases: ClassVar[dict[str, str]] = {
        **COMMON_ALIASES,
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning",
        "model_reasoning_effort": "reasoning",
    }
    is_api: ClassVar[bool] = True
    reports_calls: ClassVar[bool] = True
    price_list_name: ClassVar[str | None] = None
    """The provider's name in the price list."""

    has_json_mode: ClassVar[bool] = True
    """Whether a response can be requested as JSON without a schema."""

    model: str | None = None
    """Name of the model."""

    system_prompt: str | None = None
    """System message before every conversation."""

    temperature: NonNegative | None = None
    """Sampling temperature."""

    max_output_tokens: Count | None = None
    """Maximum tokens of a response, including reasoning."""

    seed: int | None = None
    """Sampling seed, if the API has one."""

    tools: tuple[dict[str, Any] | str, ...] = ()
    """[tools that agentv runs](../how-to/tools.md): `file.py:name`, or objects with `function`, `command`, `mcp` or
    `recorded`; and functions in the format of OpenAI or Anthropic, or built-in tools of the API, which are passed
    through.
    """

    max_turns: Annotated[int, Meta(ge=1)] | None = None
    """Maximum number of calls of the model for one answer (default: 20)."""

    response_format: dict[str, Any] | str | None = None
    """`json`, a JSON Schema, or OpenAI's object."""

    reasoning: dict[str, Any] | str | None = None
    """Reasoning effort such as `low`, or the API's own object."""

    answer_form: Literal["text", "promptfoo"] = "text"
    """`promptfoo`: the answer is what promptfoo reads from the reply, such as tool calls, and its thinking."""

    headers: dict[str, str] = {}
    """Headers of every call."""

    extra_body: dict[str, Any] = {}
    """Keys to add to the request; they take precedence."""

    @property
    def declared_tools(self) -> tuple[dict[str, Any], ...]:
        """The tools that are sent to the model; those that run here are added when they are known."""
        return declared_tools(self.tools)

    def open_tools(self, home: str) -> "Toolbox | None":
        """Open the tools that run on this machine; None if there are none. Raises UsageError."""
        if not (tools := local_tools(self.tools)):
            return None
        from agentv.targets.tools.toolbox import open_toolbox  # late: few targets run tools

        return open_toolbox(tools, home, self.name)

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return the files of its tools."""
        return files_of_tools(self.tools, home)

    @property
    def has_stable_fingerprint(self) -> bool:
        """False with tools that are function objects with state."""
        return are_stable(self.tools)

    def complaints(self) -> list[str]:
        """Check the tools that run on this machine, and that an answer in another form ends the turn."""
        has_loop = self.answer_form != "text" and bool(local_tools(self.tools))
        own = ["'answer_form' cannot be combined with tools that run here"] if has_loop else []
        return own + tool_complaints(self.tools, is_batched=self.is_batched)

    @property
    def may_report_cost(self) -> bool:
        """False: model APIs report tokens, not cost."""
        return False

    @property
    def price_key(self) -> PriceKey | None:
        """The price key of the model at its provider."""
        return None if self.price_list_name is None else PriceKey(self.model or "", self.price_list_name)

    def with_overrides(self, overrides: CallOverrides) -> Target:
        """Return the target with another model or temperature, and the schema unless a response format is set."""
        changes: dict[str, Any] = {"model": overrides.model, "temperature": overrides.temperature}
        is_free = self.response_format is None and "response_format" not in self.extra_body
        if is_free and (self.has_json_mode or overrides.schema != "json"):
            changes["response_format"] = overrides.schema
        changes = {name: value for name, value in changes.items() if value is not None}
        return msgspec.structs.replace(self, **changes) if changes else self


class HostedApi(ModelApi, frozen=True, kw_only=True):
    """A model API with a key, at the vendor's or another address."""

    aliases: ClassVar[dict[str, str]] = {
        **ModelApi.aliases,
        "deployment": "model",
        "variant": "model",
        "endpoint": "base_url",
    }

    vendor_url: ClassVar[str] = ""
    vendor_keys: ClassVar[tuple[str, ...]] = ()
    """The variables with the vendor's key, which is sent to `vendor_url` only."""

    base_url: str | None = None
    """Base URL; the key of the vendor's variable is not sent to another host."""

    api_key: str | None = None
    """API key (default: the vendor's environment variable)."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:
        """Return the host of the API, and the vendor's key variables if they are used."""
        address = settings.get("base_url") or cls.vendor_url
        yield "host", host_of(str(address)) if address else ANY_HOST
        if not settings.get("base_url") and not settings.get("api_key"):
            yield from (("variable", name) for name in cls.vendor_keys)

    @property
    def price_key(self) -> PriceKey | None:
        """The price key of the model at its provider, or at another address."""
        return self._price_key(self.price_list_name)

    def _price_key(self, provider: str | None) -> PriceKey | None:
        is_known = provider is not None or self.base_url is not None
        return PriceKey(self.model or "", provider, self.base_url) if is_known else None

    def complaints(self) -> list[str]:
        """Check the model and the address."""
        return super().complaints() + missing_keys(self, "model") + address_complaints("base_url", self.base_url)


def missing_keys(target: Target, *names: str) -> list[str]:
    """Return a complaint for each required setting that is missing or blank."""
    return [
        f"Provider '{target.provider}' needs '{name}'" for name in names if not str(getattr(target, name) or "").strip()
    ]


_CALL_SETTINGS = {"batch", "trace_wait"}.union(
    ("name", "judge_target", "fallback_targets", "workers", "timeout_seconds", "max_retries", "cache", "prices")
)
"""Settings that, like `retry_…`, affect how a target is called but not its answers."""


def fingerprint_of(settings: Target, secrets: Iterable[str], files: Mapping[str, str]) -> str:
    """Return a hash of the settings and `file_hashes` that affect a target's answers; empty if it is not stable.

    It does not depend on keys, names or concurrency.
    """
    if not settings.has_stable_fingerprint:
        return ""
    fingerprint = digest(
        {
            key: mask_secrets(value, (key,), _masked(frozenset(secrets)))
            for key, value in explicit_settings(settings).items()
            if key not in _CALL_SETTINGS and not key.startswith("retry_") and not is_secret_field((key,))
        }
    )
    return digest([fingerprint, files]) if files else fingerprint


def file_hashes(settings: Target, home: str, folders: Iterable[str]) -> dict[str, str]:
    """Return the hash of each file in a target's settings, by path; `folders` are those of the datasets.

    Files that these files import or read are not included.
    """
    folders = tuple(folders)
    paths = list(settings.files_named(home, folders))
    if ".py:" in settings.provider:
        paths.append(file_of(settings.provider, home) or "")
    for function in code_of(settings.transform, "function"):
        parents = dict.fromkeys(parent for folder in folders for parent in upward(folder, home))
        paths += [file_of(function, parent) or "" for parent in parents]
    return contents(filter(None, paths), home)


@lru_cache(maxsize=8)
def _masked(secrets: frozenset[str]) -> SecretTexts:
    return SecretTexts(dict.fromkeys(secrets, MASK))


def explicit_settings(settings: Target) -> dict[str, Any]:
    """Return the settings that differ from their defaults, as plain data."""
    return {
        field.encode_name: msgspec.to_builtins(value, enc_hook=_name_of)
        for field in fields_of(type(settings)).values()
        if (value := getattr(settings, field.name)) != _default(field)
    }


def _name_of(value: Any) -> str:
    """Return the name of a function or class instance that plain data cannot represent."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory: Any = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()
