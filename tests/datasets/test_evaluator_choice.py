"""§1.6: which evaluators score a case, their precedence, and their names."""

import json
from itertools import combinations

import pytest

from agentv.registry import EVALUATORS


def case(**fields):
    return {"id": "a", "expected_outcome": "It works", "input": "Hello"} | fields


def names(loaded):
    return [evaluator.name for evaluator in loaded[0].evaluators]


def types(loaded):
    return [evaluator.type for evaluator in loaded[0].evaluators]


# Every place that can set evaluators, by descending precedence, each with a different type.
CASE_PLACES = [
    ({"execution": {"evaluators": [{"type": "contains", "value": "x"}]}}, "contains"),
    ({"evaluators": [{"type": "regex", "value": "x"}]}, "regex"),
    ({"assertions": [{"type": "ends_with", "value": "x"}]}, "ends_with"),
    ({"assert": [{"type": "icontains", "value": "x"}]}, "icontains"),
    ({"evaluator": "is_json"}, "is_json"),
]
DATASET_PLACES = [
    ({"execution": {"evaluators": [{"type": "equals", "value": "x"}]}}, "equals"),
    ({"evaluators": [{"type": "starts_with", "value": "x"}]}, "starts_with"),
    ({"assertions": [{"type": "levenshtein", "value": "x"}]}, "levenshtein"),
    ({"assert": [{"type": "similarity", "value": "x"}]}, "similarity"),
    ({"evaluator": "answer_relevance"}, "answer_relevance"),
    ({"dataset": "rows"}, "llm_judge"),
]


@pytest.mark.parametrize(("at_case", "of_case"), [*CASE_PLACES, ({}, None)], ids=lambda value: str(value)[:40])
@pytest.mark.parametrize(("at_dataset", "of_dataset"), DATASET_PLACES, ids=lambda value: str(value)[:40])
def test_a_case_overrides_the_dataset_and_the_dataset_the_default(folder, at_case, of_case, at_dataset, of_dataset):
    expected = [of_case or of_dataset]
    assert types(folder.rows(case(**at_case), sidecar=at_dataset)) == expected
    assert types(folder.yaml(json.dumps(at_dataset | {"evalcases": [case(**at_case)]}))) == expected


@pytest.mark.parametrize("places", [CASE_PLACES, DATASET_PLACES[:-1]], ids=["case", "dataset"])
def test_a_list_overrides_a_single_evaluator(folder, places):
    kind, _ = places[-1]
    for keys, expected in places[:-1]:
        level = keys | kind
        at_case, sidecar = (level, {"dataset": "rows"}) if places is CASE_PLACES else ({}, level)
        assert types(folder.rows(case(**at_case), sidecar=sidecar)) == [expected]


@pytest.mark.parametrize(("first", "second"), list(combinations(range(4), 2)))
def test_two_lists_in_one_place_are_an_error(folder, first, second):
    both = CASE_PLACES[first][0] | CASE_PLACES[second][0]
    error = folder.row_error(case(**both))
    assert error.detail.startswith("Evaluators are listed twice: '")
    assert error.hint == "Keep one of the lists"
    at_dataset = DATASET_PLACES[first][0] | DATASET_PLACES[second][0]
    assert folder.row_error(case(), sidecar=at_dataset).detail == error.detail


def test_the_error_about_two_lists_names_both(folder):
    error = folder.yaml_error(
        "evalcases:\n"
        "  - id: a\n"
        "    expected_outcome: x\n"
        "    input: y\n"
        "    execution: {evaluators: [{type: is_json}]}\n"
        "    assertions: [Is polite]\n"
    )
    assert error.detail == "Evaluators are listed twice: 'execution.evaluators' and 'assertions'"
    assert (error.line, error.field) == (6, "assertions")


@pytest.mark.parametrize("key", ["evaluators", "assertions", "assert"])
def test_an_empty_list_means_no_evaluators(folder, key):
    assert folder.rows(case(**{key: []}), sidecar={"evaluators": [{"type": "is_json"}]})[0].evaluators == ()
    assert folder.rows(case(), sidecar={key: []})[0].evaluators == ()
    assert folder.rows(case(execution={"evaluators": []}), sidecar={"evaluator": "is_json"})[0].evaluators == ()


