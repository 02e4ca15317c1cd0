"""Scripts that define `agentv_judge`: the same results as when started as a program, and only if they opt in."""

import asyncio
import json
import sys

import pytest

from agentv.evaluators.code.program import warm_script
from agentv.model.evaluator import EvaluatorFailure
from platforms import only_on_posix

# As a program, it prints what its function returns; `started` identifies that case.
BOTH = """
import json, os, sys
{code}
if __name__ == "__main__":
    print(json.dumps(agentv_judge(json.load(sys.stdin))))
"""

RETURNED = {
    "the input of a grader": "{'score': 1, 'details': p}",
    "everything": ("{'score': 0.5, 'hits': ['a'], 'misses': ['b'], 'reasoning': 'c', 'details': {'n': 1}}"),
    "assertions": ("{'assertions': [{'text': 'a', 'passed': True}, {'text': 'b', 'passed': False}]}"),
    "names of 2.x": ("{'score': 1, 'details': [p['candidate_answer'], p['expected_outcome'], p['reference_answer']]}"),
    "names of 4.x": ("{'score': 1, 'details': [p['output'], p['criteria'], p['expected_output'], p['input']]}"),
    "its configuration": ("{'score': 1, 'details': p['config']}"),
    "keys as they were written": ("{'score': 1, 'details': p['expected_messages']}"),
    "its folder": ("{'score': 1, 'details': os.listdir('.')}"),
}


@pytest.mark.parametrize("returned", RETURNED.values(), ids=RETURNED)
def test_a_script_gives_the_same_score_warm_or_started(scoring, tmp_path, returned):
    more = {"grader_protocol": "agentv-4"} if returned == RETURNED["the input of a grader"] else {}
    code = f"def NAME(p): return {returned}"
    (tmp_path / "warm.py").write_text(BOTH.format(code=code.replace("NAME", "agentv_judge")))
    (tmp_path / "cold.py").write_text(
        BOTH.format(code=code.replace("NAME", "grade")).replace("agentv_judge(json", "grade(json")
    )
    results = []
    for name in ("warm.py", "cold.py"):
        script = [sys.executable, name]
        assert (warm_script(script, str(tmp_path)) is not None) == (name == "warm.py")
        expected = {"riskLevel": "High", "Nested": [{"camelCase": None}]}
        entry = {"script": script, "maxWords": [5], **more}
        results.append(scoring.score("code_judge", entry, "The answer ✓", expected, workdir=str(tmp_path)))
    assert results[0] == results[1]


KEPT_WARM = {
    "a list": (lambda python: [python, "judge.py"], True),
    "a string": (lambda python: f"{python} judge.py", True),
    "in a folder": (lambda python: [python, "judges/judge.py"], True),
    "with an argument": (lambda python: [python, "judge.py", "--strict"], False),
    "with an option": (lambda python: [python, "-O", "judge.py"], False),
    "through a pipe": (lambda python: f"{python} judge.py | cat", False),
    "by another program": (lambda python: ["/bin/sh", "judge.py"], False),
    "by itself": (lambda python: ["./judge.py"], False),
    "another file": (lambda python: [python, "other.py"], False),
    "no file": (lambda python: [python, "nowhere.py"], False),
    "a broken file": (lambda python: [python, "broken.py"], False),
    "a file that is nested too deeply": (lambda python: [python, "deep.py"], False),
    "half a string": (lambda python: f"{python} 'judge.py", False),
}


@pytest.mark.parametrize(("script", "warm"), KEPT_WARM.values(), ids=KEPT_WARM)
def test_only_a_file_that_opts_in_is_kept_warm(tmp_path, script, warm):
    (tmp_path / "judges").mkdir()
    for name in ("judge.py", "judges/judge.py"):
        (tmp_path / name).write_text("async def agentv_judge(payload): return 1\n")
    (tmp_path / "other.py").write_text("def judge(answer, expected): return 1\n# agentv_judge\n")
    (tmp_path / "broken.py").write_text("def agentv_judge(:\n")
    (tmp_path / "deep.py").write_text(f"def agentv_judge(payload): return {'-' * 20_000}1\n")
    assert (warm_script(script(sys.executable), str(tmp_path)) is not None) == warm


FAILURES = {
    "it raises": ("1 / 0", "judge.py:agentv_judge failed: ZeroDivisionError: division by zero (judge.py, line 3)"),
    "no score": ("return {'hits': []}", "judge.py:agentv_judge returned no 'score'"),
    "a score in words": ("return {'score': 'high'}", "judge.py:agentv_judge gave a score that is not a number"),
    "nothing": ("pass", "must return a Score, a dict, a number or a bool, got NoneType"),
    "it exits hard": ("os._exit(3)", "its process ended with exit code 3 before it gave a score"),
    "it never ends": ("while True: pass", "took longer than 1 s"),
}


@only_on_posix("each answer has a process of its own")
@pytest.mark.parametrize(("code", "message"), FAILURES.values(), ids=FAILURES)
def test_errors_of_a_script_are_reported(scoring, tmp_path, code, message):
    (tmp_path / "judge.py").write_text(f"import os\ndef agentv_judge(payload):\n    {code}\n")
    entry = {"script": [sys.executable, "judge.py"], "timeout_seconds": 1 if "while" in code else 30}
    with pytest.raises(EvaluatorFailure) as raised:
        scoring.score("code_judge", entry, workdir=str(tmp_path))
    assert message in str(raised.value)


def test_a_script_runs_in_its_own_folder(scoring, tmp_path):
    (tmp_path / "judges").mkdir()
    (tmp_path / "judges" / "limit.json").write_text(json.dumps({"score": 0.25}))
    code = "import json\ndef agentv_judge(payload):\n    return json.load(open('limit.json'))\n"
    (tmp_path / "judges" / "judge.py").write_text(code)
    entry = {"script": f"{sys.executable} judge.py", "cwd": "judges"}
    assert scoring.score("code_judge", entry, workdir=str(tmp_path)).score == 0.25


def test_an_async_script_is_awaited(scoring, tmp_path):
    code = "import asyncio\nasync def agentv_judge(payload):\n    await asyncio.to_thread(str)\n    return 0.75\n"
    (tmp_path / "judge.py").write_text(code)
    evaluator = scoring.evaluator("code_judge", script=[sys.executable, "judge.py"])

    async def many(host):
        judgement = scoring.judgement(workdir=str(tmp_path), host=host)
        return await asyncio.gather(*(evaluator.evaluate(judgement) for _ in range(20)))

    assert [score.score for score in scoring.hosted(many)] == [0.75] * 20
