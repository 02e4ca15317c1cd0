"""The real Claude Code with the skill and the server of agentv. Its model is the local model server."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import agentv
from agentv.model.message import ToolCall
from agentv_testing import Answer, FaultyServer

pytestmark = [pytest.mark.real_agents, pytest.mark.filterwarnings("default"), pytest.mark.timeout(300)]
REPOSITORY = Path(__file__).resolve().parents[3]


def reply(seen):
    """Load the skill, wait for the server, run a case, read the failure, and answer."""
    if not seen.body.get("tools"):
        return "A title"
    text = seen.raw.decode()
    if "Never weaken a case" not in text:
        return Answer("I load the skill.", (ToolCall("Skill", {"skill": "agentv"}, id="skill"),))
    if "mcp__agentv__run_cases" not in {tool["name"] for tool in seen.body["tools"]}:
        return Answer("I wait.", (ToolCall("WaitForMcpServers", {}, id=f"wait-{len(seen.body['messages'])}"),))
    if '"run_it"' not in text:
        return Answer("I run.", (ToolCall("mcp__agentv__run_cases", {"datasets": ["evals"]}, id="run_it"),))
    if '"read_it"' not in text:
        return Answer("I read.", (ToolCall("mcp__agentv__read_failures", {"run": "latest"}, id="read_it"),))
    return "The refund case fails."


@pytest.fixture
def project(folder):
    """A project with the skill, a failing case, and the server in its configuration."""
    if shutil.which("claude") is None:
        pytest.skip("npm install -g @anthropic-ai/claude-code")
    (folder.path / ".git").mkdir()
    shutil.copytree(REPOSITORY / "skills/agentv", folder.path / ".claude/skills/agentv")
    check = {"type": "contains", "value": "within 30 days"}
    folder.write("evals/cases.jsonl", [{"id": "refund", "input": "x", "expected_outcome": "y", "evaluators": [check]}])
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "Never!"}]})
    server = {"command": sys.executable, "args": ["-m", "agentv", "mcp", "--max-jobs", "1"]}
    folder.write("mcp.json", {"mcpServers": {"agentv": {**server, "env": {"PYTHONPATH": str(REPOSITORY / "src")}}}})
    return folder.path


def run_claude(project, origin):
    options = [
        "--mcp-config",
        "mcp.json",
        "--strict-mcp-config",
        "--output-format",
        "json",
        "--model",
        "claude-sonnet-4-5",
    ]
    allowed = ["--allowedTools", "Skill", "mcp__agentv__run_cases", "mcp__agentv__read_failures"]
    home = project / "home"
    home.mkdir()
    variables = {"ANTHROPIC_BASE_URL": origin, "ANTHROPIC_API_KEY": "sk-of-nobody-0123456789"}
    return subprocess.run(
        ["claude", "-p", "Why does the eval of our bot fail?", *options, *allowed],
        cwd=project,
        env={**os.environ, **variables, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_claude_code_loads_the_skill_and_uses_the_tools(project):
    with FaultyServer(reply) as model:
        ended = run_claude(project, model.origin)
        requests = [json.loads(each.raw) for each in model.requests if each.body.get("tools")]
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["result"] == "The refund case fails."
    texts = [json.dumps(each) for each in requests]
    assert "Write, run and read evaluations of AI agents" in texts[0], "the description is in the first request"
    assert "Never weaken a case or a reference" not in texts[0] and "Never weaken a case" in texts[1], "then the text"
    results = {
        part["tool_use_id"]: part
        for message in requests[-1]["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "tool_result"
    }
    assert '"jobs_left":0' in json.dumps(results["run_it"]).replace("\\", "")
    assert "does not contain 'within 30 days'" in json.dumps(results["read_it"]) and "Never!" in json.dumps(
        results["read_it"]
    )
    [record] = agentv.Run.open(next((project / ".agentv/results").iterdir())).results
    assert record.verdict == "fail"
