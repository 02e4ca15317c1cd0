"""Encode and decode results, and convert rows of AgentV (TypeScript)."""

import json
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.model.result import ErrorInfo, EvaluatorResult, ExecutionMetrics, Result, TokenUsage, TraceSummary
from agentv.runs.record import RecordError, decode_record, encode_record
from made_results import PLAIN, made, unscored

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/results/agentv_rows.jsonl").read_text("utf-8").splitlines()
]

FULL = made(
    conversation_id="c",
    prompt="p",
    trial=3,
    status="error",
    score=None,
    verdict=None,
    partial_score=0.5,
    hits=("h",),
    misses=("m",),
    reasoning="r",
    candidate_answer='Zeile\n"ü"\u2028',
    output_messages=({"role": "assistant", "content": "x"},),
    evaluator_results=(
        EvaluatorResult(
            name="all",
            type="composite",
            score=0.5,
            weight=2.0,
            verdict="fail",
            details={"k": [1, None]},
            token_usage=TokenUsage(1, 2, 3),
            cost_usd=0.1,
            evaluator_provider_request={"user_prompt": "u"},
            evaluator_results=(EvaluatorResult(name="in", type="contains", score=None, weight=1.0, verdict=None),),
        ),
    ),
    error=ErrorInfo("evaluator", "no", "evaluator"),
    trace_summary=TraceSummary(2, ("a",), {"a": 2}, 1),
    execution_metrics=ExecutionMetrics(TokenUsage(1, 2), 0.2, 3.5, {"a": [1.0]}),
    file_changes="diff",
    attempts=2,
    cached=True,
    carried_from="other",
    fingerprint="f",
    tags=("x",),
    metadata={"k": {"n": 1}},
)


@pytest.mark.parametrize("result", [PLAIN, FULL], ids=["plain", "full"])
def test_a_result_survives_a_round_trip_through_one_line(result):
    line = encode_record(result)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert decode_record(line) == result


def test_score_and_verdict_are_always_written_other_defaults_never():
    data = json.loads(encode_record(unscored()))
    assert data["schema_version"] == 1
    assert (data["score"], data["verdict"]) == (None, None)
    assert set(data) == {f for f in Result.__struct_fields__[:14] if f not in ("conversation_id", "cluster", "prompt")}


class Strange:
    def __repr__(self):
        return "<strange>"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("half a character \ud800", "half a character ?"),
        (Strange(), "<strange>"),
        ([Strange(), {1: {2}}], ["<strange>", {"1": [2]}]),
        ({("a", 1): 1}, {"('a', 1)": 1}),
        (10**30, str(10**30)),
        (float("nan"), None),
    ],
    ids=str,
)
def test_values_that_json_cannot_represent_are_written_as_text(value, written):
    line = encode_record(msgspec.structs.replace(FULL, metadata={"value": value, "text": "\ud800"}))
    read = decode_record(line)
    assert read.metadata == {"value": written, "text": "?"}
    assert msgspec.structs.replace(read, metadata={}) == msgspec.structs.replace(FULL, metadata={})


def test_circular_values_are_cut_off_and_decimals_become_text():
    circle: list = []
    circle.append(circle)
    assert decode_record(encode_record(made(metadata={"circle": circle}))).metadata
    line = encode_record(made(metadata={"price": Decimal("1.10")}))
    assert decode_record(line).metadata == {"price": "1.10"}


@given(st.text(), st.dictionaries(st.text(), st.none() | st.text() | st.integers() | st.lists(st.floats()), max_size=3))
def test_any_answer_and_any_metadata_can_be_encoded(answer, metadata):
    line = encode_record(made(candidate_answer=answer, metadata=metadata))
    assert line.count(b"\n") == 1
    assert decode_record(line).eval_id == "a"


@pytest.mark.parametrize("row", ROWS, ids=[row["about"] for row in ROWS])
def test_rows_of_agentv_typescript_are_converted_to_results(row):
    line = json.dumps(row["row"]).encode()
    if "refused" in row:
        with pytest.raises(RecordError, match=row["refused"]):
            decode_record(line)
        return
    result = decode_record(line, run_id="earlier")
    read = json.loads(encode_record(result))
    assert read["run_id"] == "earlier"
    assert {key: read.get(key) for key in row["result"]} == row["result"]
    # The converted result survives a round trip.
    assert decode_record(encode_record(result)) == result


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "Invalid JSON"),
        (b"\xff", "Invalid JSON"),
        (b"[]", "Expected"),
        (b"{}", "neither 'eval_id' nor 'test_id'"),
        (b'{"schema_version":1,"eval_id":"a"}', "missing required field `timestamp`"),
        (b'{"schema_version":2,"eval_id":"a"}', "schema_version is 2"),
        (encode_record(PLAIN).replace(b'"schema_version":1', b'"schema_version":7'), "schema_version is 7"),
        (encode_record(PLAIN).replace(b'"status":"ok"', b'"status":"fine"'), "fine"),
        (encode_record(PLAIN).replace(b'"score":1.0', b'"score":1e400'), "out of range"),
        (b'{"eval_id": "a", "score": 1e400}', "out of range"),
    ],
)
def test_invalid_lines_are_refused_with_the_reason(line, message):
    with pytest.raises(RecordError, match=message):
        decode_record(line)


def test_half_of_a_surrogate_pair_is_read_as_a_replacement_character():
    line = rb'{"eval_id": "x", "score": 1, "answer": "cut \ud83d", "reasoning": "whole \ud83d\ude80"}'
    found = decode_record(line)
    assert (found.candidate_answer, found.reasoning) == ("cut \ufffd", "whole \U0001f680")
    with pytest.raises(RecordError, match="Invalid JSON"):
        decode_record(rb'{"eval_id": "x", "score": 1, "answer": "\ud83d"')
