"""Services that speak OpenAI's API, by name: where each is, which variable has its key, where it differs."""

from __future__ import annotations

import msgspec

from agentv.model.judgement import Wanted
from agentv.targets.base import Target
from agentv.targets.chat_completions import Dialect
from agentv.targets.model_api import key_of
from agentv.targets.openai import Address, OpenAI


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One service. Without a `key_variable` it runs on this machine and asks for no key. `model` is an example."""

    title: str
    base_url: str
    key_variable: str | None = None
    model: str
    dialect: Dialect = Dialect()
    takes_schemas: bool = True


PRESETS: dict[str, Preset] = {
    "openrouter": Preset(
        title="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
        model="openai/gpt-5-mini",
    ),
    "groq": Preset(
        title="Groq",
        base_url="https://api.groq.com/openai/v1",
        key_variable="GROQ_API_KEY",
        model="openai/gpt-oss-120b",
        dialect=Dialect(output_limit="max_completion_tokens"),
    ),
    "deepseek": Preset(
        title="DeepSeek",
        base_url="https://api.deepseek.com/v1",
        key_variable="DEEPSEEK_API_KEY",
        model="deepseek-chat",
        # It takes JSON without a schema only.
        takes_schemas=False,
    ),
    "mistral": Preset(
        title="Mistral",
        base_url="https://api.mistral.ai/v1",
        key_variable="MISTRAL_API_KEY",
        model="mistral-large-latest",
        dialect=Dialect(seed="random_seed"),
    ),
    "together": Preset(
        title="Together AI",
        base_url="https://api.together.xyz/v1",
        key_variable="TOGETHER_API_KEY",
        model="openai/gpt-oss-120b",
    ),
    "fireworks": Preset(
        title="Fireworks AI",
        base_url="https://api.fireworks.ai/inference/v1",
        key_variable="FIREWORKS_API_KEY",
        model="accounts/fireworks/models/deepseek-v3p1",
    ),
    "xai": Preset(title="xAI", base_url="https://api.x.ai/v1", key_variable="XAI_API_KEY", model="grok-4"),
    "github-models": Preset(
        title="GitHub Models",
        base_url="https://models.github.ai/inference",
        key_variable="GITHUB_TOKEN",
        model="openai/gpt-5-mini",
    ),
    "ollama": Preset(title="Ollama", base_url="http://localhost:11434/v1", model="llama3.2"),
    "vllm": Preset(title="vLLM", base_url="http://localhost:8000/v1", model="Qwen/Qwen3-8B"),
    "lm-studio": Preset(title="LM Studio", base_url="http://localhost:1234/v1", model="qwen3-8b"),
    "llama-cpp": Preset(title="llama.cpp", base_url="http://localhost:8080/v1", model="default"),
}


class Compatible(OpenAI, frozen=True, kw_only=True):
    """A service that speaks OpenAI's API. Its address and the variable with its key need not be written."""

    @property
    def preset(self) -> Preset:
        """The row of this target's provider."""
        return PRESETS[self.provider]

    def address(self, home: str) -> Address:
        """The service's own address and key; another address is sent the key that is written, and no other."""
        variable = self.preset.key_variable
        if self.base_url is None and variable is not None:
            return Address(self.preset.base_url, key_of(self, home, variable, given=self.api_key))
        return Address(self.base_url or self.preset.base_url, self.api_key or None)

    def wanting(self, wanted: Wanted) -> Target:
        """As every model API, without a schema where the service takes none."""
        return super().wanting(wanted if self.preset.takes_schemas else msgspec.structs.replace(wanted, schema=None))

    def dialect(self, address: Address) -> Dialect:  # noqa: ARG002
        """Where the service differs, whatever its address."""
        return self.preset.dialect
