"""Recorded sessions are scored, replayed, and made into a regression suite."""

import json

import pytest
import yaml
from recorded_sessions import claude_lines

CHECK = "{type: contains, value: fixed}"
SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def sessions(folder):
    folder.write("s/app/a1.jsonl", claude_lines("a1", ("Fix the  parser", "It is fixed.", ["Read", "Edit"])))
    second = ("And the docs?", "Not yet.", ["Write"])
    folder.write("s/app/a2.jsonl", claude_lines("a2", ("Fix the lexer", "All fixed.", ["Read"]), second))
    folder.write("s/app/sub/agent-x.jsonl", '{"type":"user","isSidechain":true,"message":{},"sessionId":"a1"}\n')
    return folder


def records(folder, out="out"):
    lines = (folder.path / out / "results.jsonl").read_text().splitlines()
    return {record["eval_id"]: record for record in map(json.loads, lines)}


def test_each_session_is_scored_as_a_case_without_a_dataset(sessions, command):
    ended = command(
        "eval", "--transcript", "s", "-e", CHECK, "-e", "{type: token_usage, max_total: 100}", "--out", "out"
    )
    assert ended.code == 0, ended.stderr
    found = records(sessions)
    assert found.keys() == {"a1", "a2"}
    assert {record["target"] for record in found.values()} == {"transcript"}
    assert found["a1"]["candidate_answer"] == "It is fixed."
    assert found["a1"]["execution_metrics"]["token_usage"] == {"input": 10, "output": 5}
    assert found["a1"]["trace_summary"]["tool_names"] == ["Edit", "Read"]
    assert found["a2"]["candidate_answer"] == "Not yet."
    assert found["a1"]["score"] == 1.0


def test_recorded_answers_are_matched_to_a_dataset_by_request_and_by_id(sessions, command):
    check = {"evaluators": [{"type": "contains", "value": "fixed"}], "expected_outcome": "x"}
    cases = [
        {"id": "by-text", "input": "Fix the parser\n", **check},
        {"id": "a2", "input": "Another wording", **check},
        {"id": "missing", "input": "Fix the linker", **check},
    ]
    sessions.write("d.yaml", {"evalcases": cases})
    ended = command("eval", "d.yaml", "--transcript", "s", "--target", "claude", "--out", "out")
    assert ended.code == 0, ended.stderr
    found = records(sessions)
    assert (found["by-text"]["candidate_answer"], found["by-text"]["target"]) == ("It is fixed.", "claude")
    assert found["a2"]["candidate_answer"] == "Not yet."
    assert found["missing"]["status"] == "error"
    assert "has no session with the request of 'missing'" in found["missing"]["error"]["message"]


def test_the_trials_of_a_case_are_the_recorded_answers_in_order(folder, command):
    folder.write("s/b.jsonl", claude_lines("b", ("Say it", "second", [])).replace("2026-03", "2026-04"))
    folder.write("s/c.jsonl", claude_lines("c", ("Say it", "first", [])))
    folder.write("d.yaml", {"evalcases": [{"id": "x", "input": "Say it", "expected_outcome": "x"}]})
    assert command("eval", "d.yaml", "--transcript", "s", "--trials", "3", "--skip-eval", "--out", "out").code == 0
    lines = map(json.loads, (folder.path / "out" / "results.jsonl").read_text().splitlines())
    answers = {record["trial"]: record.get("candidate_answer") for record in lines}
    assert answers == {1: "first", 2: "second", 3: None}


@pytest.mark.parametrize("arguments", [["--transcript", "s"], ["d.yaml", "--transcript", "s"]])
def test_the_figures_of_a_conversation_are_those_recorded_for_its_requests(folder, command, arguments):
    later = ("And the docs?", "Done.", ["Write"])
    folder.write("s/a.jsonl", claude_lines("a", ("Fix it", "Fixed.", ["Read", "Edit"]), later))
    folder.write("d.yaml", {"evalcases": [{"id": "a", "input": "Fix it", "expected_outcome": "x"}]})
    slow = "{type: execution_metrics, max_duration_ms: 3000}"
    assert command("eval", *arguments, "-e", slow, "--out", "out").code == 0
    record = records(folder)["a"]
    metrics = record["execution_metrics"]
    seconds = 8 if len(arguments) == 2 else 9  # a conversation does not count the time of the user
    assert (metrics["duration_ms"], metrics["token_usage"]) == (seconds * 1000, {"input": 20, "output": 10})
    assert record["score"] < 1


