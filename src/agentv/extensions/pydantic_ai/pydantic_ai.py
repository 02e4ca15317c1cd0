"""Model APIs supported by the optional package pydantic-ai: Bedrock, Cohere, Hugging Face and others."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, ClassVar

from agentv.errors import UsageError, import_extra
from agentv.model.message import ImagePart, Message, TextPart, ToolCall
from agentv.model.response import Request, Responder, Response, TargetFailure, content_text
from agentv.model.result import ErrorClass, TokenUsage
from agentv.model.token_counts import UsageFields, read_usage
from agentv.model.values import digest
from agentv.settings.addresses import host_of
from agentv.settings.environment import redacted
from agentv.support.json_values import json_or
from agentv.targets.apis import api_messages
from agentv.targets.apis.api_errors import reported_failure
from agentv.targets.apis.model_api import assistant_message, drop_none, find_api_key, require_content
from agentv.targets.target import HostedApi, ModelApi, PriceKey
from agentv.trust.env_file import environment_of
from agentv.trust.inventory import ANY_HOST, NamedUse
from agentv.trust.policy import load_policy

_EXTRA = "pydantic-ai"
INSTALL = f"pip install 'agentv[{_EXTRA}]'"

_NO_KEY = "no-key"
"""The key for other addresses if none is configured: without it, the package would send the vendor's key from the
environment. Bedrock uses signatures instead of a key."""

_REJECTED_ARGUMENT = re.compile(r"unexpected keyword argument ('\w+')")

_STOP_REASONS = {"tool_call": "tool_calls"}
_COUNTS = "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"
_USAGE = UsageFields((_COUNTS[0],), (_COUNTS[1],), _COUNTS[2], "reasoning_tokens", _COUNTS[3])
_ERRORS: dict[ErrorClass, str] = {
    "refused": "ContentFilterError",
    "timeout": "ModelTimeoutError ModelRequestTimeout",
    "network": "ModelConnectionError",
    "auth": "ModelQuotaExceededError ModelAuthenticationError "
    "NoCredentialsError PartialCredentialsError CredentialRetrievalError SSOError",  # the last four are of AWS's client
    "rate_limit": "ModelRateLimitError",
    "server": "ModelAPIError",
    "invalid_response": "ModelRequestRejectedError UnexpectedModelBehavior",
}
_CLASS_BY_ERROR = {name: error_class for error_class, names in _ERRORS.items() for name in names.split()}
"""Error classes of exceptions without an HTTP status, by the name of the exception or its nearest base."""


class PydanticAi(HostedApi, frozen=True, kw_only=True):
    """Any model that pydantic-ai supports. Needs `pip install 'agentv[pydantic-ai]'`.

    `model` is `PROVIDER:MODEL`, as in pydantic-ai. The key is `api_key`, or comes from the package's usual sources. The
    package's own retries are turned off; the target's retry settings apply.
    """

    aliases: ClassVar[dict[str, str]] = ModelApi.aliases
    extra: ClassVar[str] = _EXTRA
    prefix: ClassVar[str] = ""
    """The provider's name in the package, if it is fixed. `vendor_keys` are read here: the package reads no `.env`."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:
        """Return the host and the keys; those of a vendor that `model` names are chosen by the package."""
        if cls.prefix or settings.get("base_url"):
            yield from super().uses(settings)
            return
        vendor = str(settings.get("model", "")).partition(":")[0]
        yield "host", f"{ANY_HOST} (pydantic-ai chooses the API of '{vendor}')"
        if not settings.get("api_key"):
            yield "variable", f"any key that pydantic-ai reads for '{vendor}'"

    @property
    def price_key(self) -> PriceKey | None:
        """The price key; the provider's name in `model` is usually its name in the price list."""
        if self.prefix:
            return super().price_key
        provider, _, model = (self.model or "").partition(":")
        return PriceKey(model, provider, self.base_url)

    def complaints(self) -> list[str]:
        """Check the model and the address."""
        complaints = super().complaints()
        if self.model and not self.prefix and ":" not in self.model and "${{" not in self.model:
            complaints.append(f"'model' must be PROVIDER:MODEL, for example zai:glm-4.6, got '{self.model}'")
        if self.answer_form != "text":
            complaints.append(f"'answer_form' is not supported by provider '{self.provider}'")
        return complaints

    def open(self, home: str) -> Responder:
        """Open the model. Importing the package takes seconds."""
        missing = UsageError(f"Target '{self.name}' needs a package that is not installed", hint=INSTALL)
        package = import_extra("pydantic_ai.models", missing)  # late: it takes a second or more
        key = find_api_key(self, home, *self.vendor_keys) if self.vendor_keys else self.api_key
        options = drop_none(base_url=self.base_url, api_key=key, **self.provider_settings(home))
        try:
            model = package.infer_model(f"{self.prefix}{self.model}", lambda name: self._provider(name, options))
        except ImportError as error:
            raise UsageError(f"Target '{self.name}' needs a package that is not installed", str(error)) from None
        except Exception as error:
            if not isinstance(error, RuntimeError | TypeError | ValueError) and not _is_from_aws(error):
                raise
            rejected = _REJECTED_ARGUMENT.search(str(error))
            why = f"its provider does not accept {rejected[1]}" if rejected else str(error)
            raise UsageError(f"Target '{self.name}' cannot be opened", why) from None
        load_policy().check_host(str(model.base_url or model.system))
        return _PydanticModel(self, model, f"{model.system}:{model.base_url}#{digest(options)[:8]}")

    def provider_settings(self, home: str) -> dict[str, Any]:  # noqa: ARG002
        """Return further arguments for the package's provider."""
        return {}

    def _provider(self, name: str, options: dict[str, Any]) -> Any:
        kind = import_module("pydantic_ai.providers").infer_provider_class(name)
        if self.base_url is not None and not self.api_key and name != "bedrock":
            options = {**options, "api_key": _NO_KEY}
        if name == "cohere" and "base_url" in options:
            # The package's provider only reads the address from the environment.
            client = import_module("cohere").AsyncClientV2
            return kind(cohere_client=client(api_key=options.get("api_key"), base_url=options["base_url"]))
        return kind(**options)


