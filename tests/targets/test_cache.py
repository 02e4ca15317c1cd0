"""The response cache: repeated requests hit it, and any change that affects an answer misses it."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from agentv.errors import AgentvError
from agentv.model.message import ImagePart, Message, TextPart, ToolCall
from agentv.model.response import Response, answer
from agentv.model.result import TokenUsage
from agentv.targets.apis.openai import OpenAI
from agentv.targets.http import Http
from agentv.targets.mock import Mock
from agentv.targets.python import PythonTarget
from agentv.targets.recordings.response_cache import ResponseCache
from agentv_testing import FaultyServer
from platforms import only_on_posix
from waiting import wait_until

KEY = "sk-very-secret-1"
CASES = [
    {"id": "one", "expected_outcome": "Says Paris", "input": "Capital of France?"},
    {"id": "two", "expected_outcome": "Says Paris", "input": "And its largest city?"},
]
CHECKS = {"evaluators": [{"type": "contains", "value": "Paris"}]}


class Project:
    """A project with a dataset and a model server as its target."""

    def __init__(self, folder, command, server):
        self.folder, self.command, self.server = folder, command, server
        folder.write("cases.jsonl", CASES)
        folder.write("cases.yaml", CHECKS)
        self.target()

    def target(self, **settings):
        own = {"name": "default", "provider": "openai", "base_url": self.server.url, "model": "m", "api_key": KEY}
        self.folder.write("targets.yaml", {"targets": [own | settings]})

    def run(self, *options, expect=0):
        """Return the records of a run, by case."""
        done = self.command("eval", "cases.jsonl", "--json", "-q", *options)
        assert done.code == expect, done.stderr
        [printed] = done.printed
        lines = (Path(printed["run"]) / "results.jsonl").read_text(encoding="utf-8").splitlines()
        return {record["eval_id"]: record for record in map(json.loads, lines)}

    @property
    def calls(self):
        return self.server.counts.requests

    @property
    def entries(self):
        return sorted(self.folder.path.glob(".agentv/cache/*/*"))


@pytest.fixture
def serve(folder, command):
    """A project whose server returns scripted answers and faults."""
    with ExitStack() as servers:
        yield lambda **how: Project(folder, command, servers.enter_context(FaultyServer(**how)))


@pytest.fixture
def project(serve):
    return serve(answers="Paris")


def cached(records):
    return [record.get("cached", False) for record in records.values()]


def test_a_second_run_makes_no_calls_and_reports_it(project):
    first = project.run("--cache")
    assert (project.calls, cached(first)) == (2, [False, False])
    second = project.run("--cache")
    assert (project.calls, cached(second)) == (2, [True, True])
    for id in first:
        for key in ("candidate_answer", "score", "execution_metrics"):
            assert second[id][key] == first[id][key]


def test_the_cache_is_off_by_default(project):
    project.run()
    project.run()
    assert project.calls == 4
    assert project.entries == []


def test_trials_are_cached_separately(project):
    project.run("--cache", "--trials", "2")
    assert project.calls == 4
    project.run("--cache", "--trials", "3")
    assert project.calls == 6


ASKED_AGAIN = {
    "another model": {"model": "n"},
    "a temperature": {"temperature": 0.5},
    "a system prompt": {"system_prompt": "Be brief."},
    "a tool": {"tools": [{"name": "search"}]},
    "extra body fields": {"extra_body": {"top_p": 0.1}},
}


@pytest.mark.parametrize("settings", ASKED_AGAIN.values(), ids=ASKED_AGAIN)
def test_changes_that_affect_answers_miss_the_cache(project, settings):
    project.run("--cache")
    project.target(**settings)
    project.run("--cache")
    assert project.calls == 4


KEPT = {
    "another key": {"api_key": "sk-very-secret-2"},
    "more workers": {"workers": 7},
    "other retries": {"max_retries": 1, "retry_initial_delay_ms": 1},
    "another timeout": {"timeout_seconds": 5},
}


@pytest.mark.parametrize("settings", KEPT.values(), ids=KEPT)
def test_call_settings_do_not_miss_the_cache(project, settings):
    project.run("--cache")
    project.target(**settings)
    project.run("--cache")
    assert project.calls == 2


def test_expected_outputs_do_not_miss_the_cache(project, folder):
    project.run("--cache")
    folder.write("cases.jsonl", [{**case, "id": case["id"] + "-new", "tags": ["x"]} for case in CASES])
    folder.write("cases.yaml", {"evaluators": [{"type": "equals", "value": "Rome"}]})
    project.run("--cache")
    assert project.calls == 2


def test_file_contents_are_part_of_the_key(project, folder):
    folder.write("note.txt", "first")
    content = [{"type": "text", "value": "Sum up."}, {"type": "file", "value": "note.txt"}]
    folder.write("cases.jsonl", [{**CASES[0], "input": [{"role": "user", "content": content}]}])
    project.run("--cache")
    project.run("--cache")
    assert project.calls == 1
    folder.write("note.txt", "second")
    project.run("--cache")
    assert project.calls == 2


DAMAGE = {
    "half an entry": lambda data: data[: len(data) // 2],
    "nothing": lambda data: b"",
    "another value": lambda data: b'{"a": 1}',
    "not text": lambda data: b"\xff\xfe\x00",
    "another version": lambda data: data.replace(b'"schema_version":1', b'"schema_version":99'),
    "another key": lambda data: data.replace(b'"key":"', b'"key":"0'),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_is_ignored_and_replaced(project, damage):
    project.run("--cache")
    for entry in project.entries:
        entry.write_bytes(damage(entry.read_bytes()))
    assert cached(project.run("--cache")) == [False, False]
    assert cached(project.run("--cache")) == [True, True]
    assert project.calls == 4


def test_failures_are_not_cached(serve):
    project = serve(answers="Paris", faults=["400", "400"])
    records = project.run("--cache", expect=3)
    assert {record["status"] for record in records.values()} == {"error"}
    assert project.entries == []
    assert cached(project.run("--cache")) == [False, False]


def test_responses_with_secrets_are_not_cached(serve, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "hush-hush-hush")
    project = serve(answers={"*France*": "Paris hush-hush-hush", "*": "Paris"})
    project.run("--cache")
    assert len(project.entries) == 1
    for entry in project.entries:
        assert not any(secret in entry.read_text(encoding="utf-8") for secret in ("hush-hush-hush", KEY))
    again = project.run("--cache")
    assert (again["one"].get("cached"), again["two"].get("cached")) == (None, True)


def test_no_temporary_files_remain(project):
    project.run("--cache")
    assert {entry.suffix for entry in project.entries} == {".json"}


AGENT = """
def answer(prompt):
    with open("calls", "a") as stream:
        stream.write(".")
    return {"text": "Paris", "cost_usd": 1.0}
