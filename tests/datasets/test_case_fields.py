"""§1.3: the fields of a case: required fields, aliases, and unknown keys."""

import json

import pytest

from agentv.datasets.case.keys import CaseKeys, HeaderKeys, WorkspaceKeys

REQUIRED = "Required fields: id, expected_outcome, input"


def case(**fields):
    return {"id": "a", "expected_outcome": "It works", "input": "Hello"} | fields


def without(key, **fields):
    return {name: value for name, value in case(**fields).items() if name != key}


@pytest.fixture(params=["jsonl", "yaml"])
def fail(request, folder):
    def fail_row(row):
        if request.param == "jsonl":
            return folder.row_error(row)
        return folder.yaml_error(json.dumps({"evalcases": [row]}, ensure_ascii=False))

    return fail_row


@pytest.mark.parametrize("key", ["id", "expected_outcome", "input"])
def test_a_required_field_that_is_missing_or_null_is_an_error(fail, key):
    for row in (without(key), case(**{key: None})):
        error = fail(row)
        assert error.detail == f"Missing required field: '{key}'"
        assert error.hint == REQUIRED
        assert error.field == key
        assert str(error).endswith(f"\n\n  {REQUIRED}")


@pytest.mark.parametrize(
    ("row", "is_result"),
    [
        ({"eval_id": "a", "score": 0}, True),
        ({"test_id": "a", "score": 0.5}, True),
        ({"score": 0.5}, False),
        ({"eval_id": "a"}, False),
    ],
)
def test_a_row_that_looks_like_a_result_is_reported_as_one(fail, row, is_result):
    assert ("This looks like a results file" in fail(row).hint) is is_result


def test_the_first_missing_field_is_reported_in_the_order_of_the_table(fail):
    assert fail({}).field == "id"
    assert fail({"id": "a"}).field == "expected_outcome"
    assert fail({"id": "a", "expected_outcome": "x"}).field == "input"


@pytest.mark.parametrize(
    ("field", "value", "detail"),
    [
        ("id", "", "Field 'id' must not be blank"),
        ("id", " \t", "Field 'id' must not be blank"),
        ("id", "\u2003", "Field 'id' must not be blank"),
        ("id", 1.5, "Field 'id' must be a string, got number"),
        ("id", True, "Field 'id' must be a string, got boolean"),
        ("id", ["a"], "Field 'id' must be a string, got array"),
        ("id", {"a": 1}, "Field 'id' must be a string, got object"),
        ("expected_outcome", 5, "Field 'expected_outcome' must be a string, got integer"),
        ("expected_outcome", ["x"], "Field 'expected_outcome' must be a string, got array"),
        ("conversation_id", 5, "Field 'conversation_id' must be a string, got integer"),
        ("execution", "openai", "Field 'execution' must be an object, got string"),
        ("evaluators", {"type": "rubric"}, "Field 'evaluators' must be an array, got object"),
        ("assertions", "Is polite", "Field 'assertions' must be an array, got string"),
        ("evaluator", ["rubric"], "Field 'evaluator' must be a string, got array"),
        ("rubrics", "Is polite", "Field 'rubrics' must be an array, got string"),
        ("rubrics", [5], "Field 'rubrics[0]' must be a string or an object, got integer"),
        ("context", 5, "Field 'context' must be a string or an array, got integer"),
        ("context", ["a", 5], "Field 'context[1]' must be a string, got integer"),
        ("description", 5, "Field 'description' must be a string, got integer"),
        ("metadata", ["a"], "Field 'metadata' must be an object, got array"),
        ("tags", "fast", "Field 'tags' must be an array, got string"),
        ("tags", ["fast", 5], "Field 'tags[1]' must be a string, got integer"),
        ("turns", {}, "Field 'turns' must be an array, got object"),
        ("turns", ["More?"], 'Field \'turns[0]\' must be an object such as {"input": "…"}, got string'),
        ("turns", [{"expected_output": "x"}], "Missing required field: 'turns[0].input'"),
        ("user", {"persona": "grumpy"}, "Missing required field: 'user.goal'"),
        ("user", {"goal": "x", "max_turns": 0}, "Field 'user.max_turns' must be an integer of at least 1"),
        ("workspace", "folder", "File 'folder' was not found"),
        ("workspace", {"keep": "yes"}, "Field 'workspace.keep' must be a boolean, got string"),
    ],
)
def test_a_wrong_type_is_an_error_with_the_expected_and_the_actual_type(fail, field, value, detail):
    error = fail(case(**{field: value}))
    assert error.detail == detail
    assert error.field.startswith(field)


