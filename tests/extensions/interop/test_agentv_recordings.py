"""Recorded answers of AgentV (TypeScript) as targets: sessions of Copilot, transcripts and fixtures."""

import json
import os

import pytest

CHECKS = [{"type": "equals", "value": "Two files."}]
SUITE = {"tests": [{"id": "a", "input": "List the files", "assertions": CHECKS}]}
EVENTS = [
    {"type": "session.start", "data": {"sessionId": "s", "context": {"cwd": "/x"}}},
    {"type": "user.message", "data": {"content": "Which files are there?"}},
    {"type": "assistant.message", "data": {"content": "ANSWER"}},
    {"type": "session.shutdown", "data": {}},
]
FIXTURE = {
    **{"schema_version": "agentv.replay_fixture.v1", "suite": "s", "test_id": "a", "source_target": "live"},
    "output": [{"role": "assistant", "content": "Two files."}],
}
TRANSCRIPT = [
    {"test_id": "a", "target": "live", "message_index": index, "role": role, "content": text}
    for index, (role, text) in enumerate((("user", "Which files are there?"), ("assistant", "Two files.")))
]


def write_session(folder, name, answer, at):
    events = json.dumps(EVENTS).replace("ANSWER", answer)
    folder.write(f"state/{name}/events.jsonl", "".join(json.dumps(event) + "\n" for event in json.loads(events)))
    folder.write(f"state/{name}/workspace.yaml", "cwd: /x\n" if name != "elsewhere" else "cwd: /y\n")
    os.utime(folder.path / f"state/{name}/events.jsonl", (at, at))


def run(folder, agentv, **target):
    folder.write("targets.yaml", {"targets": [{"name": "default", **target}]})
    folder.write("s.yaml", SUITE)
    return agentv("eval", "s.yaml", "--out", "out")


@pytest.mark.parametrize(
    "settings",
    [
        {"discover": "latest", "session_state_dir": "state", "cwd": "/x"},
        {"session_id": "new", "session_state_dir": "state"},
        {"session_dir": "state/new"},
    ],
)
def test_a_session_of_copilot_answers_every_case(folder, command, settings):
    for at, (name, answer) in enumerate({"old": "Three.", "new": "Two files.", "elsewhere": "Four."}.items(), 1000):
        write_session(folder, name, answer, at)
    outcome = run(folder, command, provider="copilot-log", **settings)
    assert "Passed 100 % of the 1 case" in outcome.stdout, outcome.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "One of 'session_dir', 'session_id' or 'discover: latest' is required"),
        ({"discover": "first"}, "latest"),
        ({"discover": "latest", "session_state_dir": "nowhere"}, "nowhere has no session"),
        ({"session_id": "gone", "session_state_dir": "state"}, "events.jsonl does not exist"),
    ],
)
def test_a_session_that_is_missing_is_named(folder, command, settings, message):
    outcome = run(folder, command, provider="copilot-log", **settings)
    assert outcome.code and message in outcome.stderr


@pytest.mark.parametrize("rows", [[FIXTURE], TRANSCRIPT], ids=["fixtures", "transcripts"])
def test_recorded_answers_are_replayed_by_test_id_and_target(folder, command, rows):
    folder.write("recorded.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    key = "fixtures" if len(rows) == 1 else "transcripts"
    outcome = run(folder, command, provider="replay", source_target="live", **{key: "recorded.jsonl"})
    assert "Passed 100 % of the 1 case" in outcome.stdout, outcome.stderr
    folder.write("targets.yaml", (folder.path / "targets.yaml").read_text().replace("live", "other"))
    outcome = command("eval", "s.yaml", "--out", "other")
    assert outcome.code == 2 and "no target 'other'" in outcome.stderr


@pytest.mark.parametrize(("settings", "passes"), [({"suite": "mine"}, True), ({"suite": "other"}, False)])
def test_the_suite_of_recorded_answers_may_be_named(folder, command, settings, passes):
    wrong = {**FIXTURE, "suite": "other", "output": [{"role": "assistant", "content": "Three files."}]}
    rows = [{**FIXTURE, "suite": "mine"}, wrong]
    folder.write("recorded.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    outcome = run(folder, command, provider="replay", source_target="live", fixtures="recorded.jsonl", **settings)
    assert ("Passed 100 %" in outcome.stdout) is passes, outcome.stderr


def test_paths_of_recorded_answers_may_begin_in_the_folder_of_the_targets_file(folder, command):
    folder.write("fixtures/recorded.jsonl", json.dumps(FIXTURE) + "\n")
    target = {"name": "default", "provider": "replay", "fixtures": "../fixtures/recorded.jsonl"}
    folder.write(".agentv/targets.yaml", {"targets": [target]})
    folder.write("evals/s.yaml", SUITE)
    outcome = command("eval", "evals/s.yaml", "--out", "out")
    assert "Passed 100 % of the 1 case" in outcome.stdout, outcome.stderr


def test_recorded_tool_calls_have_results_and_times(folder, command):
    call = {"tool": "ls", "input": {"path": "."}, "output": "a b", "duration_ms": 18, "id": "c", "start_time": "t"}
    output = [{"role": "assistant", "tool_calls": [call]}, *FIXTURE["output"]]
    folder.write("recorded.jsonl", json.dumps({**FIXTURE, "output": output}) + "\n")
    run(folder, command, provider="replay", fixtures="recorded.jsonl")
    record = json.loads((folder.path / "out/results.jsonl").read_text())
    (stored,) = record["output_messages"][0]["tool_calls"]
    assert {key: stored[key] for key in ("output", "duration_ms")} == {"output": "a b", "duration_ms": 18}


def test_a_target_with_a_provider_of_the_project_is_a_program(folder, command):
    target = {"name": "default", "provider": "my-llm", "command": "echo 'Two files.' > {OUTPUT_FILE}"}
    outcome = run(folder, command, **target)
    assert "Passed 100 % of the 1 case" in outcome.stdout, outcome.stderr
    assert command("validate", "targets.yaml").code == 0
