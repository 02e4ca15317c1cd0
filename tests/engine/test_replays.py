"""A recorded run replays to the same results without a network: answers, failures, judges, conversations."""

import json

import pytest

from agentv_testing import Answer, FaultyServer

TIMES = {"timestamp", "run_id"}
GOAL = {"goal": "Book a train to Rome", "max_turns": 6}


ASKS = {"type": "llm_judge", "name": "asks"}
COMPOSITE = {
    "type": "composite",
    "evaluators": [ASKS, {"type": "llm_judge", "name": "other", "temperature": 0.5}],
    "aggregator": "weighted_average",
}


class Script:
    """A model that never gives the same response twice, so that only a recording can repeat one."""

    def __init__(self):
        self.calls = 0

    def __call__(self, request):
        self.calls += 1
        system = request.body["messages"][0]["content"]
        if "You play a person" in str(system):
            return Answer(f"And then? ({self.calls})" if self.calls % 4 else "Thanks\n[[GOAL MET]]")
        if request.body["model"] == "judge":
            broken = self.calls % 3 == 0
            return Answer(
                "no JSON" if broken else json.dumps({"score": round(self.calls % 10 / 10, 1), "reasoning": "r"})
            )
        return Answer(f"answer {self.calls}")


def targets_of(server):
    own = {
        "provider": "openai",
        "base_url": "${{ SERVER }}",
        "api_key": "${{ SERVER_API_KEY }}",
        "retry_initial_delay_ms": 0,
    }
    return [own | {"name": name, "model": name} for name in ("default", "judge", "user", "vectors")]


CASES = [
    {"input": "plain", "evaluators": [{"type": "contains", "value": "answer"}]},
    {"input": "judged", "evaluators": [ASKS | {"votes": 3}, ASKS | {"name": "again"}]},
    {"input": "items", "rubrics": ["Is short", "Is right"], "evaluators": [COMPOSITE]},
    {
        "input": "near",
        "evaluators": [{"type": "similarity", "method": "embedding", "target": "vectors", "value": "answer 3"}],
    },
    {
        "input": "talk",
        "turns": [{"input": "more", "evaluators": [ASKS]}],
        "evaluators": [ASKS],
    },
    {"input": "simulated", "user": GOAL, "evaluators": [ASKS]},
]


@pytest.fixture
def recorded(project, monkeypatch):
    """Records a run of everything against a server that fails often, then shuts the server down."""

    def record(*cases, faults, options=(), code=0):
        with FaultyServer(Script(), faults=faults, seed=1) as server:
            monkeypatch.setenv("SERVER", server.url)
            monkeypatch.setenv("SERVER_API_KEY", "sk-hidden-hidden")
            project.targets(*targets_of(server))
            project.dataset(*cases)
            # Without a test of the endpoint, whose cost would be in the records.
            recording = ("--record", "calls.jsonl", "--out", "first", "--quiet", "--max-outage", "0")
            ended = project.eval("--target", "default", *recording, *options)
        assert ended.code == code, ended.stderr
        monkeypatch.delenv("SERVER")
        monkeypatch.delenv("SERVER_API_KEY")
        return project

    return record


def canonical(project, out):
    """The records as lines, in the order of their jobs, without the moment and the run they are of."""
    records = [{key: value for key, value in each.items() if key not in TIMES} for each in project.records(out)]
    records.sort(key=lambda each: (each["eval_id"], each["trial"]))
    return "\n".join(json.dumps(record, indent=1) for record in records).splitlines()


FAULTS = {"none": (), "some": {"503": 0.2, "429": 0.1, "truncated": 0.1}, "many": {"500": 0.5, "400": 0.1, "hang": 0.0}}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_recorded_run_replays_to_equal_bytes_with_the_network_off(recorded, faults):
    options = ("--trials", "2", "--max-retries", "2")
    project = recorded(*CASES, faults=faults, options=options)
    ended = project.eval("--target", "default", "--replay", "calls.jsonl", "--out", "again", "--quiet", *options)
    assert ended.code == 0, ended.stderr
    assert canonical(project, "again") == canonical(project, "first")
    first, again = project.summary("first"), project.summary("again")
    assert again["mean"] == pytest.approx(first["mean"])
    assert [again[key] for key in ("scored", "errors")] == [first[key] for key in ("scored", "errors")]
    assert b"sk-hidden" not in (project.path / "calls.jsonl").read_bytes()


