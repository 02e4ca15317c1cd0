"""Calls of functions, and what providers report next to their answers, by name."""


def call(name, arguments):
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


ANSWERS = {
    "one": {"output": [call("weather", '{"place": "Oslo"}')]},
    "two": {"output": [call("weather", '{"place": "Oslo"}'), call("time", "{}")]},
    "second is wrong": {"output": [call("time", "{}"), call("weather", "{}")]},
    "missing argument": {"output": [call("weather", "{}")]},
    "wrong type": {"output": [call("weather", '{"place": 5}')]},
    "unknown": {"output": [call("news", "{}")]},
    "bad arguments": {"output": [call("weather", "{place")]},
    "object arguments": {"output": [{"function": {"name": "time", "arguments": {}}}]},
    "no function": {"output": [{"name": "time", "arguments": "{}"}]},
    "empty": {"output": []},
    "object": {"output": {"a": 1}},
    "in a message": {"output": {"content": "x", "tool_calls": [call("time", "{}")]}},
    "function call": {"output": {"name": "time", "arguments": "{}"}},
    "MCP": {"output": "MCP Tool Result (time): 5"},
    "MCP error": {"output": "MCP Tool Error (time): 5"},
    "flagged": {"output": "x", "guardrails": {"flagged": True, "reason": "bad"}},
    "flagged input": {"output": "x", "guardrails": {"flagged": True, "flaggedInput": True}},
    "unflagged": {"output": "x", "guardrails": {"flagged": False}},
    "flagged later": {"output": "x", "metadata": {"redteamHistory": [{}, {"guardrails": {"flagged": True}}]}},
    "stop": {"output": "x", "finishReason": "stop"},
    "length": {"output": "x", "finishReason": "LENGTH"},
    "blank reason": {"output": "x", "finishReason": ""},
    "facts": {"output": "x", "metadata": {"n": 3, "list": [1]}, "raw": {"a": 1}, "isRefusal": True, "cached": True},
}


def call_api(prompt, options, context):
    return ANSWERS.get(prompt, {"output": prompt})
