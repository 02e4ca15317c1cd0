"""Settings that each evaluator type accepts or refuses, read like an entry of a dataset."""

import math

import pytest

from agentv.evaluators.judges.rubric import RubricItem, ranges_in_order, rubric_items
from agentv.model.diagnostics import Problems
from agentv.registry import EVALUATORS
from agentv.settings.evaluator_reader import read_entries, read_entry


def findings(type_, **settings):
    """Return the problems with a type's settings."""
    problems = Problems()
    read_entry({"type": type_, **settings}, (), problems)
    return [problem.message for problem in problems]


def read(type_, **settings):
    problems = Problems()
    result = read_entry({"type": type_, **settings}, (), problems)
    assert not problems, list(problems)
    return result.evaluator


MESSAGES = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "{{ candidate_answer }}"}]
RANGES = {"0": "wrong", "3": "partly right", "8": "right"}
RANGE_LIST = [
    {"score_range": [0, 4], "expected_outcome": "weak"},
    {"score_range": [5, 10], "description": "strong"},
]

ACCEPTED = {
    "a judge without settings": ("llm_judge", {}),
    "a prompt as text": ("llm_judge", {"prompt": "Is {{ candidate_answer }} polite?"}),
    "a prompt as a file": ("llm_judge", {"prompt": "../prompts/safety-check.md"}),
    "a prompt as messages": ("llm_judge", {"prompt": MESSAGES}),
    "a prompt as a program's arguments": ("llm_judge", {"prompt": ["uv", "run", "prompt.py"]}),
    "a prompt program with settings": (
        "llm_judge",
        {"prompt": {"script": ["bun", "p.ts"], "config": {"style": "terse"}}},
    ),
    "a prompt program in 4.x's words": ("llm_judge", {"prompt": {"command": "python p.py"}}),
    "promptfoo's word for the prompt": ("llm_judge", {"rubricPrompt": "Grade {{ candidate_answer }}"}),
    "rubrics on the judge itself": ("llm_judge", {"rubrics": ["Is polite", {"outcome": "Is short", "weight": 2}]}),
    "votes": ("llm_judge", {"votes": 5, "temperature": 0.2, "model": "small"}),
    "a rubric without items": ("rubric", {}),
    "rubric items as texts": ("rubric", {"rubrics": ["Mentions the partition step", "States the complexity"]}),
    "one text as the whole rubric": ("rubric", {"value": "Answers in French"}),
    "rubric items in 4.x's words": (
        "rubric",
        {"criteria": [{"id": "a", "criteria": "Cites a source", "required": False}]},
    ),
    "an item with a number as id": ("rubric", {"rubrics": [{"id": 1, "expected_outcome": "Is correct"}]}),
    "score ranges as a map": ("rubric", {"rubrics": [{"id": "a", "score_ranges": RANGES, "required_min_score": 8}]}),
    "score ranges as a list": ("rubric", {"rubrics": [{"scoreRanges": RANGE_LIST}]}),
    "a program as arguments": ("code_judge", {"script": ["uv", "run", "check.py"], "cwd": "."}),
    "a program as a shell string": ("code_judge", {"command": "node check.js | tail -1", "timeout_seconds": 5}),
    "a command with exit codes": ("command", {"command": "pytest -q", "pass_codes": [0, 5], "fail_codes": [1]}),
    "a function in a file": ("python", {"function": "checks/format.py:grade"}),
    "a function in a module": ("python", {"value": "my.checks:grade", "config": {"strict": True}}),
    "a weighted composite": (
        "composite",
        {
            "evaluators": [{"name": "safety", "type": "llm_judge"}, {"type": "equals"}],
            "aggregator": {"type": "weighted_average", "weights": {"safety": 0.3, "equals": 0.7}},
        },
    ),
    "a composite whose program is a path": (
        "composite",
        {"evaluators": ["Is polite"], "aggregator": {"type": "code_judge", "path": "node ../gate.js"}},
    ),
    "a composite that names its aggregator": (
        "composite",
        {"assertions": [{"type": "contains"}], "aggregator": "weighted_average"},
    ),
    "a composite in 4.x's words": (
        "composite",
        {"assert": ["Is polite"], "aggregator": {"type": "llm-grader", "prompt": "decide.md"}},
    ),
    "a fraction of members that must pass": (
        "composite",
        {"evaluators": ["Is polite"], "aggregator": {"type": "threshold", "threshold": 0.5}},
    ),
    "minimums": ("tool_trajectory", {"mode": "any_order", "minimums": {"knowledgeSearch": 2}}),
    "a sequence with arguments": (
        "tool_trajectory",
        {"mode": "in_order", "expected": [{"tool": "load", "args": {"source": "a"}}, {"tool": "save", "args": "any"}]},
    ),
    "latency of one call": ("tool_trajectory", {"mode": "exact", "expected": [{"tool": "a", "maxDurationMs": 50}]}),
    "4.x's matching of arguments": (
        "tool_trajectory",
        {"mode": "superset", "args_match": "ignore", "expected": [{"tool": "a", "args_match": ["path"]}]},
    ),
    "fields": (
        "field_accuracy",
        {
            "fields": [
                {"path": "invoice.total", "match": "numeric_tolerance", "tolerance": 0.01, "relative": True},
                {"path": "lines[0].date", "match": "date", "formats": ["DD-MMM-YYYY"], "required": False, "weight": 2},
                {"path": "supplier"},
            ],
            "aggregation": "all_or_nothing",
        },
    ),
    "a time limit": ("latency", {"threshold": 2000}),
    "a cost limit": ("cost", {"budget": 0.05}),
    "promptfoo's word for a cost limit": ("cost", {"threshold": 0.05}),
    "token limits in camelCase": ("token_usage", {"maxTotal": 1000, "maxOutput": 200}),
    "several limits": ("execution_metrics", {"max_tool_calls": 5, "target_exploration_ratio": 0.6}),
    "a number as the text to find": ("contains", {"value": 42}),
    "an object that must be equal": ("equals", {"value": {"risk": "high"}}),
    "several texts": ("contains_any", {"value": ["yes", 1, True]}),
    "a pattern with flags": ("regex", {"pattern": r"^\d{4}$", "flags": "im"}),
    "JavaScript's flags": ("regex", {"value": "ja", "flags": "gi"}),
    "JSON with a schema": ("is_json", {"value": {"type": "object"}}),
    "a schema in a file": ("json_schema", {"schema": "schemas/answer.json"}),
    "paths to ignore": ("json_diff", {"value": '{"a": 1}', "ignore": ["meta.created", "items[0]"]}),
    "several references": ("bleu", {"value": ["a b", "b a"], "threshold": 0.5}),
    "a variant of ROUGE": ("rouge", {"variant": "rougeLsum", "measure": "recall"}),
    "an answer to compare with": ("pairwise", {"baseline": "Oslo", "criteria": "Shorter is better", "votes": 2}),
    "promptfoo's names": ("is-refusal", {}),
    "a number of edits": ("levenshtein", {"value": "Paris", "max_distance": 2}),
    "several similar texts": ("similarity", {"value": ["Paris", "paris"], "threshold": 0.9}),
}