def test_a_case_without_evaluators_is_printed_with_an_empty_list(folder, command):
    folder.write("rows.jsonl", [case(evaluators=[])])
    assert command("cases", "-q", "rows.jsonl").printed[0]["evaluators"] == []


class TestInheriting:
    DATASET = {"evaluators": [{"type": "is_json"}, {"type": "contains", "value": "x"}]}
    OWN = [{"type": "contains", "value": "y"}, {"type": "rubric"}]

    def test_a_list_replaces_that_of_the_dataset(self, folder):
        assert names(folder.rows(case(evaluators=self.OWN), sidecar=self.DATASET)) == ["contains", "rubric"]

    def test_inherit_evaluators_adds_to_the_list_of_the_dataset(self, folder):
        row = case(evaluators=self.OWN, execution={"inherit_evaluators": True})
        assert names(folder.rows(row, sidecar=self.DATASET)) == ["is_json", "contains", "contains-2", "rubric"]

    def test_an_empty_list_that_inherits_keeps_that_of_the_dataset(self, folder):
        row = case(evaluators=[], execution={"inherit_evaluators": True})
        assert names(folder.rows(row, sidecar=self.DATASET)) == ["is_json", "contains"]

    def test_a_case_without_a_list_inherits_each_evaluator_once(self, folder):
        row = case(execution={"inherit_evaluators": True})
        assert names(folder.rows(row, sidecar=self.DATASET)) == ["is_json", "contains"]

    def test_a_dataset_can_set_inherit_evaluators(self, folder):
        sidecar = self.DATASET | {"execution": {"inherit_evaluators": True}}
        assert names(folder.rows(case(evaluators=self.OWN), sidecar=sidecar)) == [
            "is_json",
            "contains",
            "contains-2",
            "rubric",
        ]

    def test_a_case_can_override_inherit_evaluators(self, folder):
        sidecar = self.DATASET | {"execution": {"inherit_evaluators": True}}
        row = case(evaluators=self.OWN, execution={"inherit_evaluators": False})
        assert names(folder.rows(row, sidecar=sidecar)) == ["contains", "rubric"]


class TestRubrics:
    def test_rubrics_replace_the_default_judge(self, folder):
        loaded = folder.rows(case(rubrics=["Is polite", "Is brief"]))
        assert types(loaded) == ["rubric"]
        assert loaded[0].evaluators[0].settings == {"rubrics": ["Is polite", "Is brief"]}
        assert loaded[0].rubrics == ("Is polite", "Is brief")

    @pytest.mark.parametrize("key", ["evaluators", "assertions"])
    def test_rubrics_go_before_a_list_of_the_case(self, folder, key):
        loaded = folder.rows(case(rubrics=["Is polite"], **{key: [{"type": "is_json"}, {"type": "rubric"}]}))
        assert names(loaded) == ["rubric", "is_json", "rubric-2"]

    def test_rubrics_go_before_a_list_of_the_dataset(self, folder):
        loaded = folder.rows(case(rubrics=["Is polite"]), sidecar={"evaluators": [{"type": "llm_judge"}]})
        assert types(loaded) == ["rubric", "llm_judge"]

    def test_rubrics_go_before_another_kind(self, folder):
        assert types(folder.rows(case(rubrics=["Is polite"], evaluator="is_json"))) == ["rubric", "is_json"]
        assert types(folder.rows(case(rubrics=["Is polite"]), sidecar={"evaluator": "is_json"})) == [
            "rubric",
            "is_json",
        ]

    def test_rubrics_are_the_only_evaluator_with_an_empty_list(self, folder):
        assert types(folder.rows(case(rubrics=["Is polite"], evaluators=[]))) == ["rubric"]

    def test_an_empty_list_of_rubrics_is_ignored(self, folder):
        assert types(folder.rows(case(rubrics=[]))) == ["llm_judge"]

    def test_rubrics_may_be_objects(self, folder):
        items = [{"id": "polite", "expected_outcome": "Is polite", "weight": 2, "required": True}, "Is brief"]
        loaded = folder.rows(case(rubrics=items))
        assert list(loaded[0].rubrics) == items

    def test_an_invalid_rubric_is_an_error_with_its_path(self, folder):
        error = folder.yaml_error(
            "evalcases:\n"
            "  - id: a\n"
            "    expected_outcome: x\n"
            "    input: y\n"
            "    rubrics:\n"
            "      - Is polite\n"
            "      - {expected_outcome: Is brief, weight: heavy}\n"
        )
        assert error.detail == "Field 'rubrics[1].weight' must be a number, got string"
        assert (error.line, error.field) == (7, "rubrics[1].weight")


