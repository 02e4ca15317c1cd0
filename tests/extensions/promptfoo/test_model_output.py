"""Replies of model APIs: the output is that of promptfoo. The expected outputs are those of promptfoo 0.121."""

import json
from pathlib import Path

import pytest

from agentv.extensions.promptfoo.providers.model_output import read_reply
from agentv.extensions.promptfoo.providers.provider_entries import target_entry
from agentv.model.message import Message, ToolCall
from agentv.model.response import Response
from agentv.settings.transform import apply_transform

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
OLD_CALL = {"name": "f", "arguments": "{}"}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1.0}}
USE_TEXT = '{"type":"tool_use","id":"t","name":"f","input":{"a":1}}'
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
TEXTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
PARTS = [{"text": "a"}, {"functionCall": {"name": "f", "args": {"a": 1}}}]
ITEM = {"type": "function_call", "name": "f", "arguments": "1", "status": "completed"}
ITEM_TEXT = '{"type":"function_call","name":"f","arguments":"1","status":"completed"}'
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
SEARCH = {"type": "web_search_call", "action": {"type": "search", "query": "cats"}}
THOUGHT = {"type": "reasoning", "summary": [{"text": "hm"}]}


def chat(**message):
    return {"choices": [{"message": message}]}


def content(parts):
    return {"candidates": [{"content": {"parts": parts}}]}


REPLIES = {
    "text": ("chat", chat(content="Hi"), "Hi"),
    "calls": ("chat", chat(content=None, tool_calls=[CALL]), [CALL]),
    "calls next to an empty text": ("chat", chat(content="", tool_calls=[CALL]), [CALL]),
    "calls and a text": ("chat", chat(content="Hi", tool_calls=[CALL]), {"content": "Hi", "tool_calls": [CALL]}),
    "no calls": ("chat", chat(content="Hi", tool_calls=[]), "Hi"),
    "an old call": ("chat", chat(content=None, function_call=OLD_CALL), OLD_CALL),
    "reasoning": ("chat", chat(content="Hi", reasoning_content="hm"), "Thinking: hm\n\nHi"),
    "Anthropic text": ("messages", {"content": TEXTS}, "a\n\nb"),
    "Anthropic calls": ("messages", {"content": [TEXTS[0], USE]}, f"a\n\n{USE_TEXT}"),
    "Anthropic thinking": ("messages", {"content": [THINKING, TEXTS[0]]}, "Thinking: hm\nSignature: s\n\na"),
    "Gemini text": ("content", content([{"text": "a"}, {"text": "b"}]), "ab"),
    "Gemini calls": ("content", content(PARTS), PARTS),
    "Responses": ("responses", {"output": [THOUGHT, SEARCH, SAID]}, 'Reasoning: hm\nWeb Search: "cats"\nHi'),
    "Responses calls": ("responses", {"output": [{"type": "reasoning", "summary": []}, ITEM]}, ITEM_TEXT),
}


@pytest.mark.parametrize(("api", "reply", "output"), REPLIES.values(), ids=REPLIES)
def test_the_output_of_a_reply_is_that_of_promptfoo(api, reply, output):
    plain = Response(messages=(Message("assistant", "plain"),))
    assert read_reply(lambda *_: plain, api, json.dumps(reply).encode(), None).value == output


CODE = "async (text) => { const { a } = JSON.parse(text); return a + 1; }"
CALLBACKS = {
    "calls": ("openai:gpt-4o", CODE, [CALL, CALL], "2\n2"),
    "an old call": ("openai:gpt-4o", "() => ({b: 1})", OLD_CALL, '{"b":1}'),
    "a text": ("openai:gpt-4o", CODE, "Hi", "Hi"),
    "another function": ("openai:gpt-4o", CODE, [{**CALL, "function": OLD_CALL | {"name": "g"}}], None),
    "a function that throws": ("openai:gpt-4o", "() => { throw new Error('x'); }", [CALL], None),
    "Responses": ("openai:responses:gpt-4o", "(text) => text + text", f"Hi\n{ITEM_TEXT}", "Hi\n11"),
}


