"""Plug-ins of an installed package: a command, format, evaluator, provider, report and executor."""

import json
import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ci

MODULES = {
    "toy/dataset.py": '''
from agentv.datasets.formats.dataset_format import Batch, DatasetFormat

class Toy(DatasetFormat):
    """Lines such as `question = answer` below a title line."""

    suffixes = (".toy",)
    has_sidecar = True

    def sniff(self, head, path):
        return head.startswith(b"#toy")

    def read(self, document, options):
        for file in document.source.files:
            with open(file, encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    question, _, answer = line.strip().partition(" = ")
                    if answer:
                        row = {"id": f"q{number}", "input": question, "expected_output": answer, "expected_outcome": ""}
                        yield Batch(file, number, [row])

class ToyFolder(DatasetFormat):
    """A folder with the input and the reference answer in two files."""

    is_folder = True

    def sniff(self, head, path):
        return os.path.isfile(os.path.join(path, "question.txt"))

    def files(self, path):
        return os.path.join(path, "question.txt"), os.path.join(path, "answer.txt")

    def read(self, document, options):
        question, answer = (open(file).read().strip() for file in document.source.files)
        row = {"id": document.source.name, "input": question, "expected_output": answer, "expected_outcome": ""}
        yield Batch(document.source.files[0], 1, [row])

import os
TOY = Toy()
FOLDER = ToyFolder()
''',
    "toy/quiz.py": '''
from agentv.datasets.foreign.foreign_format import ForeignFormat, any_has, objects

class Quiz(ForeignFormat):
    """Records with a quiz."""

    title = "a quiz"

    def fits(self, file):
        return any_has(objects(file), "quiz")

    def rows(self, record, lose):
        return [{"id": record.data["quiz"], "input": record.data["quiz"], "expected_output": record.data["solution"]}]

QUIZ = Quiz()
''',
    "toy/evaluator.py": '''
from agentv.evaluators.base import Evaluator
from agentv.model.evaluator import Score

class SameLength(Evaluator, frozen=True, kw_only=True):
    """The answer is as long as the reference."""

    def score(self, judgement):
        return Score(float(len(judgement.candidate_answer) == len(judgement.reference_answer)))
''',
    "toy/target.py": '''
from agentv.model.response import answer
from agentv.targets.target import Target

class Parrot(Target, frozen=True, kw_only=True):
    """Repeats a word."""

    word: str

    def open(self, home):
        return Responder(self.word)

class Responder:
    endpoint = "toy"

    def __init__(self, word):
        self.word = word

    async def respond(self, request):
        return answer(self.word)

    async def aclose(self):
        pass
''',
    "toy/report.py": """
from agentv.report.formats import ReportFormat

def write(run, figures, stream):
    for result in run.records():
        stream.write(f"{result.eval_id}: {result.score}\\n".encode())

LIST = ReportFormat(write=write, extensions=(".list",), file_name="results.list", help="One line a result.")
""",
    "toy/command.py": '''
import click

@click.command()
@click.argument("name")
def greet(name):
    """Greet a person."""
    print(f"Hello, {name}")
''',
    "toy/executor.py": '''
import os
from agentv.executors.local import LocalExecutor

class Counting(LocalExecutor):
    """Runs jobs in this process and says how many."""

    async def run(self, spec, jobs, emit):
        count = 0
        def counted(result):
            nonlocal count
            count += 1
            emit(result)
        missing = await super().run(spec, jobs, counted)
        print(f"counted {count}", flush=True)
        return missing
''',
}
ENTRY_POINTS = """
[agentv.commands]
greet = toy.command:greet
damaged = toy.missing:NOTHING

[agentv.dataset_formats]
toy = toy.dataset:TOY
toy-folder = toy.dataset:FOLDER
broken = toy.missing:NOTHING

[agentv.foreign_formats]
quiz = toy.quiz:QUIZ

[agentv.evaluators]
same_length = toy.evaluator:SameLength

[agentv.targets]
parrot = toy.target:Parrot

[agentv.reports]
list = toy.report:LIST
broken = toy.missing:NOTHING

[agentv.executors]
counting = toy.executor:Counting
"""


