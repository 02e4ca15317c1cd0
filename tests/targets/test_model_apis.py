"""Model APIs: requests equal to those of the vendors' SDKs, responses, and classified failures."""

import asyncio
import base64
import json
import re

import pytest

from agentv.errors import UsageError
from agentv.model.job import CallOverrides
from agentv.model.message import ImagePart, Message, TextPart, ToolCall
from agentv.model.response import TargetFailure
from agentv.model.result import TokenUsage
from agentv.registry import TARGETS
from agentv.targets.apis.anthropic import Anthropic
from agentv.targets.apis.gemini import Gemini
from agentv.targets.apis.openai import PRESETS, Azure, Compatible, OpenAI
from agentv_testing import Answer, FaultyServer, RawReply, SampleRequest
from late import Late

anthropic, genai, types, openai = map(Late, ("anthropic", "google.genai", "google.genai.types", "openai"))

KEY = "planted-key-0123456789"
PIXEL = "iVBORw0KGgo="
IMAGE = f"data:image/png;base64,{PIXEL}"
PDF = "data:application/pdf;base64,JVBERi0="
NOTE = "data:text/plain,H%C3%A9%20you"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "weather", "description": "The weather", "parameters": PARAMETERS}
SCHEMA = {
    "type": "object",
    "title": "City",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
LOOKED_UP = (
    Message("user", "Weather?"),
    Message("assistant", "I look.", (ToolCall("weather", {"city": "Oslo"}, {"c": -3}, "w1"),)),
    Message("user", "And?"),
)
LINKED = (Message("user", (ImagePart("https://x.example/a.pdf?v=2"), TextPart("Sum it up."))),)
SEEN = (Message("user", (TextPart("What is it?"), ImagePart(IMAGE))),)
READ = (Message("user", (ImagePart(PDF), TextPart("Sum it up."))),)


def target(kind, server, **settings):
    common = {"name": "m", "api_key": KEY, "model": "some-model"}
    if kind == "anthropic":
        return Anthropic(provider=kind, base_url=server.origin, **{**common, **settings})
    if kind == "gemini":
        return Gemini(provider=kind, base_url=server.origin, **{**common, **settings})
    if kind == "azure":
        return Azure(provider=kind, endpoint=server.origin, **{**common, **settings})
    api = "responses" if kind == "responses" else "chat"
    return OpenAI(provider="openai", base_url=server.url, api=api, **{**common, **settings})


KINDS = ("chat", "responses", "azure", "anthropic", "gemini")


def ask(kind, server, request=None, **settings):
    return ask_settings(target(kind, server, **settings), request or SampleRequest())


def ask_settings(settings, request):
    async def once():
        responder = settings.open(".")
        try:
            return await responder.respond(request)
        finally:
            await responder.aclose()

    return asyncio.run(once())


def failure(kind, answers, **settings):
    with FaultyServer(answers) as server, pytest.raises(TargetFailure) as raised:
        ask(kind, server, **settings)
    return raised.value


def raw(body, status=200, **headers):
    return RawReply(json.dumps(body).encode(), status, headers)


# Requests of the SDKs


def responses_request(server, **call):
    with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0) as sdk:
        sdk.responses.create(model="some-model", store=False, **call)


def anthropic_request(server, **call):
    with anthropic.Anthropic(base_url=server.origin, api_key=KEY, max_retries=0) as sdk:
        sdk.messages.create(**{"model": "some-model", "max_tokens": 20_000, **call})


def gemini_request(server, contents, **config):
    options = types.HttpOptions(base_url=server.origin)
    sdk = genai.Client(api_key=KEY, http_options=options)
    sdk.models.generate_content(model="some-model", contents=contents, config=types.GenerateContentConfig(**config))
    sdk.close()


def azure_request(server, version="2025-01-01-preview", **call):
    with openai.AzureOpenAI(azure_endpoint=server.origin, api_version=version, api_key=KEY, max_retries=0) as sdk:
        sdk.chat.completions.create(model="some-model", **call)


def part(**fields):
    return types.Part(**fields)


def content_of(role, *parts):
    return types.Content(role=role, parts=list(parts))


