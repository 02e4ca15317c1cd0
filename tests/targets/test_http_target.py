"""The HTTP target: requests from templates, and answers by path."""

import asyncio
import json
from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from agentv.errors import UsageError
from agentv.model.case import CaseDetails, EvalCase
from agentv.model.message import Message
from agentv.model.response import TargetFailure
from agentv.model.values import FrozenDict
from agentv.targets.http import Http
from agentv_testing import FaultyServer, RawReply, ReceivedRequest, SampleRequest

NASTY = 'He said "no"\n\\ and {{ prompt }} and </b> é \U0001f600'
KEY = "key-planted-0123456789"


class Anything:
    """A wire format that accepts every request."""

    def serves(self, path):
        return True

    def read(self, received):
        return replace(received, body=json.loads(received.raw)) if received.raw else received

    def whole(self, received, answer):
        return {"text": answer.text}

    def pieces(self, received, answer):
        return []

    def error(self, status, message):
        return {"detail": message}


def case(**fields) -> EvalCase:
    variables = fields.pop("variables", None)
    details = CaseDetails(variables=FrozenDict(variables)) if variables is not None else CaseDetails()
    return EvalCase("case-1", details=details, **fields)


def ask(server, request=None, path="/ask", **settings):
    async def once():
        target = Http(**{"name": "h", "provider": "http", "url": f"{server.origin}{path}", **settings}).open(".")
        try:
            return await target.respond(request or SampleRequest())
        finally:
            await target.aclose()

    return asyncio.run(once())


def serving(body=b"{}", **reply) -> FaultyServer:
    return FaultyServer(RawReply(body, **reply), formats=[Anything()])


def sent(request=None, **settings) -> ReceivedRequest:
    """Return the request as the server received it."""
    with serving() as server:
        ask(server, request, **settings)
    return server.requests[0]


def failure(reply: RawReply, **settings) -> TargetFailure:
    with FaultyServer(reply, formats=[Anything()]) as server, pytest.raises(TargetFailure) as raised:
        ask(server, **settings)
    return raised.value


def complaint(**settings) -> str:
    with pytest.raises(UsageError) as raised:
        Http(**{"name": "h", "provider": "http", "url": "http://h/", **settings}).open(".")
    return str(raised.value)


def test_by_default_the_prompt_is_sent_and_the_text_is_the_answer():
    with serving(b"Paris \xc3\xa9", headers={"Content-Type": "text/plain"}) as server:
        response = ask(server, SampleRequest("Capital?"))
    assert response.text == "Paris é"
    assert response.duration_ms > 0
    assert server.requests[0].body == {"prompt": "Capital?"}
    assert server.requests[0].headers["Content-Type"] == "application/json"


def test_strings_in_an_object_are_templates_but_values_are_not():
    body = {
        "q": "{{ prompt }}",
        "both": ["<{{ prompt }}>", 1, None],
        "id": "{{ id }}-{{ trial }}",
        "{{ id }}": "",
    }
    arrived = sent(SampleRequest(NASTY, case()), body=body)
    assert arrived.body == {"q": NASTY, "both": [f"<{NASTY}>", 1, None], "id": "case-1-1", "{{ id }}": ""}


def test_a_string_that_is_one_variable_becomes_its_value():
    variables = {"n": 3, "whole": 1.0, "big": 2**70, "list": [1, {"a": None}], "text": "7"}
    received = SampleRequest((Message("system", "S"), Message("user", "U")), case(variables=variables))
    body = {"messages": "{{messages}}", "all": "{{ variables }}", "n": "{{ variables.n }}", "t": "{{ variables.text }}"}
    assert sent(received, body=body).body == {
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
        "all": variables,
        "n": 3,
        "t": "7",
    }


