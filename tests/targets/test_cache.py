"""The response cache: what is asked once is not asked again, and anything that shapes an answer asks again."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentv.errors import AgentvError
from agentv.model.message import ImagePart, Message, TextPart, ToolCall
from agentv.model.response import Response, answer
from agentv.model.result import TokenUsage
from agentv.targets.apis.openai import OpenAI
from agentv.targets.http import Http
from agentv.targets.mock import Mock
from agentv.targets.python import PythonTarget
from agentv.targets.response_cache import ResponseCache
from agentv_testing import FaultyServer

KEY = "sk-very-secret-1"
CASES = [
    {"id": "one", "expected_outcome": "Says Paris", "input": "Capital of France?"},
    {"id": "two", "expected_outcome": "Says Paris", "input": "And its largest city?"},
]
CHECKS = {"evaluators": [{"type": "contains", "value": "Paris"}]}


class Project:
    """A dataset, a model server as its target, and runs of both."""

    def __init__(self, folder, command, server):
        self.folder, self.command, self.server = folder, command, server
        folder.write("cases.jsonl", CASES)
        folder.write("cases.yaml", CHECKS)
        self.target()

    def target(self, **settings):
        own = {"name": "default", "provider": "openai", "base_url": self.server.url, "model": "m", "api_key": KEY}
        self.folder.write("targets.yaml", {"targets": [own | settings]})

    def run(self, *options, expect=0):
        """The records of a run, by case."""
        done = self.command("eval", "cases.jsonl", "--json", "-q", *options)
        assert done.code == expect, done.stderr
        [printed] = done.printed
        lines = (Path(printed["run"]) / "results.jsonl").read_text(encoding="utf-8").splitlines()
        return {record["eval_id"]: record for record in map(json.loads, lines)}

    @property
    def asked(self):
        return self.server.counts.requests

    @property
    def entries(self):
        return sorted(self.folder.path.glob(".agentv/cache/*/*"))


@pytest.fixture
def serve(folder, command):
    """A project whose server answers and fails as told."""
    with ExitStack() as servers:
        yield lambda **how: Project(folder, command, servers.enter_context(FaultyServer(**how)))


@pytest.fixture
def project(serve):
    return serve(answers="Paris")


def cached(records):
    return [record.get("cached", False) for record in records.values()]


def test_a_second_run_asks_nothing_and_says_so(project):
    first = project.run("--cache")
    assert (project.asked, cached(first)) == (2, [False, False])
    second = project.run("--cache")
    assert (project.asked, cached(second)) == (2, [True, True])
    for id in first:
        for key in ("candidate_answer", "score", "execution_metrics"):
            assert second[id][key] == first[id][key]


def test_it_is_off_unless_asked_for(project):
    project.run()
    project.run()
    assert project.asked == 4
    assert project.entries == []


def test_trials_are_answers_of_their_own(project):
    project.run("--cache", "--trials", "2")
    assert project.asked == 4
    project.run("--cache", "--trials", "3")
    assert project.asked == 6


ASKED_AGAIN = {
    "another model": {"model": "n"},
    "a temperature": {"temperature": 0.5},
    "a system prompt": {"system_prompt": "Be brief."},
    "a tool": {"tools": [{"name": "search"}]},
    "further settings of the body": {"extra_body": {"top_p": 0.1}},
}


@pytest.mark.parametrize("settings", ASKED_AGAIN.values(), ids=ASKED_AGAIN)
def test_what_shapes_an_answer_asks_again(project, settings):
    project.run("--cache")
    project.target(**settings)
    project.run("--cache")
    assert project.asked == 4


KEPT = {
    "another key": {"api_key": "sk-very-secret-2"},
    "more workers": {"workers": 7},
    "other retries": {"max_retries": 1, "retry_initial_delay_ms": 1},
    "another limit of time": {"timeout_seconds": 5},
}


@pytest.mark.parametrize("settings", KEPT.values(), ids=KEPT)
def test_how_a_target_is_called_does_not(project, settings):
    project.run("--cache")
    project.target(**settings)
    project.run("--cache")
    assert project.asked == 2


def test_what_answers_are_held_against_does_not(project, folder):
    project.run("--cache")
    folder.write("cases.jsonl", [{**case, "id": case["id"] + "-new", "tags": ["x"]} for case in CASES])
    folder.write("cases.yaml", {"evaluators": [{"type": "equals", "value": "Rome"}]})
    project.run("--cache")
    assert project.asked == 2


def test_a_file_in_a_message_is_part_of_the_question(project, folder):
    folder.write("note.txt", "first")
    content = [{"type": "text", "value": "Sum up."}, {"type": "file", "value": "note.txt"}]
    folder.write("cases.jsonl", [{**CASES[0], "input": [{"role": "user", "content": content}]}])
    project.run("--cache")
    project.run("--cache")
    assert project.asked == 1
    folder.write("note.txt", "second")
    project.run("--cache")
    assert project.asked == 2


DAMAGE = {
    "half an entry": lambda data: data[: len(data) // 2],
    "nothing": lambda data: b"",
    "something else": lambda data: b'{"a": 1}',
    "no text": lambda data: b"\xff\xfe\x00",
    "another version": lambda data: data.replace(b'"schema_version":1', b'"schema_version":99'),
    "another key": lambda data: data.replace(b'"key":"', b'"key":"0'),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_is_none_and_is_mended(project, damage):
    project.run("--cache")
    for entry in project.entries:
        entry.write_bytes(damage(entry.read_bytes()))
    assert cached(project.run("--cache")) == [False, False]
    assert cached(project.run("--cache")) == [True, True]
    assert project.asked == 4


def test_failures_are_not_kept(serve):
    project = serve(answers="Paris", faults=["400", "400"])
    records = project.run("--cache", expect=3)
    assert {record["status"] for record in records.values()} == {"error"}
    assert project.entries == []
    assert cached(project.run("--cache")) == [False, False]


def test_no_secret_gets_into_it_and_an_answer_with_one_is_not_kept(serve, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "hush-hush-hush")
    project = serve(answers={"*France*": "Paris hush-hush-hush", "*": "Paris"})
    project.run("--cache")
    assert len(project.entries) == 1
    for entry in project.entries:
        assert not any(secret in entry.read_text(encoding="utf-8") for secret in ("hush-hush-hush", KEY))
    again = project.run("--cache")
    assert (again["one"].get("cached"), again["two"].get("cached")) == (None, True)


def test_nothing_unfinished_is_left_lying_about(project):
    project.run("--cache")
    assert {entry.suffix for entry in project.entries} == {".json"}


AGENT = """
def answer(prompt):
    with open("calls", "a") as stream:
        stream.write(".")
    return {"text": "Paris", "cost_usd": 1.0}
