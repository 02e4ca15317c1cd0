"""The schemas: current, valid, and consistent with the readers."""

from functools import cache
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from agentv.datasets.case.keys import CASE_LIST_KEYS, CaseKeys
from agentv.model.manifest import Counts, DatasetEntry, RunManifest, TargetEntry
from agentv.model.message import PART_KINDS, ROLES
from agentv.model.result import ErrorInfo, EvaluatorResult, ExecutionMetrics, Result, TokenUsage, TraceSummary
from agentv.registry import EVALUATORS, TARGETS
from agentv.schemas import NAMES, schema, to_text, write
from agentv.settings.settings_reader import check_config
from agentv.targets.targets_file import check_targets

CARRIED = Path(__file__).parent.parent / "schemas"

QUESTION = [{"role": "user", "content": "What is 2+2?"}]
CASE = {"id": "sum", "expected_outcome": "The sum is right", "input": "What is 2+2?"}


@cache
def validator(name):
    return jsonschema_rs.Draft202012Validator(schema(name))


def case(**keys):
    return CASE | keys


@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_in_the_repository_are_current(name):
    carried = (CARRIED / f"{name}.json").read_bytes()
    assert carried == to_text(schema(name)), "run: python -m agentv.schemas schemas"


def test_the_repository_has_no_other_schemas(tmp_path):
    write(tmp_path)
    assert sorted(path.name for path in CARRIED.iterdir()) == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_valid_and_described(name):
    described = schema(name)
    jsonschema_rs.meta.validate(described)
    assert described["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert described["$id"] == f"agentv:schema/{name}"
    assert described["title"]
    assert described["description"]


@pytest.mark.parametrize(
    ("name", "definition"),
    [
        ("dataset", "HeaderKeys"),
        ("line", "CaseKeys"),
        ("targets", "Target"),
        ("config", "RunDefaults"),
        ("result", "Result"),
    ],
)
def test_every_key_of_a_schema_is_described(name, definition):
    body = schema(name)
    properties = body["$defs"][definition]["properties"] if definition in body["$defs"] else body["properties"]
    unexplained = [
        key for key, value in properties.items() if value and "$ref" not in value and "description" not in value
    ]
    assert unexplained == []


def test_a_key_that_means_something_else_here_is_described_here():
    definitions = schema("targets")["$defs"]
    assert definitions["Azure"]["properties"]["model"]["description"] == "Deployment"
    assert "description" not in definitions["OpenAI"]["properties"]["model"]


def test_the_hand_written_parts_list_the_roles_parts_and_case_lists_of_the_code():
    dataset = schema("dataset")
    message = dataset["$defs"]["message"]["properties"]
    assert message["role"]["enum"] == list(ROLES)
    assert message["content"]["items"]["anyOf"][1]["properties"]["type"]["enum"] == list(PART_KINDS)
    assert list(dataset["properties"]) == list(CASE_LIST_KEYS)


def test_an_unknown_name_is_a_key_error():
    with pytest.raises(KeyError):
        schema("dataste")


LINES = {
    "text as input": case(),
    "messages as input": case(input=QUESTION),
    "one message as input": case(input=QUESTION[0]),
    "the old name of input": {"id": "a", "expected_outcome": "x", "input_messages": QUESTION},
    "text as expected output": case(expected_output="4"),
    "an object as expected output": case(expected_output={"riskLevel": "High"}),
    "tool calls as expected output": case(
        expected_output=[{"role": "assistant", "tool_calls": [{"tool": "Read", "input": {"file_path": "config.json"}}]}]
    ),
    "the old name of expected output": case(expected_messages=[{"role": "assistant", "content": "4"}]),
    "both names of input": case(input_messages=QUESTION),
    "an old value that is not looked at": case(input_messages="x", expected_output="4", expected_messages="x"),
    "file parts": case(input=[{"role": "user", "content": [{"type": "file", "value": "a.md"}, "and text"]}]),
    "other names of the outcome": {"id": "a", "criteria": "x", "input": "y"},
    "a target of its own": case(execution={"target": "openai"}),
    "an evaluator of its own": case(evaluators=[{"type": "rubric"}]),
    "an id that is a number": case(id=7),
    "rubrics as texts and objects": case(rubrics=["Is polite", {"id": "a", "score_ranges": {"0": "a", "5": "b"}}]),
    "a conversation": case(turns=[{"input": "And 3+3?", "expected_output": "6"}], user={"goal": "learn"}),
    "keys nobody knows": case(note="mine"),
    "nulls": case(expected_output=None, evaluators=None, tags=None, metadata=None),
    "AgentMark's row": {"input": {"userMessage": "Why?"}},
    "AgentMark's row with an answer": {"input": {"userMessage": "What is 7*9?"}, "expected_output": "63"},
    "variables": case(input={"city": "Paris"}, prompt="Where is {{ city }}?"),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_is_accepted(line):
    assert [error.message for error in validator("line").iter_errors(line)] == []
    assert validator("dataset").is_valid({"evalcases": [line], "format": "agentmark"})


WRONG_LINES = {
    "no id": {"expected_outcome": "x", "input": "y"},
    "a blank id": case(id=" "),
    "no input": {"id": "a", "expected_outcome": "x"},
    "a number as input": case(input=4),
    "an empty list as input": case(input=[]),
    "text under the old name": {"id": "a", "expected_outcome": "x", "input_messages": "y"},
    "a message without id": {"input": {"role": "user", "content": "x"}},
    "a wrong role": case(input=[{"role": "robot", "content": "x"}]),
    "a message without content": case(input=[{"role": "user"}]),
    "a part of no type": case(input=[{"role": "user", "content": [{"type": "video", "value": "x"}]}]),
    "a number as outcome": case(expected_outcome=4),
    "an unknown evaluator": case(evaluators=[{"type": "llm_jugde"}]),
    "evaluators that are no list": case(evaluators={"type": "rubric"}),
    "a negative weight": case(evaluators=[{"type": "equals", "weight": -1}]),
    "a wrong setting of an evaluator": case(evaluators=[{"type": "regex", "flags": 3}]),
    "a wrong setting of a member": case(
        evaluators=[{"type": "composite", "evaluators": [{"type": "latency"}], "aggregator": "weighted_average"}]
    ),
    "no trials": case(execution={"trials": 0}),
    "a rubric item that is a number": case(rubrics=[3]),
    "a key of AgentV 5.x": case(environment="x"),
    "a user without a goal": case(user={"persona": "x"}),
}


@pytest.mark.parametrize("line", WRONG_LINES.values(), ids=WRONG_LINES)
def test_a_line_is_refused(line):
    assert not validator("line").is_valid(line)
    assert not validator("dataset").is_valid({"evalcases": [line]})


@pytest.mark.parametrize(
    "entry",
    [
        "The answer is polite",
        {"type": "llm-grader", "prompt": "judge.md", "target": ["a", "b"], "required": 0.7, "negate": True},
        {"type": "code-grader", "command": ["python", "x.py"], "anything": {"of": "mine"}},
        {"type": "not-contains", "value": "sorry"},
        {"type": "token-usage", "maxTotal": 100},
        {"type": "checks.py:Polite", "strictness": 3},
        {"name": "equals"},
        {"type": "rubrics", "criteria": [{"outcome": "x", "requiredMinScore": 3}]},
        {"type": "latency", "maxDurationMs": 100, "weight": None},
    ],
)
def test_an_evaluator_entry_is_accepted(entry):
    assert [error.message for error in validator("line").iter_errors(case(evaluators=[entry]))] == []


@pytest.mark.parametrize(
    ("document", "accepted"),
    [
        ({"evalcases": [CASE]}, True),
        ({"tests": [CASE], "name": "mine", "assertions": ["Is polite"]}, True),
        ({"cases": [CASE], "execution": {"targets": ["a", "b"], "verdicts": {"pass": 0.9}}, "author": "me"}, True),
        ({"evalcases": [{"input": {"userMessage": "Hi"}}], "format": "agentmark"}, True),
        ({"evalcases": [CASE], "$schema": "x", "version": 1, "description": None, "unknown": 1}, True),
        ({"evalcases": [CASE], "prompts": [{"id": "a", "prompt": "{{ x }}"}]}, True),
        ({"evalcases": []}, False),
        ({"evalcases": {}}, False),
        ({"dataset": "x"}, False),
        ({"evalcases": [CASE], "tests": [CASE]}, False),
        ({"evalcases": [{"input": {"userMessage": "Hi"}}]}, False),
        ({"evalcases": [CASE], "evaluator": "llm_jugde"}, False),
        ({"evalcases": [CASE], "workspace": {"template": "x"}}, True),
        ({"evalcases": [CASE], "workspace": {"docker": {}}}, False),
        ({"evalcases": [CASE], "execution": {"targets": [{"name": "a", "hooks": {}}]}}, True),
        ({"evalcases": [CASE], "execution": {"targets": [{"name": "a", "hooks": []}]}}, False),
        ({"tests": "./cases.yaml"}, True),
        ({"tests": ["file://cases.yaml", CASE]}, True),
        ({"tests": ["cases.yaml"]}, False),
        ([CASE], False),
    ],
)
def test_a_document_is_accepted_or_refused(document, accepted):
    assert validator("dataset").is_valid(document) is accepted


@pytest.mark.parametrize(
    ("sidecar", "accepted"),
    [
        ({"execution": {"target": "azure_base"}, "evaluator": "llm_judge"}, True),
        ({"dataset": "mine", "description": "x", "metadata": {"a": 1}, "tags": ["b"]}, True),
        (None, True),
        ({"tags": "b"}, False),
        ({"execution": {"timeout_seconds": 0}}, False),
        ([], False),
    ],
)
def test_a_sidecar_is_accepted_or_refused(sidecar, accepted):
    assert validator("sidecar").is_valid(sidecar) is accepted


TARGET_ENTRIES = [
    ({"provider": "openai", "model": "m", "baseURL": "http://x", "max-retries": 1}, True),
    ({"provider": "openai", "model": "m", "temperature": "${{ T }}", "workers": "${{ W }}"}, True),
    ({"provider": "azure_openai", "resourceName": "r", "deployment": "d", "apiVersion": "v1"}, True),
    ({"provider": "cli", "commandTemplate": "x {PROMPT}", "healthcheck": {"command": "y"}}, True),
    ({"provider": "mock", "delay_ms": ["${{ A }}", 3], "retry_status_codes": [429, "${{ B }}"]}, True),
    ({"provider": "mine.py:Echo", "anything": 1}, True),
    ({"provider": "${{ P }}", "anything": 1}, True),
    ({"provider": "opanai"}, False),
    ({"provider": "openai", "modell": "m"}, False),
    ({"provider": "openai", "model": "m", "temperature": "warm"}, False),
    ({"provider": "openai", "model": "m", "api": "chats"}, False),
    ({"provider": "cli"}, False),
    ({"provider": "cli", "command": "x", "healthcheck": {"urll": "y"}}, False),
    ({"provider": "mock", "fault_rate": 2}, False),
    ({"provider": "mock", "use_target": "${{ T }}", "fallback_targets": ["t"]}, True),
    ({"use_target": "${{ T }}"}, True),
    ({"use_target": 3}, False),
    ({"provider": "openai", "model": "m", "stream_log": False, "subagent_mode_allowed": True}, True),
    ({}, False),
]


@pytest.mark.parametrize(("entry", "accepted"), TARGET_ENTRIES)
def test_the_schema_and_the_reader_agree_on_a_target(entry, accepted):
    data = {"targets": [{"name": "t", **entry}]}
    assert validator("targets").is_valid(data) is accepted
    assert (check_targets(data).errors == []) is accepted


@pytest.mark.parametrize(
    ("data", "accepted"),
    [
        ({"guideline_patterns": ["**/*.md"]}, True),
        ({"execution": {"workers": 4, "verdicts": {"pass": 0.9}}, "$schema": "agentv-config-v2"}, True),
        (None, True),
        ({"unknown": 1}, True),
        ({"guideline_patterns": "**/*.md"}, False),
        ({"execution": {"workers": 0}}, False),
        ([], False),
    ],
)
def test_the_schema_and_the_reader_agree_on_a_configuration(data, accepted):
    assert validator("config").is_valid(data) is accepted
    assert (check_config(data).errors == []) is accepted


def test_a_full_result_fits_its_schema():
    usage = TokenUsage(10, 5, 2)
    error = ErrorInfo("timeout", "No answer within 60 s", "target")
    member = EvaluatorResult(name="m", type="equals", score=1.0, weight=1.0, verdict="pass")
    result = Result(
        timestamp="2026-11-15T00:00:00Z",
        run_id="r",
        eval_id="a",
        dataset="d",
        dataset_path="d.yaml",
        target="t",
        trial=1,
        status="ok",
        score=0.5,
        verdict="borderline",
        candidate_answer="4",
        evaluator_results=(
            EvaluatorResult(
                name="c",
                type="composite",
                score=None,
                weight=2.0,
                verdict=None,
                error=error,
                evaluator_results=(member,),
            ),
        ),
        trace_summary=TraceSummary(1, ("Read",), {"Read": 1}),
        execution_metrics=ExecutionMetrics(usage, 0.01, 12.5, {"Read": [3.0]}),
    )
    data = msgspec.json.decode(msgspec.json.encode(result))
    assert [problem.message for problem in validator("result").iter_errors(data)] == []
    assert data["evaluator_results"][0]["error"] == {"class": "timeout", "message": error.message, "stage": "target"}
    assert not validator("result").is_valid({**data, "status": "fine"})


def test_a_manifest_fits_its_schema():
    manifest = RunManifest(
        run_id="r",
        started_at="2026-11-15T00:00:00Z",
        datasets=(DatasetEntry(path="d.jsonl", name="d", digest="0", cases=3, skipped_lines=(2,)),),
        targets=(TargetEntry(name="t", provider="mock", fingerprint="0"),),
        counts=Counts(cases=3, jobs=3),
    )
    data = msgspec.json.decode(msgspec.json.encode(manifest))
    assert [problem.message for problem in validator("run").iter_errors(data)] == []
    assert data["schema_version"] == 1


def test_every_alias_and_every_kind_is_in_the_schemas():
    definitions = schema("dataset")["$defs"]
    assert set(CaseKeys.aliases) <= set(definitions["CaseKeys"]["properties"])
    assert definitions["CaseKeys"]["properties"]["input_messages"]["deprecated"]
    types = definitions["evaluator_type"]["anyOf"][0]["enum"]
    assert {*EVALUATORS.names(), *EVALUATORS.aliases(), "code-grader", "contains-any"} <= set(types)
    targets = schema("targets")["$defs"]
    providers = targets["target"]["properties"]["provider"]["anyOf"][0]["enum"]
    assert {*TARGETS.names(), *TARGETS.aliases()} <= set(providers)
    for name in TARGETS.names():
        kind = TARGETS.find(name)
        assert set(kind.aliases) <= set(targets[kind.__name__]["properties"])
        assert targets[kind.__name__]["additionalProperties"] is False
