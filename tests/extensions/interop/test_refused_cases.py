"""Files of other tools with one case that cannot be run: that case is refused, and not the file."""

import json

import pytest

import agentv
from agentv.errors import LossWarning, RefusedCaseWarning

SUITE = """\
prompts: ["Say {{x}}", "Tell {{x}}"]
providers: [echo]
tests:
  - description: fine
    vars: {x: hello}
    assert: [{type: contains, value: hello}]
  - description: broken
    vars: {x: hello}
    assert: [{type: regex, value: "("}]
"""
MISSING = """\
prompts: ["Say {{x}}"]
providers: [echo]
tests:
  - {description: fine, vars: {x: hello}, assert: [{type: contains, value: hello}]}
  - {description: first, vars: {x: hello}, assert: [{type: python, value: "file://nope.py"}]}
  - {description: second, vars: {x: hello}, assert: [{type: python, value: "file://nope.py"}]}
"""
TESTS = """\
tests:
  - {id: fine, input: hello, assertions: [{type: contains, value: hello}]}
  - {id: broken, input: hello, assertions: [{type: regex, value: "("}]}
  - {id: incomplete, assertions: [{type: contains, value: hello}]}
"""
SAMPLES = [{"input": "a", "target": "b"}] * 60
BAD_SAMPLE = {"id": "odd", "target": "b"}


@pytest.fixture
def suite(folder):
    folder.write("suite.yaml", SUITE)
    return folder


