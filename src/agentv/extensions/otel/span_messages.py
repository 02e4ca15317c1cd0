"""The messages in a span: GenAI conventions old and new, OpenInference, and Vercel's AI SDK."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from agentv.extensions.otel.spans import Span, SpanEvent, key_of
from agentv.sessions.session import object_in, objects_in
from agentv.sessions.turns import text_of
from agentv.support.json_values import json_or

_ROLE_NAMES = {"model": "assistant", "ai": "assistant", "human": "user", "developer": "system", "function": "tool"}
_WRAPPERS = (
    *("messages", "input", "inputs", "query", "question", "prompt"),
    *("output", "outputs", "answer", "text", "content"),
)
"""The keys under which the value of a span may have its messages or its text."""

_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message$")


class SpanMessage(NamedTuple):
    """A message in a span. `calls` are (id, tool, input), `results` are (id, output)."""

    role: str
    text: str = ""
    calls: tuple[tuple[str, str, Any], ...] = ()
    results: tuple[tuple[str, Any], ...] = ()

    @property
    def signature(self) -> tuple[Any, ...]:
        """What tells whether two messages are the same, whatever convention they were written in."""
        calls = tuple((id, tool) for id, tool, _ in self.calls)
        return self.role, " ".join(self.text.split()), calls, tuple(id for id, _ in self.results)


def messages_of_span(span: Span) -> tuple[list[SpanMessage], list[SpanMessage]]:
    """Return the input and output messages of a span, in whichever convention they were recorded."""
    for read in (_current, _listed_events, _message_events, _content_events, _numbered, _vercel, _plain_values):
        inputs, outputs = read(span)
        if inputs or outputs:
            return inputs, outputs
    return [], []


_Both = tuple[list[SpanMessage], list[SpanMessage]]


def _current(span: Span) -> _Both:
    """Read `gen_ai.input.messages` and `gen_ai.output.messages`, of the span or of its event."""
    sources = [span.attributes, *(event.data for event in span.events)]
    for data in sources:
        inputs = data.get("gen_ai.input.messages") or data.get("pydantic_ai.all_messages")
        outputs = data.get("gen_ai.output.messages")
        if inputs or outputs:
            system = _parsed(data.get("gen_ai.system_instructions"))
            instructions = [SpanMessage("system", _text(system))] if system else []
            return [*instructions, *_messages(_parsed(inputs))], list(_messages(_parsed(outputs), "assistant"))
    return [], []


def _listed_events(span: Span) -> _Both:
    """Read events that are listed in an attribute, as older versions of Pydantic AI do."""
    events = objects_in(_parsed(span.first("events", "all_messages_events")))
    return _from_events([SpanEvent(str(event.get("event.name", "")), event) for event in events])


def _message_events(span: Span) -> _Both:
    return _from_events(span.events)


def _from_events(events: Iterable[SpanEvent]) -> _Both:
    """Read `gen_ai.user.message`, `gen_ai.choice` and similar events."""
    inputs: list[SpanMessage] = []
    outputs: list[SpanMessage] = []
    for event in events:
        if match := _EVENT.match(event.name):
            inputs += _messages([{"role": match[1], **_decoded(event.data)}])
        elif event.name == "gen_ai.choice":
            choice = _decoded(event.data)
            inner = choice["message"] if isinstance(choice.get("message"), dict) else choice
            outputs += _messages([{**inner, "role": "assistant"}])
    return inputs, outputs


def _content_events(span: Span) -> _Both:
    """Read the events `gen_ai.content.prompt` and `gen_ai.content.completion`, whose messages are JSON text."""
    messages: dict[str, list[SpanMessage]] = {"prompt": [], "completion": []}
    for event in span.events:
        side = event.name.rpartition(".")[2]
        if event.name in ("gen_ai.content.prompt", "gen_ai.content.completion"):
            messages[side] += _messages(
                _parsed(event.data.get(f"gen_ai.{side}")), "user" if side == "prompt" else "assistant"
            )
    return messages["prompt"], messages["completion"]


def _numbered(span: Span) -> _Both:
    """Read attributes with numbers: `gen_ai.prompt.0.content`, `llm.input_messages.0.message.content`."""
    pairs = (("gen_ai.prompt", "gen_ai.completion"), ("llm.input_messages", "llm.output_messages"))
    for input_prefix, output_prefix in pairs:
        both = [list(_messages(_nested(span.attributes, prefix))) for prefix in (input_prefix, output_prefix)]
        if both[0] or both[1]:
            return both[0], both[1]
    return [], []


def _vercel(span: Span) -> _Both:
    data = _parsed(span.first("ai.prompt.messages", "ai.prompt"))
    if isinstance(data, dict):
        data = data.get("messages") or ([{"role": "user", "content": data["prompt"]}] if data.get("prompt") else [])
    text = span.first("ai.response.text", "ai.result.text")
    calls = _parsed(span.first("ai.response.toolCalls", "ai.result.toolCalls"))
    reply = {"role": "assistant", "content": text, "tool_calls": calls}
    return list(_messages(data)), list(_messages([reply])) if text or calls else []


def _plain_values(span: Span) -> _Both:
    """Read the input and output of a span as a whole."""
    inputs = span.first("input.value", "traceloop.entity.input", "gen_ai.prompt")
    outputs = span.first("output.value", "traceloop.entity.output", "gen_ai.completion", "final_result")
    return list(_messages(_unwrapped(inputs), "user")), list(_messages(_unwrapped(outputs), "assistant"))


def _unwrapped(value: Any) -> Any:
    """Return the messages or the text in the value of a span, which may be JSON of any shape."""
    data = _parsed(value)
    if isinstance(data, dict) and "role" in data:
        return [data]
    if isinstance(data, dict) and (key := next((key for key in _WRAPPERS if data.get(key)), None)) is not None:
        return data[key] if key == "messages" else _unwrapped(data[key])
    return data if isinstance(data, list) and any("role" in item for item in objects_in(data)) else value


def _nested(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """Return the list that attributes with numbered names describe."""
    root: dict[str, Any] = {}
    for key, value in attributes.items():
        if key.startswith(f"{prefix}."):
            *parents, last = key[len(prefix) + 1 :].split(".")
            place = root
            for step in parents:
                inner = place.setdefault(step, {})
                place = inner if isinstance(inner, dict) else place.setdefault(f"{step} ", {})
            place[last] = value
    items = _as_list(root)
    return items if isinstance(items, list) else []


def _as_list(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _as_list(item) for key, item in value.items()}
    if inner and all(key.isdigit() for key in inner):
        return [inner[key] for key in sorted(inner, key=int)]
    return inner


def _messages(value: Any, role: str = "user") -> Iterator[SpanMessage]:
    """Yield messages of any convention. Text alone is a message of `role`."""
    if isinstance(value, str):
        if value.strip():
            yield SpanMessage(role, value)
        return
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            yield SpanMessage(role, item)
        elif isinstance(item, dict):
            yield _message(object_in(item, "message") or item, role)


def _message(data: dict[str, Any], otherwise: str) -> SpanMessage:
    name = str(data.get("role") or otherwise).lower()
    role = _ROLE_NAMES.get(name, name)
    content = _parsed(key_of(data, "parts", "content", "contents"))
    parts = objects_in(content)
    calls = [call for part in parts if (call := _call(part)) is not None]
    calls += [
        call for item in objects_in(_parsed(data.get("tool_calls"))) if (call := _call({**item, "type": "tool_call"}))
    ]
    results = [result for part in parts if (result := _result(part)) is not None]
    text = _text(content)
    if role == "tool" and not results:
        id = key_of(data, "tool_call_id", "message.tool_call_id", "id")
        results, text = [(str(id or ""), text)], ""
    if results and role == "user" and not text:
        role = "tool"
    return SpanMessage(role, text, tuple(calls), tuple(results))


def _call(part: dict[str, Any]) -> tuple[str, str, Any] | None:
    if part.get("type") not in ("tool_call", "tool_use", "tool-call", "function_call", "function"):
        return None
    inner = object_in(part, "tool_call") or part
    function = object_in(inner, "function") or inner
    name = key_of(function, "name", "toolName", "tool_name")
    arguments = key_of(function, "arguments", "input", "args")
    id = key_of(inner, "id", "toolCallId", "tool_call_id", "call_id")
    return (str(id or ""), str(name), _parsed(arguments)) if name else None


def _result(part: dict[str, Any]) -> tuple[str, Any] | None:
    if part.get("type") not in ("tool_call_response", "tool_result", "tool-result", "tool_response"):
        return None
    id = key_of(part, "id", "tool_use_id", "toolCallId", "tool_call_id")
    output = key_of(part, "response", "result", "content", "output")
    return str(id or ""), text_of(output) or output if isinstance(output, list) else output


def _text(content: Any) -> str:
    """Return the text of a message: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [item if isinstance(item, str) else _part_text(item) for item in content]
    return "\n".join(text for text in texts if text)


def _part_text(part: Any) -> str:
    part = object_in({"part": part}, "part")
    inner = object_in(part, "message_content") or part
    if inner.get("type", "text") not in ("text", "input_text", "output_text", "Text"):
        return ""
    text = key_of(inner, "content", "text")
    return text if isinstance(text, str) else ""


def _parsed(value: Any) -> Any:
    """Return the data in a text that is a JSON object or list; any other value unchanged."""
    is_json = isinstance(value, str) and value.strip()[:1] in ("{", "[")
    return json_or(value, value) if is_json else value


def _decoded(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an event with JSON in texts decoded, and `gen_ai.event.content` merged into it."""
    body = _parsed(data.get("gen_ai.event.content"))
    merged = {**data, **(body if isinstance(body, dict) else {})}
    return {key: _parsed(value) if key in ("message", "tool_calls") else value for key, value in merged.items()}
