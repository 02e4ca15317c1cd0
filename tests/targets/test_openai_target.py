"""The OpenAI target: requests equal to those of OpenAI's SDK, responses, and classified failures."""

import asyncio
import json
import subprocess
import sys
import warnings

import msgspec
import pytest

from agentv.errors import UsageError
from agentv.model.message import ImagePart, Message, TextPart, ToolCall
from agentv.model.response import Response, TargetFailure
from agentv.model.result import TokenUsage
from agentv.targets.apis.openai import OPENAI_URL, OpenAI
from agentv.targets.apis.openai_wire import wire_messages
from agentv_testing import Answer, FaultyServer, RawReply, SampleRequest

KEY = "sk-planted-0123456789"
PIXEL = "data:image/png;base64,iVBORw0KGgo="
WEATHER = {"name": "weather", "description": "The weather", "parameters": {"type": "object", "properties": {}}}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "city",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
            "additionalProperties": False,
        },
    },
}
HELLO = [{"role": "user", "content": "Hello"}]


def target(server, **settings):
    return OpenAI(**{"name": "m", "provider": "openai", "model": "gpt", "base_url": server.url, **settings})


def ask(server, request=None, **settings) -> Response:
    async def once():
        responder = target(server, **settings).open(".")
        try:
            return await responder.respond(request or SampleRequest())
        finally:
            await responder.aclose()

    return asyncio.run(once())


def failure(answers, **settings) -> TargetFailure:
    with FaultyServer(answers) as server, pytest.raises(TargetFailure) as raised:
        ask(server, **settings)
    return raised.value


def answered(choice, **body):
    with FaultyServer(RawReply(json.dumps({"choices": [choice], **body}).encode())) as server:
        return ask(server)


def test_a_response_has_text_usage_id_model_and_stop_reason():
    with FaultyServer(Answer("Paris", usage=TokenUsage(12, 3, 4))) as server:
        response = ask(server)
    assert response.text == "Paris"
    assert response.usage == TokenUsage(12, 3, 4)
    assert (response.id, response.model, response.stop_reason) == ("chatcmpl-1", "gpt", "stop")
    assert response.duration_ms > 0


def test_missing_or_invalid_usage_does_not_invalidate_the_answer():
    for usage in (None, {}, {"prompt_tokens": "many"}, {"prompt_tokens": -1}, {"prompt_tokens": 10**23}, "none", [1]):
        body = {"choices": [{"message": {"content": "Paris"}}], "usage": usage}
        with FaultyServer(RawReply(json.dumps(body).encode())) as server:
            response = ask(server)
        assert (response.text, response.usage) == ("Paris", None)
    with FaultyServer("Paris", faults=["wrong_usage"]) as server:
        assert ask(server).usage is None


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 3.0, "completion_tokens": "4"},
        {"prompt_tokens": 3, "completion_tokens": 4, "cost": {"input_tokens_cost": 0.1}},
        {"prompt_tokens": 3, "completion_tokens": 4, "cost": "free", "prompt_tokens_details": None},
    ],
)
def test_alternative_usage_formats(usage):
    assert answered({"message": {"content": "Paris"}}, usage=usage).usage == TokenUsage(3, 4)


@pytest.mark.parametrize(("cost", "kept"), [(0.25, 0.25), ({"total_cost": 0.5}, 0.5), (-1, None), (True, None)])
def test_the_reported_cost_is_used(cost, kept):
    assert answered({"message": {"content": "x"}}, usage={"prompt_tokens": 1, "cost": cost}).cost_usd == kept


def test_tool_call_arguments_are_parsed():
    calls = (ToolCall("weather", {"city": "Oslo"}, id="a"), ToolCall("note", "not { json", id="b"))
    with FaultyServer(Answer(tool_calls=calls)) as server:
        response = ask(server)
    assert response.messages == (Message("assistant", None, calls),)
    assert response.stop_reason == "tool_calls"