def test_one_request_of_a_session_has_its_own_figures(folder, command):
    folder.write("s/a.jsonl", claude_lines("a", ("Fix it", "Fixed.", ["Read", "Edit"]), ("Docs?", "Done.", [])))
    cases = [{"id": text, "input": text, "expected_outcome": "x"} for text in ("Fix it", "Docs?")]
    folder.write("d.yaml", {"evalcases": cases})
    assert command("eval", "d.yaml", "--transcript", "s", "--skip-eval", "--out", "out").code == 0
    found = {id: record["execution_metrics"] for id, record in records(folder).items()}
    assert [found[id]["duration_ms"] for id in ("Fix it", "Docs?")] == [5000, 1000]
    assert found["Docs?"]["token_usage"] == {"input": 10, "output": 5}


def test_a_session_without_times_has_no_duration(folder, command):
    lines = [json.loads(line) for line in claude_lines("a", ("Fix it", "Fixed.", [])).splitlines()]
    folder.write("s/a.jsonl", [{key: value for key, value in line.items() if key != "timestamp"} for line in lines])
    limit = "{type: execution_metrics, max_duration_ms: 100}"
    command("eval", "--transcript", "s", "-e", limit, "--out", "out")
    (record,) = records(folder).values()
    assert record["execution_metrics"].get("duration_ms") is None
    assert record["status"] == "error" and record["score"] is None


def test_a_replay_target_answers_from_a_folder_of_sessions(sessions, command):
    sessions.write("targets.yaml", {"targets": [{"name": "old", "provider": "replay", "from": "s"}]})
    case = {"id": "x", "input": "Fix the lexer", "expected_outcome": "x"}
    tools = {"type": "tool_trajectory", "mode": "exact", "expected": [{"tool": "Read"}]}
    sessions.write("d.yaml", {"evaluators": [tools], "evalcases": [case]})
    assert command("eval", "d.yaml", "--target", "old", "--out", "out", "--executor", "process").code == 0
    assert records(sessions)["x"]["score"] == 1.0
    sessions.write("s/app/a2.jsonl", claude_lines("a2", ("Fix the lexer", "Other tools.", ["Bash"])))
    assert command("eval", "--changed-since", "out", "--out", "again").code == 0
    assert records(sessions, "again")["x"]["score"] == 0.0


def test_a_session_is_a_conversation_with_the_recorded_turns(sessions, command):
    ended = command("eval", "s/app/a2.jsonl", "--transcript", "s", "-e", CHECK, "--out", "out")
    assert ended.code == 0, ended.stderr
    texts = [message["content"] for message in records(sessions)["a2"]["output_messages"] if message.get("content")]
    assert texts == ["All fixed.", "And the docs?", "Not yet."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--transcript", "no-such"], "No such file or folder: no-such"),
        (["d.yaml", "--transcript", "empty.jsonl"], "It has no results"),
        (["d.yaml", "--transcript", "s", "--replay", "s"], "cannot be combined"),
        (["d.yaml", "--transcript", "s", "-t", "a", "-t", "b"], "answers for one target"),
    ],
)
def test_options_that_do_not_fit_are_rejected(sessions, command, arguments, message):
    sessions.write("d.yaml", {"evalcases": [{"id": "x", "input": "x", "expected_outcome": "x"}]})
    sessions.write("empty.jsonl", "")
    ended = command("eval", *arguments, "--skip-eval")
    assert (ended.code, message in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("zero.jsonl", "", "an empty or unreadable file"),
        ("cut.json", '{"schema_version": "ATIF-v1.4",\n "steps": [', "not valid JSON (first: cut.json:2:12)"),
        ("other.jsonl", '{"id": "a", "input": "x"}\n', "not a session in a known format"),
        ("asked.jsonl", claude_lines("a", ("Do it", "", [])), "no answer of the agent"),
        ("empty", None, "The folder has no files"),
    ],
)
def test_a_transcript_without_sessions_is_rejected_with_the_reason(folder, command, path, content, reason):
    if content is None:
        (folder.path / path).mkdir()
    else:
        (folder.path / path).write_text(content)
    ended = command("eval", "--transcript", path, "-e", CHECK)
    assert ended.code == 2
    assert f"No sessions in {path}" in ended.stderr
    assert reason in ended.stderr
    assert "dataset needs" not in ended.stderr


