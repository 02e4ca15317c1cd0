"""Cases in other files: `tests: ./file`, `tests: ./folder` and `file://` items."""

import json

import pytest

from agentv.errors import RefusedCaseWarning

ROWS = [{"id": "one", "criteria": "x", "input": "1"}, {"id": "two", "expected_outcome": "x", "input": "2"}]
LIST = "- {id: one, criteria: x, input: '1'}\n- {id: two, criteria: x, input: '2'}\n"


def ids(loaded):
    return [case.id for case in loaded]


def places(loaded):
    return [(case.path, case.line) for case in loaded]


class TestOneFile:
    @pytest.mark.parametrize(
        ("file", "content"),
        [("cases.yaml", LIST), ("sub/cases.yml", LIST), ("cases.jsonl", ROWS), ("cases.json", json.dumps(ROWS))],
    )
    def test_tests_can_name_a_file(self, folder, file, content):
        folder.write(file, content)
        loaded = folder.load(folder.write("suite.yaml", f"name: s\ntests: ./{file}\n"))
        assert ids(loaded) == ["one", "two"]
        assert {case.dataset for case in loaded} == {"s"}
        assert {case.path for case in loaded} == {file}

    def test_settings_of_the_suite_apply_to_the_cases(self, folder):
        folder.write("cases.jsonl", [ROWS[0] | {"assertions": [{"type": "is-json"}]}, ROWS[1]])
        suite = "input: Be brief.\nassertions: [{type: contains, value: x}]\ntests: cases.jsonl\n"
        loaded = folder.load(folder.write("suite.yaml", suite))
        assert [[spec.type for spec in case.evaluators] for case in loaded] == [["contains", "is_json"], ["contains"]]
        assert [len(case.input) for case in loaded] == [2, 2]

    def test_files_of_cases_are_found_from_the_suite(self, folder):
        folder.write("data/cases.yaml", "- {id: a, criteria: x, input: y, input_files: [notes.md]}\n")
        folder.write("notes.md", "N")
        assert len(folder.load(folder.write("suite.yaml", "tests: data/cases.yaml\n"))) == 1

    def test_variables_of_the_environment_are_inserted(self, folder, monkeypatch):
        monkeypatch.setenv("CITY", "Paris")
        folder.write("a.jsonl", [{"id": "one", "expected_outcome": "x", "input": "${{ CITY }}"}])
        folder.write("b.yaml", "- {id: two, criteria: x, input: '${{ CITY }}'}\n")
        loaded = folder.load(folder.write("suite.yaml", "tests: ['file://a.jsonl', 'file://b.yaml']\n"))
        assert [case.input[0].content for case in loaded] == ["Paris", "Paris"]

    def test_a_problem_is_reported_where_the_case_is(self, folder):
        folder.write("cases.yaml", "- {id: one, criteria: x, input: '1'}\n- {id: two, input: [3]}\n")
        loaded = folder.load(folder.write("suite.yaml", "tests: cases.yaml\n"))
        (warning,) = (each for each in loaded.warnings if isinstance(each, RefusedCaseWarning))
        assert (warning.path, warning.line) == ("cases.yaml", 2)


class TestItems:
    def test_items_are_replaced_by_the_cases_of_their_files(self, folder):
        folder.write("more/b.yaml", "- {id: b, criteria: x, input: y}\n")
        folder.write("more/a.jsonl", [{"id": "a", "criteria": "x", "input": "y"}])
        suite = (
            "tests:\n  - {id: first, criteria: x, input: y}\n  - file://more/*\n  - {id: last, criteria: x, input: y}\n"
        )
        loaded = folder.load(folder.write("suite.yaml", suite))
        assert ids(loaded) == ["first", "a", "b", "last"]
        assert places(loaded) == [("suite.yaml", 2), ("more/a.jsonl", 1), ("more/b.yaml", 1), ("suite.yaml", 4)]

    def test_an_id_used_in_two_files_is_an_error(self, folder):
        folder.write("a.yaml", LIST)
        suite = "tests:\n  - {id: one, criteria: x, input: y}\n  - file://a.yaml\n"
        error = folder.error(folder.write("suite.yaml", suite))
        assert error.detail == "Duplicate id 'one': first used at line 2 of suite.yaml"


