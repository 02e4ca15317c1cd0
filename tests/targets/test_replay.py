"""The replay target: answers from runs, result files of agentv and AgentV (TypeScript), and recordings."""

import asyncio
import json
import sys

import pytest

from agentv.errors import AgentvError
from agentv.model.message import Message, ToolCall
from agentv.model.response import TargetFailure
from agentv.model.result import ErrorInfo, ExecutionMetrics, Result, TokenUsage
from agentv.model.values import to_json
from agentv.targets.recordings.replay import Replay


def replay(source="results.jsonl", name="again"):
    return Replay(name=name, provider="replay", source=source)


def record(eval_id="one", text="hi", **known):
    fields = {
        "timestamp": "2026-01-01T00:00:00Z",
        "run_id": "r1",
        "dataset": "",
        "dataset_path": "",
        "target": "gpt",
        "trial": 1,
        "status": "ok",
        "score": 1.0,
        "verdict": "pass",
    }
    return Result(**{**fields, "eval_id": eval_id, "candidate_answer": text, **known})


@pytest.fixture
def write(tmp_path):
    def lines(*rows, name="results.jsonl", end="\n"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\n".join(row if isinstance(row, bytes) else to_json(row) for row in rows) + end.encode())

    return lines


def failure_of(ask, target, **fields):
    with pytest.raises(TargetFailure) as failed:
        ask(target, **fields)
    return failed.value


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("results.jsonl", "results.jsonl"),
        ("runs/r1/results.jsonl", "runs/r1"),
        ("runs/r1/results.jsonl", "runs/r1/results.jsonl"),
        ("runs/r1/results.jsonl", "runs/r1:gpt"),
        ("12:30/results.jsonl", "12:30"),
    ],
)
def test_a_run_or_a_file_can_be_replayed(ask, write, name, source):
    write(record(), name=name)
    assert ask(replay(source)).text == "hi"


def test_all_fields_of_an_answer_are_restored(ask, write):
    messages = (
        {"role": "assistant", "tool_calls": [{"tool": "Read", "input": {"a": 1}, "duration_ms": 5}]},
        {"role": "assistant", "content": "done"},
    )
    metrics = ExecutionMetrics(TokenUsage(1, 2, 1), 0.5, 12.0)
    write(record(text="cleaned", output_messages=messages, execution_metrics=metrics))
    response = ask(replay())
    assert response.messages == (
        Message("assistant", None, (ToolCall("Read", {"a": 1}, duration_ms=5),)),
        Message("assistant", "done"),
    )
    assert (response.usage, response.cost_usd, response.duration_ms) == (TokenUsage(1, 2, 1), 0.5, 12.0)


JOBS = {
    "a case": ({"id": "two"}, "case two"),
    "a trial": ({"trial": 2}, "trial 2"),
    "a dataset": ({"dataset": "other"}, "dataset other"),
    "the dataset of the same path": ({"dataset": "twin", "path": "b.yaml"}, "twin b"),
    "another dataset of the same path": ({"dataset": "twin", "path": "a.yaml"}, "twin a"),
    "the last of two records": ({"id": "retried"}, "second try"),
    "a record without a dataset": ({"id": "bare", "dataset": "any"}, "no dataset"),
}


@pytest.mark.parametrize(("fields", "text"), JOBS.values(), ids=JOBS)
def test_answers_are_found_by(ask, write, fields, text):
    write(
        record(),
        record("two", "case two"),
        record(text="trial 2", trial=2),
        record(text="dataset other", dataset="other"),
        record(text="twin a", dataset="twin", dataset_path="a.yaml"),
        record(text="twin b", dataset="twin", dataset_path="b.yaml"),
        record("retried", "first try"),
        record("retried", "second try"),
        record("bare", "no dataset"),
    )
    assert ask(replay(), **fields).text == text


def test_prompts_have_separate_answers(write, tmp_path, new_request):
    write(record(text="short", prompt="a"), record(text="long", prompt="b"))

    async def answer():
        request = new_request()
        request.prompt_id = "b"
        responder = replay().open(str(tmp_path))
        try:
            return (await responder.respond(request)).text
        finally:
            await responder.aclose()

    assert asyncio.run(answer()) == "long"


@pytest.mark.parametrize("fields", [{"id": "two"}, {"trial": 2}, {"dataset": "other"}])
def test_a_missing_answer_is_a_failure(ask, write, fields):
    write(record(dataset="mine"))
    failure = failure_of(ask, replay(), **{"dataset": "mine", **fields})
    assert failure.error_class == "invalid_response"
    assert "has no answer to" in failure.message


