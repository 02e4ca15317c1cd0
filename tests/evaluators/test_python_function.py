"""The `python` evaluator, with functions in real files."""

import asyncio
import sys

import pytest

from agentv.model.evaluator import EvaluatorFailure, Score
from platforms import only_on_posix
from waiting import let_others_run

CHECKS = """
import asyncio
import contextvars
import helper
from fractions import Fraction
from agentv.model.evaluator import EvaluatorFailure, Score

def share(context): return 0.25
def whole(context): return 1
def yes(context): return context.candidate_answer == "Paris"
def third(context): return Fraction(1, 3)
def almost(context): return 1.0000000000000002
def score(context): return Score(0.5, hits=["found"], misses=("lost",), reasoning="why", details={"n": 1})
def mapping(context): return {"score": Fraction(1, 4), "label": "poor", "reason": "short", "passed": False}
def verdict(context): return {"passed": True}
def poor_pass(context): return {"passed": True, "score": 0.2}
def neighbour(context): return helper.VALUE
def names(context):
    seen = [context.question, context.expected_outcome, context.reference_answer, context.candidate_answer]
    seen += [context.input_messages, context.expected_messages, context.output_messages, context.context]
    seen += [context.guideline_files, context.input_files, context.trace_summary, context.execution_metrics]
    return Score(1, details=[seen, context.workspace_path, context.config])
def spoils(context):
    context.output_messages.clear()
    return 1
async def awaits(context):
    await asyncio.to_thread(str)
    return 0.75
def lazy(context): return awaits(context)
class Judge:
    def __call__(self, context): return 0.5
    @staticmethod
    def grade(context): return 0.125
class AsyncJudge:
    async def __call__(self, context): return 0.5
judge, async_judge = Judge(), AsyncJudge()

def nan(context): return float("nan")
def two(context): return 2
def below(context): return -0.1
def text(context): return "0.5"
def nothing(context): pass
def wide(context): return Score(7)
def odd_hits(context): return Score(1, hits={"a": 1})
def broken(context):
    values = {}
    return values["key"]
def deep(context): return helper.fails()
def leaves(context): raise SystemExit(3)
def stops(context): raise StopIteration
def gives_up(context): raise EvaluatorFailure("the service is down")
async def broken_async(context):
    raise ValueError("no")
async def cancels(context):
    raise asyncio.CancelledError
def hangs(context):
    import threading
    threading.Event().wait(30)
async def hangs_async(context): await asyncio.Event().wait()
constant = 5
"""


def line_of(text):
    return next(number for number, line in enumerate(CHECKS.splitlines(), 1) if text in line)


