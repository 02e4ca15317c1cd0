"""The model server in the other formats, used with the vendors' SDKs, with and without streaming."""

import json
import urllib.error
import urllib.request

import pytest

from agentv.model.message import ToolCall
from agentv.model.result import TokenUsage
from agentv_testing import Answer, FaultyServer
from late import Late

pytestmark = pytest.mark.ci

anthropic, genai, types, openai = map(Late, ("anthropic", "google.genai", "google.genai.types", "openai"))

LOOKS_UP = [
    Answer("Let me see.", (ToolCall("weather", {"city": "Oslo"}, id="w1"),), thinking="I need the weather."),
    Answer("It is cold in Oslo."),
]
COUNTED = Answer("One  two\nthree ", usage=TokenUsage(50, 30, 10, 7), thinking="Hm, well.")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


class Anthropic:
    """Anthropic's SDK."""

    module = anthropic
    errors = {"429": "RateLimitError", "529": "InternalServerError", "401": "AuthenticationError"}

    def __init__(self, server):
        self.client = anthropic.Anthropic(base_url=server.origin, api_key="key", max_retries=0)

    def close(self):
        self.client.close()

    def ask(self, messages, stream, **options):
        options = {"model": "claude", "max_tokens": 100, "messages": messages, **options}
        if not stream:
            message = self.client.messages.create(**options)
        else:
            with self.client.messages.stream(**options) as events:
                message = events.get_final_message()
        return message

    def text(self, message):
        return "".join(block.text for block in message.content if block.type == "text")

    def tool_round(self, stream):
        messages = [{"role": "user", "content": "How is the weather in Oslo?"}]
        tools = [{"name": "weather", "input_schema": SCHEMA}]
        first = self.ask(messages, stream, tools=tools)
        [call] = [block for block in first.content if block.type == "tool_use"]
        messages.append({"role": "assistant", "content": first.content})
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "-3"}]})
        second = self.ask(messages, stream, tools=tools)
        return first.stop_reason, call.name, call.input, self.text(second)

    def counts(self, message):
        usage = message.usage
        cached = usage.cache_read_input_tokens
        return usage.input_tokens + cached + usage.cache_creation_input_tokens, usage.output_tokens, cached

    def thought(self, message):
        return "".join(block.thinking for block in message.content if block.type == "thinking")

    hello = [{"role": "user", "content": "Hello there"}]
    stops_for_tools = "tool_use"


class Responses(Anthropic):
    """OpenAI's SDK with the Responses API."""

    module = openai
    errors = {"429": "RateLimitError", "503": "InternalServerError", "401": "AuthenticationError"}

    def __init__(self, server):
        self.client = openai.OpenAI(base_url=server.url, api_key="key", max_retries=0)

    def ask(self, messages, stream, **options):
        options = {"model": "gpt", "input": messages, **options}
        if not stream:
            return self.client.responses.create(**options)
        # Not with the SDK's helper, which fails on a truncated response.
        with self.client.responses.stream(**options) as events:
            return [event.response for event in events if event.type in self.ends][-1]

    def text(self, message):
        return message.output_text

    def tool_round(self, stream):
        items = [{"role": "user", "content": "How is the weather in Oslo?"}]
        tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}]
        first = self.ask(items, stream, tools=tools)
        [call] = [item for item in first.output if item.type == "function_call"]
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "-3"})
        second = self.ask(items, stream, tools=tools)
        return first.status, call.name, json.loads(call.arguments), self.text(second)

    def counts(self, message):
        usage = message.usage
        return usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens

    def thought(self, message):
        return "".join(part.text for item in message.output if item.type == "reasoning" for part in item.summary)

    stops_for_tools = "completed"
    ends = "response.completed", "response.incomplete"


