"""A Git repository whose agent changes from commit to commit, and the command that searches it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

TARGET = {"name": "default", "provider": "python", "function": "agent.py:answer"}
YES = {"evaluators": [{"type": "contains", "value": "yes"}]}

AGENT = """\
import os, random

PASSES = {passes}
SALT = {salt!r}


def answer(prompt, trial):
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(f"{{SALT}} {{prompt}} {{trial}}\\n")
    draw = random.Random(f"{{os.environ.get('NOISE')}}/{{SALT}}/{{prompt}}/{{trial}}").random()
    return "yes" if draw < PASSES else "no"
"""


class History:
    """A repository in a folder. Every commit has its own noise, so that no two give the same answers."""

    def __init__(self, path: Path, program: Path, cases: int = 12) -> None:
        self.path = path / "repository"
        self.program = program
        self.calls_file = path / "calls.txt"
        (self.path / "evals").mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self.write(
            "targets.yaml", {"targets": [{"name": "default", "provider": "python", "function": "agent.py:answer"}]}
        )
        self.dataset(cases)

    def git(self, *arguments: str) -> str:
        person = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
        return subprocess.run(
            ["git", "-C", str(self.path), *person, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    def write(self, name: str, content: Any) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        (self.path / name).write_text(text)

    def dataset(self, cases: int, **settings: Any) -> None:
        rows = [{"id": f"c{number}", "input": f"q{number}", "expected_outcome": "x"} for number in range(cases)]
        self.write("evals/d.yaml", {**YES, **settings, "evalcases": rows})

    def commit(self, passes: float, subject: str = "", **files: Any) -> str:
        """Commit an agent that answers correctly with this probability; return the hash."""
        self.write("agent.py", AGENT.format(passes=passes, salt=subject))
        return self.commit_files(subject, **files)

    def commit_files(self, subject: str, **files: Any) -> str:
        for name, content in files.items():
            self.write(name, content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, "CALLS": str(self.calls_file)}

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []

    def spawn(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        command = [self.program, "bisect", *arguments]
        return subprocess.Popen(
            command, cwd=self.path, env={**self.variables, **variables},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def bisect(self, *arguments: str, **variables: str) -> tuple[int, dict[str, Any], str]:
        """Search, and return the exit code, the result and the messages."""
        with self.spawn(*arguments, "--json", **variables) as process:
            out, messages = process.communicate()
        return process.returncode, json.loads(out) if out else {}, messages
