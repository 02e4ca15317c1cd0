"""Code judges written for AgentV (TypeScript) 2.x and 4.x run unchanged, and receive data in its format."""

import sys

import pytest

# In the manner of AgentV 2.x: snake_case names, hits and misses, the whole payload from standard input.
OF_2X = """\
#!/usr/bin/env python3
import json
import sys


def main():
    eval_data = json.loads(sys.stdin.read())
    candidate = eval_data.get("candidate_answer", "")
    expected = eval_data.get("expected_messages", [])[-1]["content"]
    calls = [c for m in eval_data.get("output_messages") or [] for c in m.get("tool_calls", [])]
    hits, misses = [], []
    for key, value in expected.items():
        (hits if str(value) in candidate else misses).append(f"{key}={value}")
    for call in calls:
        hits.append(f"{call['tool']}:{','.join(call['input'])}")
    print(json.dumps({
        "score": len(hits) / (len(hits) + len(misses)) if hits or misses else 0.0,
        "hits": hits[:4],
        "misses": misses[:4],
        "reasoning": eval_data["expected_outcome"] + " | " + eval_data["question"],
        "details": {"config": eval_data["config"], "summary": eval_data["trace_summary"]["tool_calls_by_name"]},
    }))


if __name__ == "__main__":
    main()
"""

# In the manner of AgentV 4.x: `output`, `expected_output`, `criteria`, `input`; assertions instead of hits and misses.
OF_4X = """\
import json, sys
data = json.load(sys.stdin)
expected = data["expected_output"][-1]["content"]
assertions = [
    {"text": f"{key}={value}", "passed": str(value) in data["output"], "evidence": data["criteria"]}
    for key, value in expected.items()
]
score = sum(a["passed"] for a in assertions) / len(assertions)
print(json.dumps({"score": score, "assertions": assertions, "details": {"input": data["input"]}}))
"""

EXPECTED = {"riskLevel": "High", "Total_Sum": 12}
CALL = {"tool": "lookUp", "input": {"queryText": "x"}}


@pytest.fixture
def recorded(project):
    """A project whose answers were recorded: nothing answers any more but the recording."""
    project.targets({"name": "default", "provider": "mock", "response": "It is High.", "tool_calls": [CALL]})
    project.write("judge_2x.py", OF_2X)
    project.write("judge_4x.py", OF_4X)
    case = {"input": "How risky is it?", "expected_output": EXPECTED, "expected_outcome": "Says how risky it is"}
    project.dataset(case, evaluators=[{"type": "contains", "value": "High"}])
    assert project.eval("--out", "first", "--record", "answers.jsonl").code == 0
    project.targets({"name": "default", "provider": "replay", "from": "answers.jsonl"})
    return lambda *entries: judged(project, case, entries)


def judged(project, case, entries):
    project.dataset(case, evaluators=list(entries))
    ended = project.eval("--out", "second")
    assert ended.code == 0, ended.stderr
    return project.records("second")[0]["evaluator_results"]


def test_a_judge_of_2x(recorded):
    entry = {
        "name": "judge",
        "type": "code_judge",
        "script": [sys.executable, "judge_2x.py"],
        "minWords": {"perLine": 3},
    }
    [found] = recorded(entry)
    assert found["hits"] == ["riskLevel=High", "lookUp:queryText"]
    assert found["misses"] == ["Total_Sum=12"]
    assert found["score"] == pytest.approx(2 / 3)
    assert found["reasoning"] == "Says how risky it is | How risky is it?"
    assert found["details"] == {"config": {"minWords": {"perLine": 3}}, "summary": {"lookUp": 1}}


def test_a_judge_of_4x(recorded):
    [found] = recorded({"name": "judge", "type": "code-grader", "command": f"{sys.executable} judge_4x.py"})
    assert found["score"] == 0.5
    assert found["hits"] == ["riskLevel=High (Says how risky it is)"]
    assert found["misses"] == ["Total_Sum=12 (Says how risky it is)"]
    assert found["details"] == {"input": [{"role": "user", "content": "How risky is it?"}]}


def test_an_isolated_judge_gives_the_same_score(recorded):
    entry = {"type": "code_judge", "script": [sys.executable, "judge_2x.py"], "sandbox": "preferred"}
    [found] = recorded(entry)
    assert found["hits"] == ["riskLevel=High", "lookUp:queryText"]
    assert found["details"]["sandbox"]["level"] in ("limits", "isolated")