"""


@pytest.mark.parametrize(("settings", "calls"), [({}, 4), ({"cache": True}, 2), ({"cache": False}, 4)])
def test_functions_are_cached_only_if_configured(project, folder, settings, calls):
    folder.write("agent.py", AGENT)
    target = {"name": "default", "provider": "python", "function": "agent.py:answer", **settings}
    folder.write("targets.yaml", {"targets": [target]})
    project.run("--cache")
    project.run("--cache")
    assert len((folder.path / "calls").read_text()) == calls


def test_a_changed_function_file_misses_the_cache(project, folder):
    target = {"name": "default", "provider": "python", "function": "agent.py:answer", "cache": True}
    folder.write("targets.yaml", {"targets": [target]})
    for text in (AGENT, AGENT.replace("Paris", "Rome"), AGENT):
        folder.write("agent.py", text)
        records = project.run("--cache")
    assert len((folder.path / "calls").read_text()) == 4
    assert cached(records) == [True, True] and records["one"]["candidate_answer"] == "Paris"


def test_cached_responses_do_not_count_towards_the_budget(project, folder):
    folder.write("agent.py", AGENT)
    target = {"name": "default", "provider": "python", "function": "agent.py:answer", "cache": True, "workers": 1}
    folder.write("targets.yaml", {"targets": [target]})
    project.run("--cache")
    assert len(project.run("--cache", "--budget-usd", "0.5")) == 2
    assert len(project.run("--budget-usd", "0.5", expect=4)) == 1


JUDGE = """
from agentv.model.message import Message

async def judged(context):
    response = await context.ask("judge", (Message("user", "Is this good? " + context.candidate_answer),))
    return response.text == "Paris"