_AWS_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"),
)


class Bedrock(PydanticAi, frozen=True, kw_only=True):
    """AWS Bedrock. Needs `pip install 'agentv[pydantic-ai]'`.

    Credentials come from the usual AWS sources, unless `api_key` is a Bedrock API key.
    """

    prefix: ClassVar[str] = "bedrock:"
    price_list_name: ClassVar[str | None] = "aws"
    aliases: ClassVar[dict[str, str]] = {
        **ModelApi.aliases,
        "aws_region": "region",
        "region_name": "region",
        "aws_profile": "profile",
    }

    region: str | None = None
    """AWS region (default: `AWS_REGION`)."""

    profile: str | None = None
    """Profile in the AWS configuration."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:
        """Return the host of the region, and the variables with credentials, which sign calls to any address."""
        region = settings.get("region") or "${{ AWS_REGION }}"
        address = settings.get("base_url")
        yield "host", host_of(str(address)) if address else f"bedrock-runtime.{region}.amazonaws.com"
        if not settings.get("region"):
            yield "variable", "AWS_REGION"
        if not settings.get("api_key"):
            yield from (("variable", name) for name in _AWS_VARIABLES)

    @classmethod
    def telemetry_name(cls, provider: str) -> str:  # noqa: ARG003
        """Return the name of the conventions."""
        return "aws.bedrock"

    def provider_settings(self, home: str) -> dict[str, Any]:
        """Return the region and the profile; unset ones come from the environment."""
        region = self.region or environment_of(home).variables.get("AWS_REGION")
        return {"region_name": region, "profile_name": self.profile}


class Cohere(PydanticAi, frozen=True, kw_only=True):
    """Cohere's API. Needs `pip install 'agentv[pydantic-ai]'`.

    The key defaults to `CO_API_KEY`.
    """

    prefix: ClassVar[str] = "cohere:"
    price_list_name: ClassVar[str | None] = "cohere"
    vendor_url: ClassVar[str] = "https://api.cohere.com"
    vendor_keys: ClassVar[tuple[str, ...]] = ("CO_API_KEY",)


class HuggingFace(PydanticAi, frozen=True, kw_only=True):
    """Hugging Face's inference providers. Needs `pip install 'agentv[pydantic-ai]'`.

    The key defaults to `HF_TOKEN`.
    """

    prefix: ClassVar[str] = "huggingface:"
    vendor_url: ClassVar[str] = "https://router.huggingface.co"
    vendor_keys: ClassVar[tuple[str, ...]] = ("HF_TOKEN",)


class _PydanticModel:
    """Calls a model through the package."""

    def __init__(self, settings: PydanticAi, model: Any, endpoint: str) -> None:
        self.endpoint = endpoint
        self._model = model
        self._messages = import_module("pydantic_ai.messages")
        self._errors = import_module("pydantic_ai.exceptions")
        self._request = import_module("pydantic_ai.direct").model_request
        self._system_prompt = settings.system_prompt
        self._parameters = _parameters(settings, model)
        self._settings = _model_settings(settings, model)
        self._secrets = [settings.api_key] if settings.api_key else []
        self._is_entered = False

    async def respond(self, request: Request) -> Response:
        """Make one call. Raises TargetFailure."""
        if not self._is_entered:
            self._is_entered = True
            await self._model.__aenter__()
        try:
            async with asyncio.timeout(request.timeout_s):
                answer = await self._request(
                    self._model,
                    self._wire(request),
                    model_settings=self._settings,
                    model_request_parameters=self._parameters,
                )
        except TimeoutError:
            raise TargetFailure("timeout", f"No response within {request.timeout_s:g} s") from None
        except Exception as error:
            own = (self._errors.AgentRunError, self._errors.UserError)
            if not isinstance(error, own) and not _is_from_aws(error):
                raise
            raise self._failure(error) from None
        return require_content(_response(answer))

    async def aclose(self) -> None:
        """Close the connections."""
        if self._is_entered:
            self._is_entered = False
            await self._model.__aexit__(None, None, None)

    def _failure(self, error: Exception) -> TargetFailure:
        if (status := getattr(error, "status_code", None)) is not None:
            body, headers = getattr(error, "body", None) or str(error), getattr(error, "headers", None) or {}
            if isinstance(body, bytes):  # some of the package's clients do not decode it
                body = json_or(body, body.decode(errors="replace"))
            return reported_failure(body, status, headers, self._secrets)
        classes = (_CLASS_BY_ERROR[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _CLASS_BY_ERROR)
        return TargetFailure(next(classes, "invalid_response"), redacted(str(error), self._secrets))

    def _wire(self, request: Request) -> list[Any]:
        """Return the conversation as the package's messages."""
        parts = self._messages
        wire: list[Any] = []
        if self._system_prompt:
            wire.append(parts.ModelRequest([parts.SystemPromptPart(self._system_prompt)]))
        for message in api_messages.attach_tool_results(request.messages):
            if message.role == "system":
                wire.append(parts.ModelRequest([parts.SystemPromptPart(content_text(message.content))]))
            elif message.role == "user":
                wire.append(parts.ModelRequest([parts.UserPromptPart(self._content(message))]))
            else:
                text = [] if not message.content else [parts.TextPart(content_text(message.content))]
                calls = [
                    parts.ToolCallPart(call.tool, api_messages.arguments_object(call), call.id)
                    for call in message.tool_calls
                ]
                wire.append(parts.ModelResponse([*text, *calls]))
                results = [parts.ToolReturnPart(call.tool, call.output, call.id) for call in message.tool_calls]
                wire += [parts.ModelRequest(results)] if results else []
        return wire

    def _content(self, message: Message) -> Any:
        if not any(isinstance(part, ImagePart) for part in message.parts):
            return content_text(message.content)
        return [part.value if isinstance(part, TextPart) else self._media(part.value) for part in message.parts]

    def _media(self, value: str) -> Any:
        media = api_messages.media_of(value)
        if media.data is not None:
            return self._messages.BinaryContent.from_data_uri(media.address)
        return self._messages.ImageUrl(value) if media.is_image else self._messages.DocumentUrl(value)


