"""Requests and responses of HTTP providers of promptfoo. The expected bodies and answers are those of promptfoo."""

import json
import re

import pytest

from agentv.engine.job.request import CaseRequest
from agentv.extensions.promptfoo.nunjucks.http_templates import PromptfooHttp
from agentv.extensions.promptfoo.providers.provider_entries import UnmappedProvider, target_entry
from agentv.model.case import CaseDetails, EvalCase
from agentv.settings.transform import TransformFailure, apply_transform

pytest.importorskip("quickjs")

DATA = {"text": 'hi "x"', "list": [{"a": " x "}]}
BODY = json.dumps(DATA, indent=1)


def entry(code=None, **config):
    transform = {} if code is None else {"transformResponse": code}
    provider = {"id": "http://localhost:1/", "config": {"method": "POST", "body": {}, **transform, **config}}
    return target_entry(provider, ".", pytest.fail)


ANSWERS = {
    None: DATA,
    "json": DATA,
    "json.text": 'hi "x"',
    "json?.list?.[0]?.a": " x ",
    "json.nothing": {},
    "text": BODY,
    "json.list[0].a.trim()": "x",
    "json.nothing || json.text": 'hi "x"',
    "JSON.stringify(json)": json.dumps(DATA, separators=(",", ":")),
    "(json, text) => json.text + text.length": f'hi "x"{len(BODY)}',
    "(value) => value.text": 'hi "x"',
    "(json) => { const a = json.text; return a + '!'; }": 'hi "x"!',
    "function (json) { return json.text }": 'hi "x"',
    "({output: json.text, tokenUsage: {}})": 'hi "x"',
    "({error: 'bad'})": {"error": "bad"},
    "({a: 1})": {"a": 1},
    "\n  json.text\n  + 'x'\n": 'hi "x"x',
    "''": {"output": ""},
}


@pytest.mark.parametrize(("code", "answer"), ANSWERS.items(), ids=str)
def test_the_answer_is_what_the_javascript_returns(code, answer):
    assert apply_transform(BODY, {"javascript": entry(code)["javascript"], "allow_empty": True}) == answer


@pytest.mark.parametrize("code", ["json.a.b", "json.text;", "return json.text", "data.text", "json.a()"])
def test_code_that_fails_is_an_error_that_shows_it(code):
    with pytest.raises(TransformFailure, match=re.escape(code)):
        apply_transform(BODY, {"javascript": entry(code)["javascript"], "allow_empty": True})


def test_a_text_that_is_not_json_is_the_answer():
    assert apply_transform("plain", {"javascript": entry()["javascript"]}) == "plain"


@pytest.mark.parametrize("code", ["file://read.js", "context.response.status"])
def test_a_file_or_the_context_of_a_response_is_refused(code):
    with pytest.raises(UnmappedProvider, match="JavaScript"):
        entry(code)


def test_the_config_of_an_agent_is_named():
    losses = []
    agent = {"id": "anthropic:claude-agent-sdk", "config": {"model": "m", "max_turns": 5, "working_dir": "."}}
    assert target_entry(agent, ".", losses.append) == {"provider": "claude-code", "model": "m"}
    assert [loss.split("'")[1] for loss in losses] == ["max_turns", "working_dir"]


VARIABLES = {"q": 'hi "x"', "slash": "a\\nb", "obj": {"a": 1}, "chat": '[{"role": "user"}]', "number": "5"}
BODIES = {
    "texts": ({"a": "x {{q}}", "b": ["{{q}}", 5, True]}, {"a": 'x hi "x"', "b": ['hi "x"', 5, True]}),
    "JSON in a text": ({"a": "{{chat}}", "b": "{{number}}"}, {"a": [{"role": "user"}], "b": "5"}),
    "an object": ({"a": "{{obj}}", "b": "{{obj | dump}}"}, {"a": "[object Object]", "b": {"a": 1}}),
    "an unset variable": ({"a": "-{{nothing}}-"}, {"a": "--"}),
    "a text that is JSON": ('{"a": "{{q}}", "b": "{{slash}}"}', {"a": 'hi "x"', "b": "a\\nb"}),
    "a template of JSON": ('{"a": {{obj | dump}}, "b": "{{slash}}"}', {"a": {"a": 1}, "b": "a\nb"}),
    "quotes in a template of JSON": ('{"a": {{obj | dump}}, "b": "{{q}}"}', {"a": {"a": 1}, "b": 'hi "x"'}),
}


@pytest.mark.parametrize(("body", "data"), BODIES.values(), ids=BODIES)
def test_a_body_is_filled_as_in_promptfoo(body, data):
    headers = {"Content-Type": "application/json", "X-Name": "n {{number}}"}
    own = {"name": "t", "provider": "promptfoo_http", "url": "http://localhost:1/{{number}}", "query": {"p": "{{q}}"}}
    target = PromptfooHttp(**own, body=body, headers=headers)
    request = CaseRequest(EvalCase("one", input="Hello", details=CaseDetails(variables=VARIABLES)))
    sent = target.open("").sends(request)
    assert json.loads(sent["body"]) == data
    assert sent["url"] == "http://localhost:1/5?p=hi+%22x%22" and sent["headers"]["x-name"] == "n 5"
