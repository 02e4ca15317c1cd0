"""The output that promptfoo reads from the reply of a model API: its text, or its tool calls and thinking as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from agentv.extensions.promptfoo.nunjucks.json_values import script_value
from agentv.model.response import Request, Response
from agentv.support.javascript.values import stringify


def read_reply(read: Callable[[bytes, Request], Response], api: str, body: bytes, request: Request) -> Response:
    """Return the response that `read` reads, with promptfoo's output as the content of its last message."""
    response = read(body, request)
    output = _OUTPUTS[api](script_value(body.decode()))
    if not output or not response.messages:
        return response
    *others, last = response.messages
    return msgspec.structs.replace(response, messages=(*others, msgspec.structs.replace(last, content=output)))


def _chat_output(reply: dict[str, Any]) -> Any:
    """Return the calls, or the whole message if it has a text as well."""
    message = reply["choices"][0]["message"]
    text, calls = message.get("content"), message.get("function_call") or message.get("tool_calls")
    if calls and not message.get("reasoning"):
        return message if text else calls
    thinking = message.get("reasoning") or message.get("reasoning_content")
    return f"Thinking: {thinking}\n\n{text}" if thinking and isinstance(text, str) else text


def _messages_output(reply: dict[str, Any]) -> str:
    blocks = reply["content"]
    if {block["type"] for block in blocks}.isdisjoint(("tool_use", "thinking", "redacted_thinking")):
        return "\n\n".join(block.get("text") or "" for block in blocks)
    return "\n\n".join(filter(None, map(_block_text, blocks)))


def _block_text(block: dict[str, Any]) -> str:
    if block["type"] == "text":
        return str(block["text"])
    if block["type"] == "redacted_thinking":
        return f"Redacted Thinking: {block['data']}"
    if block["type"] != "thinking":
        return str(stringify(block))
    return f"Thinking: {block['thinking']}\nSignature: {block.get('signature')}" if block["thinking"].strip() else ""


def _content_output(reply: dict[str, Any]) -> Any:
    parts = reply["candidates"][0]["content"]["parts"]
    return "".join(part["text"] for part in parts) if all("text" in part for part in parts) else parts


def _responses_output(reply: dict[str, Any]) -> str:
    return "\n".join(text for item in reply["output"] for text in _item_texts(item) if text)


def _item_texts(item: dict[str, Any]) -> Iterator[str]:
    """Yield the text of an item of the Responses API; nothing for one that promptfoo leaves out."""
    kind, action = item["type"], item.get("action") or {}
    if kind == "message":
        yield "".join(part["text"] for part in item["content"] if part["type"] == "output_text")
    elif kind == "function_call" and item.get("arguments") == "{}" and item.get("status") == "completed":
        note = "Function called but no arguments were extracted. Consider using the correct Responses API tool format."
        empty = {"type": kind, "name": item.get("name"), "status": "no_arguments_provided", "note": note}
        yield str(stringify(empty))
    elif kind in ("function_call", "tool_result"):
        yield str(stringify(item))
    elif kind == "reasoning" and item.get("summary"):
        yield "Reasoning: " + "\n".join(part["text"] for part in item["summary"])
    elif kind == "web_search_call":
        yield _search_text(item, action)
    elif kind == "code_interpreter_call":
        yield f"Code Interpreter: {item.get('code') or 'Running code...'}"
    elif kind == "mcp_list_tools":
        yield f"MCP Tools from {item['server_label']}: {stringify(item['tools'], 2)}"
    elif kind == "mcp_call":
        name, error = item["name"], item.get("error")
        yield f"MCP Tool Error ({name}): {error}" if error else f"MCP Tool Result ({name}): {item.get('output')}"
    elif kind == "mcp_approval_request":
        yield f"MCP Approval Required for {item['server_label']}.{item['name']}: {item['arguments']}"


def _search_text(item: dict[str, Any], action: dict[str, Any]) -> str:
    texts = {
        "search": f'Web Search: "{action.get("query")}"',
        "open_page": f"Opening page: {action.get('url')}",
        "find_in_page": f'Finding in page: "{action.get("query")}"',
    }
    if not action:
        return f"Web Search Call (status: {item.get('status') or 'unknown'})"
    return texts.get(action["type"], f"Web action: {action['type']}")


_OUTPUTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "chat": _chat_output,
    "content": _content_output,
    "messages": _messages_output,
    "responses": _responses_output,
}
