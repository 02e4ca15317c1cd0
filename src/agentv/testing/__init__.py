"""For tests: a model server on loopback that fails as asked, and requests to put to targets. Imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentv.testing.anthropic_messages import AnthropicMessages
    from agentv.testing.chat import ChatCompletions
    from agentv.testing.faults import Fault
    from agentv.testing.gemini_content import GeminiContent
    from agentv.testing.openai_responses import Responses
    from agentv.testing.server import Counts, FaultyServer
    from agentv.testing.wire import Answer, Asked, RawReply, SampleRequest, WireFormat

__all__ = [
    "Answer",
    "AnthropicMessages",
    "Asked",
    "ChatCompletions",
    "Counts",
    "Fault",
    "FaultyServer",
    "GeminiContent",
    "RawReply",
    "Responses",
    "SampleRequest",
    "WireFormat",
]

_HOMES = {
    "Answer": "wire",
    "AnthropicMessages": "anthropic_messages",
    "Asked": "wire",
    "ChatCompletions": "chat",
    "Counts": "server",
    "Fault": "faults",
    "FaultyServer": "server",
    "GeminiContent": "gemini_content",
    "RawReply": "wire",
    "Responses": "openai_responses",
    "SampleRequest": "wire",
    "WireFormat": "wire",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentv.testing' has no attribute {name!r}")
    from importlib import import_module  # late: pytest imports this package wherever agentv is installed

    return getattr(import_module(f"agentv.testing.{_HOMES[name]}"), name)