@pytest.mark.parametrize(("provider", "code", "answer", "result"), CALLBACKS.values(), ids=CALLBACKS)
def test_inline_functions_answer_the_calls_of_a_model(provider, code, answer, result):
    pytest.importorskip("quickjs")
    config = {"tools": [{"type": "function"}], "functionToolCallbacks": {"f": code}}
    entry = target_entry({"id": provider, "config": config}, ".", pytest.fail)
    assert apply_transform(answer, entry["transform"]) == (answer if result is None else result)


@pytest.mark.parametrize("more", [{"maxToolCallRounds": 3}, {"functionToolCallbacks": {"f": "file://f.js:f"}}], ids=str)
def test_functions_in_files_or_for_several_rounds_are_named(more):
    losses = []
    config = {"functionToolCallbacks": {"f": CODE}, **more}
    assert "transform" not in target_entry({"id": "openai:gpt-4o", "config": config}, ".", losses.append)
    assert any("functionToolCallbacks" in loss for loss in losses)


SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
VALID = {"type": "is-valid-openai-tools-call"}
TESTS = {
    "valid": ("pass", "Oslo", VALID, {"type": "javascript", "value": "output[0].function.name === 'weather'"}),
    "schema": ("fail", "Rome", VALID),
    "text": ("fail", "Bern", VALID),
    "other": ("fail", "Bonn", {"type": "not-is-valid-openai-tools-call"}),
    "name": ("pass", "Oslo", {"type": "equals", "transform": "output[0].function.name", "value": "weather"}),
    "stopped": ("pass", "Oslo", {"type": "finish-reason", "value": "Tool_Calls"}),
    "not stopped": ("fail", "Oslo", {"type": "finish-reason", "value": "stop"}),
}
CONFIG = {
    "prompts": ["Weather in {{city}}?"],
    "providers": [{"id": "openai:gpt-4.1-mini", "config": {"tools": [TOOL]}}],
    "tests": [{"description": name, "vars": {"city": row[1]}, "assert": row[2:]} for name, row in TESTS.items()],
}


def test_the_calls_of_an_answer_are_checked_as_in_promptfoo(folder, command, agentv_server, monkeypatch):
    pytest.importorskip("quickjs")
    testing = pytest.importorskip("agentv_testing")
    calls = {"Oslo": ("weather", {"place": "Oslo"}), "Rome": ("weather", {}), "Bonn": ("time", {"place": "Bonn"})}

    def answer(received):
        city = next((city for city in calls if city in received.prompt), None)
        return testing.Answer(tool_calls=(ToolCall(*calls[city], id="c"),)) if city else "Sunny"

    monkeypatch.setenv("OPENAI_BASE_URL", f"{agentv_server(answer).url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    ended = command("eval", folder.write("promptfooconfig.json", json.dumps(CONFIG)), "--out", "run")
    assert Path("run/results.jsonl").is_file(), ended.stderr
    records = map(json.loads, Path("run/results.jsonl").read_text("utf-8").splitlines())
    verdicts = {record["eval_id"]: record["verdict"] for record in records}
    assert verdicts == {name: row[0] for name, row in TESTS.items()}


def test_the_calls_of_gemini_are_checked_against_its_declarations(folder, command, agentv_server):
    pytest.importorskip("quickjs")
    testing = pytest.importorskip("agentv_testing")
    places = {"Oslo": {"place": "Oslo"}, "Rome": {}}

    def answer(received):
        city = next((city for city in places if city in received.prompt), None)
        return testing.Answer(tool_calls=(ToolCall("weather", places[city], id="c"),)) if city else "Sunny"

    parameters = {"type": "OBJECT", "properties": {"place": {"type": "STRING"}}, "required": ["place"]}
    tools = [{"functionDeclarations": [{"name": "weather", "parameters": parameters}]}]
    config = {"tools": tools, "apiBaseUrl": agentv_server(answer).url, "apiKey": "k"}
    tests = [
        {"vars": {"city": city}, "assert": [{"type": "is-valid-function-call"}]} for city in ("Oslo", "Rome", "Bern")
    ]
    providers = [{"id": "google:gemini-2.5-flash", "config": config}]
    document = {"prompts": ["Weather in {{city}}?"], "providers": providers, "tests": tests}
    command("eval", folder.write("promptfooconfig.json", json.dumps(document)), "--out", "run", "--workers", "1")
    records = map(json.loads, Path("run/results.jsonl").read_text("utf-8").splitlines())
    assert [record["verdict"] for record in records] == ["pass", "fail", "fail"]