@pytest.mark.parametrize(
    ("fields", "call"),
    [
        ({"tool_calls": [{"id": "a", "function": {"name": "now", "arguments": ""}}]}, ToolCall("now", {}, id="a")),
        (
            {"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}]},
            ToolCall("sql", "select 1", id="a"),
        ),
        ({"function_call": {"name": "old", "arguments": '{"x": 1}'}}, ToolCall("old", {"x": 1})),
    ],
    ids=["without arguments", "custom", "the old form"],
)
def test_other_tool_call_formats(fields, call):
    assert answered({"message": {"content": None, **fields}}).messages == (Message("assistant", None, (call,)),)


def test_content_parts_are_joined():
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    parts = [thought, {"type": "text", "text": None}, {"type": "text", "text": "Pa"}, {"type": "text", "text": "ris"}]
    assert answered({"message": {"content": parts}}).text == "Paris"


@pytest.mark.parametrize(
    ("request_of_ours", "settings", "call_of_the_sdk"),
    [
        pytest.param(
            SampleRequest(),
            {"system_prompt": "Be brief", "temperature": 0.0, "max_output_tokens": 9, "seed": 7, "reasoning": "low"},
            {
                "messages": [{"role": "system", "content": "Be brief"}, *HELLO],
                "temperature": 0.0,
                "max_tokens": 9,
                "seed": 7,
                "reasoning_effort": "low",
            },
            id="text",
        ),
        pytest.param(
            SampleRequest((Message("user", (TextPart("What is it?"), ImagePart(PIXEL))),)),
            {},
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "What is it?"},
                            {"type": "image_url", "image_url": {"url": PIXEL}},
                        ],
                    }
                ]
            },
            id="image",
        ),
        pytest.param(
            SampleRequest((Message("user", (ImagePart("data:text/plain,H%C3%A9"),)),)),
            {},
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "file",
                                "file": {"filename": "document.txt", "file_data": "data:text/plain;base64,SMOp"},
                            }
                        ],
                    }
                ]
            },
            id="text file",
        ),
        pytest.param(
            SampleRequest(
                (
                    Message("user", "Weather?"),
                    Message("assistant", None, (ToolCall("weather", {"city": "Oslo"}, {"c": -3}, "w1"),)),
                    Message("user", "And?"),
                )
            ),
            {"tools": (WEATHER, {"type": "function", "function": WEATHER})},
            {
                "messages": [
                    {"role": "user", "content": "Weather?"},
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {
                                "id": "w1",
                                "type": "function",
                                "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
                            }
                        ],
                    },
                    {"role": "tool", "tool_call_id": "w1", "content": '{"c":-3}'},
                    {"role": "user", "content": "And?"},
                ],
                "tools": [{"type": "function", "function": WEATHER}] * 2,
            },
            id="tools",
        ),
        pytest.param(
            SampleRequest(),
            {"response_format": SCHEMA},
            {"messages": HELLO, "response_format": SCHEMA},
            id="structured output",
        ),
        pytest.param(
            SampleRequest(),
            {"response_format": "json", "extra_body": {"top_p": 0.5, "own": [1]}},
            {"messages": HELLO, "response_format": {"type": "json_object"}, "extra_body": {"top_p": 0.5, "own": [1]}},
            id="JSON and fields of the server's own",
        ),
    ],
)
def test_the_request_equals_that_of_openais_sdk(request_of_ours, settings, call_of_the_sdk):
    import openai

    with FaultyServer() as server:
        with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0) as sdk:
            sdk.chat.completions.create(model="gpt", **call_of_the_sdk)
        ask(server, request_of_ours, api_key=KEY, **settings)
    theirs, ours = server.requests
    assert ours.body == theirs.body
    assert ours.path == theirs.path
    for name in ("Authorization", "Content-Type", "Accept-Encoding"):
        assert (name in ours.headers) == (name in theirs.headers)
    assert ours.headers["Authorization"] == theirs.headers["Authorization"]


def test_reasoning_objects_and_custom_headers():
    with FaultyServer() as server:
        ask(server, reasoning={"effort": "high"}, api_key=KEY, headers={"authorization": "Basic abc", "X-Team": "a"})
        ask(server, reasoning={"max_tokens": 100})
    first, second = server.requests
    assert first.body["reasoning_effort"] == "high"
    assert second.body["reasoning"] == {"max_tokens": 100}
    assert first.headers.getall("Authorization") == ["Basic abc"]
    assert first.headers["X-Team"] == "a"
    assert "Authorization" not in second.headers


def test_texts_in_parts_and_data_are_sent_as_text():
    parts = Message("system", (TextPart("one"), TextPart("two")))
    assert wire_messages((parts, Message("user", {"a": [1]}))) == [
        {"role": "system", "content": "one\ntwo"},
        {"role": "user", "content": '{"a":[1]}'},
    ]