"""


@pytest.mark.parametrize(("settings", "calls"), [({}, 4), ({"cache": True}, 2), ({"cache": False}, 4)])
def test_functions_are_asked_again_unless_their_target_says_otherwise(project, folder, settings, calls):
    folder.write("agent.py", AGENT)
    target = {"name": "default", "provider": "python", "function": "agent.py:answer", **settings}
    folder.write("targets.yaml", {"targets": [target]})
    project.run("--cache")
    project.run("--cache")
    assert len((folder.path / "calls").read_text()) == calls


def test_a_function_that_is_cached_is_asked_again_when_its_file_changed(project, folder):
    target = {"name": "default", "provider": "python", "function": "agent.py:answer", "cache": True}
    folder.write("targets.yaml", {"targets": [target]})
    for text in (AGENT, AGENT.replace("Paris", "Rome"), AGENT):
        folder.write("agent.py", text)
        records = project.run("--cache")
    assert len((folder.path / "calls").read_text()) == 4
    assert cached(records) == [True, True] and records["one"]["candidate_answer"] == "Paris"


def test_a_budget_does_not_count_what_is_cached(project, folder):
    folder.write("agent.py", AGENT)
    target = {"name": "default", "provider": "python", "function": "agent.py:answer", "cache": True, "workers": 1}
    folder.write("targets.yaml", {"targets": [target]})
    project.run("--cache")
    assert len(project.run("--cache", "--budget-usd", "0.5")) == 2
    assert len(project.run("--budget-usd", "0.5", expect=4)) == 1


JUDGE = """
from agentv.model.message import Message