def test_a_replay_can_be_recorded_and_replayed_again(recorded):
    project = recorded(*CASES, faults={"503": 0.3})
    for given, made, out in (("calls.jsonl", "more.jsonl", "second"), ("more.jsonl", "last.jsonl", "third")):
        options = ("--replay", given, "--record", made, "--out", out, "--quiet")
        assert project.eval("--target", "default", *options).code == 0
        assert canonical(project, out) == canonical(project, "first")


def test_calls_missing_from_the_recording_fail_the_run(recorded):
    project = recorded(CASES[0], faults=())
    project.dataset(CASES[0], CASES[3])
    ended = project.eval("--target", "default", "--replay", "calls.jsonl", "--out", "again", "--quiet")
    assert ended.code == 3
    assert "1 call is missing from the replay, the first: " in ended.stderr
    assert "has no answer to 'c1' by default (trial 1)" in ended.stderr
    assert {id: record["status"] for id, record in project.by_id("again").items()} == {"c0": "ok", "c1": "error"}


def test_a_judge_missing_from_the_recording_is_an_error(recorded):
    project = recorded(CASES[0], faults=())
    project.dataset({"input": "plain", "evaluators": [*CASES[0]["evaluators"], ASKS]})
    ended = project.eval("--target", "default", "--replay", "calls.jsonl", "--out", "again", "--quiet")
    assert ended.code == 3
    [record] = project.records("again")
    assert (record["status"], record["score"], record["partial_score"]) == ("error", None, 1.0)
    assert "'judge:c0' by judge" in record["error"]["message"]


def test_the_recording_of_a_resumed_run_is_complete(project):
    with FaultyServer(Script()) as server:
        own = {"provider": "openai", "base_url": server.url, "api_key": "k"}
        project.targets(*(own | {"name": name, "model": name} for name in ("default", "judge")))
        project.dataset(*CASES[:2])
        options = ("--target", "default", "--record", "calls.jsonl", "--out", "first", "--quiet")
        assert project.eval(*options).code == 0
        results = project.path / "first" / "results.jsonl"
        results.write_bytes(results.read_bytes().splitlines(keepends=True)[0])
        assert project.eval("--resume", "--out", "first", "--quiet").code == 0
    assert project.eval("--target", "default", "--replay", "calls.jsonl", "--out", "again", "--quiet").code == 0
    assert canonical(project, "again") == canonical(project, "first")


@pytest.mark.parametrize("case", [{"turns": [{"input": "To Rome"}, {"input": "Tomorrow"}]}, {"user": GOAL}])
def test_a_conversation_is_replayed_from_the_results_of_a_run(project, case):
    texts = {"default": ["Where to?", "And when?", "Booked"], "user": ["To Rome", "Tomorrow", "Thanks\n[[GOAL MET]]"]}
    usage = {"input": 4, "output": 1}
    project.targets(
        *({"name": name, "provider": "mock", "response": says, "token_usage": usage} for name, says in texts.items())
    )
    project.dataset({"input": "Hi", **case, "evaluators": [{"type": "contains", "value": "Booked"}]})
    assert project.eval("--target", "default", "--out", "first", "--quiet").code == 0
    project.targets(*({"name": name, "provider": "mock", "response": "other"} for name in texts))
    assert project.eval("--target", "default", "--replay", "first", "--out", "again", "--quiet").code == 0
    [first], [again] = project.records("first"), project.records("again")
    for key in ("output_messages", "score", "candidate_answer"):
        assert again[key] == first[key]
    assert again["conversation"]["ended"] == first["conversation"]["ended"]
    assert again["execution_metrics"]["token_usage"] == first["execution_metrics"]["token_usage"]


def test_judges_are_called_when_results_are_replayed(recorded, monkeypatch):
    project = recorded(CASES[0], faults=())
    project.dataset({"input": "plain", "evaluators": [ASKS]})
    with FaultyServer(json.dumps({"score": 0.25, "reasoning": "r"})) as server:
        monkeypatch.setenv("SERVER", server.url)
        monkeypatch.setenv("SERVER_API_KEY", "sk-hidden-hidden")
        assert project.eval("--target", "default", "--replay", "first", "--out", "again", "--quiet").code == 0
        assert {request.body["model"] for request in server.requests} == {"judge"}
    assert project.records("again")[0]["score"] == 0.25
    assert project.records("again")[0]["candidate_answer"] == project.records("first")[0]["candidate_answer"]