def records(run="run"):
    with open(f"{run}/results.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_a_refused_case_is_loaded_with_its_reason_and_a_warning(suite):
    loaded = suite.load("suite.yaml")
    assert [case.case_error is None for case in loaded] == [True, False]
    assert "not a valid regular expression" in loaded[1].case_error
    (warning,) = (each for each in loaded.warnings if isinstance(each, RefusedCaseWarning))
    assert (warning.path, warning.line) == ("suite.yaml", 7)
    assert str(warning).startswith("suite.yaml, line 7: refused case 'broken'")


def test_only_the_invalid_cases_of_a_file_of_agentv_4_are_refused(folder, command):
    folder.write("suite.yaml", TESTS)
    assert [case.case_error is None for case in folder.load("suite.yaml")] == [True, False, False]


def test_validate_fails_for_an_invalid_case_of_agentv_4_like_its_own(folder, command):
    folder.write("suite.yaml", TESTS)
    checked = command("validate", "suite.yaml")
    assert checked.code == 1 and "2 errors, 0 warnings" in checked.stderr
    assert "error  refused case 'incomplete': Missing required field: 'input'" in checked.stdout


def test_a_record_that_cannot_be_mapped_is_refused(folder):
    folder.write("samples.jsonl", [*SAMPLES, BAD_SAMPLE])
    loaded = folder.load("samples.jsonl")
    assert len(loaded) == 61 and loaded[60].id == "odd"
    assert loaded[60].case_error == "Missing field 'input'. The file was read as samples of Inspect"


def test_a_line_that_is_not_json_is_refused_as_in_a_file_of_ours(folder, command):
    good = json.dumps(SAMPLES[0])
    lines = ['{"input": "a", "target"', *[good] * 20, json.dumps(BAD_SAMPLE), '{"input": NaN}', '"', good]
    folder.write("samples.jsonl", "\n".join(lines))
    refused = {
        case.line: case.case_error.partition(". ")[0] for case in folder.load("samples.jsonl") if case.case_error
    }
    assert refused == {
        1: "Invalid JSON - the line is cut off before the object ends",
        22: "Missing field 'input'",
        23: "Invalid JSON - NaN is not allowed",
        24: "Invalid JSON - the line is cut off before the object ends",
    }
    assert len(folder.load("samples.jsonl", on_error="skip")) == 21
    assert command("validate", "samples.jsonl", "--strict").stdout.count("Invalid JSON") == 3


@pytest.mark.parametrize(
    ("rows", "reasons"),
    [
        ([["a", "b"], ["c", "d", "e"], ["f"]], [None, "The row has 3 values, and the table 2 columns", None]),
        ([["a", "b"], ["c"], ["d", None]], [None, None, None]),  # pandas fills a short row
        ([["a"], ["b"]], None),  # unless all are short
    ],
)
def test_a_row_that_does_not_fit_the_columns_of_a_table_is_refused_as_in_pandas(folder, rows, reasons):
    path = folder.write("table.json", json.dumps({"columns": ["inputs", "ground_truth"], "data": rows}))
    if reasons is None:
        folder.error(path)
    else:
        assert [case.case_error for case in folder.load(path)] == reasons


def test_a_pair_without_its_other_answer_is_refused(folder):
    pair = {"prompt": "a", "chosen": "b", "rejected": "c"}
    folder.write("pairs.jsonl", [*[pair] * 30, {"prompt": "a", "chosen": "b"}])
    assert "one answer is missing" in folder.load("pairs.jsonl")[30].case_error


def test_every_job_of_a_refused_case_ends_in_an_error_that_names_its_place(suite, command):

    command("eval", "suite.yaml", "--out", "run", "--trials", "2")
    errors = [record for record in records() if record["eval_id"] == "broken"]
    assert len(errors) == 4  # two prompts, two trials
    assert {record["status"] for record in errors} == {"error"}
    assert {record["error"]["class"] for record in errors} == {"case"}
    assert all(record["error"]["message"].startswith("suite.yaml, line 7: ") for record in errors)
    assert all(record["attempts"] == 0 for record in errors)


def test_a_refused_case_fails_the_gates_like_any_error(suite, command):
    ended = command("eval", "suite.yaml", "--threshold", "0.1", "--out", "run")
    assert ended.code == 3
    assert "2 of 4 jobs errored" in ended.stderr


def test_retrying_is_not_suggested_for_a_refused_case(suite, command):
    shown = command("eval", "suite.yaml", "--out", "run").stdout
    assert "--retry-errors" not in shown
    assert "Errors of the class case recur until their cause is fixed." in " ".join(shown.split())


def test_cases_with_an_evaluator_that_cannot_run_are_refused(folder, command):
    folder.write("suite.yaml", MISSING)
    command("eval", "suite.yaml", "--out", "run")
    assert {record["eval_id"]: record["status"] for record in records()} == {
        "fine": "ok",
        "first": "error",
        "second": "error",
    }
    checked = command("validate", "suite.yaml")
    assert checked.stdout.count("File 'nope.py' was not found") == 2 and checked.code == 0


@pytest.mark.parametrize(
    ("variables", "assertion"),
    [
        ({"x": "file://nope.txt"}, {"type": "contains", "value": "a"}),
        ({"x": ["file://nope.txt", "b"]}, {"type": "contains", "value": "a"}),
        ("file://nope.yaml", {"type": "contains", "value": "a"}),
        ({"x": "a"}, {"type": "contains", "value": "file://nope.txt"}),
        ({"x": "a"}, {"type": "is-json", "value": "file://nope.json"}),
    ],
)
def test_a_missing_file_of_promptfoo_refuses_only_its_case(folder, variables, assertion):
    fine = {"description": "fine", "vars": {"x": "a"}, "assert": [{"type": "contains", "value": "a"}]}
    tests = [{"description": "broken", "vars": variables, "assert": [assertion]}, fine]
    folder.write("suite.yaml", json.dumps({"prompts": ["Say {{x}}"], "providers": ["echo"], "tests": tests}))
    broken, other = folder.load("suite.yaml")
    assert (broken.id, other.id) == ("broken", "fine")
    assert "nope" in broken.case_error and other.case_error is None


def test_a_file_whose_cases_are_all_refused_is_refused(folder, command):
    folder.write("suite.yaml", MISSING.replace("type: contains, value: hello", 'type: python, value: "file://nope.py"'))
    assert command("eval", "suite.yaml").code == 2
    assert command("validate", "suite.yaml").code == 1
    folder.write("suite.yaml", SUITE.replace("type: contains, value: hello", 'type: regex, value: "("'))
    assert "not a valid regular expression" in str(folder.error("suite.yaml"))
    assert command("validate", "suite.yaml").code == 1


def test_a_dry_run_counts_refused_cases_without_calls(suite, command):
    ended = command("eval", "suite.yaml", "--dry-run")
    assert "2 cases, 4 jobs" in ended.stdout
    assert "Refused: 1 case" in ended.stdout


@pytest.mark.parametrize("target", ["out.yaml", "out.jsonl"])
def test_a_conversion_to_our_formats_keeps_refused_cases(suite, command, target):
    ended = command("convert", "suite.yaml", target)
    assert ended.code == 0 and "refused case 'broken'" in ended.stderr
    written = suite.load(target)
    assert [case.case_error for case in written] == [case.case_error for case in suite.load("suite.yaml")]
    assert any(isinstance(each, RefusedCaseWarning) for each in written.warnings)


def test_a_conversion_to_another_tool_names_the_refused_case_as_lost(suite, command):
    ended = command("convert", "suite.yaml", "out.json", "--to", "promptfoo")
    assert "not written: a refused case" in ended.stderr
    assert len(agentv.load_cases("out.json")) == 1


def test_a_rescore_keeps_refused_cases_as_errors(suite, command):
    command("eval", "suite.yaml", "--out", "run")
    command("rescore", "run", "--out", "again")
    assert [record["status"] for record in records("again")].count("error") == 2


def test_cases_that_share_an_id_get_a_suffix_and_a_note(folder):
    folder.write("suite.yaml", SUITE.replace("broken", "fine").replace('type: regex, value: "("', "type: is-json"))
    loaded = folder.load("suite.yaml")
    assert loaded.ids == ["fine", "fine-2"]
    notes = [str(each) for each in loaded.warnings if isinstance(each, LossWarning)]
    assert notes == ["suite.yaml: several cases have the same id: the later ones got a suffix, such as -2 (1 time)"]


def test_a_suffix_is_never_an_id_of_another_case(folder):
    ids = ["a", "a-2", "a", "a", "a-2"]
    folder.write("samples.jsonl", [{"id": id, "input": id, "target": "b"} for id in ids])
    loaded = folder.load("samples.jsonl")
    assert loaded.ids == ["a", "a-2", "a-3", "a-4", "a-2-2"]


def test_our_own_files_stay_strict(folder):
    folder.write("ours.jsonl", [{"id": "a", "expected_outcome": "x", "input": "y"}, {"id": "b", "input": "y"}])
    assert "expected_outcome" in str(folder.error("ours.jsonl"))


def test_skipping_bad_cases_still_skips_them(suite):
    assert suite.load("suite.yaml", on_error="skip").ids == ["fine"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("cases", "suite.yaml", "--strict"), 2),
        (("eval", "suite.yaml", "--strict"), 2),
        (("eval", "suite.yaml", "--strict", "--dry-run"), 2),
        (("convert", "suite.yaml", "out.yaml", "--strict"), 2),
        (("validate", "suite.yaml", "--strict"), 1),
    ],
)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SUITE, "not a valid regular expression"),
        (SUITE.replace('type: regex, value: "("', "type: is-json") + "sharing: true\n", "sharing"),
        (SUITE.replace('type: regex, value: "("', "type: is-json").replace("broken", "fine"), "got a suffix"),
    ],
)
def test_with_strict_every_difference_is_an_error(folder, command, arguments, code, text, reason):
    folder.write("suite.yaml", text)
    ended = command(*arguments)
    assert ended.code == code
    assert reason in ended.stdout + ended.stderr
    if arguments[0] == "validate":
        assert "error" in ended.stdout


def test_with_strict_an_evaluator_that_cannot_run_is_an_error_of_the_file(folder, command):
    folder.write("suite.yaml", MISSING)
    assert command("eval", "suite.yaml", "--strict").code == 2
    assert command("validate", "suite.yaml", "--strict").code == 1