HELLO = [{"role": "user", "content": "Hello"}]
REQUESTS = [
    pytest.param(
        "responses",
        SampleRequest(),
        {"system_prompt": "Be brief", "temperature": 0.0, "max_output_tokens": 99, "reasoning": "low"},
        lambda server: responses_request(
            server,
            input=HELLO,
            instructions="Be brief",
            temperature=0.0,
            max_output_tokens=99,
            reasoning={"effort": "low"},
        ),
        id="responses: text",
    ),
    pytest.param(
        "responses",
        SampleRequest(SEEN),
        {},
        lambda server: responses_request(
            server,
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is it?"},
                        {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
                    ],
                }
            ],
        ),
        id="responses: image",
    ),
    pytest.param(
        "responses",
        SampleRequest(READ),
        {},
        lambda server: responses_request(
            server,
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_file", "filename": "document.pdf", "file_data": PDF},
                        {"type": "input_text", "text": "Sum it up."},
                    ],
                }
            ],
        ),
        id="responses: file",
    ),
    pytest.param(
        "responses",
        SampleRequest(LINKED),
        {},
        lambda server: responses_request(
            server,
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_file", "file_url": "https://x.example/a.pdf?v=2"},
                        {"type": "input_text", "text": "Sum it up."},
                    ],
                }
            ],
        ),
        id="responses: file at an address",
    ),
    pytest.param(
        "responses",
        SampleRequest(LOOKED_UP),
        {"tools": (WEATHER,)},
        lambda server: responses_request(
            server,
            input=[
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": "I look."},
                {"type": "function_call", "call_id": "w1", "name": "weather", "arguments": '{"city":"Oslo"}'},
                {"type": "function_call_output", "call_id": "w1", "output": '{"c":-3}'},
                {"role": "user", "content": "And?"},
            ],
            tools=[{"type": "function", **WEATHER, "strict": False}],
        ),
        id="responses: tools and results",
    ),
    pytest.param(
        "responses",
        SampleRequest(),
        {"response_format": SCHEMA, "logprobs": 2, "extra_body": {"text": {"verbosity": "low"}}},
        lambda server: responses_request(
            server,
            input=HELLO,
            text={
                "format": {"type": "json_schema", "name": "City", "schema": SCHEMA, "strict": True},
                "verbosity": "low",
            },
            include=["message.output_text.logprobs"],
            top_logprobs=2,
        ),
        id="responses: structured output",
    ),
    pytest.param(
        "anthropic",
        SampleRequest((Message("system", "No jokes"), Message("user", "Hello"))),
        {"system_prompt": "Be brief", "temperature": 0.5, "max_output_tokens": 99, "reasoning": "low"},
        lambda server: anthropic_request(
            server,
            messages=HELLO,
            system="Be brief\n\nNo jokes",
            extra_body={"temperature": 0.5},
            extra_headers={"anthropic-version": "2023-06-01"},
            max_tokens=99,
            output_config={"effort": "low"},
        ),
        id="anthropic: text",
    ),
    pytest.param(
        "anthropic",
        SampleRequest(SEEN),
        {"thinking_budget": 1048},
        lambda server: anthropic_request(
            server,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is it?"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                    ],
                }
            ],
            thinking={"type": "enabled", "budget_tokens": 1048},
            max_tokens=21_048,
        ),
        id="anthropic: image, thinking",
    ),
    pytest.param(
        "anthropic",
        SampleRequest(READ),
        {},
        lambda server: anthropic_request(
            server,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                        },
                        {"type": "text", "text": "Sum it up."},
                    ],
                }
            ],
        ),
        id="anthropic: file",
    ),
    pytest.param(
        "anthropic",
        SampleRequest((*LINKED, Message("assistant", ""), Message("user", (ImagePart(NOTE),)))),
        {},
        lambda server: anthropic_request(
            server,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "document", "source": {"type": "url", "url": "https://x.example/a.pdf?v=2"}},
                        {"type": "text", "text": "Sum it up."},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hé you"}}
                    ],
                },
            ],
        ),
        id="anthropic: file at an address, text file, an empty response",
    ),
    pytest.param(
        "anthropic",
        SampleRequest(LOOKED_UP),
        {"tools": (WEATHER, {"type": "web_search_20250305", "name": "web_search"}), "prompt_caching": "1h"},
        lambda server: anthropic_request(
            server,
            messages=[
                {"role": "user", "content": "Weather?"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "w1", "name": "weather", "input": {"city": "Oslo"}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "w1", "content": '{"c":-3}'}]},
                {"role": "user", "content": "And?"},
            ],
            tools=[
                {"name": "weather", "description": "The weather", "input_schema": PARAMETERS},
                {
                    "type": "web_search_20250305",
                    "name": "web_search",
                    "cache_control": {"type": "ephemeral", "ttl": "1h"},
                },
            ],
        ),
        id="anthropic: tools and results, caching",
    ),
    pytest.param(
        "anthropic",
        SampleRequest(),
        {"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}},
        lambda server: anthropic_request(
            server, messages=HELLO, output_config={"format": {"type": "json_schema", "schema": SCHEMA}}
        ),
        id="anthropic: structured output",
    ),
    pytest.param(
        "gemini",
        SampleRequest(),
        {
            "system_prompt": "Be brief",
            "temperature": 0.5,
            "max_output_tokens": 99,
            "seed": 7,
            "thinking_budget": 128,
            "extra_body": {"generationConfig": {"topP": 0.5}},
        },
        lambda server: gemini_request(
            server,
            "Hello",
            system_instruction=types.Content(parts=[part(text="Be brief")]),
            temperature=0.5,
            max_output_tokens=99,
            seed=7,
            top_p=0.5,
            thinking_config=types.ThinkingConfig(thinking_budget=128),
        ),
        id="gemini: text, thinking",
    ),
    pytest.param(
        "gemini",
        SampleRequest(SEEN),
        {},
        lambda server: gemini_request(
            server,
            [
                content_of(
                    "user",
                    part(text="What is it?"),
                    types.Part.from_bytes(data=base64.b64decode(PIXEL), mime_type="image/png"),
                )
            ],
        ),
        id="gemini: image",
    ),
    pytest.param(
        "gemini",
        SampleRequest((*LINKED, Message("assistant", ""), Message("user", (ImagePart(NOTE),)))),
        {},
        lambda server: gemini_request(
            server,
            [
                content_of(
                    "user",
                    part(file_data=types.FileData(file_uri="https://x.example/a.pdf?v=2", mime_type="application/pdf")),
                    part(text="Sum it up."),
                ),
                content_of("user", part(inline_data=types.Blob(data="Hé you".encode(), mime_type="text/plain"))),
            ],
        ),
        id="gemini: file at an address, text file, an empty response",
    ),
    pytest.param(
        "gemini",
        SampleRequest((Message("user", (ImagePart(PDF), ImagePart("https://host.test/a.png"))),)),
        {},
        lambda server: gemini_request(
            server,
            [
                content_of(
                    "user",
                    types.Part.from_bytes(data=base64.b64decode("JVBERi0="), mime_type="application/pdf"),
                    types.Part.from_uri(file_uri="https://host.test/a.png", mime_type="image/png"),
                )
            ],
        ),
        id="gemini: files",
    ),
    pytest.param(
        "gemini",
        SampleRequest(LOOKED_UP),
        {"tools": (WEATHER, {"googleSearch": {}})},
        lambda server: gemini_request(
            server,
            [
                content_of("user", part(text="Weather?")),
                content_of(
                    "model",
                    part(text="I look."),
                    part(function_call=types.FunctionCall(name="weather", args={"city": "Oslo"})),
                ),
                content_of("user", part(function_response=types.FunctionResponse(name="weather", response={"c": -3}))),
                content_of("user", part(text="And?")),
            ],
            tools=[
                types.Tool(
                    function_declarations=[
                        types.FunctionDeclaration(
                            name="weather", description="The weather", parameters_json_schema=PARAMETERS
                        )
                    ]
                ),
                types.Tool(google_search=types.GoogleSearch()),
            ],
        ),
        id="gemini: tools and results",
    ),
    pytest.param(
        "gemini",
        SampleRequest(),
        {"response_format": SCHEMA},
        lambda server: gemini_request(
            server, "Hello", response_mime_type="application/json", response_json_schema=SCHEMA
        ),
        id="gemini: structured output",
    ),
    pytest.param(
        "azure",
        SampleRequest(LOOKED_UP),
        {"version": "2025-01-01-preview", "tools": (WEATHER,), "max_output_tokens": 9},
        lambda server: azure_request(
            server,
            messages=[
                {"role": "user", "content": "Weather?"},
                {
                    "role": "assistant",
                    "content": "I look.",
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
            tools=[{"type": "function", "function": WEATHER}],
            max_completion_tokens=9,
        ),
        id="azure: tools and results",
    ),
]
KEY_HEADERS = {
    "anthropic": ("x-api-key", "Authorization"),  # Anthropic accepts either
    "gemini": ("x-goog-api-key", "x-goog-api-key"),
    "azure": ("api-key", "api-key"),
    "responses": ("Authorization", "Authorization"),
}


@pytest.mark.parametrize(("kind", "request_of_ours", "settings", "call_of_the_sdk"), REQUESTS)
def test_the_request_equals_that_of_the_vendors_sdk(kind, request_of_ours, settings, call_of_the_sdk):
    with FaultyServer() as server:
        call_of_the_sdk(server)
        ask(kind, server, request_of_ours, **settings)
    theirs, ours = server.requests
    assert without_defaults(ours.body) == without_defaults(theirs.body)
    assert (ours.path, ours.query) == (theirs.path, theirs.query)
    key, theirs_key = KEY_HEADERS[kind]
    assert ours.headers[key] == theirs.headers[theirs_key].removeprefix("Bearer " if key != theirs_key else "")
    for name in ("Content-Type", "anthropic-version"):
        assert ours.headers.get(name) == theirs.headers.get(name)


def without_defaults(body):
    """Normalize a body: drop optional fields, such as the role of an instruction, and use one spelling, because Google
    accepts two and its SDK mixes them."""
    body = in_camel_case(body) if "contents" in body else body
    if "tools" in body:
        body = {**body, "tools": sorted(body["tools"], key=str)}
    body.get("systemInstruction", {}).pop("role", None)
    if body.get("generationConfig") == {}:
        del body["generationConfig"]
    return body


def in_camel_case(value, user_data=("parametersJsonSchema", "responseJsonSchema", "args", "response")):
    if isinstance(value, list):
        return [in_camel_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {re.sub("_([a-z])", lambda found: found[1].upper(), key): item for key, item in value.items()}
    return {key: item if key in user_data else in_camel_case(item) for key, item in renamed.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_judges_schema_is_sent_in_the_apis_format(kind):
    formats = {
        "chat": ("response_format", "json_schema", "schema"),
        "azure": ("response_format", "json_schema", "schema"),
        "responses": ("text", "format", "schema"),
        "anthropic": ("output_config", "format", "schema"),
        "gemini": ("generationConfig", "responseJsonSchema"),
    }
    with FaultyServer('{"name": "Oslo"}') as server:
        overridden = target(kind, server).with_overrides(CallOverrides(schema=SCHEMA, temperature=0.5))
        ask_settings(overridden, SampleRequest())
        found = server.requests[0].body
    for key in formats[kind]:
        found = found[key]
    assert found == SCHEMA


def test_a_schema_is_strict_if_openai_accepts_that():
    loose = {"type": "object", "properties": {"a": {"type": "string"}}}
    with FaultyServer() as server:
        for schema in (SCHEMA, loose, {"type": "object", "properties": {"a": loose}, "additionalProperties": False}):
            ask("chat", server, response_format=schema)
    formats = [received.body["response_format"]["json_schema"] for received in server.requests]
    assert [(each["name"], each["strict"]) for each in formats] == [
        ("City", True),
        ("answer", False),
        ("answer", False),
    ]


# Responses


@pytest.mark.parametrize("kind", KINDS)
def test_a_response_has_text_usage_id_model_and_stop_reason(kind):
    usage = TokenUsage(50, 30, 10, None if kind == "anthropic" else 7)
    with FaultyServer(Answer("Paris", usage=usage, thinking="Hm", model="the-model-1")) as server:
        response = ask(kind, server)
    assert response.text == "Paris"
    assert response.usage == usage
    assert (response.model, response.stop_reason) == ("the-model-1", "stop")
    assert response.id and response.duration_ms > 0


def test_tokens_written_to_anthropics_cache_are_counted():
    usage = TokenUsage(100, 5, 60, cache_write=30)
    with FaultyServer(Answer("Paris", usage=usage)) as server:
        assert ask("anthropic", server).usage == usage


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_usage_does_not_invalidate_the_answer(kind):
    with FaultyServer("Paris", faults=["wrong_usage"]) as server:
        response = ask(kind, server)
    assert (response.text, response.usage) == ("Paris", None)


@pytest.mark.parametrize("kind", KINDS)
def test_tool_call_arguments_are_parsed(kind):
    calls = (ToolCall("weather", {"city": "Oslo"}, id="a"), ToolCall("clock", {}, id="b"))
    with FaultyServer(Answer("I look.", calls)) as server:
        response = ask(kind, server)
    assert response.messages == (Message("assistant", "I look.", calls),)
    assert response.stop_reason == "tool_calls"


@pytest.mark.parametrize("kind", KINDS)
def test_irregular_tool_calls_are_sent_in_a_valid_form(kind):
    odd = (
        Message("user", "?"),
        Message("assistant", None, (ToolCall("find", "not json"), ToolCall("read", [1], "text", "x"))),
        Message("tool", "found it", name="find"),
        Message("assistant", None, (ToolCall("again", {}, id="x"),)),
        Message("tool", None, (ToolCall("again", output=[2], id="x"),)),
        Message("tool", "stray"),
        Message("user", None, (ToolCall("by-user", {}, "done"),)),
        Message("assistant", None, (ToolCall("stop"),)),
        Message("user", "Well?"),
    )
    with FaultyServer("Fine") as server:  # which rejects what the vendors reject
        assert ask(kind, server, SampleRequest(odd)).text == "Fine"


def test_gemini_3_gets_a_placeholder_signature_for_calls():
    with FaultyServer() as server:
        ask("gemini", server, SampleRequest(LOOKED_UP), model="gemini-3-pro")
    calls = [
        part for content in server.requests[0].body["contents"] for part in content["parts"] if "functionCall" in part
    ]
    assert [call["thoughtSignature"] for call in calls] == ["skip_thought_signature_validator"]


def test_anthropics_own_tools_are_calls_with_output():
    body = {
        "content": [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "Oslo"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "Oslo"}]},
            {"type": "text", "text": "Found."},
        ],
        "stop_reason": "end_turn",
    }
    with FaultyServer(raw(body)) as server:
        [message] = ask("anthropic", server).messages
    assert message.tool_calls == (ToolCall("web_search", {"query": "Oslo"}, [{"title": "Oslo"}], "s1"),)


def test_openais_own_tools_are_calls_with_output():
    body = {
        "output": [
            {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"query": "Oslo"}},
            {"type": "mcp_list_tools", "id": "l1", "tools": []},
            {"type": "mcp_call", "id": "m1", "name": "roll", "arguments": '{"d": 6}', "output": "4", "error": None},
            {"type": "code_interpreter_call", "id": "c1", "code": "1", "outputs": [{"logs": "1"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "Found."}]},
        ]
    }
    with FaultyServer(raw(body)) as server:
        response = ask("responses", server)
    assert (response.text, response.stop_reason) == ("Found.", "stop")
    assert response.messages[0].tool_calls == (
        ToolCall("web_search", {"query": "Oslo"}, id="w1"),
        ToolCall("roll", {"d": 6}, "4", "m1"),
        ToolCall("code_interpreter", {"code": "1"}, [{"logs": "1"}], "c1"),
    )


