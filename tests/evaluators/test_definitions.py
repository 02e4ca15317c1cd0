"""Whether a Python file defines a name, told without running it."""

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
    "perhaps by a star": "from checks import *",
    "perhaps by globals": "globals()['score'] = len",
    "perhaps by a function": "def make():\n    global score\n    score = len\nmake()",
    "perhaps by a module's own hook": "def __getattr__(name): ...",
    "a class with a method": "class score:\n    def of(answer): ...",
}


def problems(tmp_path, text, reference="w.py:score"):
    path = tmp_path / "w.py"
    path.write_text("raise SystemExit('this is never run')\n" + text)
    return [(problem.message, problem.hint) for problem in function_problems(reference, str(path))]


@pytest.mark.parametrize("case", DEFINING)
def test_a_name_that_is_there_or_may_be_is_no_problem(tmp_path, case):
    assert problems(tmp_path, DEFINING[case]) == []


def test_of_a_name_with_dots_the_first_is_looked_for(tmp_path):
    assert problems(tmp_path, "class Checks: ...", "w.py:Checks.score") == []


@pytest.mark.parametrize("text", ["def scores(answer): ...", "def scores():\n    def score(): ..."])
def test_a_name_that_is_not_there_is_one_with_a_suggestion(tmp_path, text):
    assert problems(tmp_path, text) == [("There is no 'score' in file 'w.py'", "Did you mean 'scores'?")]


def test_a_file_that_is_no_python_is_one_with_its_line(tmp_path):
    ((message, _),) = problems(tmp_path, "def score(:")
    assert message.startswith("File 'w.py' is not valid Python: ") and message.endswith("line 2")


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
def test_a_function_that_one_argument_does_not_fit_is_one(tmp_path, text):
    assert problems(tmp_path, text) == [
        (f"'score' in file 'w.py' cannot be called: {UNFIT[text]}", "It is called with one argument")
    ]


@pytest.mark.parametrize("text", FIT)
def test_a_function_that_it_fits_or_may_fit_is_none(tmp_path, text):
    assert problems(tmp_path, text) == []
