"""Requests and responses of HTTP providers of promptfoo. The expected bodies and answers are those of promptfoo."""

import json
import re
import shutil

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


def answer_to(text, code=None):
    """Return the answer in the text of a response: the `output` of what the code returns, or all of it."""
    value = apply_transform(text, {"javascript": entry(code)["javascript"], "allow_empty": True})
    return value.get("output") or value


@pytest.mark.parametrize(("code", "answer"), ANSWERS.items(), ids=str)
def test_the_answer_is_what_the_javascript_returns(code, answer):
    assert answer_to(BODY, code) == answer


@pytest.mark.parametrize("code", ["json.a.b", "json.text;", "return json.text", "data.text", "json.a()"])
def test_code_that_fails_is_an_error_that_shows_it(code):
    with pytest.raises(TransformFailure, match=re.escape(code)):
        apply_transform(BODY, {"javascript": entry(code)["javascript"], "allow_empty": True})


def test_a_text_that_is_not_json_is_the_answer():
    assert answer_to("plain") == "plain"


def test_the_answer_without_code_is_all_data_of_a_response():
    assert answer_to('{"output": "a", "more": 1}') == {"output": "a", "more": 1}
    assert answer_to('{"output": "a", "more": 1}', "json") == "a"


def run_http(folder, command, url, code, *assertions):
    body = {"model": "m", "messages": [{"role": "user", "content": "{{prompt}}"}]}
    config = {"method": "POST", "body": body, "transformResponse": code}
    provider = {"id": f"{url}/v1/chat/completions", "config": config}
    data = {"prompts": ["x"], "providers": [provider], "tests": [{"assert": assertions}]}
    return command("eval", folder.write("promptfooconfig.json", json.dumps(data)))


def test_code_returns_guardrails_cost_and_metadata_of_an_answer(folder, command, agentv_server, monkeypatch):
    monkeypatch.chdir(folder.path)
    url = agentv_server("Hello").url
    code = "({output: json.model, guardrails: {flagged: true}, cost: 2, metadata: {a: 1}})"
    assertions = [
        {"type": "not-guardrails"},
        {"type": "cost", "threshold": 2},
        {"type": "javascript", "value": "context.metadata.a === 1"},
    ]
    assert run_http(folder, command, url, code, *assertions).code == 0
    assert run_http(folder, command, url, code, {"type": "guardrails"}).code == 1


def test_an_error_that_code_returns_next_to_an_answer_is_an_error(folder, command, agentv_server, monkeypatch):
    monkeypatch.chdir(folder.path)
    code = "({output: json.model, error: 'boom'})"
    ended = run_http(folder, command, agentv_server("Hello").url, code, {"type": "contains", "value": "m"})
    assert ended.code == 3 and "boom" in ended.stderr


def test_a_request_without_a_method_is_a_get_as_in_promptfoo():
    assert target_entry({"id": "http://localhost:1/", "config": {"body": {}}}, ".", pytest.fail)["method"] == "GET"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"transformResponse": "file://read.py"}, "read by a file that is not JavaScript"),
        ({"transformRequest": "file://write.py"}, "replaced by a file that is not JavaScript"),
        ({"auth": {"type": "oauth"}}, "'auth' of type 'oauth'"),
        ({"auth": {"type": "bearer"}}, "'auth' of type 'bearer' is not supported, or it is incomplete"),
        ({"auth": {"type": "api_key", "placement": "query", "keyName": "k"}}, "'auth' of type 'api_key'"),
        ({"auth": {"type": "bearer", "token": "t"}, "headers": "x"}, "its `headers` must be an object"),
        ({"signatureAuth": {"privateKeyPath": "k"}}, "'signatureAuth' is not supported"),
        ({"request": "POST /x\nHost: a"}, "needs a first line such as"),
        ({"request": "POST /x HTTP/1.1\nAccept: a"}, "and the header `Host`"),
    ],
)
def test_a_request_without_a_counterpart_is_refused_by_name(config, reason):
    with pytest.raises(UnmappedProvider, match=re.escape(reason)):
        entry(**config)


