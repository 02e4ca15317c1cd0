"""A project with a skill and a scripted coding agent."""

import json
import stat
import subprocess
import sys
from pathlib import Path

AGENT = Path(__file__).parent / "skilled_agent.py"
HELPFUL = "---\nname: greet\ndescription: Greets\n---\nSay ahoy.\nAhoy!"
USELESS = "---\nname: greet\ndescription: Greets\n---\nI do not know."


def evals(number=6, **further):
    checks = [{"type": "contains", "value": "Ahoy"}]
    return [{"id": each, "prompt": f"Please greet {each}", "assertions": checks, **further} for each in range(number)]


def agent(name="claude", **settings):
    return {"name": name, "provider": "claude-code", "executable": "./claude", "max_retries": 0, **settings}


class SkillProject:
    """The folder of a project with the skill `skills/greet`."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder.path
        program = self.path / "claude"
        program.write_text(f"#!{sys.executable} -IS\n{AGENT.read_text()}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        folder.write("targets.yaml", {"targets": [agent()]})
        self.skill(HELPFUL)
        self.evals(evals())

    def skill(self, text):
        self.folder.write("skills/greet/SKILL.md", text)

    def evals(self, cases):
        self.folder.write("skills/greet/evals/evals.json", json.dumps({"skill_name": "greet", "evals": cases}))

    def triggers(self, *queries):
        rows = [{"query": query, "should_trigger": wanted} for query, wanted in queries]
        self.folder.write("skills/greet/evals/trigger-evals.json", json.dumps(rows))

    def commit(self, message):
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(self.path)]
        if not (self.path / ".git").exists():
            subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", message], check=True)
