"""Suites of AgentV (TypeScript) 4.x: cases under `tests`, with settings that all of them share."""

import pytest

from agentv.errors import LossWarning

CASE = "  - {id: a, criteria: It works, input: Hello}\n"


def names(case):
    return [spec.name for spec in case.evaluators]


def texts(case):
    return [message.content for message in case.input]


class TestAssertions:
    SUITE = "assertions: [{type: contains, value: x}]\ntests:\n  - id: a\n    criteria: y\n    input: z\n"

    def test_assertions_of_suite_and_case_both_apply(self, folder):
        loaded = folder.yaml(self.SUITE + "    assertions: [{type: is-json}]\n")
        assert names(loaded.cases[0]) == ["contains", "is_json"]

    def test_skip_defaults_leaves_out_those_of_the_suite(self, folder):
        own = "    assertions: [{type: is-json}]\n    execution: {skip_defaults: true}\n"
        assert names(folder.yaml(self.SUITE + own).cases[0]) == ["is_json"]

    def test_a_case_that_skips_defaults_and_has_none_gets_the_default_judge(self, folder):
        assert names(folder.yaml(self.SUITE + "    execution: {skip_defaults: true}\n").cases[0]) == ["llm_judge"]

    def test_evaluators_of_the_execution_block_apply_too(self, folder):
        suite = self.SUITE.replace(
            "assertions: [{type: contains, value: x}]", "execution: {evaluators: [{type: rubric}]}"
        )
        assert names(folder.yaml(suite + "    assertions: [{type: is-json}]\n").cases[0]) == ["rubric", "is_json"]

    def test_inherit_evaluators_false_restores_replacement(self, folder):
        own = "    assertions: [{type: is-json}]\n    execution: {inherit_evaluators: false}\n"
        assert names(folder.yaml(self.SUITE + own).cases[0]) == ["is_json"]


class TestIncludes:
    TEMPLATE = "assertions:\n  - {type: contains, value: x}\n  - {include: ./more.yaml}\n"
    SUITE = "tests:\n  - {id: a, input: z, assertions: [{type: is-json}, {include: safety}]}\n"

    def test_an_include_is_replaced_by_the_assertions_of_its_template(self, folder):
        folder.write(".agentv/templates/safety.yaml", self.TEMPLATE)
        folder.write(".agentv/templates/more.yaml", "assertions: [{type: icontains, value: y}]\n")
        assert names(folder.yaml(self.SUITE).cases[0]) == ["is_json", "contains", "icontains"]

    def test_an_include_works_inside_a_composite(self, folder):
        folder.write(".agentv/templates/safety.yml", "assertions: [{type: icontains, value: y}]\n")
        entry = "{type: composite, aggregator: weighted_average, assertions: [{include: safety}]}"
        suite = f"tests:\n  - {{id: a, input: z, assertions: [{entry}]}}\n"
        assert folder.yaml(suite).cases[0].evaluators[0].evaluator.members[0].type == "icontains"

    @pytest.mark.parametrize(
        ("template", "message"),
        [
            (None, "Template 'safety' was not found"),
            ("- 1\n", "Template 'safety' must be an object with a list of 'assertions'"),
            ("assertions: [{include: safety}]\n", "Template 'safety' includes itself"),
            ("assertions: [\n", "Template 'safety' is not valid YAML"),
        ],
    )
    def test_a_template_that_cannot_be_used_is_an_error(self, folder, template, message):
        if template is not None:
            folder.write(".agentv/templates/safety.yaml", template)
        error = folder.yaml_error(self.SUITE)
        assert error.detail.startswith(message)
        assert error.field == "assertions[1].include"
        assert template is not None or error.hint.endswith("/.agentv/templates/safety.yaml")


class TestOutcome:
    def test_criteria_win_over_the_expected_outcome(self, folder):
        loaded = folder.yaml("tests:\n  - {id: a, expected_outcome: old, criteria: new, input: z}\n")
        assert loaded.cases[0].expected_outcome == "new"
        assert "'expected_outcome' is ignored because 'criteria' is set" in loaded.messages[0]