KEYS = {
    "bearer": ({"type": "bearer", "token": "{{t}}"}, {"headers": {"authorization": "Bearer {{t}}"}}),
    "header": ({"type": "api_key", "placement": "header", "keyName": "K", "value": "v"}, {"headers": {"K": "v"}}),
    "query": ({"type": "api_key", "placement": "query", "keyName": "K", "value": "v"}, {"query": {"K": "v"}}),
}


@pytest.mark.parametrize(("auth", "expected"), KEYS.values(), ids=KEYS)
def test_a_key_is_added_to_the_request(auth, expected):
    assert expected.items() <= entry(auth=auth).items()


def test_settings_of_a_request_without_a_counterpart_are_named():
    losses = []
    provider = {"id": "http://localhost:1/", "config": {"validateStatus": "true", "sessionParser": "x"}}
    target_entry(provider, ".", losses.append)
    assert losses == ["'validateStatus' in the config of a provider"]


RAW = 'POST /chat?q={{word}} HTTP/1.1\nHost: localhost:1\nContent-Type: application/json\n\n{"q": "{{prompt}}"}\n'


def sent_by(config, **variables):
    entry = {**target_entry({"id": "http", "config": config}, ".", pytest.fail), "name": "t"}
    request = CaseRequest(EvalCase("one", input='say "hi"', details=CaseDetails(variables=variables)))
    return PromptfooHttp(**entry).open("").sends(request)


def test_a_raw_request_is_sent_as_it_is_with_values_inserted_as_in_json():
    sent = sent_by({"request": RAW}, word="a")
    assert (sent["method"], sent["url"]) == ("POST", "http://localhost:1/chat?q=a")
    assert sent["body"] == '{"q": "say \\"hi\\""}'


@pytest.mark.parametrize(
    ("code", "body"),
    [
        ("prompt.toUpperCase() + vars.word", {"q": 'SAY "HI"a'}),
        ("(prompt, vars) => vars.word + prompt.length", {"q": "a8"}),
        ("const n = prompt.length; return String(n)", {"q": "8"}),
        ("({messages: [prompt]})", {"q": "[object Object]", "messages": ['say "hi"']}),
    ],
)
def test_code_replaces_the_prompt_of_a_request(code, body):
    config = {"url": "http://localhost:1/", "method": "POST", "body": {"q": "{{prompt}}"}, "transformRequest": code}
    assert json.loads(sent_by(config, word="a")["body"]) == body


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_a_function_of_a_file_reads_the_response(folder, command, agentv_server, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.write(
        "read.cjs", "module.exports = (json, text, {response}) => ({output: `${json.model} ${response.status}`});"
    )
    config = {"method": "POST", "body": {"model": "m", "messages": [{"role": "user", "content": "{{prompt}}"}]}}
    url = f"{agentv_server('Hello').url}/v1/chat/completions"
    provider = {"id": url, "config": {**config, "transformResponse": "file://read.cjs"}}
    test = {"assert": [{"type": "equals", "value": "m 200"}]}
    path = folder.write(
        "promptfooconfig.json", json.dumps({"prompts": ["x"], "providers": [provider], "tests": [test]})
    )
    assert command("eval", path).code == 0


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_a_function_of_a_file_replaces_the_prompt(folder):
    folder.write(
        "write.cjs", "exports.asked = (prompt, vars, context) => ({q: prompt + vars.word + context.vars.word});"
    )
    code = f"file://{folder.path / 'write.cjs'}:asked"
    config = {"url": "http://localhost:1/", "method": "POST", "body": {"a": 1}, "transformRequest": code}
    assert json.loads(sent_by(config, word="!")["body"]) == {"a": 1, "q": 'say "hi"!!'}


def test_the_files_of_functions_are_those_of_the_target():
    target = PromptfooHttp(name="t", provider="promptfoo_http", url="http://x/", response_function="/a/read.js:name")
    assert list(target.files_named("/home", ())) == ["/a/read.js"]


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
