"""Models through pydantic-ai: the same settings, requests and failures as the built-in client."""

import asyncio
import os
import socket
import sys
import threading

import pytest

from agentv.engine.calls.prices import price_of
from agentv.errors import UsageError
from agentv.extensions.pydantic_ai.pydantic_ai import Bedrock, Cohere, HuggingFace, PydanticAi
from agentv.model.message import ImagePart, Message, TextPart, ToolCall
from agentv.model.response import TargetFailure
from agentv.model.result import TokenUsage
from agentv.targets.apis.openai import OpenAI
from agentv_testing import Answer, Fault, FaultyServer, RawReply, SampleRequest

KEY = "planted-key-0123456789"
IMAGE = "data:image/png;base64,iVBORw0KGgo="
WEATHER = {
    "name": "weather",
    "description": "The weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
SCHEMA = {
    "type": "object",
    "title": "City",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def the_package():
    pytest.importorskip("pydantic_ai")


def target(server, kind="openai-chat", **settings):
    base = server.origin if kind == "anthropic" else server.url
    common = {"name": "m", "provider": "pydantic_ai", "model": f"{kind}:some-model", "base_url": base, "api_key": KEY}
    return PydanticAi(**{**common, **settings})


def ask(settings, request=None):
    async def once():
        responder = settings.open(".")
        try:
            return await responder.respond(request or SampleRequest())
        finally:
            await responder.aclose()

    return asyncio.run(once())


def failure(answers, kind="openai-chat", request=None, **options):
    with FaultyServer(answers, **options) as server, pytest.raises(TargetFailure) as raised:
        ask(target(server, kind), request)
    return raised.value


@pytest.mark.parametrize("kind", ["openai-chat", "openai-responses", "anthropic"])
def test_a_response_has_text_usage_model_and_stop_reason(kind):
    with FaultyServer(Answer("Paris", usage=TokenUsage(12, 3, 4))) as server:
        response = ask(target(server, kind))
    assert response.text == "Paris"
    assert (response.usage.input, response.usage.output, response.usage.cached) == (12, 3, 4)
    assert (response.model, response.stop_reason) == ("some-model", "stop")
    assert response.id


def test_the_request_equals_that_of_the_built_in_client():
    request = SampleRequest(
        (
            Message("system", "No jokes"),
            Message("user", (TextPart("What is it?"), ImagePart(IMAGE))),
            Message("assistant", "I look.", (ToolCall("weather", {"city": "Oslo"}, "-3", "w1"),)),
            Message("user", "And?"),
        )
    )
    settings = {"system_prompt": "Be brief", "temperature": 0.5, "seed": 7, "tools": (WEATHER,)}
    with FaultyServer() as server:
        ask(
            OpenAI(name="m", provider="openai", model="some-model", base_url=server.url, api_key=KEY, **settings),
            request,
        )
        ask(target(server, **settings), request)
    ours, theirs = (request.body for request in server.requests)
    assert theirs["messages"] == ours["messages"]
    assert theirs["tools"][0]["function"]["parameters"]["properties"] == WEATHER["parameters"]["properties"]
    for name in ("model", "temperature", "seed"):
        assert theirs[name] == ours[name]


def test_structured_output_uses_the_apis_own_means():
    with FaultyServer('{"name": "Oslo"}') as server:
        assert ask(target(server, response_format=SCHEMA)).text == '{"name": "Oslo"}'
    sent = server.requests[0].body["response_format"]["json_schema"]
    assert sent["schema"]["properties"] == {"name": {"type": "string"}}


def test_tool_call_arguments_are_parsed():
    with FaultyServer(Answer(tool_calls=(ToolCall("weather", {"city": "Oslo"}, id="a"),))) as server:
        response = ask(target(server, tools=(WEATHER,)))
    assert response.messages == (Message("assistant", None, (ToolCall("weather", {"city": "Oslo"}, id="a"),)),)
    assert response.stop_reason == "tool_calls"


@pytest.mark.parametrize(
    ("fault", "error_class", "status"),
    [
        ("401", "auth", 401),
        (Fault("429", retry_after_s=3), "rate_limit", 429),
        ("503", "server", 503),
        ("529", "server", 503),
        ("400", "invalid_response", 400),
        ("reset", "network", None),
    ],
    ids=str,
)
def test_faults_are_classified_and_not_retried_by_the_package(fault, error_class, status):
    with FaultyServer(faults=[fault]) as server, pytest.raises(TargetFailure) as raised:
        ask(target(server))
    assert (raised.value.error_class, raised.value.status) == (error_class, status)
    assert raised.value.retry_after_s == (3.0 if error_class == "rate_limit" else None)
    assert server.counts.requests == 1


def test_a_slow_call_is_a_timeout():
    assert failure("x", request=SampleRequest(timeout_s=0.2), faults=["hang"]).error_class == "timeout"


@pytest.mark.parametrize("answer", [Answer("Half an", stop_reason="content_filter"), Answer(refusal="No")])
def test_a_refusal_is_a_failure(answer):
    assert failure(answer).error_class == "refused"


def test_an_exhausted_token_limit_is_a_failure():
    assert failure(Answer("", stop_reason="length")).error_class == "invalid_response"


def test_an_unexpected_response_shape_is_invalid():
    assert failure(RawReply(b'{"choices": []}')).error_class == "invalid_response"


def test_hugging_face_uses_the_configured_address():
    pytest.importorskip("huggingface_hub")
    with FaultyServer("Paris") as server:
        settings = HuggingFace(name="m", provider="huggingface", model="m/m", base_url=server.url, api_key=KEY)
        assert ask(settings).text == "Paris"
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


def test_cohere_and_bedrock_open_with_their_settings(monkeypatch, tmp_path):
    pytest.importorskip("cohere")
    pytest.importorskip("boto3")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(f"CO_API_KEY={KEY}\n")
    monkeypatch.delenv("CO_API_KEY", raising=False)
    cohere = Cohere(name="m", provider="cohere", model="command-a-03-2025")
    assert cohere.open(str(tmp_path)).endpoint.startswith("cohere:")
    elsewhere = Cohere(name="m", provider="cohere", model="c", base_url="http://127.0.0.1:9", api_key=KEY)
    assert "127.0.0.1:9" in elsewhere.open(".").endpoint
    bedrock = Bedrock(name="m", provider="bedrock", model="us.amazon.nova-lite-v1:0", region="eu-north-1", api_key=KEY)
    assert "eu-north-1" in bedrock.open(".").endpoint


@pytest.mark.parametrize(
    ("kind", "model", "variable"),
    [
        (Cohere, "command-a", "CO_API_KEY"),
        (HuggingFace, "a/b", "HF_TOKEN"),
        (PydanticAi, "openai-chat:gpt", "OPENAI_API_KEY"),
        (PydanticAi, "anthropic:claude", "ANTHROPIC_API_KEY"),
    ],
)
def test_a_vendors_own_key_is_not_sent_to_another_address(kind, model, variable, monkeypatch):
    monkeypatch.setenv(variable, KEY)
    heard = first_bytes_sent(lambda url: kind(name="m", provider="p", model=model, base_url=url))
    assert b"HTTP/1.1" in heard
    assert KEY.encode() not in heard


def first_bytes_sent(settings):
    """Return the first bytes that a call sends, whatever path the package uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard = []

        def listen():
            connection, _ = server.accept()
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 400 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

        listening = threading.Thread(target=listen)
        listening.start()
        with pytest.raises(TargetFailure):
            ask(settings(f"http://127.0.0.1:{server.getsockname()[1]}"), SampleRequest(timeout_s=200.0))
        listening.join(200)
    return heard[0]


def test_an_error_in_bytes_is_read():
    body = b'{"error": {"message": "No such model"}}'
    with FaultyServer(RawReply(body, 404)) as server:
        settings = HuggingFace(name="m", provider="huggingface", model="a/b", base_url=server.url, api_key=KEY)
        with pytest.raises(TargetFailure, match="HTTP 404: No such model"):
            ask(settings)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("deepseek:chat", "its provider does not accept 'base_url'"),
        ("no-such-provider:chat", "Unknown provider: no-such-provider"),
    ],
)
def test_unsupported_settings_are_reported(model, message):
    settings = PydanticAi(name="m", provider="pydantic_ai", model=model, base_url="http://localhost:9", api_key=KEY)
    with pytest.raises(UsageError, match=message):
        settings.open(".")


@pytest.fixture
def without_aws(monkeypatch, tmp_path):
    """An environment without AWS credentials."""
    pytest.importorskip("boto3")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.mark.parametrize(
    ("settings", "error_class", "message"),
    [
        ({}, "auth", "Unable to locate credentials"),
        ({"api_key": KEY, "base_url": "http://127.0.0.1:9"}, "invalid_response", "requires an HTTPS endpoint"),
    ],
)
def test_aws_errors_fail_the_call(without_aws, settings, error_class, message):
    with pytest.raises(TargetFailure, match=message) as raised:
        ask(Bedrock(name="m", provider="bedrock", model="us.amazon.nova-lite-v1:0", region="us-east-1", **settings))
    assert raised.value.error_class == error_class


def test_an_unknown_aws_profile_is_reported(without_aws):
    with pytest.raises(UsageError, match="profile"):
        Bedrock(name="m", provider="bedrock", model="m", region="us-east-1", profile="nobody").open(".")


def test_a_missing_key_is_an_error_before_any_call(monkeypatch, tmp_path):
    pytest.importorskip("cohere")
    monkeypatch.delenv("CO_API_KEY", raising=False)
    with pytest.raises(UsageError) as raised:
        Cohere(name="m", provider="cohere", model="c").open(str(tmp_path))
    assert "CO_API_KEY" in str(raised.value)


def test_a_missing_package_gets_an_install_hint(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pydantic_ai"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(UsageError) as raised:
        Cohere(name="m", provider="cohere", model="c").open(".")
    assert raised.value.hint == "pip install 'agentv[pydantic-ai]'"


def test_a_model_needs_its_provider():
    settings = PydanticAi(name="m", provider="pydantic_ai", model="gpt-5")
    assert settings.complaints() == ["'model' must be PROVIDER:MODEL, for example zai:glm-4.6, got 'gpt-5'"]
    with pytest.raises(UsageError, match="Target 'm' cannot be opened"):
        PydanticAi(name="m", provider="pydantic_ai", model="nobody:gpt-5").open(".")


def test_a_pydantic_ai_model_names_its_provider():
    target = PydanticAi(name="t", provider="pydantic_ai", model="openai:gpt-4o")
    assert price_of(target).cost_usd(TokenUsage(1_000_000, 0)) == 2.5
    assert price_of(PydanticAi(name="t", provider="pydantic_ai", model="nobody:gpt-4o")).is_known is False