@pytest.mark.parametrize("id", ["", " ", "\t\n"])
@pytest.mark.parametrize("fields", [{}, {"expected_output": "Hi"}, {"tags": ["x"]}, {"description": "x"}], ids=str)
def test_a_blank_id_is_an_error(fail, id, fields):
    assert fail(case(id=id, **fields)).detail == "Field 'id' must not be blank"


@pytest.mark.parametrize(
    ("id", "read_as"), [("a b", "a b"), (" a", " a"), ("日本", "日本"), (7, "7"), (-7, "-7"), (0, "0")]
)
def test_an_id_keeps_its_spelling(folder, id, read_as):
    assert folder.rows(case(id=id)).ids == [read_as]


@pytest.mark.parametrize("alias", ["outcome", "criteria"])
def test_other_names_of_the_outcome(folder, alias):
    loaded = folder.rows(without("expected_outcome", **{alias: "Goal"}))
    assert loaded[0].expected_outcome == "Goal"
    assert loaded.messages == []


def test_the_first_of_several_names_of_the_outcome_wins_with_a_warning(folder):
    loaded = folder.rows(case(expected_outcome="Ours", criteria="Theirs", outcome="Other"))
    assert loaded[0].expected_outcome == "Theirs"
    assert loaded.messages == [
        "rows.jsonl, line 1: Field 'expected_outcome' is ignored because 'criteria' is set",
        "rows.jsonl, line 1: Field 'outcome' is ignored because 'criteria' is set",
    ]


def test_all_optional_fields_are_kept(folder):
    folder.write("repo/Makefile", "all:\n")
    given = folder.rows(
        case(
            conversation_id="c-1",
            context="one passage",
            description="A note",
            metadata={"k": [1, {"x": None}]},
            tags=["fast", "math", "fast"],
            user={"goal": "Buy a ticket", "persona": "In a hurry", "target": "sim", "max_turns": 5, "stop": "DONE"},
            workspace={"template": "repo", "setup": ["make"], "teardown": "make clean", "keep": True},
            turns=[
                {"input": "And then?", "expected_output": "Then this", "evaluators": ["Is brief"]},
                {"input": "Bye"},
            ],
        )
    )
    assert given.messages == []
    read = given[0]
    assert read.conversation_id == "c-1"
    assert read.context == ("one passage",)
    assert read.description == "A note"
    assert read.metadata == {"k": [1, {"x": None}]}
    assert read.tags == ("fast", "math")
    assert (read.user.goal, read.user.max_turns, read.user.stop) == ("Buy a ticket", 5, "DONE")
    assert (read.workspace.template, read.workspace.setup, read.workspace.keep) == ("repo", ("make",), True)
    assert [turn.input[0].content for turn in read.turns] == ["And then?", "Bye"]
    assert read.turns[0].expected_output[0].role == "assistant"
    assert read.turns[0].evaluators[0].type == "rubric"


def test_context_may_be_a_list(folder):
    assert folder.rows(case(context=["a", "b"]))[0].context == ("a", "b")


def test_null_means_absent_for_every_optional_field(folder):
    optional = set(CaseKeys.__struct_fields__) - {"id", "expected_outcome", "input"}
    assert folder.rows(case(**dict.fromkeys(optional | set(CaseKeys.aliases)))).cases == folder.rows(case()).cases


