"""The real agents as targets of a run, with a tool call. Their model is the local model server."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from real_agents import AGENTS, ANSWER, COMMAND, KEY, TEXT, USAGE, RealAgent, cleaned

from agentv.model.message import ToolCall
from agentv.registry import TARGETS
from agentv.support.processes.watchdog import family, new_mark
from agentv_testing import Answer, FaultyServer

EVENTS = Path(__file__).parent.parent / "data" / "agents"

pytestmark = [
    pytest.mark.real_agents,
    pytest.mark.filterwarnings("default"),
]


BY_PROVIDER = {agent.provider: agent for agent in AGENTS}


@pytest.fixture(params=BY_PROVIDER)
def agent(request, monkeypatch):
    found = BY_PROVIDER[request.param]
    if shutil.which(found.program) is None:
        pytest.skip(f"npm install -g {TARGETS.find(found.provider).package}")
    for name, value in found.keys.items():
        monkeypatch.setenv(name, value)
    return found


def run(agent: RealAgent, server: FaultyServer, folder, command, **settings):
    """Run one case with the agent and return its record."""
    home = agent.home(server.origin)
    for name, text in home.items():
        folder.write(f"home/{name}", text)
    entry = {
        "name": "agent",
        "provider": agent.provider,
        "log_format": "json",
        "timeout_seconds": 120,
        "max_retries": 0,
    }
    if home:
        entry["home_template"] = "home"
    folder.write("targets.yaml", {"targets": [{**entry, **agent.settings(server.origin), **settings}]})
    case = {"id": "one", "expected_outcome": "x", "input": "Make a file and say the answer"}
    folder.write("d.yaml", {"evaluators": [{"type": "contains", "value": "42"}], "evalcases": [case]})
    ended = command("eval", "d.yaml", "--out", "out", "--quiet")
    [line] = (folder.path / "out" / "results.jsonl").read_text().splitlines()
    return ended, json.loads(line)


def keep_events(agent: RealAgent, folder, name: str) -> None:
    """Update the recorded events that other tests read, if that is requested."""
    if os.environ.get("AGENTV_RECORD_EVENTS"):
        [log] = (folder.path / "out" / "logs").iterdir()
        EVENTS.mkdir(exist_ok=True)
        (EVENTS / f"{agent.provider}.{name}.jsonl").write_text(cleaned(log.read_text().splitlines()))


def test_an_answer_with_a_tool_call(agent, folder, command):
    with FaultyServer(agent.answers) as server:
        ended, record = run(agent, server, folder, command, system_prompt="Speak as Caesar would")
        received = [each for each in server.requests if each.body.get("tools")]
    assert ended.code == 0, ended.stderr
    assert len(received) == 2
    assert all(
        b"Speak as Caesar would" in each.raw and b"Make a file and say the answer" in each.raw for each in received
    )
    assert received[0].model == agent.settings("")["model"].rpartition("/")[2]
    assert record["status"] == "ok", record.get("error")
    assert (record["candidate_answer"], record["score"]) == (ANSWER, 1.0)
    first, last = record["output_messages"]
    [call] = first["tool_calls"]
    assert first["content"] == TEXT
    assert call["tool"] == (agent.reported or agent.tool)
    assert COMMAND in call["input"]["command"]
    assert call["output"].split("\n")[0] == "made.txt", "it works in a folder that has nothing else in it"
    assert call["duration_ms"] > 0
    assert last == {"role": "assistant", "content": ANSWER}
    assert "+++ b/made.txt\n@@ -0,0 +1 @@\n+made\n" in record["file_changes"]
    metrics = record["execution_metrics"]
    assert (metrics["token_usage"]["input"], metrics["token_usage"]["output"]) == (200, 40)
    assert metrics["token_usage"]["cached"] == 60
    assert ("cost_usd" in metrics) == agent.reports_cost
    assert KEY not in "".join(path.read_text() for path in (folder.path / "out").rglob("*") if path.is_file())
    keep_events(agent, folder, "answer")


def test_the_users_home_if_configured(agent, folder, command, monkeypatch):
    with FaultyServer(agent.answers) as server:
        for name, text in {"notes.txt": "the user's", **agent.home(server.origin)}.items():
            folder.write(f"home/{name}", text)
        if agent.provider == "gemini-cli":
            folder.write("home/.gemini/settings.json", '{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
        monkeypatch.setenv("HOME", str(folder.path / "home"))
        for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        settings = {"user_settings": True, "home_template": None, "system_prompt": "Speak as Caesar would"}
        ended, record = run(agent, server, folder, command, **settings)
        received = [each for each in server.requests if each.body.get("tools")]
    assert ended.code == 0, ended.stderr
    assert record["status"] == "ok", record.get("error")
    assert record["execution_metrics"]["token_usage"]["input"] == 200
    assert all(b"Speak as Caesar would" in each.raw for each in received)


def test_a_hanging_model_is_a_timeout_and_leaves_no_process(agent, folder, command):
    with FaultyServer(agent.answers, faults={"hang": 1.0}) as server:
        _, record = run(agent, server, folder, command, timeout_seconds=8)
    assert (record["status"], record["error"]["class"]) == ("error", "timeout")
    assert family(None, new_mark().partition(".")[0]) == set()


def test_a_failed_tool_is_part_of_the_answer(agent, folder, command):
    with FaultyServer(replace(agent, command="echo broken >&2; exit 3").answers) as server:
        ended, record = run(agent, server, folder, command)
    assert ended.code == 0, ended.stderr
    [call] = record["output_messages"][0]["tool_calls"]
    assert "broken" in call["output"]
    assert record["candidate_answer"] == ANSWER
    keep_events(agent, folder, "failed-tool")


def test_a_wrong_key_is_an_auth_failure(agent, folder, command):
    with FaultyServer(faults={"401": 1.0}) as server:
        quick = {"CLAUDE_CODE_MAX_RETRIES": "0"}
        env = {**agent.settings(server.origin).get("env", {}), **quick}
        ended, record = run(agent, server, folder, command, env=env)
    assert ended.code == 3
    assert (record["status"], record["error"]["class"]) == ("error", "auth"), record["error"]
    keep_events(agent, folder, "wrong-key")


PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Add File: new.txt
+hello
*** End Patch
EOF
"""