def test_every_tool_call_gets_an_id_and_a_result():
    messages = (
        Message("user", "?"),
        Message("assistant", "Looking", (ToolCall("find", {"q": 1}), ToolCall("read", None, "text", "call_1"))),
        Message("tool", "found it", name="find"),
        Message("assistant", None, (ToolCall("stop"),)),
        Message("user", "Well?"),
    )
    wire = wire_messages(messages)
    calls = [call for message in wire for call in message.get("tool_calls", ())]
    assert [(call["id"], call["function"]["arguments"]) for call in calls] == [
        ("call_2", '{"q":1}'),
        ("call_1", "{}"),
        ("call_3", "{}"),
    ]
    results = {message["tool_call_id"]: message["content"] for message in wire if message["role"] == "tool"}
    assert results == {"call_1": "text", "call_2": "found it", "call_3": ""}


def test_a_result_without_a_call_gets_a_call():
    calling = Message("assistant", None, (ToolCall("a", id="1"), ToolCall("b", id="2")))
    answered = Message("tool", None, (ToolCall("b", output=[2], id="2"), ToolCall("a", output="one", id="1")))
    wire = wire_messages((Message("user", "?"), calling, answered, Message("tool", "stray")))
    assert [message.get("tool_call_id") for message in wire] == [None, None, "1", "2", None, "call_1"]
    assert wire[4]["tool_calls"][0]["function"]["name"] == "tool"
    with FaultyServer() as server:  # which rejects what OpenAI rejects
        ask(server, SampleRequest((Message("user", "?"), calling, answered, Message("tool", "stray"))))


@pytest.mark.parametrize("answer", [Answer(refusal="I cannot help"), Answer("Half an", stop_reason="content_filter")])
def test_a_refusal_is_a_failure(answer):
    assert failure(answer).error_class == "refused"


def test_a_prompt_blocked_by_a_filter_is_refused():
    body = {"error": {"code": "content_filter", "message": "The prompt was filtered", "innererror": {}}}
    refused = failure(RawReply(json.dumps(body).encode(), 400))
    assert (refused.error_class, refused.message) == ("refused", "HTTP 400: The prompt was filtered")
    body = {"choices": [{"finish_reason": "content_filter", "content_filter_results": {}}]}
    assert failure(RawReply(json.dumps(body).encode())).error_class == "refused"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"<html>",
        b"\xff\xfe",
        b'{"choices": []}',
        b'{"choices": {}}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": {}}]}',
        b'{"choices": [{"message": {"content": ["answer"]}, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": [{"type": "weird"}]}, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": null}}]}',
        b'{"choices": [{"message": {"content": "half an"}, "finish_reason": "error"}]}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": {"tool_calls": [{"id": "x"}]}}]}',
        b'{"choices": [{"message": {"content": "cut o',
        b"[" * 100_000,
        b'{"error": ' + b"[" * 100_000,
        b'{"choices": [{"message": {"content": ' + b"[" * 100_000,
    ],
)
def test_an_unexpected_response_shape_is_invalid(body):
    invalid = failure(RawReply(body))
    assert (invalid.error_class, invalid.status) == ("invalid_response", 200)


def test_an_html_page_is_shown_with_its_address():
    page = b"\n<!DOCTYPE html>\n<html><head><title>Sign in</title>" + b" " * 5000
    for reply in (RawReply(page), RawReply(page, 404), RawReply(page, 200, headers={"Content-Type": "text/html"})):
        found = failure(reply)
        assert found.error_class == "invalid_response"
        assert "/chat/completions returned an HTML page, which is not the API: check the address." in found.message
        assert "It begins with: <!DOCTYPE html> <html><head><title>Sign in</title>" in found.message


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"Oslo\n", "it is not JSON, and begins with: Oslo"),
        (b'{"choices": [', "Input data was truncated"),
    ],
)
def test_a_body_that_is_not_json_is_quoted(body, why):
    found = failure(RawReply(body))
    assert found.error_class == "invalid_response"
    assert found.message.endswith(f"The response is not a chat completion: {why}")


def test_an_unrequested_stream_is_reported():
    streamed = failure(RawReply(b'data: {"choices": []}\n\ndata: [DONE]\n\n'))
    assert streamed.error_class == "invalid_response"
    assert "it is an event stream, which was not requested" in streamed.message


def test_a_204_response_is_not_truncated():
    assert failure(RawReply(b"", 204)).error_class == "invalid_response"