def test_a_missing_answer_names_the_agent_whose_sessions_are_replayed(sessions, command):
    sessions.write("targets.yaml", {"targets": [{"name": "old", "provider": "replay", "from": "s:claude-code"}]})
    sessions.write("d.yaml", {"evalcases": [{"id": "x", "input": "Fix the linker", "expected_outcome": "x"}]})
    command("eval", "d.yaml", "--target", "old", "--skip-eval", "--out", "out")
    assert "has no session of claude-code with the request of 'x'" in records(sessions)["x"]["error"]["message"]


def suite(folder, name="evals/suite.yaml"):
    return yaml.safe_load((folder.path / name).read_text())["evalcases"]


def test_sessions_become_a_suite_of_cases(sessions, command):
    ended = command("generate", "from-sessions", "s", "--out", "evals/suite.yaml")
    assert ended.code == 0, ended.stderr
    assert "Read 3 files: 2 sessions (claude-code 2), 2 first requests" in ended.stderr
    assert "Skipped 1: the work of a sub-agent" in ended.stderr
    [first, second] = suite(sessions)
    assert (first["id"], first["input"], first["expected_output"]) == (
        "fix-the-parser",
        "Fix the  parser",
        "It is fixed.",
    )
    proposal = {"type": "tool_trajectory", "mode": "any_order", "minimums": {"Read": 1, "Edit": 1}, "weight": 0}
    assert first["evaluators"] == [{"type": "llm_judge"}, proposal]
    assert first["tags"] == ["cluster:fix-parser-lexer", "source:claude-code"]
    assert first["metadata"]["session_id"] == "a1"
    assert first["metadata"]["tools"] == ["Read", "Edit"]
    assert second["metadata"]["request"] == 1
    ended = command("eval", "evals/suite.yaml", "--transcript", "s", "-e", CHECK, "--out", "out")
    assert {id: record["score"] for id, record in records(sessions).items()} == {
        "fix-the-parser": 1,
        "fix-the-lexer": 1,
    }


def test_each_request_becomes_a_case_with_the_messages_before_it(sessions, command):
    assert command("generate", "from-sessions", "s", "--out", "evals/suite.jsonl", "--requests", "each").code == 0
    rows = [json.loads(line) for line in (sessions.path / "evals/suite.jsonl").read_text().splitlines()]
    last = next(row for row in rows if row["id"] == "and-the-docs")
    assert [(message["role"], message["content"]) for message in last["input"]] == [
        ("user", "Fix the lexer"),
        ("assistant", "All fixed."),
        ("user", "And the docs?"),
    ]
    command("eval", "evals/suite.jsonl", "--transcript", "s", "-e", CHECK, "--out", "out")
    assert records(sessions)["and-the-docs"]["candidate_answer"] == "Not yet."


def test_all_requests_become_one_conversation(sessions, command):
    assert command("generate", "from-sessions", "s/app/a2.jsonl", "--out", "c.yaml", "--requests", "all").code == 0
    [case] = suite(sessions, "c.yaml")
    assert case["turns"] == [{"input": "And the docs?", "expected_output": "Not yet."}]


def test_repeated_and_nearly_equal_requests_are_merged_but_numbers_matter(folder, command):
    texts = ["Fix the login bug in auth.py", "fix the  login bug in auth.py", "Fix the login bug in auth.py!"]
    texts += ["Close issue 12 of the tracker", "Close issue 13 of the tracker", "Write a poem about the sea"]
    for number, text in enumerate(texts):
        folder.write(f"s/{number}.jsonl", claude_lines(f"s{number}", (text, "Done", [])))
    ended = command("generate", "from-sessions", "s", "--out", "o.yaml", "--json")
    summary = ended.printed[0]
    assert (summary["requests"], summary["exact_duplicates"], summary["near_duplicates"]) == (6, 1, 1)
    cases = suite(folder, "o.yaml")
    assert [case["metadata"]["recorded"] for case in cases] == [3, 1, 1, 1]
    assert len({case["tags"][0] for case in cases}) == summary["clusters"] == 3


