"""For tests: a model server on loopback that fails as asked, and requests to send to targets."""

from agentv.model.sample_request import SampleRequest
from agentv.testing.anthropic_messages import AnthropicMessages
from agentv.testing.faults import Fault
from agentv.testing.gemini_content import GeminiContent
from agentv.testing.openai_chat import ChatCompletions
from agentv.testing.openai_responses import Responses
from agentv.testing.server import FaultyServer, ServerCounts
from agentv.testing.wire import Answer, RawReply, ReceivedRequest, WireFormat

__all__ = [
    "Answer",
    "AnthropicMessages",
    "ChatCompletions",
    "Fault",
    "FaultyServer",
    "GeminiContent",
    "RawReply",
    "ReceivedRequest",
    "Responses",
    "SampleRequest",
    "ServerCounts",
    "WireFormat",
]