"""


@only_on_posix("a function that scores answers cannot call models")
def test_judge_calls_are_cached(project, folder):
    folder.write("judge.py", JUDGE)
    folder.write("cases.yaml", {"evaluators": [{"type": "python", "function": "judge.py:judged"}]})
    own = {"provider": "openai", "base_url": project.server.url, "api_key": KEY}
    targets = [{**own, "name": "default", "model": "m"}, {**own, "name": "judge", "model": "j"}]
    folder.write("targets.yaml", {"targets": targets})
    assert [record["score"] for record in project.run("--cache", "--workers", "1").values()] == [1.0, 1.0]
    assert project.calls == 3  # both answers are the same, and so are the judge's prompts
    project.run("--cache")
    assert project.calls == 3


def test_an_unusable_cache_folder_is_an_error_before_any_call(project, folder):
    folder.write(".agentv/cache", "a file")
    done = project.command("eval", "cases.jsonl", "--cache", "-q")
    assert done.code == 2
    assert "Cannot create the cache" in done.stderr
    assert project.calls == 0


KINDS = {
    "a model": (OpenAI(name="t", provider="openai", model="m"), True),
    "an address": (Http(name="t", provider="http", url="http://x"), True),
    "a function": (PythonTarget(name="t", provider="python", function="a.py:b"), False),
    "a mock": (Mock(name="t", provider="mock"), False),
    "a model with the cache off": (OpenAI(name="t", provider="openai", model="m", cache=False), False),
    "a mock with the cache on": (Mock(name="t", provider="mock", cache=True), True),
}


@pytest.mark.parametrize(("settings", "expected"), KINDS.values(), ids=KINDS)
def test_default_by_provider(settings, expected):
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
def test_a_response_is_restored_without_loss(tmp_path, response):
    cache = ResponseCache(str(tmp_path))
    cache.put("0" * 32, response)
    found = cache.get("0" * 32)
    assert found.cached
    assert msgspec.structs.replace(found, cached=False) == response


def test_data_that_is_not_json_is_not_cached(tmp_path):
    cache = ResponseCache(str(tmp_path))
    cache.put("0" * 32, Response(messages=(Message("assistant", {"a": object()}),)))
    assert cache.get("0" * 32) is None


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "taken").write_text("x")
    with pytest.raises(AgentvError, match="Cannot create the cache"):
        ResponseCache(str(tmp_path / "taken"))


def test_write_errors_are_ignored(tmp_path):
    cache = ResponseCache(str(tmp_path))
    (tmp_path / "00").write_text("a file where a folder should be")
    cache.put("0" * 32, answer("hi"))
    assert cache.get("0" * 32) is None


def test_runs_that_share_a_cache_make_each_call_once(serve, folder, program):
    project = serve(answers="Paris", latency_s=0.05)
    project.target(workers=10)
    folder.write("cases.jsonl", [{**CASES[0], "id": f"c{number}", "input": f"{number}?"} for number in range(60)])
    command = [program, "eval", "cases.jsonl", "--cache", "-q", "--out"]
    executors = {"one": [], "two": [], "three": ["--executor", "process"]}
    runs = [subprocess.Popen([*command, name, *more], cwd=folder.path) for name, more in executors.items()]
    assert [run.wait() for run in runs] == [0, 0, 0]
    assert project.calls == 60
    assert [len((folder.path / name / "results.jsonl").read_bytes().splitlines()) for name in executors] == [60] * 3


def test_equal_calls_of_one_run_are_made_once(serve, folder):
    project = serve(answers="Paris", latency_s=0.05)
    folder.write("cases.jsonl", [{**CASES[0], "id": f"c{number}"} for number in range(20)])
    assert sum(cached(project.run("--cache"))) == 19
    assert project.calls == 1


def test_a_call_of_a_killed_run_is_made_by_the_run_that_waits_for_it(serve, folder):
    project = serve(answers="Paris", faults=("hang", "hang"))
    command = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--cache", "-q", "--out"]
    with subprocess.Popen([*command, "one"], cwd=folder.path) as first:
        wait_until(lambda: project.calls == 2, first)
        with subprocess.Popen([*command, "two"], cwd=folder.path) as second:
            wait_until((folder.path / "two" / "run.json").exists, second)
            first.kill()
            assert second.wait() == 0
    assert project.calls == 4


def test_a_call_whose_equal_failed_is_made(serve, folder):
    project = serve(answers="Paris", faults={"500": 1.0})
    folder.write("cases.jsonl", [{**CASES[0], "id": f"c{number}"} for number in range(10)])
    project.run("--cache", "--max-retries", "0", "--max-outage", "0", expect=3)
    assert project.calls == 10
