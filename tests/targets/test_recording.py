"""Recordings: every call is recorded, and a run can be replayed without calls."""

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentv.engine.job.request import CaseRequest
from agentv.model.case import EvalCase
from agentv.model.message import ImagePart, Message, TextPart, ToolCall
from agentv.model.response import Response, answer
from agentv.model.result import TokenUsage
from agentv.targets.recordings.recorder import RecordingResponder
from agentv.targets.recordings.replay import Replay
from agentv_testing import FaultyServer
from platforms import only_on_posix

KEY = "sk-very-secret-1"
CASES = [
    {"id": "france", "expected_outcome": "Says Paris", "input": "Capital of France?", "expected_output": "Paris"},
    {"id": "norway", "expected_outcome": "Says Oslo", "input": "Capital of Norway?", "expected_output": "Oslo"},
]
ANSWERS = {"*France*": "Paris", "*Norway*": "Oslo", "*": "good"}


class Project:
    """A project with a dataset and a model server as its target."""

    def __init__(self, folder, command, server):
        self.folder, self.command, self.server = folder, command, server
        folder.write("cases.jsonl", CASES)
        folder.write("cases.yaml", {"evaluators": [{"type": "equals"}]})
        self.targets({"name": "default", "model": "m"})

    def targets(self, *settings, key=KEY):
        own = {"provider": "openai", "base_url": self.server.url, "api_key": key}
        self.folder.write("targets.yaml", {"targets": [own | each for each in settings]})

    def run(self, *options, expect=0):
        done = self.command("eval", "cases.jsonl", "--json", "-q", *options)
        assert done.code == expect, done.stderr
        return Path(done.printed[0]["run"])

    def recorded(self, name="calls.jsonl"):
        return [json.loads(line) for line in (self.folder.path / name).read_text(encoding="utf-8").splitlines()]


