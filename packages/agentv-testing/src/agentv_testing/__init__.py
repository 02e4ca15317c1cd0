"""A local model server with simulated failures, and sample requests for targets. Modules are imported lazily."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentv.model.response import SampleRequest
    from agentv_testing.anthropic_messages import AnthropicMessages
    from agentv_testing.batches import BatchScript
    from agentv_testing.faults import Fault
    from agentv_testing.gemini_content import GeminiContent
    from agentv_testing.hosted_evals import HostedEvals
    from agentv_testing.openai_chat import ChatCompletions
    from agentv_testing.openai_responses import Responses
    from agentv_testing.server import FaultyServer, ServerCounts
    from agentv_testing.wire import Answer, RawReply, ReceivedRequest, WireFormat

__all__ = [
    "Answer",
    "AnthropicMessages",
    "BatchScript",
    "ChatCompletions",
    "Fault",
    "FaultyServer",
    "GeminiContent",
    "HostedEvals",
    "RawReply",
    "ReceivedRequest",
    "Responses",
    "SampleRequest",
    "ServerCounts",
    "WireFormat",
]

_MODULES = (
    *("wire", "faults", "server", "batches", "hosted_evals"),
    *("openai_chat", "openai_responses", "anthropic_messages", "gemini_content"),
)


def __getattr__(name: str) -> Any:
    if name == "SampleRequest":
        return import_module("agentv.model.response").SampleRequest
    if name in __all__:
        for module in _MODULES:  # late: pytest imports this package in every session
            found = getattr(import_module(f"agentv_testing.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module 'agentv_testing' has no attribute {name!r}")
