"""`agentv skill` with the real coding agents. Their model is the local model server, which records every request."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from agentv.registry import TARGETS
from agentv_testing import FaultyServer

sys.path.append(str(Path(__file__).parents[2] / "targets"))
from real_agents import AGENTS

pytestmark = [pytest.mark.real_agents, pytest.mark.filterwarnings("default"), pytest.mark.timeout(600)]
MARK = "ZANZIBAR-7401"
SKILL = (
    f"---\nname: harbour\ndescription: How to greet at the {MARK} harbour. Use it for every greeting.\n---\nSay ahoy.\n"
)
BY_PROVIDER = {agent.provider: agent for agent in AGENTS}


@pytest.fixture(params=BY_PROVIDER)
def agent(request, monkeypatch):
    found = BY_PROVIDER[request.param]
    if shutil.which(found.program) is None:
        pytest.skip(f"npm install -g {TARGETS.find(found.provider).package}")
    for name, value in found.keys.items():
        monkeypatch.setenv(name, value)
    return found


def measure(agent, folder, command, reply):
    """Measure the skill; return the findings and the raw requests of each arm."""
    folder.write("skills/harbour/SKILL.md", SKILL)
    checks = [{"type": "contains", "value": "Ahoy"}]
    rows = [{"id": each, "prompt": f"Question {each}: greet", "assertions": checks} for each in range(6)]
    folder.write("skills/harbour/evals/evals.json", json.dumps({"skill_name": "harbour", "evals": rows}))
    with FaultyServer(reply) as server:
        home = agent.home(server.origin)
        for name, text in home.items():
            folder.write(f"home/{name}", text)
        entry = {"name": "agent", "provider": agent.provider, "timeout_seconds": 120, "max_retries": 0}
        entry |= {"home_template": "home"} if home else {}
        entry |= agent.settings(server.origin)
        folder.write("targets.yaml", {"targets": [entry]})
        ended = command("skill", "skills/harbour", "--json", "--quiet", "--out", "out")
        requests = [each.raw for each in server.requests]
    assert ended.code == 0, ended.stderr
    [found] = json.loads(ended.stdout)["targets"]
    return found, requests


def test_a_skill_that_changes_the_answers_helps_and_the_other_arm_never_sees_it(agent, folder, command):
    found, requests = measure(agent, folder, command, lambda each: "Ahoy!" if MARK.encode() in each.raw else "Good day")
    against = found["against"]["without"]
    assert (against["answer"], against["summary"]["mean_delta"], against["summary"]["n"]) == ("better", 1.0, 6)
    # The model answers "Ahoy!" exactly if a request has the mark, and no answer without the skill is "Ahoy!".
    assert all((each["score1"], each["score2"]) == (0, 1) for each in against["matched"])
    by_job: dict[bytes, list[bytes]] = {}
    for each in requests:
        if place := re.search(rb"agentv-(?:workspace|agent)-\w+", each):
            by_job.setdefault(place[0], []).append(each)
    seen = [any(MARK.encode() in each for each in own) for own in by_job.values()]
    assert (len(seen), sum(seen)) == (12, 6), "half of the folders in which the agent worked never saw the skill"


def test_a_skill_that_does_nothing_does_not_help(agent, folder, command):
    found, _ = measure(agent, folder, command, lambda each: "Good day")
    assert found["against"]["without"]["answer"] == "cannot tell"