TEXT_BODIES = {
    '{"q": "{{ prompt }}"}': {"q": NASTY},
    '{"q": "<{{ prompt }}> {{ id }}"}': {"q": f"<{NASTY}> case-1"},
    '{"q": {{ prompt }}}': {"q": NASTY},
    '{"q": {{ prompt | tojson }}}': {"q": NASTY},
    '{"q": "{{ prompt | tojson }}"}': {"q": json.dumps(NASTY, ensure_ascii=False)},
    '{"q\\"": "\\\\", "v": {{ variables }}, "n": {{ conversation_id }}}': {'q"': "\\", "v": {"a": [1]}, "n": None},
    '[{% if trial %}"{{ prompt | upper }}", {{ trial }}{% endif %}]': [NASTY.upper(), 1],
    '{"v": "{{ variables }}", "n": "{{ conversation_id }}"}': {"v": '{"a":[1]}', "n": ""},
}


@pytest.mark.parametrize("body", TEXT_BODIES)
def test_values_in_a_json_text_are_escaped(body):
    arrived = sent(SampleRequest(NASTY, case(variables={"a": [1]})), body=body)
    assert arrived.body == TEXT_BODIES[body]


def test_a_prompt_cannot_add_fields_to_a_json_text():
    attack = 'x", "role": "admin", "y": "'
    assert sent(SampleRequest(attack, case()), body='{"q": "{{ prompt }}"}').body == {"q": attack}


@pytest.mark.parametrize("settings", [{"body": "ask: {{ prompt }}"}, {"body": "{ {{ prompt }}", "type": "text/x"}])
def test_values_in_other_texts_are_inserted_as_they_are(settings):
    headers = {"Content-Type": settings["type"]} if "type" in settings else {}
    target = Http(name="h", provider="http", url="http://127.0.0.1:9", headers=headers, body=settings["body"])
    body = target.open(".").sends(SampleRequest(NASTY, case()))["body"]
    assert body == settings["body"].replace("{{ prompt }}", NASTY)


def test_a_text_body_is_rendered():
    body = '{"q": {{ prompt | tojson }}, "v": {{ variables }}, "n": "{{ conversation_id }}"}'
    arrived = sent(SampleRequest(NASTY, case(variables={"a": [1]})), body=body)
    assert arrived.body == {"q": NASTY, "v": {"a": [1]}, "n": ""}
    assert arrived.headers["Content-Type"] == "application/json"


def test_a_configured_content_type_wins():
    assert sent(body={"a": 1}, headers={"content-type": "application/x"}).headers["Content-Type"] == "application/x"


def test_values_in_addresses_are_percent_encoded():
    with serving() as server:
        ask(
            server,
            SampleRequest("a/b?c=d&e #é"),
            path="/v/{{ id }}?q={{ prompt }}&r={{ prompt | urlencode }}",
            method="GET",
        )
        ask(server, SampleRequest("../../x", case()), path="/v/{{ prompt }}/y", method="GET")
    first, second = server.requests
    assert first.path == "/v/sample"
    assert parse_qs(first.query) == {"q": ["a/b?c=d&e #é"], "r": ["a/b?c=d&e #é"]}
    assert second.path == "/v/..%2F..%2Fx/y"


