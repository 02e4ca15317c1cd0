"""Commands that only check import no code and run no program, but still find mistakes in both."""

import json
import sys

import pytest

TOUCH = "import pathlib\npathlib.Path({marker!r}).touch()\n"
EVALUATOR = """
from agentv.evaluators.base import Evaluator, Share, passed

class Base(Evaluator, frozen=True, kw_only=True):
    word: str

class Grade(Base, frozen=True, kw_only=True):
    share: Share = 0.5
    mode: "str | None" = None

    def score(self, judgement):
        return passed("graded")
"""
PROVIDER = """
from agentv.targets.target import Target

class Provider(Target, frozen=True, kw_only=True):
    place: str

    def open(self, home):
        raise NotImplementedError
"""
AGENT = """
def agent(prompt):
    return "hello"

def confused(first, second, third):
    return "hello"

class Agent:
    def ask(self, prompt):
        return "hello"
"""
CHECKS = {
    "dry run": ("eval", "evals.yaml", "--dry-run"),
    "prompts": ("eval", "evals.yaml", "--dry-run", "--dump-prompts", "prompts"),
    "validate": ("validate", "."),
    "targets": ("targets",),
    "targets as JSON": ("targets", "--json"),
    "cases": ("cases", "evals.yaml"),
    "resolved cases": ("cases", "evals.yaml", "--resolve"),
    "convert": ("convert", "evals.yaml", "copy.jsonl"),
    "generate": ("generate", "rubrics", "evals.yaml", "--dry-run"),
}
MODEL = {"provider": "openai", "model": "m", "api_key": "k-12345678"}
TARGETS = [
    {"name": "default", "provider": "python", "function": "agent.py:agent"},
    {"name": "method", "provider": "python", "function": "agent.py:Agent.ask"},
    {"name": "own", "provider": "provider.py:Provider", "place": "here"},
    {"name": "cli", "provider": "cli", "command_template": f"{sys.executable} run.py"},
    {"name": "api", "provider": "openai", "model": "m", "api_key": "k-12345678", "tools": ["agent.py:agent"]},
    {
        "name": "mcp",
        "provider": "openai",
        "model": "m",
        "api_key": "k-12345678",
        "tools": [{"mcp": [sys.executable, "run.py"]}],
    },
]


@pytest.fixture
def project(folder):
    marker = folder.path / "marker"
    touch = TOUCH.format(marker=str(marker))
    for name, text in {"e.py": EVALUATOR, "provider.py": PROVIDER, "agent.py": AGENT, "run.py": ""}.items():
        folder.write(name, touch + text)
    folder.write("targets.yaml", {"targets": TARGETS})
    folder.marker = marker
    return folder


def evals(project, *evaluators, **case):
    programs = [
        {"type": "e.py:Grade", "word": "hello"},
        {"type": "code_judge", "script": [sys.executable, "run.py"]},
        {"type": "python", "function": "agent.py:agent"},
        {"type": "contains", "value": "h", "transform": {"function": "agent.py:agent"}},
    ]
    workspace = {"setup": [sys.executable, "run.py"]}
    row = {"id": "one", "input": "Hi", "expected_outcome": "x", "workspace": workspace, **case}
    execution = {"targets": [target["name"] for target in TARGETS]}
    document = {"execution": execution, "evaluators": list(evaluators) or programs, "evalcases": [row]}
    project.write("evals.yaml", document)


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_imports_and_runs_nothing(project, command, check):
    evals(project)
    ended = command(*CHECKS[check])
    assert (ended.code, project.marker.exists()) == (0, False), ended.stderr


def test_a_run_does_import_and_run_them(project, command):
    evals(project)
    command("eval", "evals.yaml", "--target", "default", "-q")
    assert project.marker.exists()


MISTAKES = {
    "an unknown key": ({"type": "e.py:Grade", "word": "x", "shere": 1}, "Did you mean 'share'?"),
    "a missing key": ({"type": "e.py:Grade"}, "Missing required field: 'word'"),
    "a wrong type": ({"type": "e.py:Grade", "word": 5}, "'word' must be a string"),
    "a value out of range": ({"type": "e.py:Grade", "word": "x", "share": 2}, "'share' must be"),
    "a missing class": ({"type": "e.py:Grad"}, "Did you mean 'Grade'?"),
    "a class of another kind": ({"type": "agent.py:Agent"}, "is not a subclass of agentv.evaluators.base.Evaluator"),
    "a function": ({"type": "agent.py:agent"}, "For a function, use `type: python`"),
    "too many parameters": ({"type": "python", "function": "agent.py:confused"}, "it requires first, second, third"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("check", ["dry run", "validate"])
def test_mistakes_in_evaluators_are_found_without_importing_them(project, command, mistake, check):
    entry, expected = MISTAKES[mistake]
    evals(project, entry)
    ended = command(*CHECKS[check])
    assert ended.code != 0
    assert expected in ended.stdout + ended.stderr
    assert not project.marker.exists()


def test_mistakes_in_targets_are_found_without_importing_them(project, command):
    entry = {"name": "default", "provider": "provider.py:Provider", "place": "here", "plase": "there"}
    project.write("targets.yaml", {"targets": [entry]})
    evals(project, {"type": "contains", "value": "h"})
    ended = command("eval", "evals.yaml", "--target", "default", "--dry-run")
    assert (ended.code, "Did you mean 'place'?" in ended.stderr, project.marker.exists()) == (2, True, False)
    project.write("targets.yaml", {"targets": [{"name": "d", "provider": "python", "function": "agent.py:confused"}]})
    project.write("evals.yaml", {"evalcases": [{"id": "a", "input": "x", "expected_outcome": "y", "evaluators": []}]})
    ended = command("eval", "evals.yaml", "--dry-run", "--dump-prompts", "prompts")
    assert (ended.code, "unknown parameters" in ended.stderr, project.marker.exists()) == (2, True, False)


@pytest.mark.parametrize("text", ["Grade = make()", "from elsewhere import Grade", "exec('Grade = 1')"])
def test_what_cannot_be_inspected_is_left_to_the_run(project, command, text):
    project.write("e.py", f"raise SystemExit\n{text}\n")
    evals(project, {"type": "e.py:Grade", "anything": 1})
    ended = command("eval", "evals.yaml", "--dry-run", "--target", "cli")
    assert ended.code == 0, ended.stderr


def test_dumped_prompts_show_the_arguments_of_a_function(project, command):
    evals(project, {"type": "contains", "value": "h"})
    assert command("eval", "evals.yaml", "--dry-run", "--target", "default", "--dump-prompts", "prompts").code == 0
    (file,) = (project.path / "prompts").iterdir()
    assert "Hi" in json.dumps(json.loads(file.read_text())["sent"])