class Gemini(Anthropic):
    """Google's SDK."""

    module = Late("google.genai.errors")
    errors = {"429": "ClientError", "503": "ServerError", "401": "ClientError"}

    def __init__(self, server):
        options = types.HttpOptions(base_url=server.origin, retry_options=types.HttpRetryOptions(attempts=1))
        self.client = genai.Client(api_key="key", http_options=options)

    def ask(self, messages, stream, **options):
        config = types.GenerateContentConfig(**options)
        if not stream:
            return self.client.models.generate_content(model="gemini-9", contents=messages, config=config)
        stream = self.client.models.generate_content_stream(model="gemini-9", contents=messages, config=config)
        chunks = list(stream)
        whole = chunks[-1]
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
        whole.candidates[0].content.parts = parts
        return whole

    def text(self, message):
        return "".join(part.text for part in message.candidates[0].content.parts if part.text and not part.thought)

    def tool_round(self, stream):
        tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="weather", parameters=SCHEMA)])
        options = {"tools": [tool], "automatic_function_calling": {"disable": True}}
        contents = [types.Content(role="user", parts=[types.Part(text="How is the weather in Oslo?")])]
        first = self.ask(contents, stream, **options)
        [call] = [part.function_call for part in first.candidates[0].content.parts if part.function_call]
        contents.append(first.candidates[0].content)
        result = types.Part.from_function_response(name="weather", response={"result": "-3"})
        contents.append(types.Content(role="user", parts=[result]))
        second = self.ask(contents, stream, **options)
        return str(first.candidates[0].finish_reason.value), call.name, call.args, self.text(second)

    def counts(self, message):
        usage = message.usage_metadata
        output = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        return usage.prompt_token_count, output, usage.cached_content_token_count

    def thought(self, message):
        return "".join(part.text for part in message.candidates[0].content.parts if part.thought)

    hello = "Hello there"
    stops_for_tools = "STOP"


SDKS = {"anthropic": Anthropic, "responses": Responses, "gemini": Gemini}


@pytest.fixture
def sdk(request, agentv_server):
    opened = []

    def start(kind, *args, **options):
        server = agentv_server(*args, **options)
        opened.append(SDKS[kind](server))
        return opened[-1], server

    yield start
    for each in opened:
        each.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", SDKS)
def test_an_sdk_gets_an_echo(kind, stream, sdk):
    client, server = sdk(kind)
    message = client.ask(client.hello, stream)
    assert client.text(message) == "Hello there"
    assert server.requests[0].prompt == "Hello there"
    assert client.counts(message)[:2] == (2, 2)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", SDKS)
def test_an_sdk_gets_text_thoughts_and_counts(kind, stream, sdk):
    client, _ = sdk(kind, COUNTED)
    message = client.ask(client.hello, stream)
    assert client.text(message) == "One  two\nthree "
    assert client.thought(message) == "Hm, well."
    assert client.counts(message) == (50, 30, 10)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", SDKS)
def test_an_sdk_plays_a_script_of_tool_calls(kind, stream, sdk):
    client, _ = sdk(kind, {"*weather*": LOOKS_UP})
    expected = (client.stops_for_tools, "weather", {"city": "Oslo"}, "It is cold in Oslo.")
    assert client.tool_round(stream) == expected


@pytest.mark.parametrize(
    ("kind", "status"), [(kind, status) for kind, client in SDKS.items() for status in client.errors]
)
def test_an_sdk_gets_errors_in_its_own_format(kind, status, sdk):
    client, server = sdk(kind, faults=[status])
    with pytest.raises(getattr(client.module, client.errors[status]), match="Simulated failure"):
        client.ask(client.hello, False)
    assert server.counts.by_status == {int(status): 1}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", SDKS)
@pytest.mark.parametrize("fault", ["half_closed", "truncated"])
def test_an_sdk_notices_a_truncated_response(kind, stream, fault, sdk):
    client, server = sdk(kind, "one two three four", faults=[fault])
    # Any exception will do, as long as the SDK does not accept half a response.
    try:
        message = client.ask(client.hello, stream)
    except Exception:
        pass
    else:
        assert client.text(message) != "one two three four"
    assert server.counts.by_fault == {fault: 1}


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("anthropic", lambda message: (message.stop_reason, message.content[0].text)),
        ("responses", lambda message: (message.output[0].content[0].type, message.output[0].content[0].refusal)),
        # Google's SDK drops the message.
        ("gemini", lambda message: (message.candidates[0].finish_reason, "I will not.")),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_sdk_gets_refusals(kind, read, stream, sdk):
    client, _ = sdk(kind, Answer(refusal="I will not."))
    response = {"anthropic": "refusal", "responses": "refusal", "gemini": types.FinishReason.SAFETY}[kind]
    assert read(client.ask(client.hello, stream)) == (response, "I will not.")


