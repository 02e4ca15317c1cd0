"""Custom evaluators: from installed packages and from classes in files."""

import sys

import pytest

from agentv.errors import UsageError
from agentv.registry import EVALUATORS

MODULE = '''
from agentv.evaluators.base import Evaluator
from agentv.model.evaluator import EvaluatorFailure, Score

class Longest(Evaluator, frozen=True, kw_only=True):
    """Passes if the answer has at most `words` words."""

    words: int

    def complaints(self):
        return [] if self.words else ["'words' is 0"]

    def score(self, judgement):
        count = len(judgement.candidate_answer.split())
        if not count:
            raise EvaluatorFailure("There is nothing to count")
        return Score(float(count <= self.words), reasoning=f"{count} words")

class Waits(Longest, frozen=True, kw_only=True):
    async def evaluate(self, judgement):
        return self.score(judgement)

class Plain: pass
'''
ENTRY_POINTS = """[agentv.evaluators]
longest = wordcount:Longest
not-long = wordcount:Waits
plain = wordcount:Plain
gone = wordcount:Gone
"""


@pytest.fixture
def installed(project, monkeypatch):
    """An installed package: its module, and the metadata folder with its entry points."""
    project.write("site/wordcount.py", MODULE)
    project.write("site/wordcount-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: wordcount\nVersion: 1.0\n")
    project.write("site/wordcount-1.0.dist-info/entry_points.txt", ENTRY_POINTS)
    monkeypatch.syspath_prepend(project.path / "site")
    yield project
    sys.modules.pop("wordcount", None)


@pytest.mark.parametrize("type_", ["longest", "not-long", "own.py:Longest", "own.py:Waits"])
def test_a_custom_evaluator_scores_a_run(installed, type_):
    installed.write("own.py", MODULE)
    entry = {"type": type_, "words": 2, "weight": 3, "required": True}
    installed.dataset("one two", "one two three", evaluators=[entry])
    assert installed.eval("--out", "out", "--quiet").code == 0
    records = installed.by_id()
    assert [(records[id]["score"], records[id]["verdict"]) for id in ("c0", "c1")] == [(1.0, "pass"), (0.0, "fail")]
    (found,) = records["c1"]["evaluator_results"]
    assert (found["type"], found["weight"], found["reasoning"]) == (type_, 3.0, "3 words")


def test_a_failing_custom_evaluator_is_an_error_despite_negate(installed):
    installed.targets({"name": "default", "provider": "mock", "response": ""})
    installed.dataset("x", evaluators=[{"type": "longest", "words": 2, "negate": True}])
    assert installed.eval("--out", "out", "--quiet").code == 3
    assert installed.records()[0]["error"]["message"] == "longest: There is nothing to count"


INVALID = {
    "Score(7.0)": "gave 7.0 as its score; a score is a number from 0 to 1",
    "Score(float('nan'))": "gave nan as its score",
    "Score('high')": "gave a score that is not a number",
    "Score(1.0, hits=3)": "must be a list of strings",
    "None": "",
}


def test_an_invalid_score_of_a_custom_evaluator_ends_its_job_and_not_the_run(project):
    head = "from agentv.evaluators.base import Evaluator\nfrom agentv.model.evaluator import Score\n"
    body = "class C{0}(Evaluator, frozen=True):\n    def score(self, judgement):\n        return {1}\n"
    project.write("own.py", head + "".join(body.format(*each) for each in enumerate((*INVALID, "Score(1, hits=[1])"))))
    entries = [{"type": f"own.py:C{number}"} for number in range(len(INVALID) + 1)]
    cases = [
        {"id": f"c{n}", "expected_outcome": "x", "input": "x", "evaluators": [each]} for n, each in enumerate(entries)
    ]
    project.write("d.jsonl", cases)
    assert project.eval("d.jsonl", "--out", "out", "--quiet").code == 0
    *records, valid = (project.by_id()[f"c{number}"] for number in range(len(cases)))
    for record, message in zip(records, INVALID.values(), strict=True):
        assert (record["status"], record["score"]) == ("error", None) and message in record["error"]["message"]
    assert (valid["score"], valid["evaluator_results"][0]["hits"]) == (1.0, ["1"])


REFUSED = [
    ({"type": "longest"}, "Missing required field: 'evaluators[0].words'"),
    ({"type": "longest", "words": "two"}, "Field 'evaluators[0].words' must be an integer, got string"),
    ({"type": "longest", "words": 0}, "'words' is 0"),
    ({"type": "longst", "words": 2}, "Did you mean 'longest'?"),
    ({"type": "plain"}, "The plug-in 'plain' is not a subclass of agentv.evaluators.base.Evaluator"),
    ({"type": "gone"}, "Cannot load plug-in 'gone' (wordcount:Gone)"),
    ({"type": "own.py:Longest"}, "Missing required field: 'words'"),
    ({"type": "own.py:Longest", "words": 2, "wrods": 1}, "Did you mean 'words'?"),
    ({"type": "own.py:Shortest", "words": 2}, "There is no 'Shortest' in file 'own.py'"),
    ({"type": "none.py:Longest", "words": 2}, "none.py"),
]


@pytest.mark.parametrize(("entry", "message"), REFUSED)
def test_an_invalid_custom_evaluator_is_refused_with_its_line(installed, entry, message):
    installed.write("own.py", MODULE)
    installed.write("d.jsonl", [{"id": "c", "expected_outcome": "x", "input": "x", "evaluators": [entry]}])
    ended = installed.eval("d.jsonl", "--out", "out", "--quiet")
    assert ended.code == 2
    assert message in ended.stderr
    assert "line 1 in d.jsonl" in ended.stderr
    assert not (installed.path / "out").exists()


def test_the_error_of_a_broken_plugin_has_the_reason(installed):
    with pytest.raises(UsageError, match="has no attribute 'Gone'"):
        EVALUATORS.find("gone")


COUNTED = """
from pathlib import Path
from agentv.evaluators.base import Evaluator, passed

class Counted(Evaluator, frozen=True, kw_only=True):
    number: int

    def __post_init__(self):
        with Path("built.txt").open("a") as file:
            file.write(".")

    def score(self, judgement):
        return passed()
"""


def test_evaluators_that_cases_share_are_built_once_however_many(project):
    project.write("own.py", COUNTED)
    count = 1_500
    rows = [{"id": name, "expected_outcome": "x", "input": "x"} for name in "abcdefgh"]
    entries = [{"type": "own.py:Counted", "number": number} for number in range(count)]
    project.write("d.yaml", {"evalcases": rows, "evaluators": entries})
    assert project.eval("d.yaml", "--out", "out", "--quiet").code == 0
    assert len(project.records()) == len(rows)
    assert len((project.path / "built.txt").read_text()) < 6 * count