class TestEntries:
    def test_plain_strings_form_one_rubric_at_the_position_of_the_first(self, folder):
        loaded = folder.rows(case(evaluators=[{"type": "is_json"}, "Is polite", {"type": "equals"}, "Is brief"]))
        assert types(loaded) == ["is_json", "rubric", "equals"]
        rubric = loaded[0].evaluators[1]
        assert rubric.settings == {"rubrics": ["Is polite", "Is brief"]}
        assert rubric.weight == 2

    def test_a_name_is_the_type_and_then_the_type_with_a_number(self, folder):
        entries = [{"type": "is_json"}, {"type": "is_json"}, {"type": "equals"}, {"type": "is_json"}]
        assert names(folder.rows(case(evaluators=entries))) == ["is_json", "is_json-2", "equals", "is_json-3"]

    def test_repeated_names_get_a_number(self, folder):
        entries = [
            {"type": "is_json", "name": "form"},
            {"type": "equals", "name": "form"},
            {"type": "equals", "name": "form-2"},
        ]
        found = names(folder.rows(case(evaluators=entries)))
        assert found[:2] == ["form", "form-2"]
        assert len(set(found)) == 3

    def test_common_keys_are_separated_from_the_settings_of_the_type(self, folder):
        entry = {
            "type": "contains",
            "name": "has it",
            "weight": 3,
            "required": 0.5,
            "negate": True,
            "target": ["a", "b"],
            "transform": {"regex": "x"},
            "value": "y",
        }
        spec = folder.rows(case(evaluators=[entry]))[0].evaluators[0]
        assert (spec.type, spec.name, spec.weight, spec.required, spec.negate) == ("contains", "has it", 3.0, 0.5, True)
        assert (spec.target, spec.transform, spec.settings) == (("a", "b"), {"regex": "x"}, {"value": "y"})

    @pytest.mark.parametrize(
        ("written", "type_"),
        [("is-json", "is_json"), ("llm-judge", "llm_judge"), ("rubrics", "rubric"), ("script", "code_judge")],
    )
    def test_other_spellings_of_a_type(self, folder, written, type_):
        entry = {"type": written} | ({"script": "./check.py"} if type_ == "code_judge" else {})
        assert types(folder.rows(case(evaluators=[entry]))) == [type_]

    def test_a_weight_can_be_zero(self, folder):
        assert folder.rows(case(evaluators=[{"type": "is_json", "weight": 0}]))[0].evaluators[0].weight == 0

    def test_not_before_a_type_negates_it(self, folder):
        spec = folder.rows(case(evaluators=[{"type": "not-contains", "value": "x"}]))[0].evaluators[0]
        assert (spec.type, spec.negate) == ("contains", True)

    @pytest.mark.parametrize(
        ("entry", "detail", "hint"),
        [
            ({"type": "contain", "value": "x"}, "Unknown evaluator type 'contain'", "Did you mean 'contains'?"),
            ({"value": "x"}, "Missing required field: 'evaluators[0].type'", "An evaluator needs a 'type'"),
            ({"contains": "x"}, "Missing required field: 'evaluators[0].type'", "Write {type: contains, …}"),
            ({"type": 5}, "Field 'evaluators[0].type' must be a string, got integer", ""),
            (5, "Field 'evaluators[0]' must be an object or a string, got integer", ""),
            (None, "Field 'evaluators[0]' must be an object or a string, got null", ""),
            ({"type": "is_json", "weight": -1}, "Field 'evaluators[0].weight' must be a number of at least 0", ""),
            ({"type": "is_json", "weight": "1"}, "Field 'evaluators[0].weight' must be a number, got string", ""),
            (
                {"type": "is_json", "required": 2},
                "Field 'evaluators[0].required' must be a number of at most 1",
                "",
            ),
            ({"type": "is_json", "negate": "yes"}, "Field 'evaluators[0].negate' must be a boolean, got string", ""),
            ({"type": "json_schema"}, "Missing required field: 'evaluators[0].schema'", ""),
            ({"type": "regex", "value": "("}, None, None),
            (
                {"type": "composite", "aggregator": {"type": "weighted_average"}, "evaluators": [{"type": "nope"}]},
                "Unknown evaluator type 'nope'",
                None,
            ),
        ],
    )
    def test_an_invalid_entry_is_an_error_with_its_path(self, folder, entry, detail, hint):
        error = folder.row_error(case(evaluators=[entry]))
        assert error.detail == detail or detail is None
        assert error.hint == hint or hint is None
        assert error.field.startswith("evaluators[0]")

    def test_an_unknown_kind_of_the_dataset_is_an_error_at_its_line(self, folder):
        error = folder.row_error(case(), sidecar="dataset: rows\nevaluator: llm_jugde\n")
        assert str(error) == (
            "Invalid dataset at line 2 in rows.yaml\n"
            "  Unknown evaluator type 'llm_jugde'\n"
            "\n"
            "  Hint: Did you mean 'llm_judge'?"
        )
        assert (error.path, error.line, error.field) == ("rows.yaml", 2, "evaluator")

    def test_a_python_class_is_not_imported(self, folder):
        folder.write("checks.py", "raise SystemExit('a dataset ran code')\n")
        loaded = folder.rows(case(evaluators=[{"type": "checks.py:Check", "anything": 1}]))
        assert types(loaded) == ["checks.py:Check"]

    def test_cached_entries_do_not_mix_up_cases(self, folder):
        rows = [case(id=str(n), evaluators=[{"type": "equals", "value": n % 2}]) for n in range(4)]
        loaded = folder.rows(*rows)
        assert [read.evaluators[0].settings["value"] for read in loaded] == [0, 1, 0, 1]
        mixed = [
            case(id="a", evaluators=[{"type": "equals", "value": 1}]),
            case(id="b", evaluators=[{"type": "equals", "value": True}]),
        ]
        assert [type(read.evaluators[0].settings["value"]) for read in folder.rows(*mixed)] == [int, bool]


