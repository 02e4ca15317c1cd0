"""Code judges written for AgentV (TypeScript) 2.x and 4.x run unchanged, and receive data in its format."""

import json
import sys

import pytest
from jsonschema_rs import validator_for

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


def an_object(required, **optional):
    """The schema of an object whose optional keys may be missing, but not null."""
    return {"type": "object", "properties": required | optional, "required": list(required)}


NUMBER, TEXT, OBJECT = {"type": "number"}, {"type": "string"}, {"type": "object"}
COUNTS = {"type": "object", "additionalProperties": NUMBER}
TIMES = {"type": "object", "additionalProperties": {"type": "array", "items": NUMBER}}
USAGE = an_object({"input": NUMBER, "output": NUMBER}, cached=NUMBER, reasoning=NUMBER)
CALLS = {"type": "array", "items": an_object({"tool": TEXT}, id=TEXT, duration_ms=NUMBER)}
CONTENT = {"anyOf": [TEXT, OBJECT, {"type": "array", "items": OBJECT}]}
MESSAGES = {"type": "array", "items": an_object({"role": TEXT}, content=CONTENT, tool_calls=CALLS, name=TEXT)}
FIGURES = {"token_usage": USAGE, "cost_usd": NUMBER, "duration_ms": NUMBER}
EVENT = an_object(
    {"event_id": TEXT, "ordinal": {"type": "integer"}, "type": {"enum": ["message", "tool_call"]}},
    message=an_object({"role": TEXT}),
    tool=an_object({"name": TEXT}),
    duration_ms=NUMBER,
)
SUMMARY = {"event_count": NUMBER, "error_count": NUMBER}
SUMMARY_2X = {**SUMMARY, "tool_names": {"type": "array"}, "tool_calls_by_name": COUNTS}
SUMMARY_4X = {**SUMMARY, "tool_calls": COUNTS, "llm_call_count": NUMBER}
TRACE = an_object({**SUMMARY_4X, "messages": MESSAGES, "events": {"type": "array", "items": EVENT}}, **FIGURES)


def or_null(schema):
    return {"anyOf": [schema, {"type": "null"}]}


SDK_2X = {
    **dict.fromkeys(("question", "expected_outcome", "reference_answer", "candidate_answer"), TEXT),
    **dict.fromkeys(("input_messages", "expected_messages", "output_messages"), MESSAGES),
    "trace_summary": or_null(an_object(SUMMARY_2X, tool_durations=TIMES, **FIGURES)),
    "config": or_null(OBJECT),
}
SDK_4X = {
    **dict.fromkeys(("criteria", "output", "answer"), TEXT),
    **dict.fromkeys(("input", "expected_output", "messages"), MESSAGES),
    **{name: or_null(schema) for name, schema in FIGURES.items()},
    "trace": or_null(TRACE),
    "trace_summary": or_null(an_object(SUMMARY_4X, tool_durations=TIMES)),
    **dict.fromkeys(("config", "metadata"), or_null(OBJECT)),
    **dict.fromkeys(("start_time", "end_time", "workspace_path", "file_changes"), or_null(TEXT)),
}


@pytest.mark.parametrize("required", [SDK_2X, SDK_4X], ids=["2.x", "4.x"])
@pytest.mark.parametrize("figures", [{}, {"token_usage": {"input": 3, "output": 4}, "cost_usd": 0.5}], ids=len)
def test_the_input_has_the_form_that_the_published_sdk_checks(project, required, figures):
    calls = [{**CALL, "id": "1", "output": [1], "duration_ms": 2.5}, {"tool": "bare"}]
    answer = [{"role": "assistant", "tool_calls": calls}, {"role": "assistant", "content": "It is High."}]
    project.write("agent.py", f"def answer(prompt):\n    return { ({'output_messages': answer} | figures)!r}\n")
    project.write(
        "keep.py", "import json, sys\nopen('seen.json', 'w').write(sys.stdin.read())\nprint('{\"score\": 1}')\n"
    )
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset(
        {"input": "How risky is it?", "expected_output": EXPECTED, "metadata": {"team": "a"}},
        evaluators=[{"type": "code_judge", "script": [sys.executable, "keep.py"]}],
    )
    assert project.eval("--out", "out").code == 0
    payload = json.loads((project.path / "seen.json").read_text())
    found = [error.message for error in validator_for(json.dumps(an_object(required))).iter_errors(payload)]
    assert found == []
    assert payload["trace_summary"].get("token_usage") == payload["token_usage"] == figures.get("token_usage")


def test_an_isolated_judge_gives_the_same_score(recorded):
    entry = {"type": "code_judge", "script": [sys.executable, "judge_2x.py"], "sandbox": "preferred"}
    [found] = recorded(entry)
    assert found["hits"] == ["riskLevel=High", "lookUp:queryText"]
    assert found["details"]["sandbox"]["level"] in ("limits", "isolated")