def _is_from_aws(error: Exception) -> bool:
    """Whether AWS's client raised an error, checked by name because its module may not be installed."""
    return any(kind.__name__ == "BotoCoreError" for kind in type(error).__mro__)


def _model_settings(settings: PydanticAi, model: Any) -> dict[str, Any]:
    """Return the settings under the package's names. Raises UsageError for settings that the model would ignore."""
    options = drop_none(
        temperature=settings.temperature,
        max_tokens=settings.max_output_tokens,
        seed=settings.seed,
        thinking=settings.reasoning,
        extra_headers=settings.headers or None,
        extra_body=settings.extra_body or None,
    )
    names = {"extra_headers": "headers", "thinking": "reasoning", "max_tokens": "max_output_tokens"}
    if ignored := [names.get(name, name) for name in options if name in model.unsupported_settings]:
        raise UsageError(f"Target '{settings.name}': this model does not support {', '.join(ignored)}")
    return options if "max_retries" in model.unsupported_settings else {**options, "max_retries": 0}


def _parameters(settings: PydanticAi, model: Any) -> Any:
    tools = import_module("pydantic_ai.tools")
    functions = [api_messages.parse_function(tool) for tool in settings.declared_tools]
    if None in functions:
        raise UsageError(f"Target '{settings.name}': a tool must be a function with 'name' and 'parameters'")
    names = {"name": "name", "description": "description", "parameters_json_schema": "parameters", "strict": "strict"}
    defined = [
        tools.ToolDefinition(**drop_none(**{name: getattr(function, field) for name, field in names.items()}))
        for function in functions
    ]
    form = _output(api_messages.parse_response_format(settings.response_format), model)
    return import_module("pydantic_ai.models").ModelRequestParameters(function_tools=defined, **form)