@pytest.mark.parametrize(
    ("row", "warning"),
    [
        (case(expected_ouput="x"), "Unknown field 'expected_ouput' (Did you mean 'expected_output'?)"),
        (case(Tags=["x"]), "Unknown field 'Tags' (Did you mean 'tags'?)"),
        (case(difficulty="hard"), "Unknown field 'difficulty' (Put your own data under 'metadata')"),
        (case(execution={"targt": "x"}), "Unknown field 'execution.targt' (Did you mean 'target'?)"),
        (
            case(execution={"verdicts": {"pas": 0.9}}),
            "Unknown field 'execution.verdicts.pas' (Did you mean 'pass'?)",
        ),
        (case(user={"goal": "x", "persna": "y"}), "Unknown field 'user.persna' (Did you mean 'persona'?)"),
        (
            case(workspace={"templte": "x"}),
            "Unknown field 'workspace.templte' (Did you mean 'template'?)",
        ),
        (
            case(turns=[{"input": "x", "expectd_output": "y"}]),
            "Unknown field 'expectd_output' in a turn (Did you mean 'expected_output'?)",
        ),
    ],
)
def test_an_unknown_key_of_a_case_is_a_warning_with_a_suggestion(folder, row, warning):
    loaded = folder.rows(row)
    assert loaded.messages == [f"rows.jsonl, line 1: {warning}"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (case(evaluators=[{"type": "equals", "val": "goodbye"}]), "Unknown field 'evaluators[0].val'"),
        (
            case(rubrics=[{"id": "r", "expected_outcom": "y", "outcome": "z"}]),
            "Unknown field 'rubrics[0].expected_outcom'",
        ),
    ],
)
def test_an_unknown_key_of_an_evaluator_is_an_error_with_a_suggestion(folder, row, message):
    error = folder.row_error(row)
    assert message in str(error)
    assert "Did you mean" in str(error)


def test_the_same_unknown_key_is_reported_once_per_file(folder):
    rows = [case(id=str(n), difficulty=n) for n in range(5)]
    assert len(folder.rows(*rows).messages) == 1


@pytest.mark.parametrize("key", CaseKeys.unsupported)
def test_an_unsupported_key_of_agentv_typescript_is_an_error(fail, key):
    error = fail(case(**{key: "x"}))
    assert error.detail == f"Field '{key}' is not supported"
    assert error.hint.startswith("This is a setting of AgentV (TypeScript). ")
    assert error.field == key


@pytest.mark.parametrize("key", HeaderKeys.unsupported)
def test_an_unsupported_key_of_a_document_is_an_error(folder, key):
    error = folder.yaml_error(json.dumps({key: "x", "evalcases": [case()]}))
    assert error.detail == f"Field '{key}' is not supported"
    assert error.field == key


@pytest.mark.parametrize("key", WorkspaceKeys.unsupported)
def test_an_unsupported_key_of_a_workspace_is_an_error(fail, key):
    assert fail(case(workspace={key: "x"})).detail == f"Field 'workspace.{key}' is not supported"


def test_the_unsupported_keys_of_the_specification_are_known(folder):
    for key in ("providers", "scenarios", "extensions"):
        assert key in HeaderKeys.unsupported


FOUR_X = """\
tests:
  - id: by-criteria
    criteria: Greets back
    input: Hello
  - id: by-output
    input: Hello
    expected_output: Hi
  - id: by-assertions
    input: Hello
    assertions:
      - Greets back
      - {type: contains, value: Hi}
  - id: by-assert
    input: Hello
    assert: [{type: is-json}]
  - id: by-rubrics
    input: Hello
    rubrics: [Is polite]
"""


def test_under_tests_the_outcome_is_optional_next_to_an_output_or_an_evaluator(folder):
    loaded = folder.yaml(FOUR_X)
    assert loaded.messages == []
    assert loaded.ids == ["by-criteria", "by-output", "by-assertions", "by-assert", "by-rubrics"]
    assert [case.expected_outcome for case in loaded] == ["Greets back", "", "", "", ""]
    assert [evaluator.type for evaluator in loaded[2].evaluators] == ["rubric", "contains"]
    assert loaded[2].evaluators[0].settings == {"rubrics": ["Greets back"]}
    assert [evaluator.type for evaluator in loaded[3].evaluators] == ["is_json"]