class TestFolder:
    def test_each_subfolder_is_a_case(self, folder):
        folder.write("cases/b/case.yaml", "{criteria: x, input: y}")
        folder.write("cases/b/workspace/main.py", "print()")
        folder.write("cases/a/case.yml", "{id: own, criteria: x, input: y}")
        folder.write("cases/c/README.md", "")
        loaded = folder.load(folder.write("suite.yaml", "tests: ./cases\n"))
        assert ids(loaded) == ["own", "b"]
        assert loaded.cases[1].workspace.path.endswith("cases/b/workspace")
        assert loaded.messages == ["cases/c: passed over, no case.yaml"]

    def test_a_folder_without_cases_is_an_error(self, folder):
        folder.write("cases/a/README.md", "")
        error = folder.error(folder.write("suite.yaml", "tests: ./cases\n"))
        assert error.detail == "Folder './cases' has no subfolder with a case.yaml"


@pytest.mark.parametrize(
    ("tests", "detail", "line"),
    [
        ("./gone.yaml", "File './gone.yaml' was not found", 1),
        ("[file://gone.yaml]", "File 'file://gone.yaml' was not found", 1),
        ("\n  - file://*.nothing", "File 'file://*.nothing' was not found", 2),
        ("../outside.yaml", "File '../outside.yaml' is outside the project root", 1),
        ("table.csv", "Cases cannot be read from 'table.csv'", 1),
        ("object.yaml", "Expected a list of cases, got object", 1),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(folder, tests, detail, line):
    folder.write("../outside.yaml", LIST)
    folder.write("table.csv", "a,b\n")
    folder.write("object.yaml", "{id: one}")
    error = folder.error(folder.write("suite.yaml", f"tests: {tests}\n"))
    assert error.detail.startswith(detail)
    assert error.line == line


class TestDiscovery:
    def test_a_folder_runs_listed_cases_once(self, folder):
        folder.write("evals/cases.jsonl", ROWS)
        folder.write("evals/suite.yaml", "tests: ./cases.jsonl\n")
        assert ids(folder.load("evals")) == ["one", "two"]

    def test_a_suite_may_have_the_name_of_its_cases(self, folder):
        folder.write("evals/suite.jsonl", ROWS)
        folder.write("evals/suite.yaml", "tests: ./suite.jsonl\n")
        assert ids(folder.load("evals")) == ["one", "two"]

    def test_a_change_of_a_listed_file_changes_the_dataset(self, folder):
        from agentv.datasets.formats.dataset_format import source_of
        from agentv.datasets.stamps import DatasetStamps

        def digest():
            stamps, source = DatasetStamps(), source_of("suite.yaml", "yaml")
            stamps.begin(source)
            return stamps.digest(source)

        folder.write("cases.jsonl", ROWS)
        folder.write("suite.yaml", "tests: ./cases.jsonl\n")
        before = digest()
        folder.write("cases.jsonl", ROWS[:1])
        assert digest() != before


def test_a_suite_can_be_converted_with_all_its_cases(folder, command):
    folder.write("cases.jsonl", [ROWS[0] | {"assertions": [{"type": "is-json"}]}, ROWS[1]])
    suite = "input: Be brief.\nassertions: [{type: contains, value: x}]\ntests:\n  - file://cases.jsonl\n"
    before = folder.load(folder.write("suite.yaml", suite)).cases
    for name in ("out.jsonl", "out2.yaml"):
        assert command("convert", "suite.yaml", name).code == 0
        assert [case.evaluators for case in folder.load(name)] == [case.evaluators for case in before]
