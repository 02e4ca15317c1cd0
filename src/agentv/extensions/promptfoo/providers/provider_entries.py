"""Translate the providers of promptfoo to entries of a targets file."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import is_blank, object_at, text_of
from agentv.extensions.promptfoo.providers import bedrock_models
from agentv.extensions.promptfoo.providers.anthropic_settings import anthropic_config
from agentv.extensions.promptfoo.providers.gemini_settings import GEMINI_ADDRESS, gemini_config
from agentv.extensions.promptfoo.providers.http_provider import http_entry
from agentv.extensions.promptfoo.providers.services import ADDRESSES, COMPATIBLE, SAME
from agentv.extensions.promptfoo.text_assertions import script_text_of
from agentv.extensions.promptfoo.transform_code import transforms_of
from agentv.support.javascript.values import stringify

_WORDS = re.compile(r"""[^\s"']+|"([^"]*)"|'([^']*)'""")
_OPTIONS = "PROMPTFOO_OPTIONS"
"""The variable of a program with its options, which are not a part of the command because they may have secrets."""

_MODES = ("chat", "messages", "completion", "completions", "converse", "text-generation", "responses", "embedding")
_COMPLETIONS = ("completion", "completions", "text-generation")
_INSTRUCTED = re.compile(r"(?:davinci|babbage)-002|.*-instruct(?:-\d+)?")
_NO_CHAT = frozenset(
    (
        *(
            "agents",
            "assistant",
            "audio",
            "chatkit",
            "codex-app-server",
            "codex-desktop",
            "codex-security",
            "foundry-agent",
            "image",
        ),
        *("feature-extraction", "kb", "knowledge-base", "live", "moderation", "realtime", "sentence-similarity"),
        *("speech", "text-classification", "token-classification", "transcription", "tts", "video", "voice"),
    )
)
"""What the second part of an id names, if it is not a chat model."""

_FORMS = ("tools", "functions", "thinking", "reasoning")
"""Settings with which the output of promptfoo is more than the text of an answer."""

_OTHER_APIS = ("bedrock", "cohere", "huggingface")
"""Providers whose replies are read by another package."""

_NO_EMBEDDINGS = (*_OTHER_APIS, "anthropic", "gemini")

_DEFAULT_MODELS = {"embedding": "text-embedding-3-large", "embeddings": "text-embedding-3-large"}
_DEFAULT_MODEL = "gpt-4.1-2025-04-14"
"""The models of `openai:chat` and `openai:embedding` without a name."""

_REASONING = re.compile(r"(?:.*/)?(?:ft:)?(?:o[134]|gpt-5).*")
_CHAT_DEFAULTS = {"temperature": 0, "max_output_tokens": 1024}
"""What promptfoo sends to services with the API of OpenAI, unless it is a reasoning model."""

_WITH_DEFAULTS = ("openai", "openrouter", "groq", "deepseek", "together", "togetherai", "fireworks", "xai")
_PARSED_JSON = "(() => { try { return JSON.parse(output); } catch { return output; } })()"
"""What promptfoo does with an answer for which a JSON Schema was requested."""

_AGENTS = {
    **dict.fromkeys(("anthropic:claude-agent-sdk", "anthropic:claude-code"), "claude-code"),
    **dict.fromkeys(("openai:codex-sdk", "openai:codex"), "codex"),
    **dict.fromkeys(("opencode:sdk", "opencode"), "opencode"),
}
_KEYS = {
    **dict.fromkeys(
        ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"), "max_output_tokens"
    ),
    **{key: key for key in ("temperature", "seed", "headers", "tools", "response_format", "region", "profile")},
    "apiKey": "api_key",
    "apiBaseUrl": "base_url",
    **dict.fromkeys(("reasoning_effort", "reasoning", "thinking"), "reasoning"),
    "systemPrompt": "system_prompt",
    "system": "system_prompt",
    "timeoutMs": "timeout_seconds",
}
_GOOGLE = ("google", "palm", "vertex")
_GOOGLE_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_RESPONSES = ("instructions", "store", "include", "previous_response_id", "truncation", "max_tool_calls")
"""Settings that are only sent to the Responses API."""

_PASSED_ON = (
    *("top_p", "top_k", "frequency_penalty", "presence_penalty", "stop", "stop_sequences", "n", "user", "logit_bias"),
    *(
        "parallel_tool_calls",
        "tool_choice",
        "functions",
        "function_call",
        "metadata",
        "verbosity",
        "service_tier",
        "min_p",
        "repetition_penalty",
    ),
)
_SILENT = (
    *("apiHost", "apiKeyEnvar", "apiVersion", "extra_body", "passthrough", "showThinking", "cost", "type", "model"),
    *("omitDefaults", "functionToolCallbacks", "workspaceUrl", "usageContext"),
)
_RUNTIME_VARIABLES = re.compile(r"__(?:evalId|evalStepId|repeatIndex)\b")
_JAVASCRIPT = re.compile(r"\.[cm]?[jt]s$")


UNUSABLE = "agentv:problem"
"""The key of a provider with the reason why its settings cannot be read."""


class NoCounterpart(ValueError):
    """A part of a valid test that cannot be done here: its test is refused, and not its file. The message names it."""


class UnmappedProvider(NoCounterpart):
    """A provider without a counterpart here. The message is the reason."""


def provider_parts(provider: Any) -> tuple[str, dict[str, Any]]:
    """Return the id of a provider and its options: `{id, config, label, …}`, `{ID: {…}}`, or only the id."""
    if isinstance(provider, str):
        return provider, {}
    if not isinstance(provider, dict):
        raise UnmappedProvider("it is not a name or an object")
    if isinstance(provider.get("id"), str):
        return provider["id"], provider
    if len(provider) == 1:
        id, options = next(iter(provider.items()))
        options = options if isinstance(options, dict) else {}
        return str(options.get("id", id)), options
    raise UnmappedProvider("it has no id")


def provider_name(provider: Any) -> str:
    """Return the id of a provider; empty for anything else."""
    try:
        return provider_parts(provider)[0]
    except UnmappedProvider:
        return ""


def with_config(providers: Any, config: dict[str, Any]) -> Any:
    """Return providers whose own config has more keys. Those that are programs stay as they are."""
    items = providers if isinstance(providers, list) else [providers]
    return [_with_config(item, config) for item in items] if config else providers


def _with_config(provider: Any, config: dict[str, Any]) -> Any:
    name = provider_name(provider)
    if ":" not in name or is_script(name) or name.startswith(("file:", "python:", "exec:", "http")):
        return provider
    id, options = provider_parts(provider)
    return {**options, "id": id, "config": {**(options.get("config") or {}), **config}}


def is_script(id: str) -> bool:
    """Whether a provider is a file of JavaScript."""
    return bool(_JAVASCRIPT.search(id))


def target_entry(provider: Any, folder: str, lose: Lose, variables: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return the target for a provider, without a name. Raises UnmappedProvider.

    `variables` are those of the environment that are set; with a value if the configuration sets it.
    """
    id, options = provider_parts(provider)
    if UNUSABLE in options:
        raise UnmappedProvider(options[UNUSABLE])
    config = options.get("config") if isinstance(options.get("config"), dict) else {}
    assert isinstance(config, dict)
    entry = _exec_entry(id, provider, folder) if id.startswith("exec:") else _entry(id, config, folder, lose)
    env = object_at(options, "env")
    if "model" in entry or id == "llama":
        entry |= _redirected(entry, id, {**variables, **env})
    for name in env.keys() - {*ADDRESSES.get(id.partition(":")[0], {}), f"{id.partition(':')[0].upper()}_API_KEY"}:
        if entry["provider"] != "cli":
            lose(f"'{name}' in the env of the provider '{id}'")
    try:
        own = options.get("transform")
        transform = transforms_of(_first_step(entry, config), _callbacks_step(id, config, lose), own)
    except ValueError as error:
        raise UnmappedProvider(str(error)) from None
    if not is_blank(options.get("delay")):
        lose("'delay' of a provider: calls are paced by rate limits")
    return {**entry, "transform": transform} if transform else entry


def _redirected(entry: dict[str, Any], id: str, env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the address and the key that the environment sets for a service, as promptfoo sends both."""
    kind = id.partition(":")[0]
    key, addresses = f"{kind.upper()}_API_KEY", ADDRESSES.get(kind, {})
    base, default, version = entry.get("base_url", ""), COMPATIBLE.get(kind, ("",))[0], ""
    if entry["provider"] == "gemini":
        key = next((name for name in _GOOGLE_KEYS if name in env), _GOOGLE_KEYS[0])
        env = {key: "", **env}
        default, version = GEMINI_ADDRESS, base.removeprefix(GEMINI_ADDRESS)
    own: dict[str, Any] = {}
    name = next((name for name in addresses if name in env), None)
    if name is not None and base == default + version:
        own["base_url"] = addresses[name].replace(_mark(name), text_of(env[name]) or _mark(name)) + version
    if key in env and "api_key" not in entry and (env[key] or "base_url" in {**entry, **own}):
        own["api_key"] = text_of(env[key]) or _mark(key)
    return own


def _mark(name: str) -> str:
    return f"${{{{ {name} }}}}"


def _first_step(entry: dict[str, Any], config: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a provider of promptfoo does with its answer before the transforms of the configuration."""
    format_ = config.get("response_format") or config.get("output_format")
    if entry["provider"] == "cli":
        return {"strip": ["whitespace", "ansi"], "allow_empty": True}
    if "model" in entry and isinstance(format_, dict) and format_.get("type") == "json_schema":
        return {"javascript": _PARSED_JSON, "allow_empty": True}
    return None


def _callbacks_step(id: str, config: dict[str, Any], lose: Lose) -> dict[str, Any] | None:
    """Return the step that calls the functions of the configuration; those of files, and several rounds, are lost."""
    callbacks = object_at(config, "functionToolCallbacks")
    codes = [code for code in callbacks.values() if isinstance(code, str) and not code.startswith("file://")]
    if not callbacks or len(codes) < len(callbacks) or "maxToolCallRounds" in config or not id.startswith("openai:"):
        if callbacks:
            lose(
                "'functionToolCallbacks' in the config of a provider, which are not inline code, or for several rounds"
            )
        return None
    members = ", ".join(f"{stringify(name)}: ({code})" for name, code in callbacks.items())
    is_responses = str(id.startswith("openai:responses")).lower()
    code = f"const callbacks = {{{members}}}, isResponses = {is_responses};\n{script_text_of('callbacks')}"
    return {"javascript": code, "allow_empty": True}


def _entry(id: str, config: dict[str, Any], folder: str, lose: Lose) -> dict[str, Any]:
    kind, _, rest = id.partition(":")
    if id == "echo":
        return {"provider": "mock"}
    if id.startswith(("http://", "https://")) or kind in ("http", "https"):
        try:
            return http_entry(id, config, folder, lose)
        except ValueError as error:
            raise UnmappedProvider(str(error)) from None
    if kind == "python" or (kind == "file" and ".py" in id):
        if not is_blank(config.get("pythonExecutable")):
            lose("'pythonExecutable' in the config of a provider: its function runs in the Python of agentv")
        file, _, name = rest.removeprefix("//").partition(".py")
        path = os.path.abspath(os.path.join(folder, f"{file}.py"))
        own = {"provider": "python", "function": f"{path}:{name.removeprefix(':') or 'call_api'}"}
        return {**own, "config": _config_of_code(path, config, folder, lose)}
    if is_script(id):
        path = os.path.abspath(os.path.join(folder, id.removeprefix("file://")))
        own = {"provider": "javascript", "file": path, "id": id}
        return {**own, "config": _config_of_code(path, config, folder, lose)}
    for prefix, agent in _AGENTS.items():
        if id == prefix or id.startswith(f"{prefix}:"):
            model = id[len(prefix) + 1 :] or config.get("model")
            for key in sorted(config.keys() - {"model"}):
                lose(f"'{key}' in the config of '{id}': set it on a target of provider `{agent}`")
            return {"provider": agent} | ({"model": model} if isinstance(model, str) else {})
    return _api_entry(id, config, lose)


def _exec_entry(id: str, provider: Any, folder: str) -> dict[str, Any]:
    """Return the target for a program: its words without a shell, the prompt, its options, and the variables."""
    words = [match[1] or match[2] or match[0] for match in _WORDS.finditer(id.removeprefix("exec:"))]
    if not words:
        raise UnmappedProvider("it has no command")
    _, options = provider_parts(provider)
    config = options["config"] if isinstance(options.get("config"), dict) else {}
    own = {"id": id} if isinstance(provider, dict) else {}
    env = options["env"] if isinstance(options.get("env"), dict) else {}
    call = stringify({**own, "config": {**config, "basePath": folder}, "env": env})
    command = " ".join(map(shlex.quote, words))
    template = f"""{command} {{PROMPT}} "${_OPTIONS}" '{{"vars":'{{VARIABLES}}'}}'"""
    return {"provider": "cli", "command_template": template, "plain_output": True, "env": {_OPTIONS: call}}


def _api_entry(id: str, config: dict[str, Any], lose: Lose) -> dict[str, Any]:
    if id.startswith("bedrock:"):
        id, config = bedrock_models.routed(id, config, lose)
    kind, *words = id.split(":")
    if words and (words[0] in _NO_CHAT or bedrock_models.is_no_chat(id)):
        raise UnmappedProvider(f"`{kind}:{words[0]}` is not a chat model")
    mode = words.pop(0) if words and words[0] in (*_MODES, "embeddings") else ""
    model = ":".join(words) or text_of(config.get("model"))
    if kind == "openai":
        model = model or _DEFAULT_MODELS.get(mode, _DEFAULT_MODEL)
    entry = _service(kind, model, lose)
    if mode.startswith("embedding") and entry["provider"] in _NO_EMBEDDINGS:
        raise UnmappedProvider(f"`{entry['provider']}` returns no embeddings here")
    config = _own_config(kind, mode, model, config, lose)
    if mode in _COMPLETIONS or kind == "llama" or (kind == "openai" and not mode and _INSTRUCTED.fullmatch(model)):
        lose(f"the completion API of '{id}': the prompt is sent as a chat")
    if mode == "responses":
        entry["api"] = "responses"
    forms = [key for key in _FORMS if not is_blank(config.get(key)) and config.get("showThinking") is not False]
    if forms and entry["provider"] not in _OTHER_APIS:
        entry["answer_form"] = "promptfoo"
    for key in forms if entry["provider"] in _OTHER_APIS else ():
        lose(f"'{key}' of '{id}': in promptfoo the output of an answer with tool calls is the calls, here its text")
    if model:
        entry["model"] = model
    settings = _settings(entry["provider"], config, lose)
    if kind in ("azure", "azureopenai") and not _CHAT_DEFAULTS.keys() <= settings.keys():
        lose(f"the defaults of '{id}', often a temperature of 0 and 1,024 tokens: set `temperature` and `max_tokens`")
    has_defaults = (kind in _WITH_DEFAULTS or kind in COMPATIBLE) and not mode.startswith("embedding")
    if has_defaults and not config.get("omitDefaults") and not _REASONING.fullmatch(model):
        settings = {**_CHAT_DEFAULTS, **settings}
    return {**entry, **settings}


def _own_config(kind: str, mode: str, model: str, config: dict[str, Any], lose: Lose) -> dict[str, Any]:
    """Return the config of a model with what its provider adds and leaves out."""
    if kind in _GOOGLE:
        return gemini_config(config, lose)
    if kind == "anthropic" and mode not in _COMPLETIONS:
        return anthropic_config(model, config, lose)
    if kind == "mistral" and not mode.startswith("embedding"):
        return {"max_tokens": _CHAT_DEFAULTS["max_output_tokens"], **config}
    if kind == "litellm":
        return {"omitDefaults": True, **config}
    if (kind in _WITH_DEFAULTS or kind in COMPATIBLE) and _REASONING.fullmatch(model):
        config = {key: value for key, value in config.items() if key not in ("temperature", "max_tokens")}
    own = {key: config[key] for key in _RESPONSES if key in config} if mode == "responses" else {}
    config = {key: value for key, value in config.items() if key not in own}
    return {**config, "passthrough": {**own, **object_at(config, "passthrough")}} if own else config


def _service(kind: str, model: str, lose: Lose) -> dict[str, Any]:
    """Return the provider of a service, and its address and key if it has the API of OpenAI."""
    if kind == "vertex" and model.startswith("gemini"):
        lose("vertex: the model is called through the Gemini API, with GEMINI_API_KEY")
        return {"provider": "gemini"}
    if kind in SAME:
        return {"provider": SAME[kind] or kind}
    if kind not in COMPATIBLE:
        raise UnmappedProvider("there is no such provider here")
    address, key = COMPATIBLE[kind]
    return {"provider": "openai", "base_url": address, "api_key": f"${{{{ {key} }}}}" if key else "none"}


def _settings(provider: str, config: dict[str, Any], lose: Lose) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    extra = {key: config[key] for key in _PASSED_ON if not is_blank(config.get(key))}
    for more in ("passthrough", "extra_body"):
        extra |= config[more] if isinstance(config.get(more), dict) else {}
    for key, value in config.items():
        if key in ("region", "profile") and provider != "bedrock":
            lose(f"'{key}' in the config of a provider")
        elif key in _KEYS and not is_blank(value):
            if isinstance(value, str) and value.startswith("file://"):
                lose(f"'{key}' of a provider: write the content of {value} into the configuration")
                continue
            settings[_KEYS[key]] = value / 1000 if key == "timeoutMs" and isinstance(value, int | float) else value
        elif key not in (*_KEYS, *_PASSED_ON, *_SILENT):
            lose(f"'{key}' in the config of a provider")
    if isinstance(config.get("apiKeyEnvar"), str):
        settings["api_key"] = f"${{{{ {config['apiKeyEnvar']} }}}}"
    if isinstance(config.get("workspaceUrl"), str):
        settings["base_url"] = f"{config['workspaceUrl'].removesuffix('/')}/serving-endpoints"
        extra |= {"usage_context": config["usageContext"]} if config.get("usageContext") else {}
    host = config.get("apiHost")
    if isinstance(host, str):
        address = host if "://" in host else f"https://{host}"
        settings.update({"endpoint": address} if provider == "azure" else {"base_url": f"{address}/v1"})
    if provider == "azure":
        settings = {"endpoint": settings.pop("base_url", "https://${{ AZURE_API_HOST }}"), **settings}
        settings.update({"version": config["apiVersion"]} if isinstance(config.get("apiVersion"), str) else {})
    return {**settings, "extra_body": extra} if extra else settings


def _config_of_code(path: str, config: dict[str, Any], folder: str, lose: Lose) -> dict[str, Any]:
    """Return the config of a provider that is code: with `basePath` if its file reads it."""
    text = ""
    with suppress(OSError):  # reported when the target is opened
        text = Path(path).read_text("utf-8", "replace")
    for name in sorted(set(_RUNTIME_VARIABLES.findall(text))):
        lose(f"the variable '{name}', which {os.path.basename(path)} reads: it numbers the calls of a run of promptfoo")
    return {**config, "basePath": os.path.abspath(folder)} if "basePath" in text else config
