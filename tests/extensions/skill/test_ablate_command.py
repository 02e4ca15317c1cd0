"""`agentv ablate`: the same cases with and without a prompt, a file of the workspace or an MCP server."""

import json
import sys

import pytest
from skill_project import agent

from agentv_testing import FaultyServer

CHECKS = [{"type": "contains", "value": "Ahoy"}]


@pytest.fixture
def cases(project):
    rows = [{"id": f"c{each}", "expected_outcome": "x", "input": f"Question {each}"} for each in range(6)]
    project.folder.write("d.yaml", {"evaluators": CHECKS, "evalcases": rows})
    project.folder.write("AGENTS.md", "Ahoy")
    project.folder.write("old.md", "No")
    return project


def measure(command, *options):
    ended = command("ablate", "d.yaml", "--json", "--quiet", *options)
    assert ended.code == 0, ended.stderr
    [found] = json.loads(ended.stdout)["targets"]
    return {label: each["answer"] for label, each in found["against"].items()}


@pytest.mark.parametrize(
    ("options", "answers"),
    [
        (["--prompt", "AGENTS.md"], {"without": "better"}),
        (["--prompt", "AGENTS.md", "--against", "old.md"], {"against": "better"}),
        (["--file", "AGENTS.md"], {"without": "better"}),
        (["--file", "docs/AGENTS.md=AGENTS.md"], {"without": "cannot tell"}),
        (["--file", "AGENTS.md", "--against", "old.md"], {"against": "better"}),
    ],
)
def test_a_prompt_or_file_that_changes_the_answers_helps(cases, command, options, answers):
    assert measure(command, *options) == answers


def test_a_file_of_the_template_is_removed_in_the_arm_without(cases, command):
    cases.folder.write("template/AGENTS.md", "Ahoy")
    dataset = json.loads(json.dumps({"evaluators": CHECKS, "workspace": {"template": "template"}}))
    rows = [{"id": f"c{each}", "expected_outcome": "x", "input": "x"} for each in range(6)]
    cases.folder.write("d.yaml", {**dataset, "evalcases": rows})
    assert measure(command, "--file", "AGENTS.md") == {"without": "better"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Name what to measure"),
        (["--prompt", "AGENTS.md", "--file", "AGENTS.md"], "Name what to measure"),
        (["--prompt", "nowhere.md"], "Cannot read nowhere.md"),
        (["--file", "nowhere.md"], "There is no file nowhere.md"),
        (["--file", "../x"], "There is no file ../x"),
        (["--mcp", "search"], "Target 'claude' has no MCP server 'search'"),
        (["--mcp", "x", "--against", "y"], "--against needs --prompt or --file"),
        (["--file", "AGENTS.md", "--target", "model"], "Target 'model' has no workspace"),
        (["--prompt", "AGENTS.md", "--target", "model"], "Target 'model' cannot have a prompt"),
        (["--prompt", "AGENTS.md", "--target", "claude-with"], "Unknown target 'claude-with'"),
    ],
)
def test_mistakes_are_explained(cases, command, options, message):
    model = {"name": "model", "provider": "mock", "response": "x"}
    cases.folder.write("targets.yaml", {"targets": [agent("default"), agent(), model]})
    chosen = [] if "--target" in options else ["--target", "claude"]
    ended = command("ablate", "d.yaml", *options, *chosen)
    assert ended.code == 2
    assert message in ended.stderr


SERVER = """
from mcp.server import MCPServer

server = MCPServer("harbour")


@server.tool()
def greeting() -> str:
    return "Ahoy"


server.run()
"""


def test_an_mcp_server_is_taken_away_in_the_arm_without(cases, command):
    pytest.importorskip("mcp")
    cases.folder.write("harbour.py", SERVER)
    answers = {True: "Ahoy", False: "Good day"}
    with FaultyServer(lambda each: answers["greeting" in json.dumps(each.body.get("tools") or [])]) as server:
        tools = [{"mcp": [sys.executable, "harbour.py"]}]
        model = {"provider": "openai", "model": "m", "base_url": f"{server.origin}/v1", "api_key": "k", "tools": tools}
        cases.folder.write("targets.yaml", {"targets": [{"name": "model", **model}]})
        assert measure(command, "--mcp", "harbour") == {"without": "better"}


def test_a_taken_target_name_is_refused(cases, command):
    cases.folder.write("targets.yaml", {"targets": [agent(), agent("claude-with")]})
    ended = command("ablate", "d.yaml", "--prompt", "AGENTS.md", "--target", "claude")
    assert (ended.code, "needs the target name 'claude-with'" in ended.stderr) == (2, True)