@pytest.mark.parametrize("agent", ["codex"], indirect=True)
def test_codex_reports_its_edits(agent, folder, command):
    patch = ToolCall("exec_command", {"cmd": PATCH}, id="call_1")
    goal = ToolCall("get_goal", {}, id="call_2")
    with FaultyServer([Answer("I will patch.", (patch,)), Answer("Patched.", (goal,)), ANSWER]) as server:
        _, record = run(agent, server, folder, command)
    first, second, last = record["output_messages"]
    [call] = first["tool_calls"]
    assert (call["tool"], call["input"]["changes"][0]["kind"]) == ("file_change", "add")
    assert call["input"]["changes"][0]["path"] == "new.txt"
    assert (second["content"], last["content"]) == ("Patched.", ANSWER)
    assert "+hello" in record["file_changes"]
    keep_events(agent, folder, "patch")


@pytest.mark.parametrize("agent", ["claude-code"], indirect=True)
def test_a_claude_code_subagent_is_one_call(agent, folder, command):
    task = {"description": "Look", "prompt": "Do the work below", "subagent_type": "general-purpose"}
    own = [Answer("I will ask.", (ToolCall("Task", task, id="call_1"),), USAGE), Answer(ANSWER, usage=USAGE)]
    below = [Answer("Below.", (ToolCall("Bash", {"command": "echo low", "description": "x"}, id="call_2"),), USAGE)]
    script = {"*Do the work below*": [*below, Answer("Done below.", usage=USAGE)], "*": own}
    with FaultyServer(script) as server:
        _, record = run(agent, server, folder, command)
    assert record["status"] == "ok", record.get("error")
    first, last = record["output_messages"]
    assert [call["tool"] for call in first["tool_calls"]] == ["Task"]
    assert "Done below." in first["tool_calls"][0]["output"]
    assert last["content"] == ANSWER
    assert record["execution_metrics"]["token_usage"]["input"] == 400
    keep_events(agent, folder, "handed-on")