@pytest.mark.parametrize(("type_", "settings"), ACCEPTED.values(), ids=ACCEPTED)
def test_settings_are_accepted(type_, settings):
    assert read(type_, **settings) is not None


REFUSED = {
    "a judge without votes": ("llm_judge", {"votes": 0}, "Field 'votes' must be an integer of at least 1"),
    "a prompt that is a number": (
        "llm_judge",
        {"prompt": 3},
        "Field 'prompt' must be a string or an object or an array, got integer",
    ),
    "a blank prompt": ("llm_judge", {"prompt": "  "}, "'prompt' is blank"),
    "messages among arguments": ("llm_judge", {"prompt": ["a", MESSAGES[0]]}, "'prompt' mixes messages with strings"),
    "a message without content": ("llm_judge", {"prompt": [{"role": "user"}]}, "'prompt[0]' is not a message"),
    "a program without arguments": ("llm_judge", {"prompt": {"script": []}}, "'prompt.script' must name a program"),
    "a prompt object without a program": ("llm_judge", {"prompt": {}}, "Missing required field: 'prompt.script'"),
    "a mistyped key": ("llm_judge", {"promt": "x"}, "Unknown field 'promt'"),
    "a judge named as provider": ("llm_judge", {"provider": "openai:gpt"}, "Field 'provider' is not supported"),
    "an item without a text": ("rubric", {"rubrics": [{"id": "a"}]}, "'rubrics[0]' needs 'expected_outcome'"),
    "a blank item": ("rubric", {"rubrics": ["ok", " "]}, "'rubrics[1]' needs 'expected_outcome'"),
    "an empty rubric": ("rubric", {"rubrics": []}, "'rubrics' is an empty list"),
    "an item of the wrong type": (
        "rubric",
        {"rubrics": [5]},
        "Field 'rubrics[0]' must be a string or an object, got integer",
    ),
    "a mistyped key in an item": (
        "rubric",
        {"rubrics": ["ok", {"outcom": "x", "description": "y"}]},
        "Unknown field 'rubrics[1].outcom'",
    ),
    "two items with one id": (
        "rubric",
        {"rubrics": [{"id": "a", "outcome": "x"}, {"id": "a", "outcome": "y"}]},
        "'rubrics[1]' has the same id as another item: 'a'",
    ),
    "items with weight 0": ("rubric", {"rubrics": [{"outcome": "x", "weight": 0}]}, "has weight 0"),
    "an infinite weight": (
        "rubric",
        {"rubrics": [{"outcome": "x", "weight": math.inf}]},
        "Field 'rubrics[0].weight' must be a finite number",
    ),
    "a minimum above ten": (
        "rubric",
        {"rubrics": [{"outcome": "x", "required_min_score": 11}]},
        "Field 'rubrics[0].required_min_score' must be an integer of at most 10",
    ),
    "a minimum that is not an integer": (
        "rubric",
        {"rubrics": [{"outcome": "x", "required_min_score": 7.5}]},
        "Field 'rubrics[0].required_min_score' must be an integer, got number",
    ),
    "ranges that start late": ("rubric", {"rubrics": [{"score_ranges": {"1": "a"}}]}, "that leave out 0"),
    "a range named by a word": (
        "rubric",
        {"rubrics": [{"score_ranges": {"low": "a"}}]},
        "has the key 'low' in 'score_ranges'",
    ),
    "a range beyond ten": ("rubric", {"rubrics": [{"score_ranges": {"0": "a", "11": "b"}}]}, "not within 0 to 10"),
    "ranges that overlap": (
        "rubric",
        {"rubrics": [{"score_ranges": [*RANGE_LIST, {"score_range": [4, 4], "outcome": "x"}]}]},
        "that overlap at 4",
    ),
    "ranges with a gap": (
        "rubric",
        {"rubrics": [{"score_ranges": [{"score_range": [0, 3], "outcome": "a"}, RANGE_LIST[1]]}]},
        "that leave out 4",
    ),
    "ranges that end early": ("rubric", {"rubrics": [{"score_ranges": RANGE_LIST[:1]}]}, "that leave out 5"),
    "a range that runs backwards": (
        "rubric",
        {"rubrics": [{"score_ranges": [{"score_range": [10, 0], "outcome": "a"}]}]},
        "the range 10 to 0",
    ),
    "a judge without a program": ("code_judge", {"cwd": "."}, "Missing required field: 'script'"),
    "a blank program": ("code_judge", {"script": " "}, "'script' is blank"),
    "a blank command": ("command", {"command": []}, "'command' must name a program"),
    "a code that passes and fails": (
        "command",
        {"command": "x", "pass_codes": [0, 1]},
        "Exit code 1 is in 'pass_codes' and in 'fail_codes'",
    ),
    "a code that no program has": (
        "command",
        {"command": "x", "fail_codes": [256]},
        "Field 'fail_codes[0]' must be an integer of at most 255",
    ),
    "a timeout of zero": (
        "code_judge",
        {"script": "x", "timeout_seconds": 0},
        "Field 'timeout_seconds' must be a number greater than 0",
    ),
    "code instead of a function": ("python", {"value": "len(output) > 3"}, "Write inline code as 'code'"),
    "a composite without members": (
        "composite",
        {"evaluators": [], "aggregator": "weighted_average"},
        "needs at least one member",
    ),
    "a composite without an aggregator": ("composite", {"evaluators": ["x"]}, "Missing required field: 'aggregator'"),
    "an unknown aggregator": (
        "composite",
        {"evaluators": ["x"], "aggregator": {"type": "median"}},
        "Field 'aggregator.type' has an unknown value 'median'",
    ),
    "a threshold without a number": (
        "composite",
        {"evaluators": ["x"], "aggregator": {"type": "threshold"}},
        "'aggregator': needs 'threshold'",
    ),
    "an aggregator without its program": (
        "composite",
        {"evaluators": ["x"], "aggregator": {"type": "code-grader"}},
        "'aggregator': needs 'script'",
    ),
    "a weight for an unknown member": (
        "composite",
        {
            "evaluators": [{"name": "safety", "type": "llm_judge"}],
            "aggregator": {"type": "weighted_average", "weights": {"safty": 1}},
        },
        "has the unknown member 'safty'. Did you mean 'safety'?",
    ),
    "a mode without a list": ("tool_trajectory", {"mode": "in_order"}, "Mode 'in_order' needs 'expected'"),
    "any order without minimums": ("tool_trajectory", {"mode": "any_order"}, "Mode 'any_order' needs 'minimums'"),
    "the list of another mode": (
        "tool_trajectory",
        {"mode": "exact", "expected": [{"tool": "a"}], "minimums": {"a": 1}},
        "Mode 'exact' uses 'expected', not 'minimums'",
    ),
    "an unknown mode": ("tool_trajectory", {"mode": "inorder"}, "Field 'mode' has an unknown value 'inorder'"),
    "a call without a tool": (
        "tool_trajectory",
        {"mode": "exact", "expected": [{"args": {}}]},
        "Missing required field: 'expected[0].tool'",
    ),
    "a negative minimum": (
        "tool_trajectory",
        {"mode": "any_order", "minimums": {"a": -1}},
        "must be an integer of at least 0",
    ),
    "a date format of another tool": (
        "field_accuracy",
        {"fields": [{"path": "a", "match": "date", "formats": ["%d/%m/%Y"]}]},
        "'fields[0].formats': '%d/%m/%Y' lacks a year, month or day; use YYYY, MM or MMM, and DD",
    ),
    "a date format without a day": (
        "field_accuracy",
        {"fields": [{"path": "a", "match": "date", "formats": ["DD.MM.YYYY", "MM/YYYY"]}]},
        "'fields[0].formats': 'MM/YYYY' lacks a year, month or day; use YYYY, MM or MMM, and DD",
    ),
    "no fields": ("field_accuracy", {"fields": []}, "'fields' is an empty list"),
    "an unknown way to match": (
        "field_accuracy",
        {"fields": [{"path": "a", "match": "numeric"}]},
        "Field 'fields[0].match' has an unknown value 'numeric'",
    ),
    "a field without a path": (
        "field_accuracy",
        {"fields": [{"match": "exact"}]},
        "Missing required field: 'fields[0].path'",
    ),
    "no limit": ("token_usage", {}, "At least one limit is needed: max_total, max_input, max_output"),
    "no limit among many": ("execution_metrics", {"exploration_tolerance": 0.1}, "At least one limit is needed"),
    "a negative limit": ("latency", {"threshold": -1}, "Field 'threshold' must be a number of at least 0"),
    "one text instead of a list": (
        "contains_all",
        {"value": "a,b"},
        "Field 'value' must be an array, got string",
    ),
    "an empty list of texts": ("contains_any", {"value": []}, "Field 'value' must be an array that is not empty"),
    "text that is not JSON": ("json_diff", {"value": "no"}, "'value' is not valid JSON"),
    "a path that is not one": ("json_diff", {"ignore": ["a..b"]}, "'ignore[0]': 'a..b' is not a valid path"),
    "a variant that ROUGE does not have": ("rouge", {"variant": "rouge9"}, "unknown value 'rouge9'"),
    "a blank answer to compare with": ("pairwise", {"value": " "}, "'value' is blank"),
    "a broken pattern": ("regex", {"value": "(a"}, "is not a valid regular expression"),
    "an unknown flag": ("regex", {"value": "a", "flags": "iq"}, "Unknown regex flag 'q'"),
    "a check without its schema": ("json_schema", {}, "Missing required field: 'schema'"),
    "edits as a threshold": ("levenshtein", {"threshold": 5}, "use 'max_distance' for a number of edits"),
    "two limits of similarity": ("levenshtein", {"threshold": 0.5, "max_distance": 2}, "not both"),
    "a threshold beyond one": ("similarity", {"threshold": 1.5}, "Field 'threshold' must be a number of at most 1"),
    "an embedding model": ("similarity", {"config": {"model": "e"}}, "Field 'config' is not supported"),
}