def test_commentary_is_not_part_of_the_answer():
    def message(text, phase):
        return {"type": "message", "phase": phase, "content": [{"type": "output_text", "text": text}]}

    body = {"output": [message("I look it up.", "commentary"), message("Oslo", "final_answer")]}
    with FaultyServer(raw(body)) as server:
        response = ask("responses", server)
    assert response.text == "Oslo"
    assert [message.content for message in response.messages] == ["I look it up.", "Oslo"]
    body["output"].pop()
    with FaultyServer(raw(body)) as server:
        assert ask("responses", server).text == "I look it up."


def test_mcp_tools_called_by_anthropic_are_calls():
    body = {
        "content": [
            {"type": "mcp_tool_use", "id": "m1", "name": "roll", "server_name": "dice", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "m1", "content": [{"type": "text", "text": "4"}]},
        ],
        "stop_reason": "end_turn",
    }
    with FaultyServer(raw(body)) as server:
        [message] = ask("anthropic", server).messages
    assert message.tool_calls == (ToolCall("roll", {}, [{"type": "text", "text": "4"}], "m1"),)


def test_a_gemini_call_without_arguments_has_none():
    body = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "now"}}]}, "finishReason": "STOP"}]}
    with FaultyServer(raw(body)) as server:
        [message] = ask("gemini", server).messages
    assert message.tool_calls == (ToolCall("now", {}),)