def test_an_error_is_a_failure(ask, write):
    error = ErrorInfo("rate_limit", "slow down", "target")
    write(record(text=None, status="error", score=None, verdict=None, error=error))
    failure = failure_of(ask, replay())
    assert failure.error_class == "invalid_response"
    assert failure.message == "The earlier run has an error instead of an answer to 'one': slow down"


def test_an_answer_with_an_evaluator_error_is_an_answer(ask, write):
    error = ErrorInfo("evaluator", "no judge", "evaluator")
    write(record(status="error", score=None, verdict=None, error=error))
    assert ask(replay()).text == "hi"


OTHERS = {
    "AgentV (TypeScript) 2.x": ({"eval_id": "one", "score": 1, "candidate_answer": "hi", "target": "t"}, "hi"),
    "AgentV (TypeScript) 4.x": ({"test_id": "one", "suite": "", "score": 1, "answer": "hi"}, "hi"),
    "AgentV (TypeScript) 4.x with output": ({"test_id": "one", "score": 1, "output": "hi"}, "hi"),
    "AgentV (TypeScript) 4.x with messages": (
        {"test_id": "one", "output": [{"role": "assistant", "content": "hi"}]},
        "hi",
    ),
    "a recording": ({"eval_id": "one", "output_messages": [{"role": "assistant", "content": "hi"}]}, "hi"),
    "a recording of texts": ({"eval_id": "one", "text": "hi"}, "hi"),
    "data": ({"eval_id": "one", "candidate_answer": {"a": 1}}, '{"a":1}'),
    "an empty answer": ({"eval_id": "one", "candidate_answer": ""}, ""),
}


@pytest.mark.parametrize(("row", "text"), OTHERS.values(), ids=OTHERS)
def test_other_result_formats_are_read(ask, write, row, text):
    write(row)
    assert ask(replay()).text == text


def test_metrics_of_agentv_typescript_are_read(ask, write):
    summary = {"event_count": 1, "token_usage": {"input": 3, "output": 4}, "cost_usd": 0.1, "tool_durations": "odd"}
    write({"eval_id": "one", "candidate_answer": "hi", "trace_summary": summary})
    response = ask(replay())
    assert (response.usage, response.cost_usd) == (TokenUsage(3, 4), 0.1)


def test_an_error_of_agentv_typescript_is_a_failure(ask, write):
    write({"eval_id": "one", "score": 0, "candidate_answer": "Error occurred: boom", "error": "boom"})
    assert "an error instead of an answer to 'one': boom" in failure_of(ask, replay()).message


@pytest.mark.parametrize(
    ("source", "name", "text"),
    [("results.jsonl:b", "x", "of b"), ("results.jsonl", "b", "of b"), ("results.jsonl:a", "b", "of a")],
)
def test_one_of_several_targets_is_selected(ask, write, source, name, text):
    write(record(text="of a", target="a"), record(text="of b", target="b"))
    assert ask(replay(source, name)).text == text


REFUSED = {
    "a missing file": ("nowhere", "nowhere does not exist"),
    "a folder without results": ("empty", "results.jsonl"),
    "several targets": ("results.jsonl", "It has several targets: a, b"),
    "an unknown target": ("results.jsonl:aa", "It has no target 'aa'"),
    "no results": ("blank.jsonl", "It has no results"),
    "not JSON": ("broken.jsonl", "Invalid record at line 2"),
    "another kind of file": ("cases.jsonl", "neither 'eval_id' nor 'test_id'"),
}


@pytest.mark.parametrize(("source", "message"), REFUSED.values(), ids=REFUSED)
def test_an_unusable_source_is_an_error_on_open(write, tmp_path, source, message):
    (tmp_path / "empty").mkdir()
    write(record(target="a"), record(target="b"))
    write(b"", name="blank.jsonl")
    write(record(), b"{oops", record(), name="broken.jsonl")
    write({"id": "one", "input": "x"}, name="cases.jsonl")
    with pytest.raises(AgentvError, match="Cannot replay") as raised:
        replay(source).open(str(tmp_path))
    assert message in str(raised.value)


def test_an_incomplete_last_line_is_ignored(ask, write):
    write(record(), to_json(record("two"))[:40], end="")
    assert ask(replay()).text == "hi"


def test_a_large_file_is_not_loaded_into_memory(tmp_path):
    """Only the offsets of 40,000 results of 2 kB each are kept."""
    resource = pytest.importorskip("resource")
    line = to_json(record("case-@", "x" * 2000)).decode() + "\n"
    with (tmp_path / "results.jsonl").open("w") as stream:
        stream.writelines(line.replace("@", str(number)) for number in range(40_000))
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    responder = replay().open(str(tmp_path))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before
    asyncio.run(responder.aclose())
    assert grown < 20e6
    assert len(json.loads(line)["candidate_answer"]) == 2000
