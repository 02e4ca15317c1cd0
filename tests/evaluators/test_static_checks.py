"""Find the names that a Python file defines, without running it."""

import ast
import gc

import pytest

from agentv.evaluators.code.static_checks import function_problems

DEFINING = {
    "a function": "def score(answer): ...",
    "an async function": "async def score(answer): ...",
    "an assignment": "score = lambda answer: 1.0",
    "an annotated assignment": "score: object = len",
    "one of several": "other, score = len, len",
    "an import": "from checks import judge as score",
    "under a condition": "if True:\n    def score(answer): ...\nelse:\n    score = None",
    "in a try": "try:\n    from a import score\nexcept ImportError:\n    score = None",
    "possibly by a star import": "from checks import *",
    "possibly by globals": "globals()['score'] = len",
    "possibly by a function": "def make():\n    global score\n    score = len\nmake()",
    "possibly by a module's __getattr__": "def __getattr__(name): ...",
    "a class with a method": "class score:\n    def of(answer): ...",
}


def problems(tmp_path, text, reference="w.py:score"):
    path = tmp_path / "w.py"
    path.write_text("raise SystemExit('this is never run')\n" + text)
    return [(problem.message, problem.hint) for problem in function_problems(reference, str(path))]


@pytest.mark.parametrize("case", DEFINING)
def test_a_name_that_is_or_may_be_defined_is_accepted(tmp_path, case):
    assert problems(tmp_path, DEFINING[case]) == []


def test_only_the_first_part_of_a_dotted_name_is_checked(tmp_path):
    assert problems(tmp_path, "class Checks: ...", "w.py:Checks.score") == []


@pytest.mark.parametrize("text", ["def scores(answer): ...", "def scores():\n    def score(): ..."])
def test_an_undefined_name_is_an_error_with_a_suggestion(tmp_path, text):
    assert problems(tmp_path, text) == [("There is no 'score' in file 'w.py'", "Did you mean 'scores'?")]


def test_invalid_python_is_an_error_with_its_line(tmp_path):
    ((message, _),) = problems(tmp_path, "def score(:")
    assert message.startswith("File 'w.py' is not valid Python: ") and message.endswith("line 2")


@pytest.mark.parametrize("value", ["-" * 20_000 + "1", "1" + " + 1" * 20_000], ids=["for the parser", "for the tree"])
def test_code_that_is_nested_too_deeply_is_an_error(tmp_path, value):
    problem = "Cannot read file 'w.py': it is nested too deeply to be parsed"
    assert problems(tmp_path, f"score = {value}") == [(problem, "")]


class ParsesWhenCollected:
    """What a finalizer does that formats a traceback in CPython 3.11, while the garbage collector runs."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        ast.parse("a + b")


def test_garbage_that_parses_code_while_a_file_is_parsed_does_no_harm(tmp_path):
    thresholds = gc.get_threshold()
    for number in range(20):
        gc.set_threshold(100)
        for _ in range(50):
            ParsesWhenCollected()
        assert problems(tmp_path, f"def score(answer): ...\nx = [{'f(a, b), ' * 2_000}]\ny = {number}") == []
    gc.set_threshold(*thresholds)


UNFIT = {
    "def score(): ...": "it takes no arguments",
    "def score(answer, reference): ...": "it requires answer, reference",
    "def score(answer, *, reference): ...": "it requires answer, reference",
}
FIT = (
    "def score(answer, reference=None): ...",
    "def score(*answers): ...",
    "def score(answer, /, **more): ...",
    "@twice\ndef score(): ...",
    "try:\n    def score(): ...\nfinally:\n    def score(answer): ...",
)


@pytest.mark.parametrize("text", UNFIT)
def test_a_function_that_cannot_take_one_argument_is_an_error(tmp_path, text):
    assert problems(tmp_path, text) == [
        (f"'score' in file 'w.py' cannot be called: {UNFIT[text]}", "It is called with one argument")
    ]


@pytest.mark.parametrize("text", FIT)
def test_a_function_that_may_take_one_argument_is_accepted(tmp_path, text):
    assert problems(tmp_path, text) == []
