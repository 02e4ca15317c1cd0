"""Model APIs that the package pydantic-ai calls: Bedrock, Cohere, Hugging Face and others."""

_API = "agentv.extensions.pydantic_ai.pydantic_ai"

ROWS = {
    "agentv.targets": {
        "bedrock": f"{_API}:Bedrock",
        "cohere": f"{_API}:Cohere",
        "huggingface": f"{_API}:HuggingFace hugging-face",
        "pydantic_ai": f"{_API}:PydanticAi",
    },
}