class TestSharedInput:
    @pytest.mark.parametrize(
        ("written", "expected"),
        [
            ("Be brief.", ["Be brief.", "Hello"]),
            ("[{role: system, content: Be brief.}]", ["Be brief.", "Hello"]),
            ("{tone: brief}", [{"tone": "brief"}, "Hello"]),
        ],
    )
    def test_the_input_of_the_suite_comes_first(self, folder, written, expected):
        assert texts(folder.yaml(f"input: {written}\ntests:\n{CASE}").cases[0]) == expected

    def test_skip_defaults_leaves_out_the_input_of_the_suite(self, folder):
        suite = "input: Be brief.\ninput_files: [notes.md]\n"
        case = "tests:\n  - {id: a, criteria: x, input: Hello, execution: {skip_defaults: true}}\n"
        folder.write("notes.md", "N")
        assert texts(folder.yaml(suite + case).cases[0]) == ["Hello"]

    def test_input_files_come_before_the_text(self, folder):
        folder.write("notes.md", "N")
        loaded = folder.yaml("tests:\n  - {id: a, criteria: x, input: Sum up, input_files: [notes.md]}\n")
        parts = loaded.cases[0].input[0].parts
        assert [part.value for part in parts] == ["notes.md", "Sum up"]

    def test_input_files_of_a_case_replace_those_of_the_suite(self, folder):
        folder.write("one.md", "1")
        folder.write("two.md", "2")
        cases = "  - {id: a, criteria: x, input: A}\n  - {id: b, criteria: x, input: B, input_files: [two.md]}\n"
        loaded = folder.yaml(f"input_files: [one.md]\ntests:\n{cases}")
        assert [case.input[0].parts[0].value for case in loaded] == ["one.md", "two.md"]

    def test_input_files_need_a_text(self, folder):
        folder.write("notes.md", "N")
        case = "tests:\n  - {id: a, criteria: x, input: [{role: user, content: y}], input_files: [notes.md]}\n"
        error = folder.yaml_error(case)
        assert error.detail == "Field 'input_files' needs an 'input' that is text"

    def test_a_missing_file_of_the_suite_is_reported_once_at_its_line(self, folder):
        error = folder.yaml_error(f"name: s\ninput_files: [gone.md]\ntests:\n{CASE}")
        assert (error.line, error.detail) == (2, "File 'gone.md' was not found")

    def test_a_wrong_input_of_the_suite_is_an_error_at_its_line(self, folder):
        assert folder.yaml_error(f"name: s\ninput: 3\ntests:\n{CASE}").line == 2


class TestVars:
    def test_variables_are_inserted_into_every_field_of_the_case(self, folder):
        folder.write("paris.md", "P")
        loaded = folder.yaml(
            "input: About {{ place.name }}\n"
            "tests:\n"
            "  - id: a\n"
            "    vars: {place: {name: Paris}, file: paris.md, facts: {river: Seine}, n: 2}\n"
            "    criteria: Names {{place.name}} and {{ n }}\n"
            "    input: Where is {{ place.name }}?\n"
            "    input_files: ['{{ file }}']\n"
            "    expected_output: '{{ facts }}'\n"
        )
        case = loaded.cases[0]
        assert case.expected_outcome == "Names Paris and 2"
        assert case.input[0].content == "About Paris"
        assert [part.value for part in case.input[1].parts] == ["paris.md", "Where is Paris?"]
        assert case.expected_output[0].content == {"river": "Seine"}

    def test_variables_are_inserted_into_turns(self, folder):
        loaded = folder.yaml(
            "tests:\n  - {id: a, vars: {x: 1}, criteria: y, input: z, turns: [{input: 'n={{ x }}'}]}\n"
        )
        assert loaded.cases[0].turns[0].input[0].content == "n=1"

    def test_inserted_text_is_not_expanded_again(self, folder):
        loaded = folder.yaml("tests:\n  - {id: a, vars: {x: '{{ y }}', y: 1}, criteria: y, input: 'n={{ x }}'}\n")
        assert texts(loaded.cases[0]) == ["n={{ y }}"]

    def test_an_unknown_variable_stays_and_is_mentioned(self, folder):
        loaded = folder.yaml("tests:\n  - {id: a, vars: {place: Paris}, criteria: y, input: 'In {{ plaec }}'}\n")
        assert texts(loaded.cases[0]) == ["In {{ plaec }}"]
        assert "'{{ plaec }}' is not in 'vars' and is left as it is (Did you mean 'place'?)" in loaded.messages[0]

    def test_a_case_without_vars_is_not_a_template(self, folder):
        assert texts(folder.yaml("tests:\n  - {id: a, criteria: y, input: 'In {{ x }}'}\n").cases[0]) == ["In {{ x }}"]