@pytest.fixture
def checks(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    (tmp_path / "checks.py").write_text(CHECKS)
    (tmp_path / "helper.py").write_text("VALUE = 0.875\ndef fails():\n    return 1 / 0\n")
    return tmp_path


# (name, score)
ROWS = [
    ("share", 0.25),
    ("whole", 1),
    ("yes", 1),
    ("third", 1 / 3),
    ("almost", 1),
    ("score", 0.5),
    ("mapping", 0.25),
    ("verdict", 1),
    ("neighbour", 0.875),
    ("awaits", 0.75),
    ("lazy", 0.75),
    ("judge", 0.5),
    ("async_judge", 0.5),
    ("Judge.grade", 0.125),
]


@pytest.mark.parametrize(("name", "score"), ROWS)
def test_what_a_function_returns_is_the_score(scoring, checks, name, score):
    entry = {"function": f"checks.py:{name}"}
    assert scoring.score("python", entry, "Paris", workdir=str(checks)).score == pytest.approx(score)


# (name, settings, verdict, score)
LIMITED = [
    ("share", {"threshold": 0.25}, "pass", 0.25),
    ("share", {"threshold": 0.3}, "fail", 0.25),
    ("share", {"threshold": 0.3, "inverse": True}, "pass", 0.25),
    ("yes", {"threshold": 0}, "pass", 1),
    ("yes", {"inverse": True}, "fail", 0),
    ("mapping", {"threshold": 0}, "fail", 0.25),
    ("poor_pass", {"threshold": 0.2}, "pass", 0.2),
    ("poor_pass", {"threshold": 0.5}, "fail", 0.2),
    ("poor_pass", {"inverse": True}, "fail", 0.2),
]


@pytest.mark.parametrize(("name", "settings", "verdict", "score"), LIMITED)
def test_a_number_and_the_score_of_an_object_must_reach_the_threshold(scoring, checks, name, settings, verdict, score):
    entry = {"function": f"checks.py:{name}", **settings}
    result = scoring.score("python", entry, "Paris", workdir=str(checks))
    assert (result.verdict, result.score) == (verdict, score)


FAILURES = [
    ("nan", "checks.py:nan gave nan as its score; a score is a number from 0 to 1"),
    ("two", "checks.py:two gave 2 as its score"),
    ("below", "checks.py:below gave -0.1 as its score"),
    ("wide", "checks.py:wide gave 7 as its score"),
    ("text", "checks.py:text must return a Score, a dict, a number or a bool, got str"),
    ("nothing", "checks.py:nothing must return a Score, a dict, a number or a bool, got NoneType"),
    ("odd_hits", "'hits' of checks.py:odd_hits must be a list of strings, got dict"),
    ("broken", f"checks.py:broken failed: KeyError: 'key' (checks.py, line {line_of('values[')})"),
    (
        "deep",
        "checks.py:deep failed: ZeroDivisionError: division by zero (helper.py, line 3)\n"
        f"  checks.py, line {line_of('def deep')}, in deep: def deep(context): return helper.fails()\n"
        "  helper.py, line 3, in fails: return 1 / 0",
    ),
    ("broken_async", f"checks.py:broken_async failed: ValueError: no (checks.py, line {line_of('ValueError')})"),
    ("cancels", f"checks.py:cancels failed: CancelledError (checks.py, line {line_of('raise asyncio')})"),
    ("leaves", "checks.py:leaves failed: SystemExit: 3"),
    ("stops", "checks.py:stops failed: StopIteration"),
    ("gives_up", "the service is down"),
    ("shares", "checks.py has no 'shares'. Did you mean 'share'?"),
    ("Judge.grad", "checks.py has no 'grad'. Did you mean 'grade'?"),
    ("constant", "checks.py:constant is not a function but int"),
]


@pytest.mark.parametrize(("name", "message"), FAILURES)
def test_an_invalid_return_value_is_an_error_with_the_users_line(scoring, checks, name, message):
    assert scoring.failure("python", {"function": f"checks.py:{name}"}, workdir=str(checks)).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "checks.py cannot be imported: SyntaxError"),
        ("x = 1\nraise RuntimeError('no')\n", "checks.py cannot be imported: RuntimeError: no (checks.py, line 2)"),
        ("import unheard_of\n", "checks.py cannot be imported: ModuleNotFoundError"),
        ("import sys\nsys.exit()\n", "checks.py cannot be imported: SystemExit"),
    ],
)
def test_an_import_error_is_reported(scoring, tmp_path, text, message):
    (tmp_path / "checks.py").write_text(text)
    assert scoring.failure("python", {"function": "checks.py:f"}, workdir=str(tmp_path)).startswith(message)


def test_a_missing_file_is_an_error(scoring, tmp_path):
    message = scoring.failure("python", {"function": "nowhere.py:f"}, workdir=str(tmp_path))
    assert message == "Cannot read file 'nowhere.py': No such file or directory"


@pytest.mark.parametrize("name", ["hangs", "hangs_async"])
def test_a_function_that_hangs_times_out(scoring, checks, name):
    entry = {"function": f"checks.py:{name}", "timeout_seconds": 0.05}
    assert scoring.failure("python", entry, workdir=str(checks)) == f"checks.py:{name} took longer than 0.05 s"