@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_logprobs_are_requested_and_returned(kind):
    entry = {"token": "Paris", "logprob": -0.1, "bytes": None, "top_logprobs": []}
    content = [{"type": "output_text", "text": "Paris", "logprobs": [entry]}]
    answers = "Paris" if kind == "chat" else raw({"output": [{"type": "message", "content": content}]})
    with FaultyServer(answers) as server:
        response = ask(kind, server, logprobs=True)
        assert response.logprobs["content"][0]["token"] == "Paris"
        assert ask("chat", server, logprobs=False).logprobs is None if kind == "chat" else True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", [Answer(refusal="I cannot help"), Answer("Half an", stop_reason="content_filter")])
def test_a_refusal_is_a_failure(kind, answer):
    assert failure(kind, answer).error_class == "refused"


def test_a_prompt_blocked_by_geminis_filter_is_refused():
    refused = failure("gemini", raw({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}))
    assert (refused.error_class, refused.message) == ("refused", "A filter blocked the prompt: PROHIBITED_CONTENT")


def test_an_anthropic_refusal_has_its_reason():
    body = {"content": [], "stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "Too risky"}}
    assert failure("anthropic", raw(body)).message == "The model refused: Too risky"


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_answer_has_the_stop_reason_length(kind):
    with FaultyServer(Answer("It is", stop_reason="length")) as server:
        response = ask(kind, server)
    assert (response.text, response.stop_reason) == ("It is", "length")


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_used_up_by_thinking_are_a_failure(kind):
    stopped = failure(kind, Answer("", stop_reason="length", thinking="Well, let me see"))
    assert stopped.error_class == "invalid_response"
    assert "max_output_tokens" in stopped.message


@pytest.mark.parametrize("output", [[], [{"type": "reasoning", "id": "r1"}]])
def test_a_completed_response_without_a_message_is_a_failure_not_an_empty_answer(output):
    ended = failure("responses", raw({"id": "x", "status": "completed", "output": output}))
    assert (ended.error_class, ended.message) == ("invalid_response", "The response has no message and no tool calls")


def test_a_malformed_gemini_call_is_a_failure():
    body = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(1)"}]}
    malformed = failure("gemini", raw(body))
    assert malformed.error_class == "invalid_response"
    assert malformed.message == "The model returned no answer: MALFORMED_FUNCTION_CALL: print(1)"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b"<html>", b"\xff\xfe", b'{"content": 5, "output": 5, "candidates": 5}', b"[" * 9999],
)
def test_an_unexpected_response_shape_is_invalid(kind, body):
    invalid = failure(kind, RawReply(body))
    assert (invalid.error_class, invalid.status) == ("invalid_response", 200)