async def judged(context):
    said = await context.ask("judge", (Message("user", "Is this good? " + context.candidate_answer),))
    return said.text == "Paris"
"""


def test_a_judge_is_not_asked_again_either(project, folder):
    folder.write("judge.py", JUDGE)
    folder.write("cases.yaml", {"evaluators": [{"type": "python", "function": "judge.py:judged"}]})
    own = {"provider": "openai", "base_url": project.server.url, "api_key": KEY}
    targets = [{**own, "name": "default", "model": "m"}, {**own, "name": "judge", "model": "j"}]
    folder.write("targets.yaml", {"targets": targets})
    assert [record["score"] for record in project.run("--cache", "--workers", "1").values()] == [1.0, 1.0]
    assert project.asked == 3  # both answers are the same, and so is the judge's question
    project.run("--cache")
    assert project.asked == 3


def test_what_cannot_be_a_cache_is_an_error_before_anything_is_asked(project, folder):
    folder.write(".agentv/cache", "a file")
    done = project.command("eval", "cases.jsonl", "--cache", "-q")
    assert done.code == 2
    assert "Cannot create the cache" in done.stderr
    assert project.asked == 0


KINDS = {
    "a model": (OpenAI(name="t", provider="openai", model="m"), True),
    "an address": (Http(name="t", provider="http", url="http://x"), True),
    "a function": (PythonTarget(name="t", provider="python", function="a.py:b"), False),
    "a mock": (Mock(name="t", provider="mock"), False),
    "a model that may not": (OpenAI(name="t", provider="openai", model="m", cache=False), False),
    "a mock that may": (Mock(name="t", provider="mock", cache=True), True),
}


@pytest.mark.parametrize(("settings", "expected"), KINDS.values(), ids=KINDS)
def test_by_default_it_is_for(settings, expected):
    assert settings.is_cacheable is expected


RESPONSES = {
    "text": answer("hi"),
    "an empty text": answer(""),
    "data": Response(messages=(Message("assistant", {"a": [1, None, True]}),)),
    "a list of data": Response(messages=(Message("assistant", [1, "two", {"type": "text", "value": "x"}]),)),
    "parts": Response(messages=(Message("assistant", (TextPart("see"), ImagePart("data:image/png;base64,AA=="))),)),
    "tool calls": Response(
        messages=(
            Message("assistant", None, (ToolCall("find", {"q": "x"}, [1], "id-1", "2026-01-01T00:00:00Z", 5.0),)),
            Message("tool", "found", (), "find"),
            Message("assistant", "done"),
        )
    ),
    "figures": answer(
        "hi", usage=TokenUsage(1, 2, 1), cost_usd=0.25, duration_ms=12.5, id="x", model="m", stop_reason="stop"
    ),
}


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_an_answer_comes_back_as_it_was(tmp_path, response):
    cache = ResponseCache(str(tmp_path))
    cache.put("0" * 32, response)
    found = cache.get("0" * 32)
    assert found.cached
    assert {name: getattr(found, name) for name in Response.__struct_fields__[:-1]} == {
        name: getattr(response, name) for name in Response.__struct_fields__[:-1]
    }


def test_what_no_json_can_hold_is_not_kept(tmp_path):
    cache = ResponseCache(str(tmp_path))
    cache.put("0" * 32, Response(messages=(Message("assistant", {"a": object()}),)))
    assert cache.get("0" * 32) is None


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "taken").write_text("x")
    with pytest.raises(AgentvError, match="Cannot create the cache"):
        ResponseCache(str(tmp_path / "taken"))


def test_what_cannot_be_written_is_not_kept_and_nothing_else_happens(tmp_path):
    cache = ResponseCache(str(tmp_path))
    (tmp_path / "00").write_text("a file where a folder should be")
    cache.put("0" * 32, answer("hi"))
    assert cache.get("0" * 32) is None