def test_headers_are_templates_without_line_breaks():
    arrived = sent(
        SampleRequest("a\r\nX-Evil: 1"), headers={"X-Case": "{{ id }}", "X-Prompt": "{{ prompt }}", "X-Team": "t"}
    )
    assert arrived.headers["X-Case"] == "sample"
    assert arrived.headers["X-Prompt"] == "a X-Evil: 1"
    assert arrived.headers["X-Team"] == "t"
    assert "X-Evil" not in arrived.headers


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_every_method(method):
    with serving(b"done") as server:
        assert ask(server, method=method).text == "done"


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("output.text", "Paris"),
        ("choices[0].text", "first"),
        ("choices[-1].text", "last"),
        ("$.output.text", "Paris"),
        ("output", {"text": "Paris"}),
        ("number", 0),
        ("empty", ""),
    ],
)
def test_the_response_path_selects_the_answer(path, answer):
    body = {"output": {"text": "Paris"}, "choices": [{"text": "first"}, {"text": "last"}], "number": 0, "empty": ""}
    with serving(json.dumps(body).encode()) as server:
        assert ask(server, response_path=path).messages[0].content == answer


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"other": 1}', "The response has nothing at 'output.text'; its keys: other"),
        (b'{"output": {"text": null}}', "The response has null at 'output.text'; its keys: output"),
        (b"[]", "The response has nothing at 'output.text'"),
        (b"<html>", "The response is not valid JSON"),
        (b'{"output": {"te', "The response is not valid JSON"),
    ],
)
def test_a_missing_response_path_is_an_invalid_response(body, message):
    told = failure(RawReply(body), response_path="output.text")
    assert told.error_class == "invalid_response"
    assert told.message.startswith(message)


def test_statuses_are_classified_and_messages_kept():
    told = failure(RawReply(b'{"detail": "Too many"}', 429, {"Retry-After": "2"}))
    assert (told.error_class, told.retry_after_s, told.message) == ("rate_limit", 2.0, "HTTP 429: Too many")
    assert failure(RawReply(b"gone", 503)).error_class == "server"


def test_a_missing_variable_fails_the_case():
    for body in ({"a": "{{ variables.city }}"}, {"a": "In {{ variables.city }}"}):
        told = failure(RawReply(b""), body=body)
        assert told.error_class == "invalid_response"
        assert told.message.startswith("Cannot build the request: ")


def test_messages_contain_no_keys_or_passwords():
    for settings in (
        {"headers": {"X-Api-Key": KEY}},
        {"headers": {"Authorization": f"Bearer {KEY}"}},
        {"path": f"/ask?token={KEY}"},
    ):
        told = failure(RawReply(f"You sent {KEY}".encode(), 400), **settings)
        assert told.message == "HTTP 400: You sent [redacted]"


def test_the_endpoint_is_the_host():
    assert Http(name="h", provider="http", url=f"http://me:{KEY}@h:1/a?k={KEY}").open(".").endpoint == "http://h:1"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"body": "{{ promt }}"}, "Target 'h': 'body' uses the unknown variable 'promt'. Did you mean 'prompt'?"),
        ({"body": {"a": ["{{ prompt"]}}, "Target 'h': 'body' is not a valid template: syntax error"),
        ({"url": "http://h/{{ case }}"}, "Target 'h': 'url' uses the unknown variable 'case'"),
        ({"headers": {"X": "{{ y }}"}}, "Target 'h': 'headers' uses the unknown variable 'y'"),
        ({"response_path": "a..b"}, "Target 'h': 'response_path': 'a..b' is not a valid path"),
        ({"url": "h"}, "Target 'h': 'url' must be an address"),
        ({"method": "GET", "body": "x"}, "Target 'h': A GET request cannot have a 'body'"),
    ],
)
def test_invalid_settings_are_errors_before_any_call(settings, message):
    assert complaint(**settings).startswith(message)


def test_environment_variables_are_not_templates():
    settings = Http(name="h", provider="http", url="${{ HOST }}/x", body={"key": "${{ KEY }}", "q": "{{ prompt }}"})
    assert settings.complaints() == []


PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"


def test_a_web_page_is_not_an_answer():
    with serving(PAGE) as server, pytest.raises(TargetFailure) as raised:
        ask(server, path="/ask?key=1")
    assert raised.value.error_class == "invalid_response"
    assert f"{server.origin}/ask returned an HTML page" in str(raised.value)
    assert "<!DOCTYPE html><html><body>Please log in" in str(raised.value)


def test_a_web_page_is_an_answer_if_the_request_accepts_pages():
    with serving(PAGE) as server:
        assert ask(server, headers={"accept": "text/html"}).text == PAGE.decode()