def test_a_function_receives_all_documented_attributes(scoring, checks):
    entry = {"function": "checks.py:names", "config": {"strict": True}}
    details = scoring.score("python", entry, "Paris", expected={"riskLevel": 1}, workdir=str(checks)).details
    seen, workspace, config = details
    assert seen[:4] == ["What is asked?", "It works", '{"riskLevel":1}', "Paris"]
    assert seen[5] == [{"role": "assistant", "content": {"riskLevel": 1}}]
    assert seen[6] == [{"role": "assistant", "content": "Paris"}]
    assert (workspace, config) == (None, {"strict": True})


def test_a_function_cannot_modify_the_judgement(scoring, checks):
    judgement = scoring.judgement("Paris", workdir=str(checks))
    assert judgement.output_messages
    scoring.run(scoring.evaluator("python", function="checks.py:spoils"), judgement)
    assert judgement.output_messages


def test_a_wrong_signature_does_not_mention_internal_lines(scoring, tmp_path):
    (tmp_path / "checks.py").write_text("def two(context, reference): return 1\nmine = two\n")
    with pytest.raises(EvaluatorFailure) as failed:
        scoring.score("python", {"function": "checks.py:mine"}, workdir=str(tmp_path))
    assert str(failed.value).endswith("two() missing 1 required positional argument: 'reference'")


def test_a_score_keeps_its_reasons(scoring, checks):
    score = scoring.score("python", {"function": "checks.py:score"}, workdir=str(checks))
    assert score == Score(0.5, hits=("found",), misses=("lost",), reasoning="why", details={"n": 1})


def test_a_bool_is_described_in_the_sentence(scoring, checks):
    score = scoring.score("python", {"function": "checks.py:yes"}, "Rome", workdir=str(checks))
    assert score.misses == ("checks.py:yes returned False",)


@only_on_posix("each answer has a process of its own")
def test_a_file_is_imported_once_and_again_when_it_changes(scoring, tmp_path):
    file, seen = tmp_path / "checks.py", tmp_path / "imports"
    text = "with open({path!r}, 'a') as f: f.write('.')\ndef f(context): return {score}\n"
    evaluator = scoring.evaluator("python", function="checks.py:f")

    async def changed(host):
        judgement = scoring.judgement(workdir=str(tmp_path), host=host)
        file.write_text(text.format(path=str(seen), score=0.1))
        assert [(await evaluator.evaluate(judgement)).score for _ in range(3)] == [0.1] * 3
        assert seen.read_text() == "."
        file.write_text(text.format(path=str(seen), score=0.2))
        assert (await evaluator.evaluate(judgement)).score == 0.2
        assert seen.read_text() == ".."

    scoring.hosted(changed)


def test_a_module_is_named_without_its_extension(scoring):
    assert scoring.failure("python", {"function": "unheard.of:f"}).startswith("There is no module 'unheard.of'")
    assert scoring.failure("python", {"function": "os.path:joined"}) == "os.path has no 'joined'. Did you mean 'join'?"


def test_files_are_found_with_the_datasets_lookup(scoring, checks):
    judgement = scoring.judgement(find_file=lambda value: str(checks / value))
    assert scoring.run(scoring.evaluator("python", function="checks.py:share"), judgement).score == 0.25


def test_a_failed_lookup_is_an_error(scoring):
    def find_file(value):
        raise LookupError(f"File '{value}' was not found")

    judgement = scoring.judgement(find_file=find_file)
    with pytest.raises(EvaluatorFailure, match=r"File 'a\.py' was not found"):
        scoring.run(scoring.evaluator("python", function="a.py:f"), judgement)


def test_cancellation_is_not_reported_as_an_error(scoring, checks):
    evaluator = scoring.evaluator("python", function="checks.py:hangs_async")

    async def cancelled():
        task = asyncio.create_task(evaluator.evaluate(scoring.judgement(workdir=str(checks))))
        await let_others_run(3)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
