"""A project of mine, and next to it a stranger's repository whose every program leaves a marker when it runs."""

import json
import sys
from pathlib import Path
from typing import Any

TOUCH = "import pathlib, sys; pathlib.Path({marker!r}).touch()\n"
TARGET = {"name": "default", "provider": "mock", "response": "hello"}
VERDICT = json.dumps({"score": 1, "reasoning": "fine", "checks": [{"id": "rubric-1", "satisfied": True}]})
CUSTOM = """
from agentv.evaluators.base import Evaluator, passed

class Grade(Evaluator, frozen=True, kw_only=True):
    def score(self, judgement):
        return passed("graded")

def clean(text):
    return text

def grade(answer):
    return 1.0

def lookup(word: str) -> str:
    "Look a word up."
    return word

def agent(prompt):
    return "hello"
"""


class Stranger:
    """The two folders. `marker` exists if anything of the stranger's ran."""

    def __init__(self, base: Path) -> None:
        self.mine, self.theirs, self.marker = base / "mine", base / "theirs", base / "marker"
        for folder in (self.mine, self.theirs):
            (folder / ".git").mkdir(parents=True)
        self.write(self.mine, ".agentv/targets.yaml", {"targets": [TARGET, self.judge]})
        touch = TOUCH.format(marker=str(self.marker))
        self.write(self.theirs, "judge.py", touch + "print('{\"score\": 1}')\n")
        self.write(self.theirs, "prompt.py", touch + "print('Judge this')\n")
        self.write(self.theirs, "custom.py", touch + CUSTOM)
        self.write(self.theirs, "agent.py", touch + "print('hello')\n")
        self.write(self.theirs, "template/.claude/settings.json", {"hooks": {}})
        self.write(self.theirs, ".env", "CANARY=planted-in-their-file\n")

    judge = {"name": "judge", "provider": "mock", "response": VERDICT}

    def write(self, folder: Path, name: str, content: Any) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def dataset(self, *evaluators: dict[str, Any], name: str = "evals.yaml", **case: Any) -> str:
        """Write a dataset of the stranger with one case, and return its path from my project."""
        row = {"id": "one", "input": "Hi", "expected_outcome": "greets", **case}
        row["evaluators"] = list(evaluators) or [{"type": "contains", "value": "hello"}]
        self.write(self.theirs, name, {"evalcases": [row]})
        return f"../theirs/{name}"

    @property
    def has_run(self) -> bool:
        return self.marker.exists()


PYTHON = sys.executable
PROGRAMS: dict[str, dict[str, Any]] = {
    "code_judge": {"evaluator": {"type": "code_judge", "script": [PYTHON, "judge.py"]}},
    "a shell judge": {"evaluator": {"type": "code_judge", "script": f"{PYTHON} judge.py"}},
    "command": {"evaluator": {"type": "command", "command": [PYTHON, "judge.py"]}},
    "a function": {"evaluator": {"type": "python", "function": "custom.py:grade"}},
    "a class": {"evaluator": {"type": "custom.py:Grade"}},
    "a prompt script": {"evaluator": {"type": "llm_judge", "prompt": {"script": [PYTHON, "prompt.py"]}}},
    "a prompt program": {"evaluator": {"type": "llm_judge", "prompt": [PYTHON, "prompt.py"]}},
    "a rubric's prompt": {"evaluator": {"type": "rubric", "rubrics": ["x"], "prompt": [PYTHON, "prompt.py"]}},
    "a transform": {"evaluator": {"type": "contains", "value": "hello", "transform": {"function": "custom.py:clean"}}},
    "a composite's member": {
        "evaluator": {
            "type": "composite",
            "aggregator": "weighted_average",
            "evaluators": [{"type": "code_judge", "script": [PYTHON, "judge.py"]}],
        }
    },
    "an aggregator": {
        "evaluator": {
            "type": "composite",
            "aggregator": {"type": "code_judge", "script": [PYTHON, "judge.py"]},
            "evaluators": [{"type": "contains", "value": "hello"}],
        }
    },
    "workspace setup": {"workspace": {"setup": f"{PYTHON} $AGENTV_DATASET_FOLDER/judge.py"}},
    "workspace teardown": {"workspace": {"teardown": f"{PYTHON} $AGENTV_DATASET_FOLDER/judge.py"}},
    "a hook": {"workspace": {"hooks": {"before_each": {"command": [PYTHON, "judge.py"]}}}},
    "a hook for all": {"workspace": {"hooks": {"before_all": {"command": [PYTHON, "judge.py"]}}}},
}
"""Each way in which a dataset can run something, as parts of a case."""


def case_of(program: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the evaluators and the other fields of a case."""
    evaluators = [program["evaluator"]] if "evaluator" in program else []
    return evaluators, {key: value for key, value in program.items() if key != "evaluator"}