class TestVariablesOfTheEnvironment:
    def test_they_are_inserted_everywhere_in_the_file(self, folder, monkeypatch):
        monkeypatch.setenv("CITY", "Paris")
        monkeypatch.setenv("TRIALS", "3")
        loaded = folder.yaml(
            "name: in ${{ CITY }}\nexecution: {trials: '${{ TRIALS }}'}\n"
            "tests:\n  - {id: a, criteria: y, input: 'Where is ${{ CITY }}?'}\n"
        )
        case = loaded.cases[0]
        assert (texts(case), case.dataset, case.execution.trials) == (["Where is Paris?"], "in Paris", 3)

    def test_they_come_from_a_dotenv_file_too(self, folder):
        folder.write(".env", "CITY=Rome\n")
        assert texts(folder.yaml("tests:\n  - {id: a, criteria: y, input: '${{ CITY }}'}\n").cases[0]) == ["Rome"]

    @pytest.mark.parametrize(("variable", "problem"), [("AGENTV_NOT_SET", "is not set"), ("EMPTY", "is empty")])
    def test_one_without_a_value_is_empty_and_a_loss(self, folder, monkeypatch, variable, problem):
        monkeypatch.setenv("EMPTY", "")
        text = f"tests:\n  - id: a\n    criteria: y\n    input: Use ${{{{ {variable} }}}}\n"
        loaded = folder.yaml(text)
        assert texts(loaded.cases[0]) == ["Use "]
        start = f"Field 'tests[0].input' uses ${{{{ {variable} }}}}, which {problem}: it is read as an empty text"
        assert loaded.warnings[0].message.startswith(start) and loaded.warnings[0].line == 4
        assert isinstance(loaded.warnings[0], LossWarning)

    def test_one_without_a_value_is_a_loss_in_files_of_cases_too(self, folder):
        folder.write("a.yaml", "- {id: a, criteria: y, input: 'A ${{ NAME_1 }}'}\n")
        folder.write("b.jsonl", [{"id": "b", "criteria": "y", "input": "B ${{ NAME_2 }}"}])
        loaded = folder.yaml("tests: [file://a.yaml, file://b.jsonl]\n")
        assert [texts(case) for case in loaded.cases] == [["A "], ["B "]]
        assert [(warning.path[-7:].strip("/"), warning.line) for warning in loaded.warnings] == [
            ("a.yaml", 1),
            ("b.jsonl", 1),
        ]

    @pytest.mark.parametrize("key", ["vars", "metadata"])
    def test_one_under_a_name_of_a_setting_is_a_loss_too(self, folder, key):
        text = f"tests:\n  - {{id: a, criteria: y, input: x, {key}: {{provider: {{name: '${{{{ NOT_SET }}}}'}}}}}}\n"
        assert [warning.field for warning in folder.yaml(text).warnings] == [f"tests[0].{key}.provider.name"]

    def test_a_secret_one_is_an_error(self, folder, monkeypatch):
        monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")
        error = folder.yaml_error("tests:\n  - id: a\n    criteria: y\n    input: Use ${{ SOME_API_KEY }}\n")
        assert error.detail == "Field 'tests[0].input' uses ${{ SOME_API_KEY }}, which is a secret"
        assert error.line == 4
        assert "sk-0123456789" not in str(error)

    def test_expressions_of_other_tools_stay_as_they_are(self, folder):
        text = "${{ github.sha }} and ${{ secrets.TOKEN }}"
        assert texts(folder.yaml(f"tests:\n  - {{id: a, criteria: y, input: '{text}'}}\n").cases[0]) == [text]

    def test_a_2x_file_keeps_its_text(self, folder):
        case = folder.yaml("evalcases:\n  - {id: a, expected_outcome: y, input: 'Use ${{ NAME }}'}\n").cases[0]
        assert texts(case) == ["Use ${{ NAME }}"]

    def test_a_4x_row_of_a_jsonl_file_refuses_them(self, folder):
        error = folder.row_error({"id": "a", "criteria": "y", "input": "Use ${{ NAME }}"})
        assert error.detail == "Field 'input' uses ${{ NAME }}, which is not replaced in a JSONL file"


class TestExecution:
    def test_settings_of_4x_are_read(self, folder):
        loaded = folder.yaml(
            "execution: {workers: 2, trials: {count: 3, strategy: mean}, targets: [{name: one}, two], threshold: 0.7}\n"
            f"tests:\n{CASE}"
        )
        execution = loaded.cases[0].execution
        assert (execution.workers, execution.trials, execution.targets) == (2, 3, ("one", "two"))
        assert execution.verdicts.passing == 0.7

    def test_hooks_of_a_target_need_a_workspace(self, folder):
        loaded = folder.yaml(f"execution: {{targets: [{{name: a, hooks: {{}}}}]}}\ntests:\n{CASE}")
        assert any("no effect without a 'workspace'" in str(warning) for warning in loaded.warnings)


def test_a_file_of_cases_that_a_variable_names_is_an_error(folder, monkeypatch):
    monkeypatch.setenv("LIST", "cases")
    folder.write("cases.jsonl", [{"id": "a", "criteria": "x", "input": "y"}])
    error = folder.error(folder.write("d.yaml", "tests: ./${{ LIST }}.jsonl\n"))
    assert error.detail == "'cases.jsonl' is named by a variable"