# Errors


ERRORS = [
    (
        "anthropic",
        529,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        "server",
        503,
    ),
    (
        "anthropic",
        200,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        "server",
        503,
    ),
    ("anthropic", 429, {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow"}}, "rate_limit", 429),
    ("anthropic", 401, {"type": "error", "error": {"type": "authentication_error", "message": "Key"}}, "auth", 401),
    (
        "anthropic",
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"}},
        "invalid_response",
        400,
    ),
    ("gemini", 503, {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}, "server", 503),
    (
        "gemini",
        400,
        {"error": {"code": 400, "message": "Bad key", "details": [{"reason": "API_KEY_INVALID"}]}},
        "auth",
        None,
    ),
    ("chat", 400, {"error": {"code": "context_length_exceeded", "message": "Too long"}}, "invalid_response", 400),
    ("chat", 429, {"error": {"code": "insufficient_quota", "message": "Spent"}}, "auth", None),
    ("chat", 498, {"error": {"message": "Capacity exceeded"}}, "rate_limit", 429),
    ("chat", 524, {"error": {"message": "A timeout occurred"}}, "server", 504),
    ("responses", 200, {"error": {"code": "server_error", "message": "Broke"}}, "server", 500),
    ("responses", 200, {"error": {"code": "rate_limit_exceeded", "message": "Slow"}}, "rate_limit", 429),
    ("azure", 400, {"error": {"code": "content_filter", "message": "Filtered"}}, "refused", None),
    ("azure", 401, {"error": {"code": "401", "message": "Access denied"}}, "auth", 401),
    ("chat", 400, {"error": {"code": "invalid_prompt", "message": "Flagged"}}, "refused", None),
    (
        "chat",
        403,
        {"error": {"code": 403, "message": "Flagged", "metadata": {"reasons": ["violence"], "flagged_input": "x"}}},
        "refused",
        None,
    ),
    ("chat", 403, {"error": {"code": 403, "message": "No", "metadata": {"provider_name": "x"}}}, "auth", 403),
    ("responses", 200, {"error": {"code": "bio_policy", "message": "Flagged"}}, "refused", None),
    (
        "anthropic",
        400,
        {"error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}},
        "refused",
        None,
    ),
    (
        "anthropic",
        400,
        {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."}},
        "auth",
        None,
    ),
    (  # llama.cpp: the request is at fault, so it is not retried
        "chat",
        500,
        {"error": {"code": 500, "type": "server_error", "message": 'response_format type must be one of "text" …'}},
        "invalid_response",
        400,
    ),
    (  # llama-cpp-python
        "chat",
        500,
        {"error": {"message": "[{'loc': ('body', 'response_format', 'type'), 'input': 'json_schema'}]"}},
        "invalid_response",
        400,
    ),
    ("chat", 503, {"error": {"message": "json_schema workers are overloaded"}}, "server", 503),
]


@pytest.mark.parametrize(("kind", "status", "body", "error_class", "meant"), ERRORS)
def test_errors_have_a_class_and_a_standard_status(kind, status, body, error_class, meant):
    failed = failure(kind, raw(body, status))
    assert (failed.error_class, failed.status) == (error_class, meant)
    assert failed.message.startswith(f"HTTP {status}: ")


def test_googles_retry_delay_is_read_from_the_body():
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"}]
    body = {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": details}}
    failed = failure("gemini", raw(body, 429))
    assert (failed.error_class, failed.retry_after_s) == ("rate_limit", 17.5)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_repeated_by_the_server_are_redacted(kind):
    for status in (400, 401, 500):
        told = failure(kind, raw({"error": {"message": f"{'x' * 490} {KEY}"}}, status))
        assert KEY[:8] not in str(told)


def test_rate_limit_headers_set_the_wait():
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2999-01-01T00:00:00Z",
    }
    body = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    with FaultyServer(raw(body, **headers)) as server:
        assert ask("anthropic", server).wait_s > 0
    with FaultyServer("Hi", requests_per_s=1, burst=1) as server:
        assert 0 < ask("chat", server).wait_s <= 1
    with FaultyServer("Hi") as server:
        assert ask("chat", server).wait_s is None


# Addresses and keys


def request_url(settings, home="."):
    responder = settings.open(str(home))
    return responder._url


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        (Anthropic(name="m", provider="anthropic", model="c", api_key=KEY), "https://api.anthropic.com/v1/messages"),
        (
            Anthropic(name="m", provider="anthropic", model="c", base_url="https://gateway.test/anthropic/v1/"),
            "https://gateway.test/anthropic/v1/messages",
        ),
        (
            Gemini(name="m", provider="gemini", api_key=KEY),
            "https://generativelanguage.googleapis.com/v1/models/gemini-2.5-flash:generateContent",
        ),
        (
            Gemini(
                name="m", provider="gemini", model="models/g", base_url="https://v.test/v1/projects/p/publishers/google"
            ),
            "https://v.test/v1/projects/p/publishers/google/models/g:generateContent",
        ),
        (
            Azure(name="m", provider="azure", endpoint="res", model="dep", api_key=KEY),
            "https://res.openai.azure.com/openai/v1/chat/completions",
        ),
        (
            Azure(name="m", provider="azure", endpoint="res.openai.azure.com/", model="dep", api_key=KEY),
            "https://res.openai.azure.com/openai/v1/chat/completions",
        ),
        (
            Azure(name="m", provider="azure", endpoint="https://r.test/", model="dep", api_key=KEY, api="responses"),
            "https://r.test/openai/v1/responses",
        ),
        (
            Azure(
                name="m", provider="azure", endpoint="res", model="d p", api_key=KEY, version="api-version=2024-06-01"
            ),
            "https://res.openai.azure.com/openai/deployments/d%20p/chat/completions?api-version=2024-06-01",
        ),
        (
            Azure(
                name="m",
                provider="azure",
                endpoint="https://r.test/openai/deployments/dep/chat/completions?api-version=2024-10-21",
                model="dep",
                api_key=KEY,
            ),
            "https://r.test/openai/deployments/dep/chat/completions?api-version=2024-10-21",
        ),
        (
            Azure(
                name="m",
                provider="azure",
                endpoint="https://r.test",
                model="d",
                api_key=KEY,
                version="2025-03-01-preview",
                api="responses",
            ),
            "https://r.test/openai/responses?api-version=2025-03-01-preview",
        ),
    ],
)
def test_default_addresses(settings, address):
    assert request_url(settings) == address


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        (OpenAI(name="m", provider="openai", model="g"), "OPENAI_API_KEY"),
        (Anthropic(name="m", provider="anthropic", model="c"), "ANTHROPIC_API_KEY"),
        (Gemini(name="m", provider="gemini"), "GEMINI_API_KEY"),
        (Gemini(name="m", provider="gemini"), "GOOGLE_API_KEY"),
        (Azure(name="m", provider="azure", endpoint="res", model="d"), "AZURE_OPENAI_API_KEY"),
        (Azure(name="m", provider="azure", endpoint="res", model="d"), "AZURE_OPENAI_AD_TOKEN"),
        *[
            (Compatible(name="m", provider=name, model="m"), preset.key_variable)
            for name, preset in PRESETS.items()
            if preset.key_variable
        ],
    ],
    ids=lambda value: value if isinstance(value, str) else value.provider,
)
def test_the_key_comes_from_the_vendors_variable(settings, variable, monkeypatch, tmp_path):
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", variable):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="Target 'm' has no 'api_key'"):
        settings.open(str(tmp_path))
    (tmp_path / ".env").write_text(f"{variable}={KEY}\n")
    responder = settings.open(str(tmp_path))
    sent = list(responder.client._headers.values())
    assert KEY in sent or f"Bearer {KEY}" in sent