def test_cases_are_chosen_from_all_groups(folder, command):
    for number in range(8):
        folder.write(f"s/p{number}.jsonl", claude_lines(f"p{number}", (f"Review pull request {number}", "ok", [])))
    folder.write("s/q.jsonl", claude_lines("q", ("Why is the sky blue?", "Scattering", [])))
    assert (
        command("generate", "from-sessions", "s", "--out", "o.yaml", "--max-cases", "3", "--per-cluster", "2").code == 0
    )
    assert [case["id"].split("-")[0] for case in suite(folder, "o.yaml")] == ["review", "review", "why"]
    assert command("generate", "from-sessions", "s", "--out", "o.yaml").code == 2
    assert command("generate", "from-sessions", "s", "--out", "o.yaml", "--force", "--dry-run").code == 0
    assert len(suite(folder, "o.yaml")) == 3


def test_no_private_data_reaches_the_suite(folder, command, monkeypatch):
    monkeypatch.setenv("SHOP_TOKEN", "correct-horse-battery")
    request = f"Use {SECRET} and correct-horse-battery, mail ann@corp.io, see /home/ann/x, keep ${{{{ HOME }}}}"
    folder.write("s/a.jsonl", claude_lines("a", (request, f"Used {SECRET}", ["Bash"])))
    ended = command("generate", "from-sessions", "s", "--out", "o.yaml")
    assert "Replaced: 3 secrets, 1 e-mail address, 1 home folder\n" in ended.stderr
    text = (folder.path / "o.yaml").read_text()
    assert not any(private in text for private in (SECRET, "correct-horse", "ann@corp", "/home/ann"))
    [case] = suite(folder, "o.yaml")
    assert case["input"] == "Use [redacted] and [redacted], mail [email], see ~/x, keep $ {{ HOME }}"
    command("eval", "o.yaml", "--transcript", "s", "--skip-eval", "--out", "out")
    assert "Used " in records(folder)[case["id"]]["candidate_answer"]
    ended = command("cases", "s/a.jsonl")
    assert "secrets in inputs and expected outputs, which were replaced" in ended.stderr


def test_requests_with_images_or_without_an_answer_are_named(folder, command):
    image = [{"type": "text", "text": "What is it?"}, {"type": "image", "source": {}}]
    folder.write("s/a.jsonl", claude_lines("a", (image, "A cat", [])))
    folder.write("s/b.jsonl", claude_lines("b", ("Do it", "", ["Bash"])))
    ended = command("generate", "from-sessions", "s", "--out", "o.yaml")
    assert ended.code == 2
    assert "Skipped 1: a request with images or files, which are not kept" in ended.stderr
    assert "Skipped 1: a request without an answer in text" in ended.stderr
    assert not (folder.path / "o.yaml").exists()


def test_cases_and_convert_read_a_session_directly(sessions, command):
    [case] = command("cases", "s/app/a1.jsonl").printed
    assert case["input"] == [{"role": "user", "content": "Fix the  parser"}]
    assert command("convert", "s", "c.yaml").code == 0
    assert [case["id"] for case in suite(sessions, "c.yaml")] == ["a1", "a2"]


def test_the_system_message_of_a_session_is_part_of_its_case(folder, command):
    steps = [("system", "Be brief"), ("user", "Weather?"), ("agent", "Rain.")]
    listed = [{"step_id": n, "source": source, "message": text} for n, (source, text) in enumerate(steps, 1)]
    folder.write("t.json", {"schema_version": "ATIF-v1.4", "session_id": "t", "steps": listed})
    [case] = command("cases", "t.json").printed
    assert [(each["role"], each["content"]) for each in case["input"]] == [("system", "Be brief"), ("user", "Weather?")]
    assert command("eval", "--transcript", "t.json", "-e", "{type: contains, value: Rain}", "--out", "out").code == 0
    assert records(folder)["t"]["score"] == 1
