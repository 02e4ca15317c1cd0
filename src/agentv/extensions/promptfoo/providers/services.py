"""Services that promptfoo calls, by the first part of an id."""

from __future__ import annotations

SAME = {
    **dict.fromkeys(("openrouter", "groq", "deepseek", "mistral", "together", "fireworks", "xai", "ollama", "vllm")),
    "togetherai": "together",
    "lmstudio": "lm-studio",
    "llama": "llama-cpp",
    "cohere": "cohere",
    "huggingface": "huggingface",
    "bedrock": "bedrock",
    "anthropic": "anthropic",
    "openai": "openai",
    "azure": "azure",
    "azureopenai": "azure",
    "google": "gemini",
    "palm": "gemini",
    "hf": "huggingface",
}
COMPATIBLE = {
    "localai": ("http://localhost:8080/v1", ""),
    "litellm": ("http://localhost:4000", "LITELLM_API_KEY"),
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "perplexity": ("https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    "hyperbolic": ("https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY"),
    **dict.fromkeys(
        ("alibaba", "alicloud", "aliyun", "dashscope"),
        ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    ),
    "aimlapi": ("https://api.aimlapi.com/v1", "AIML_API_KEY"),
    "cometapi": ("https://api.cometapi.com/v1", "COMETAPI_KEY"),
    "llamaapi": ("https://api.llama.com/compat/v1", "LLAMA_API_KEY"),
    "minimax": ("https://api.minimax.io/v1", "MINIMAX_API_KEY"),
    "novita": ("https://api.novita.ai/openai/v1", "NOVITA_API_KEY"),
    "nscale": ("https://inference.api.nscale.com/v1", "NSCALE_SERVICE_TOKEN"),
    "orcarouter": ("https://api.orcarouter.ai/v1", "ORCAROUTER_API_KEY"),
    "ai21": ("https://api.ai21.com/studio/v1", "AI21_API_KEY"),
    "nvidia": ("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "sambanova": ("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    "moonshot": ("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "abliteration": ("https://api.abliteration.ai/v1", "ABLIT_KEY"),
    "atlascloud": ("https://api.atlascloud.ai/v1", "ATLASCLOUD_API_KEY"),
    "cloudflare-ai": (
        "https://api.cloudflare.com/client/v4/accounts/${{ CLOUDFLARE_ACCOUNT_ID }}/ai/v1",
        "CLOUDFLARE_API_KEY",
    ),
    "databricks": ("${{ DATABRICKS_WORKSPACE_URL }}/serving-endpoints", "DATABRICKS_TOKEN"),
    "docker": ("http://localhost:12434/engines/v1", ""),
    "github": ("https://models.github.ai/inference", "GITHUB_TOKEN"),
    "truefoundry": ("https://llm-gateway.truefoundry.com", "TRUEFOUNDRY_API_KEY"),
}
"""Services with the API of OpenAI: the address, and the variable with the key."""

_GOOGLE = {
    "GOOGLE_API_HOST": "https://${{ GOOGLE_API_HOST }}",
    "PALM_API_HOST": "https://${{ PALM_API_HOST }}",
    "GOOGLE_API_BASE_URL": "${{ GOOGLE_API_BASE_URL }}",
}
ADDRESSES = {
    "openai": {
        "OPENAI_API_HOST": "https://${{ OPENAI_API_HOST }}/v1",
        "OPENAI_API_BASE_URL": "${{ OPENAI_API_BASE_URL }}",
        "OPENAI_BASE_URL": "${{ OPENAI_BASE_URL }}",
    },
    "anthropic": {"ANTHROPIC_BASE_URL": "${{ ANTHROPIC_BASE_URL }}"},
    "mistral": {
        "MISTRAL_API_HOST": "https://${{ MISTRAL_API_HOST }}/v1",
        "MISTRAL_API_BASE_URL": "${{ MISTRAL_API_BASE_URL }}",
    },
    "ollama": {"OLLAMA_BASE_URL": "${{ OLLAMA_BASE_URL }}/v1"},
    "llama": {"LLAMA_BASE_URL": "${{ LLAMA_BASE_URL }}/v1"},
    "localai": {"LOCALAI_BASE_URL": "${{ LOCALAI_BASE_URL }}"},
    "litellm": {"LITELLM_API_BASE": "${{ LITELLM_API_BASE }}"},
    "fireworks": {"FIREWORKS_API_BASE_URL": "${{ FIREWORKS_API_BASE_URL }}"},
    "nvidia": {"NVIDIA_API_BASE_URL": "${{ NVIDIA_API_BASE_URL }}"},
    "abliteration": {"ABLIT_API_BASE_URL": "${{ ABLIT_API_BASE_URL }}"},
    "google": _GOOGLE,
    "palm": _GOOGLE,
    "docker": {"DOCKER_MODEL_RUNNER_BASE_URL": "${{ DOCKER_MODEL_RUNNER_BASE_URL }}/engines/v1"},
}
"""The variables that redirect the calls to a service, in their order."""