def test_under_tests_a_case_that_cannot_be_scored_is_an_error(folder):
    error = folder.yaml_error("tests:\n  - id: a\n    input: Hello\n")
    assert error.detail == "Missing required field: 'expected_outcome'"
    assert error.hint == "Required fields: id, input, and one of criteria, expected_output, assertions"


@pytest.mark.parametrize("key", ["evalcases", "eval_cases", "cases"])
def test_in_any_other_document_the_outcome_is_required(folder, key):
    error = folder.yaml_error(f"{key}:\n  - id: a\n    input: Hello\n    expected_output: Hi\n")
    assert error.detail == "Missing required field: 'expected_outcome'"
    assert error.hint.startswith(REQUIRED)


def test_in_json_lines_a_reference_may_replace_the_outcome(folder):
    assert len(folder.rows({"id": "a", "input": "Hello", "expected_output": "Hi"}).cases) == 1


@pytest.mark.parametrize("key", ["evalcases", "tests", "eval_cases", "cases"])
def test_all_keys_for_the_list_of_cases_are_equivalent(folder, key):
    assert folder.yaml(json.dumps({key: [case()]})).cases == folder.yaml(json.dumps({"evalcases": [case()]})).cases


@pytest.mark.parametrize(("key", "expected"), [("tests", "exact"), ("evalcases", "superset")])
def test_arguments_of_tool_calls_are_compared_exactly_under_tests(folder, key, expected):
    check = {"type": "tool-trajectory", "mode": "subset", "expected": [{"tool": "a", "args": {"x": 1}}]}
    group = {"type": "composite", "assertions": [check, {**check, "args_match": "ignore"}], "aggregator": AVERAGE}
    [loaded] = folder.yaml(json.dumps({key: [case(evaluators=[check, group])]}))
    first, composite = (spec.evaluator for spec in loaded.evaluators)
    members = [member.evaluator.args_match for member in composite.members]
    assert (first.args_match, members) == (expected, [expected, "ignore"])


AVERAGE = "weighted_average"


@pytest.mark.parametrize(
    ("key", "pattern", "syntax"),
    [
        ("tests", "(?<city>Paris)", "javascript"),
        ("tests", "^[^]*Paris[^]*$", "javascript"),
        ("tests", "paris", "javascript"),
        ("evalcases", "(?i)paris", "python"),
        ("evalcases", "^[^]*Paris[^]*$", "python"),
    ],
)
def test_patterns_are_those_of_javascript_under_tests(folder, key, pattern, syntax):
    [loaded] = folder.yaml(json.dumps({key: [case(evaluators=[{"type": "regex", "value": pattern}])]}))
    assert loaded.evaluators[0].evaluator.syntax == syntax


def test_escapes_of_javascript_that_are_not_supported_are_refused(fail):
    error = fail(case(evaluators=[{"type": "regex", "value": "^\\p{Lu}", "flags": "u", "syntax": "javascript"}]))
    assert "'\\p{' of the flag u is not supported" in error.detail


@pytest.mark.parametrize(
    ("key", "list_key", "type_", "protocol"),
    [
        ("tests", "assertions", "code-grader", "agentv-4"),
        ("tests", "evaluators", "code_judge", "agentv-4"),
        ("evalcases", "assertions", "code-grader", "agentv-4"),
        ("evalcases", "assertions", "code_judge", None),
        ("evalcases", "evaluators", "code-grader", None),
    ],
)
def test_code_graders_have_the_protocol_of_their_generation(folder, key, list_key, type_, protocol):
    check = {"type": type_, "command": "true"}
    group = {"type": "composite", list_key: [check], "aggregator": AVERAGE}
    case = {"id": "a", "criteria": "x", "input": "y", list_key: [check, group]}
    first, composite = (spec.evaluator for spec in folder.yaml(json.dumps({key: [case]})).cases[0].evaluators)
    assert (first.grader_protocol, composite.members[0].evaluator.grader_protocol) == (protocol, protocol)
