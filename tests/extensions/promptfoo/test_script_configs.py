"""Configurations of promptfoo that are programs, and tests that depend on others."""

import json
import shutil
from pathlib import Path

import pytest

NODE = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
CONFIG = """{
  prompts: ["Go to {{city}}", "Visit {{city}}"],
  providers: ["echo"],
  tests: ["Oslo", "Rome"].map((city) => ({vars: {city}, assert: [{type: "contains", value: city}]})),
}"""
FORMS = {"js": f"module.exports = {CONFIG};", "cjs": f"module.exports = {CONFIG};", "mjs": f"export default {CONFIG};"}


def records_of(ended):
    path = Path("run/results.jsonl")
    assert path.is_file(), ended.stderr
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@NODE
@pytest.mark.parametrize("form", FORMS)
def test_a_configuration_may_be_a_program(folder, command, monkeypatch, form):
    monkeypatch.chdir(folder.path)
    name = folder.write(f"promptfooconfig.{form}", FORMS[form])
    records = records_of(command("eval", name, "--out", "run"))
    answers = sorted((record["candidate_answer"], record["verdict"]) for record in records)
    assert answers == [(f"{verb} {city}", "pass") for verb in ("Go to", "Visit") for city in ("Oslo", "Rome")]


@NODE
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("module.exports = {prompts: [() => 'x'], providers: ['echo']};", "'prompts[0]' of 'promptfooconfig.js' is a"),
        ("module.exports = 5;", "'promptfooconfig.js' must export a configuration"),
        ("throw new TypeError('boom');", "TypeError: boom"),
        ("require('left-pad');", "left-pad"),
    ],
)
def test_a_program_that_is_not_a_configuration_is_an_error(folder, command, monkeypatch, code, message):
    monkeypatch.chdir(folder.path)
    ended = command("eval", folder.write("promptfooconfig.js", code))
    assert ended.code == 2 and message in ended.stderr


def test_checking_names_the_program_and_does_not_run_it(folder, command, monkeypatch):
    monkeypatch.chdir(folder.path)
    name = folder.write("promptfooconfig.js", "require('fs').writeFileSync('called', '');")
    ended = command("validate", name)
    assert ended.code == 0 and "the tests that 'promptfooconfig.js' exports" in ended.stdout
    assert "node " in ended.stderr and not Path("called").exists()


def test_a_program_of_a_stranger_needs_trust(folder, command, monkeypatch):
    (folder.path / "mine" / ".agentv").mkdir(parents=True)
    path = str(folder.path / folder.write("theirs/promptfooconfig.cjs", FORMS["cjs"]))
    monkeypatch.chdir(folder.path / "mine")
    ended = command("eval", path)
    assert ended.code == 2 and "is not trusted" in ended.stderr and "promptfooconfig.cjs" in ended.stderr


HISTORY = "{% for turn in _conversation %}{{ turn.output }} {% endfor %}{{ q }}"


@pytest.mark.parametrize(
    ("options", "refused"), [({}, ["second"]), ({"disableConversationVar": True}, [])], ids=["history", "no history"]
)
def test_only_the_first_test_of_a_conversation_is_read(folder, command, monkeypatch, options, refused):
    monkeypatch.chdir(folder.path)
    names = {"first": "a", "second": "a", "third": "b"}
    tests = [
        {"description": name, "vars": {"q": name}, "metadata": {"conversationId": id}, "options": options}
        | {"assert": [{"type": "equals", "value": name}]}
        for name, id in names.items()
    ]
    config = {"prompts": [HISTORY], "providers": ["echo"], "tests": tests}
    ended = command("eval", folder.write("promptfooconfig.json", json.dumps(config)), "--out", "run")
    records = records_of(ended)
    assert [record["eval_id"] for record in records if record["status"] == "error"] == refused
    assert all(record["verdict"] == "pass" for record in records if record["eval_id"] not in refused)
    assert ("answers to tests before this one" in ended.stderr) == bool(refused)


def test_a_variable_may_be_the_whole_chat(folder, command, monkeypatch, agentv_server):
    monkeypatch.chdir(folder.path)
    server = agentv_server("Hello")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    chat = [{"role": "system", "content": "Be {{kind}}."}, {"role": "user", "content": "Hi"}]
    test = {"vars": {"chat": {"list": chat}}, "assert": [{"type": "equals", "value": "Hello"}]}
    config = {"prompts": ["{{ chat.list | dump }}"], "providers": ["openai:gpt-4.1"], "tests": [test]}
    command("eval", folder.write("promptfooconfig.json", json.dumps(config)), "--out", "run")
    assert [request.body["messages"] for request in server.requests] == [chat]