@pytest.mark.parametrize(("type_", "settings", "message"), REFUSED.values(), ids=REFUSED)
def test_settings_are_refused(type_, settings, message):
    found = findings(type_, **settings)
    assert len(found) == 1
    assert message in found[0]


WITHOUT_VALUE = ("equals", "contains", "icontains", "starts_with", "ends_with", "regex", "levenshtein", "similarity")


JUDGES_WITH_VALUE = ("factuality", "context_recall", "context_precision", "pairwise")


@pytest.mark.parametrize("type_", [*WITHOUT_VALUE, "bleu", "rouge", *JUDGES_WITH_VALUE])
def test_a_reference_is_needed_only_without_a_value(type_):
    assert read(type_).needs.reference
    assert not read(type_, value="Paris").needs.reference


@pytest.mark.parametrize("type_", ["contains_any", "contains_all", "icontains_any", "icontains_all"])
def test_a_reference_is_needed_only_without_a_list(type_):
    assert read(type_).needs.reference
    assert not read(type_, value=["Paris"]).needs.reference


@pytest.mark.parametrize(
    ("type_", "settings", "needed"),
    [
        ("field_accuracy", {"fields": [{"path": "a"}]}, True),
        ("llm_judge", {}, False),
        ("rubric", {}, False),
        ("faithfulness", {}, False),
        ("is_json", {}, False),
        ("latency", {"threshold": 1}, False),
        ("composite", {"evaluators": ["x", {"type": "is-json"}], "aggregator": "weighted_average"}, False),
        ("composite", {"evaluators": ["x", {"type": "not-equals"}], "aggregator": "weighted_average"}, True),
        ("composite", {"evaluators": [{"type": "equals", "value": "a"}], "aggregator": "weighted_average"}, False),
    ],
)
def test_whether_other_types_need_a_reference(type_, settings, needed):
    assert read(type_, **settings).needs.reference is needed