def test_an_error_with_status_200_is_classified_by_its_code():
    body = {"error": {"code": 429, "message": "Provider busy"}}
    limited = failure(RawReply(json.dumps(body).encode(), headers={"Retry-After": "3"}))
    assert (limited.error_class, limited.status, limited.retry_after_s) == ("rate_limit", 429, 3.0)
    body = {"choices": [{"message": {"content": ""}, "error": {"code": 502, "message": "Lost it"}}]}
    assert failure(RawReply(json.dumps(body).encode())).error_class == "server"


def test_an_exhausted_quota_is_not_retried():
    body = {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "You exceeded it"}}
    spent = failure(RawReply(json.dumps(body).encode(), 429))
    assert (spent.error_class, spent.status) == ("auth", None)


@pytest.mark.parametrize("settings", [{"api_key": KEY}, {"headers": {"X-Api-Key": KEY}}])
def test_keys_repeated_by_the_server_are_redacted(settings):
    for status in (200, 400, 401, 500):
        body = json.dumps({"error": {"message": f"{'x' * 490} {KEY}"}}).encode()
        told = failure(RawReply(body, status), **settings)
        for text in (str(told), repr(told), told.message):
            assert KEY[:8] not in text


def test_the_endpoint_name_depends_on_the_key_without_containing_it():
    def endpoint(**settings):
        return OpenAI(name="m", provider="openai", model="gpt", **settings).open(".").endpoint

    ours = endpoint(base_url="http://h/v1", api_key=KEY)
    assert (
        ours
        == endpoint(base_url="http://h/v1/", api_key=KEY)
        == endpoint(base_url="http://h/v1/chat/completions", api_key=KEY)
    )
    assert ours != endpoint(base_url="http://h/v1", api_key=KEY + "1")
    assert KEY not in ours and ours.startswith("http://h/v1#")


def test_openais_key_is_only_sent_to_openai(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    plain = OpenAI(name="m", provider="openai", model="gpt")
    assert plain.open(str(tmp_path)).endpoint.startswith(f"{OPENAI_URL}#")
    with FaultyServer() as server:
        ask(server)
    assert "Authorization" not in server.requests[0].headers
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UsageError, match="Target 'm' has no 'api_key'"):
        plain.open(str(tmp_path))


def test_openai_gets_the_token_limit_under_its_new_name(monkeypatch):
    settings = {"name": "m", "provider": "openai", "model": "gpt", "api_key": KEY, "max_output_tokens": 5}
    sent = OpenAI(**settings).open(".").sends(SampleRequest())
    assert sent == {"model": "gpt", "max_completion_tokens": 5, "messages": HELLO}


def test_a_query_in_the_address_follows_the_path():
    with FaultyServer() as server:
        ask(server, base_url=f"{server.url}?api-version=1")
    assert (server.requests[0].path, server.requests[0].query) == ("/v1/chat/completions", "api-version=1")


def test_concurrent_calls_share_connections():
    async def many(server):
        responder = target(server).open(".")
        try:
            for _ in range(3):
                calls = [responder.respond(SampleRequest(str(number))) for number in range(50)]
                assert [answer.text for answer in await asyncio.gather(*calls)] == [str(n) for n in range(50)]
            return server.connections
        finally:
            await responder.aclose()

    with FaultyServer(together=50) as server:
        assert asyncio.run(many(server)) == 50
        assert server.counts.most_at_once == 50


def test_a_large_body_is_sent_without_a_warning():
    with warnings.catch_warnings(), FaultyServer("seen") as server:
        warnings.simplefilter("error")
        image = ImagePart("data:image/png;base64," + "A" * 3_000_000)
        assert ask(server, SampleRequest((Message("user", (image,)),))).text == "seen"


def test_reading_settings_does_not_import_the_client():
    code = "import sys, agentv.targets.apis.openai, agentv.targets.http; "
    code += "print({'aiohttp', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_failure_can_be_pickled():
    import pickle

    told = pickle.loads(pickle.dumps(failure(RawReply(b"{}", 429, {"Retry-After": "2"}))))
    assert (told.error_class, told.status, told.retry_after_s) == ("rate_limit", 429, 2.0)


def test_settings_survive_serialization():
    settings = OpenAI(name="m", provider="openai", model="gpt", base_url="http://h")
    assert msgspec.json.decode(msgspec.json.encode(settings), type=OpenAI) == settings
