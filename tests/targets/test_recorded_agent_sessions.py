"""The sessions that the real agents record while they work, read from their home folders."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from real_agents import AGENTS, ANSWER, COMMAND, TEXT, USAGE

from agentv.registry import TARGETS
from agentv.sessions.session import ReadLog
from agentv.sessions.session_file import read_sessions
from agentv_testing import FaultyServer

pytestmark = [pytest.mark.real_agents, pytest.mark.filterwarnings("default")]

REQUEST = "Make a file and say the answer"
COMMANDS = {
    "claude-code": ["claude", "-p", REQUEST, "--dangerously-skip-permissions"],
    "codex": ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", REQUEST],
    "gemini-cli": ["gemini", "-p", REQUEST, "--yolo", "--skip-trust"],
    "copilot-cli": ["copilot", "-p", REQUEST, "--allow-all", "--no-auto-update"],
    "pi-coding-agent": ["pi", "-p", "--provider", "fake", REQUEST],
    "opencode": ["opencode", "run", "--auto", REQUEST],
}


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.provider)
def test_a_real_session_is_read(agent, tmp_path):
    if shutil.which(agent.program) is None:
        pytest.skip(f"npm install -g {TARGETS.find(agent.provider).package}")
    with FaultyServer(agent.answers) as server:
        settings = agent.settings(server.origin)
        own = {".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'}
        for name, text in {**own, **agent.home(server.origin)}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        work = tmp_path / "work"
        work.mkdir()
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "IS_SANDBOX": "1",
            **agent.keys,
            **settings.get("env", {}),
        }
        command = [*COMMANDS[agent.provider], "--model", settings["model"], *settings.get("args", ())]
        subprocess.run(command, cwd=work, env=env, stdin=subprocess.DEVNULL, timeout=200, check=True)
    log = ReadLog()
    folders = [str(path) for path in Path(tmp_path).iterdir() if path.name.startswith(".")]
    [session] = read_sessions(folders, log)
    [exchange] = session.exchanges
    assert (session.agent, exchange.text.strip('"'), exchange.answer) == (agent.provider, REQUEST, ANSWER)
    [call] = [call for message in session.messages for call in message.tool_calls]
    assert COMMAND in call.input.values()
    assert TEXT in [message.content for message in session.messages]
    assert (session.usage.input, session.usage.output) == (2 * USAGE.input, 2 * USAGE.output)
    assert not log.unknown
    assert not log.broken