def records(run):
    lines = (run / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return {(record["eval_id"], record["target"], record["trial"]): record for record in map(json.loads, lines)}


def answers(run):
    return {key: record.get("candidate_answer") for key, record in records(run).items()}


@pytest.fixture
def serve(folder, command):
    with ExitStack() as servers:
        yield lambda **how: Project(folder, command, servers.enter_context(FaultyServer(**{"answers": ANSWERS, **how})))


@pytest.fixture
def project(serve):
    return serve()


def test_every_call_is_a_line_with_its_key_and_request(project):
    project.run("--record", "calls.jsonl", "--trials", "2")
    lines = project.recorded()
    assert sorted((line["eval_id"], line["target"], line["trial"]) for line in lines) == [
        ("france", "default", 1),
        ("france", "default", 2),
        ("norway", "default", 1),
        ("norway", "default", 2),
    ]
    france, *_ = (line for line in lines if line["eval_id"] == "france")
    assert france["dataset"] == "cases"
    assert len(france["request_digest"]) == 32
    assert france["response"]["messages"] == [{"role": "assistant", "content": "Paris"}]
    assert france["response"]["usage"]["output"] == 1


def test_a_replay_gives_the_same_results_without_calls(project):
    first = project.run("--record", "calls.jsonl", "--trials", "2")
    calls = project.server.counts.requests
    again = project.run("--replay", "calls.jsonl", "--trials", "2")
    assert project.server.counts.requests == calls
    for key, record in records(first).items():
        for name in ("candidate_answer", "score", "verdict", "execution_metrics"):
            assert records(again)[key][name] == record[name]


def test_a_run_can_be_replayed_by_path_or_id(project):
    first = project.run()
    calls = project.server.counts.requests
    assert answers(project.run("--replay", str(first))) == answers(first)
    assert answers(project.run("--replay", first.name)) == answers(first)
    assert project.server.counts.requests == calls


def test_a_replay_does_not_need_the_targets_variables(project, monkeypatch):
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    project.run("--record", "calls.jsonl")
    project.targets({"name": "default", "model": "m"}, key="${{ NOT_SET_HERE }}")
    assert set(answers(project.run("--replay", "calls.jsonl")).values()) == {"Paris", "Oslo"}


def test_transforms_apply_to_recorded_answers(project):
    project.run("--record", "calls.jsonl")
    project.targets({"name": "default", "model": "m", "transform": {"regex": "^(..)"}})
    assert set(answers(project.run("--replay", "calls.jsonl")).values()) == {"Pa", "Os"}


def test_several_targets_get_their_own_answers(project):
    project.targets({"name": "a", "model": "m"}, {"name": "b", "model": "n"})
    project.run("--record", "calls.jsonl", "-t", "a", "-t", "b")
    assert len(answers(project.run("--replay", "calls.jsonl", "-t", "a", "-t", "b"))) == 4


def test_a_changed_request_does_not_match(project, folder):
    project.run("--record", "calls.jsonl")
    folder.write("cases.jsonl", [CASES[0], {**CASES[1], "input": "Capital of Iceland?"}])
    run = project.run("--replay", "calls.jsonl", expect=3)
    error = records(run)["norway", "default", 1]["error"]
    assert error["class"] == "invalid_response"
    assert "or the request has changed since it was recorded" in error["message"]


def test_a_recording_is_appended_to(project):
    project.run("--record", "calls.jsonl", "--case", "france")
    project.run("--record", "calls.jsonl", "--case", "norway")
    assert [line["eval_id"] for line in project.recorded()] == ["france", "norway"]


def test_an_incomplete_last_line_is_removed(project, folder):
    project.run("--record", "calls.jsonl", "--case", "france")
    with (folder.path / "calls.jsonl").open("a") as stream:
        stream.write('{"schema_version":1,"dataset":"ca')
    project.run("--record", "calls.jsonl", "--case", "norway")
    assert [line["eval_id"] for line in project.recorded()] == ["france", "norway"]


def test_failures_are_recorded_and_replayed(serve):
    project = serve(faults=["400", None])
    first = project.run("--record", "calls.jsonl", "--workers", "1")
    failed, answered = project.recorded()
    assert failed["failure"]["status"] == 400 and "response" not in failed
    assert answered["response"] and "failure" not in answered
    again = project.run("--replay", "calls.jsonl")
    assert {key: each.get("error") for key, each in records(again).items()} == {
        key: each.get("error") for key, each in records(first).items()
    }


def test_the_request_is_recorded_with_the_response(project):
    project.run("--record", "calls.jsonl", "--case", "france")
    [line] = project.recorded()
    assert line["request"] == [{"role": "user", "content": "Capital of France?"}]


def test_recordings_contain_no_secrets(serve, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "hush-hush-hush")
    project = serve(answers="It is hush-hush-hush")
    project.run("--record", "calls.jsonl")
    assert {line["response"]["messages"][0]["content"] for line in project.recorded()} == {"It is [redacted]"}
    assert KEY not in (project.folder.path / "calls.jsonl").read_text()


JUDGE = """
from agentv.model.message import Message

async def judged(context):
    response = await context.ask("judge", (Message("user", "Good? " + context.candidate_answer),))
    return response.text == "good"
"""


@only_on_posix("a function that scores answers cannot call models")
def test_judges_are_recorded_and_replayed_by_request(project, folder):
    folder.write("judge.py", JUDGE)
    folder.write("cases.yaml", {"evaluators": [{"type": "python", "function": "judge.py:judged"}]})
    project.targets({"name": "default", "model": "m"}, {"name": "judge", "model": "j"})
    project.run("--record", "calls.jsonl")
    assert [line["target"] for line in project.recorded()].count("judge") == 2
    calls = project.server.counts.requests
    run = project.run("--replay", "calls.jsonl")
    assert {record["score"] for record in records(run).values()} == {1.0}
    assert project.server.counts.requests == calls


def test_the_manifest_names_the_recording(project):
    project.run("--record", "calls.jsonl")
    manifest = json.loads((project.run("--replay", "calls.jsonl") / "run.json").read_text())
    [target] = manifest["targets"]
    assert (target["name"], target["provider"]) == ("default", "replay")
    assert target["settings"]["from"].endswith("calls.jsonl")


def test_a_recording_cannot_be_replayed_and_appended_to_together(project):
    project.run("--record", "calls.jsonl")
    done = project.command("eval", "cases.jsonl", "--record", "./calls.jsonl", "--replay", "calls.jsonl")
    assert done.code == 2
    assert "--record and --replay cannot use the same file" in done.stderr


def test_a_missing_recording_is_an_error_before_any_call(project, folder):
    done = project.command("eval", "cases.jsonl", "--replay", "nothing.jsonl", "-q")
    assert done.code == 2
    assert "Cannot replay" in done.stderr
    assert not list(folder.path.glob(".agentv/results/*/results.jsonl"))


RESPONSES = {
    "text": answer("hi"),
    "a list of data": Response(messages=(Message("assistant", [1, "two"]),)),
    "parts": Response(messages=(Message("assistant", (TextPart("see"), ImagePart("data:image/png;base64,AA=="))),)),
    "tool calls": Response(messages=(Message("assistant", "done", (ToolCall("find", {"q": 1}, [2], duration_ms=3),)),)),
    "figures": answer("hi", usage=TokenUsage(1, 2, 1), cost_usd=0.5, duration_ms=2.5, id="x", model="m"),
}


class Answering:
    endpoint = "test"

    def __init__(self, response):
        self._response = response

    async def respond(self, request):
        return self._response

    async def aclose(self):
        pass


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_a_response_is_restored_without_loss(tmp_path, response):
    request = CaseRequest(EvalCase("one", input="Hello"))

    async def round_trip():
        with (tmp_path / "calls.jsonl").open("wb") as stream:
            recorded = await RecordingResponder(Answering(response), "t", stream.write).respond(request)
        replay = Replay(name="t", provider="replay", source="calls.jsonl").open(str(tmp_path))
        replayed = await replay.respond(request)
        await replay.aclose()
        return recorded, replayed

    assert asyncio.run(round_trip()) == (response, response)


def test_data_that_is_not_json_is_recorded_as_text(tmp_path):
    lines = []
    odd = Response(messages=(Message("tool", {"a": object()}), Message("assistant", "the answer")))
    recording = RecordingResponder(Answering(odd), "t", lines.append)
    assert asyncio.run(recording.respond(CaseRequest(EvalCase("one", input="Hello")))) is odd
    assert json.loads(lines[0])["response"]["messages"] == [{"role": "assistant", "content": "the answer"}]