def test_an_entra_token_is_sent_as_a_bearer_token(monkeypatch, tmp_path):
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", KEY)
    headers = Azure(name="m", provider="azure", endpoint="res", model="d").open(str(tmp_path)).client._headers
    assert headers["Authorization"] == f"Bearer {KEY}" and "api-key" not in headers


VENDOR_HOSTS = {
    "res": True,
    "https://res.openai.azure.com": True,
    "https://res.cognitiveservices.azure.com/openai/v1": True,
    "res.openai.azure.us": True,
    "http://res.openai.azure.com": False,
    "https://openai.azure.com.example.org": False,
    "https://evil.eastus.cloudapp.azure.com": False,
    "https://evilopenai.azure.com": False,
    "http://127.0.0.1:9": False,
}


@pytest.mark.parametrize("endpoint", VENDOR_HOSTS)
def test_the_default_key_of_azure_is_sent_only_to_azure(monkeypatch, tmp_path, endpoint):
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    settings = Azure(name="m", provider="azure", endpoint=endpoint, model="d")
    if VENDOR_HOSTS[endpoint]:
        assert settings.open(str(tmp_path)).client._headers["api-key"] == KEY
        return
    with pytest.raises(UsageError, match=r"is sent only to Azure, not to .* api_key: \$\{\{ AZURE_OPENAI_API_KEY"):
        settings.open(str(tmp_path))
    named = Azure(name="m", provider="azure", endpoint=endpoint, model="d", api_key="named")
    assert named.open(str(tmp_path)).client._headers["api-key"] == "named"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_only_needs_a_model(name, monkeypatch):
    assert TARGETS.find(name) is Compatible
    preset = PRESETS[name]
    if preset.key_variable:
        monkeypatch.setenv(preset.key_variable, KEY)
    settings = Compatible(name="m", provider=name, model=preset.model, seed=1)
    assert settings.complaints() == []
    assert request_url(settings) == f"{preset.base_url}/chat/completions"
    with FaultyServer() as server:
        elsewhere = Compatible(name="m", provider=name, model="m", base_url=server.url, seed=1)
        ask_settings(elsewhere.with_overrides(CallOverrides(schema=SCHEMA)), SampleRequest())
    sent = server.requests[0]
    assert "Authorization" not in sent.headers  # the service's key is only sent to the service
    assert sent.body[preset.dialect.seed] == 1
    assert ("response_format" in sent.body) == preset.takes_schemas


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"thinking_budget": 2000, "temperature": 0.5}, "'temperature' must be 1"),
        ({"thinking_budget": 2000, "max_output_tokens": 1000}, "'thinking_budget' must be less"),
        ({"response_format": "json"}, "needs a JSON Schema"),
        ({"model": None}, "needs 'model'"),
    ],
)
def test_settings_that_anthropic_rejects_are_errors_before_any_call(settings, complaint):
    settings = Anthropic(**{"name": "m", "provider": "anthropic", "model": "c", **settings})
    assert any(complaint in text for text in settings.complaints())