@pytest.fixture
def toys(folder):
    """A project, and a package on the path that announces one kind for each seam."""
    for name, text in MODULES.items():
        folder.write(f"site/{name}", text)
    folder.write("site/toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    folder.write("site/toy-1.0.dist-info/entry_points.txt", ENTRY_POINTS)
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "parrot", "word": "four"}]})
    folder.write("evals/sums.toy", "#toy\n2 + 2 = 4444\n2 + 3 = 5\n")
    folder.write("evals/sums.yaml", {"evaluators": [{"type": "same_length"}]})

    def run(*arguments, code=0):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(["site", *sys.path])}
        command = [sys.executable, "-m", "agentv", *arguments]
        ended = subprocess.run(command, cwd=folder.path, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stderr
        return ended

    folder.run = run
    return folder


def test_a_run_uses_plug_ins_of_every_kind(toys):
    toys.run("eval", "evals", "--executor", "counting", "--out", "run")
    records = [json.loads(line) for line in (toys.path / "run/results.jsonl").read_text().splitlines()]
    assert {record["eval_id"]: record["score"] for record in records} == {"q2": 1.0, "q3": 0.0}
    assert toys.run("report", "run", "--list").stdout == "q2: 1.0\nq3: 0.0\n"
    toys.run("report", "run", "page.list", "page.md")
    assert (toys.path / "page.list").read_text() == "q2: 1.0\nq3: 0.0\n"


def test_a_dataset_format_plug_in_is_used_by_every_command(toys):
    assert [json.loads(line)["id"] for line in toys.run("cases", "evals/sums.toy").stdout.splitlines()] == ["q2", "q3"]
    assert "1 warning" not in toys.run("validate", "evals").stderr
    toys.run("convert", "evals/sums.toy", "sums.jsonl")
    assert (toys.path / "sums.jsonl").read_text().count("\n") == 2
    assert "is read-only" not in toys.run("convert", "sums.jsonl", "other.toy", code=2).stdout


def test_a_plug_in_adds_a_command(toys):
    assert toys.run("greet", "Ada").stdout == "Hello, Ada\n"
    listed = toys.run("--help").stdout
    assert re.search(r"greet +Greet a person\.", listed)
    assert "Cannot load plug-in 'damaged'" in listed
    assert "Cannot load plug-in 'damaged'" in toys.run("damaged", code=2).stderr


def test_a_plug_in_can_read_the_files_of_another_tool(toys):
    toys.write("quiz.jsonl", [{"quiz": "1 + 1", "solution": "2"}])
    for arguments in ([], ["--from", "quiz"]):
        toys.run("convert", "quiz.jsonl", "own.yaml", "--force", *arguments)
        assert json.loads(toys.run("cases", "own.yaml").stdout)["id"] == "1 + 1"


def test_a_plug_in_is_recognized_by_content_when_the_extension_is_unknown(toys):
    toys.write("sums.txt", "#toy\n1 = 1\n")
    assert toys.run("cases", "sums.txt", "--count", "-q").stdout == "1\n"


def test_a_dataset_can_be_a_folder(toys):
    for name in ("first", "second"):
        toys.write(f"folders/{name}/question.txt", "2 + 2")
        toys.write(f"folders/{name}/answer.txt", "4")
    assert toys.run("cases", "folders", "--count").stdout == "2\n"
    (line,) = toys.run("cases", "folders/second").stdout.splitlines()
    assert (json.loads(line)["id"], json.loads(line)["dataset"]) == ("second", "second")


def test_a_broken_plug_in_is_reported_only_when_it_is_needed(toys):
    toys.write("evals/d.jsonl", [{"id": "a", "expected_outcome": "x", "input": "q"}])
    assert toys.run("cases", "evals", "--count", "-q").stdout == "3\n"
    toys.write("d.unknown", "nothing")
    assert "Cannot load plug-in 'broken' (toy.missing:NOTHING)" in toys.run("cases", "d.unknown", code=2).stderr
    assert "Cannot load plug-in" in toys.run("report", "--help").stdout