def _output(form: api_messages.JsonFormat | dict[str, Any] | None, model: Any) -> dict[str, Any]:
    """Return the fields that request JSON: by the API's own means if the model has them, else in the prompt."""
    if not isinstance(form, api_messages.JsonFormat):
        return {}
    kind = import_module("pydantic_ai.output").OutputObjectDefinition
    schema = form.schema or {"type": "object"}
    definition = kind(json_schema=schema, name=form.name, description=form.description, strict=form.strict)
    native = form.schema is not None and model.profile.get("supports_json_schema_output", False)
    return {"output_mode": "native" if native else "prompted", "output_object": definition}


def _response(answer: Any) -> Response:
    usage = _usage(answer.usage)
    if answer.finish_reason == "content_filter":
        failure = TargetFailure("refused", "A content filter stopped the response")
        failure.usage, failure.model = usage, answer.model_name
        raise failure
    text = "".join(part.content for part in answer.parts if part.part_kind == "text")
    calls = tuple(
        ToolCall(part.tool_name, api_messages.read_arguments(part.args), id=part.tool_call_id)
        for part in answer.parts
        if part.part_kind == "tool-call"
    )
    return Response(
        messages=(assistant_message(text, calls),),
        usage=usage,
        id=answer.provider_response_id,
        model=answer.model_name,
        stop_reason=_STOP_REASONS.get(answer.finish_reason, answer.finish_reason),
    )


def _usage(reported: Any) -> TokenUsage | None:
    counts = {**(reported.details or {}), **{name: getattr(reported, name) for name in _COUNTS}}
    return read_usage(counts, _USAGE) if reported.has_values() else None