@pytest.mark.parametrize("stream", [False, True])
def test_a_truncated_answer_has_each_formats_stop_reason(stream, sdk):
    cut_off = Answer("It is", stop_reason="length")
    clients = {kind: sdk(kind, cut_off)[0] for kind in SDKS}
    ends = {kind: client.ask(client.hello, stream) for kind, client in clients.items()}
    assert ends["anthropic"].stop_reason == "max_tokens"
    assert (ends["responses"].status, ends["responses"].incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    assert ends["gemini"].candidates[0].finish_reason is types.FinishReason.MAX_TOKENS


def test_token_counting_ignores_scripts_and_faults(sdk):
    client, server = sdk("anthropic", lambda received: 1 / 0, faults=["500"])
    counted = client.client.messages.count_tokens(model="claude", messages=client.hello, system="Be brief.")
    assert counted.input_tokens == 4
    client, _ = sdk("gemini", lambda received: 1 / 0, faults=["500"])
    assert client.client.models.count_tokens(model="gemini-9", contents="Hello there").total_tokens == 2
    assert server.counts.by_status == {200: 1}


def test_custom_tools_get_their_text():
    patch = ToolCall("apply_patch", "*** Begin Patch", id="p1")
    body = {"model": "gpt", "input": "Mend it", "tools": [{"type": "custom", "name": "apply_patch"}]}
    with FaultyServer(Answer(tool_calls=(patch,))) as server:
        [item] = post(server, "/v1/responses", body)["output"]
    assert (item["type"], item["call_id"], item["input"]) == ("custom_tool_call", "p1", "*** Begin Patch")


def test_a_gemini_stream_without_events_is_an_array():
    body = {"contents": [{"parts": [{"text": "Hello"}]}]}
    with FaultyServer() as server:
        [chunk] = post(server, "/v1beta/models/gemini-9:streamGenerateContent", body)
    assert chunk["candidates"][0]["content"]["parts"] == [{"text": "Hello"}]


def post(server, path, body):
    request = urllib.request.Request(server.origin + path, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=200) as reply:
        return json.load(reply)


USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}
CALL = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "robot", "content": "Hi"}]}),
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": ""}]}),
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": [{}]}]}),
        ("/v1/messages", {"max_tokens": 9, "messages": [USE]}),
        ("/v1/messages", {"max_tokens": 9, "messages": [USE, {"role": "user", "content": "Hi"}]}),
        (
            "/v1/messages",
            {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]}]},
        ),
        (
            "/v1/messages",
            {"max_tokens": 9, "thinking": {"budget_tokens": 9}, "messages": [{"role": "user", "content": "Hi"}]},
        ),
        ("/v1/responses", {}),
        ("/v1/responses", {"input": []}),
        ("/v1/responses", {"input": [{"type": "function_call", "call_id": "1"}]}),
        ("/v1/responses", {"input": [{"type": "function_call_output", "call_id": "1", "output": ""}]}),
        ("/v1beta/models/g:generateContent", {}),
        ("/v1beta/models/g:generateContent", {"contents": [{"role": "user", "parts": []}]}),
        ("/v1beta/models/g:generateContent", {"contents": [{"role": "robot", "parts": [{"text": "Hi"}]}]}),
        ("/v1beta/models/g:generateContent", {"contents": [CALL]}),
        ("/v1beta/models/g:generateContent", {"contents": [CALL, {"parts": [{"text": "Hi"}]}]}),
    ],
)
def test_requests_that_the_vendor_rejects_are_rejected(path, body):
    with FaultyServer() as server, pytest.raises(urllib.error.HTTPError) as raised:
        post(server, path, body)
    with raised.value as reply:
        assert reply.status == 400


def test_unknown_fields_are_ignored():
    more = {"shape": {"round": True}, "tools": [{"type": "web_search"}], "stream": False}
    with FaultyServer() as server:
        message = [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "x"}}]}]
        response = post(server, "/v1/messages?beta=true", {"max_tokens": 9, "messages": message, **more})
        assert response["content"] == [{"type": "text", "text": "Hi"}]
        items = [{"type": "item_of_the_future", "value": 1}, {"role": "user", "content": "Hi"}]
        assert post(server, "/v1/responses", {"input": items, **more})["output"][0]["content"][0]["text"] == "Hi"
        contents = {"contents": [{"parts": [{"text": "Hi"}, {"hologram": 1}]}], **more}
        answer = post(server, "/v1beta/models/g:generateContent?key=k", contents)
        assert answer["candidates"][0]["content"]["parts"] == [{"text": "Hi"}]