@pytest.mark.parametrize("name", EVALUATORS.names())
def test_every_type_is_known_to_datasets(folder, name):
    folder.write("rows.jsonl", [case(evaluators=[{"type": name}])])
    try:
        loaded = folder.load("rows.jsonl")
    except Exception as error:
        assert "Unknown evaluator type" not in str(error)
    else:
        assert types(loaded) == [name]


@pytest.mark.parametrize("written", ["not-contains", "not_contains"])
def test_not_before_a_type_inverts_its_score(folder, written):
    [read] = folder.rows(case(evaluators=[{"type": written, "value": "x"}]))
    assert (read.evaluators[0].type, read.evaluators[0].negate) == ("contains", True)


@pytest.mark.parametrize(
    ("written", "hint"),
    [("not-contians", "Did you mean 'contains'?"), ("not-is-xml", "`python`"), ("trajectory:tool-used", "`minimums:")],
)
def test_an_unknown_type_of_another_tool_has_a_hint(folder, written, hint):
    folder.write("d.jsonl", [case(evaluators=[{"type": written}])])
    error = folder.error("d.jsonl")
    assert f"Unknown evaluator type '{written}'" in str(error)
    assert hint in error.hint


@pytest.mark.parametrize("execution", [None, {"inherit_evaluators": True}, {"skip_defaults": True}])
def test_assertions_in_json_lines_that_replace_those_of_the_sidecar_are_named(folder, execution):
    row = {"id": "a", "input": "x", "criteria": "c", "assertions": [{"type": "contains", "value": "x"}]}
    shared = {"evaluators": [{"type": "is_json"}]}
    loaded = folder.rows({**row, **({"execution": execution} if execution else {})}, sidecar=shared)
    assert any("adds it to them" in message for message in loaded.messages) is (execution is None)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"mode": "conversation", "turns": [{"input": "b"}]}, "mode"),
        ({"execution": {"threshold": 0.3}}, "threshold"),
        ({"mode": "conversation", "turns": [{"input": "b"}], "execution": {"threshold": 0.3}}, "threshold"),
    ],
)
def test_settings_that_agentv_ignores_in_json_lines_are_warnings(folder, fields, key):
    row = {"id": "a", "criteria": "x", "input": "a", "assertions": [{"type": "contains", "value": "a"}], **fields}
    assert any(f"ignores '{key}' in JSON Lines" in message for message in folder.rows(row).messages)
    assert not any("JSON Lines" in message for message in folder.yaml(json.dumps({"tests": [row]})).messages)