def test_unknown_keys_of_a_code_judge_go_to_config():
    kind = EVALUATORS.find("code_judge")
    assert kind.open_settings
    assert not kind.unsupported


def test_rubric_items_without_an_id_are_numbered():
    items = rubric_items(["a", RubricItem(id="own", expected_outcome="b"), "c"])
    assert [item.id for item in items] == ["rubric-1", "own", "rubric-3"]
    assert [item.expected_outcome for item in items] == ["a", "b", "c"]


def test_a_map_of_ranges_implies_the_highest_points():
    assert [bounds for bounds, _ in ranges_in_order(RANGES)] == [(0, 2), (3, 7), (8, 10)]


def test_members_without_a_name_are_named_after_their_type():
    entries = ["text", {"type": "llm-grader"}, {"type": "llm_judge"}, "more", {"metric": "mine", "type": "equals"}]
    assert [spec.name for spec in read_entries(entries, (), Problems())] == [
        "rubric",
        "llm_judge",
        "llm_judge-2",
        "mine",
    ]


def test_class_settings_refer_to_declared_fields():
    for name in EVALUATORS.names():
        kind = EVALUATORS.find(name)
        assert kind.members_field in (None, *kind.__struct_fields__), name
        assert kind.target_field in (None, *kind.__struct_fields__), name
