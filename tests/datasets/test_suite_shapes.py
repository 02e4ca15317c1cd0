"""Shapes in suites of AgentV (TypeScript) 4.x: they load, and what has no effect is mentioned."""

import pytest


def suite(assertion, header=""):
    return f"{header}tests:\n  - id: a\n    criteria: y\n    input: z\n    assertions:\n      - {assertion}\n"


def only_evaluator(loaded):
    (spec,) = loaded.cases[0].evaluators
    return spec


class TestEntries:
    def test_the_id_of_an_assertion_is_its_name(self, folder):
        assert only_evaluator(folder.yaml(suite("{type: contains, value: x, id: HAS_X}"))).name == "HAS_X"

    def test_a_name_wins_over_an_id(self, folder):
        assert only_evaluator(folder.yaml(suite("{type: contains, value: x, id: HAS_X, name: own}"))).name == "own"

    @pytest.mark.parametrize("type_", ["llm-grader", "rubrics"])
    def test_the_steps_of_a_judge_are_ignored_with_a_warning(self, folder, type_):
        loaded = folder.yaml(suite(f"{{type: {type_}, max_steps: 3}}"))
        assert "Field 'assertions[0].max_steps' is ignored" in loaded.messages[0]
        assert "A judge responds in one call" in loaded.messages[0]

    def test_a_misspelt_key_is_still_an_error(self, folder):
        error = folder.yaml_error(suite("{type: contains, val: x}"))
        assert error.detail == "Unknown field 'assertions[0].val'"


class TestHeader:
    def test_defaults_that_only_hold_anchors_have_no_effect(self, folder):
        header = "defaults:\n  text: &text Be brief.\n"
        loaded = folder.yaml(f"{header}tests:\n  - {{id: a, criteria: *text, input: z}}\n")
        assert loaded.cases[0].expected_outcome == "Be brief."
        assert "Field 'defaults' has no effect" in loaded.messages[0]

    def test_defaults_of_5x_are_still_refused(self, folder):
        error = folder.yaml_error(suite("{type: is-json}", "defaults: {grader: judge}\n"))
        assert error.detail == "Field 'defaults' is not supported"

    @pytest.mark.parametrize("place", ["description: Uses ${{ NOT_SET }}\n", ""])
    def test_a_description_may_name_a_variable_that_is_not_set(self, folder, place):
        text = suite("{type: is-json}", place).replace("    criteria", "    description: ${{ NOT_SET }}\n    criteria")
        assert folder.yaml(text).cases[0].description == "${{ NOT_SET }}"

    def test_a_description_must_not_contain_a_secret(self, folder, monkeypatch):
        monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")
        error = folder.yaml_error(suite("{type: is-json}", "description: ${{ SOME_API_KEY }}\n"))
        assert error.detail.endswith("which is a secret")

    def test_a_cost_limit_of_trials_is_not_enforced_and_says_so(self, folder):
        loaded = folder.yaml(suite("{type: is-json}", "execution: {trials: {count: 2, cost_limit_usd: 1}}\n"))
        assert loaded.cases[0].execution.trials == 2
        assert "Field 'execution.trials.cost_limit_usd' is ignored" in loaded.messages[0]
        assert "agentv eval --budget-usd" in loaded.messages[0]


class TestOwnTypes:
    """A type that is the name of a script in `.agentv/assertions`, `.agentv/graders` or `.agentv/judges`."""

    @pytest.mark.parametrize(
        ("script", "command"),
        [
            ("assertions/word-count.ts", ["bun", "run"]),
            ("graders/word-count.mts", ["bun", "run"]),
            ("judges/word-count.ts", ["bun", "run"]),
            ("assertions/word-count.mjs", ["node"]),
            ("assertions/word-count.py", ["python3"]),
        ],
    )
    def test_it_runs_the_script_as_a_code_judge(self, folder, script, command):
        folder.write(f".agentv/{script}", "")
        folder.write(".agentv/targets.yaml", "targets: []\n")
        dataset = folder.yaml(suite("{type: word-count, least: 3, weight: 2}"), "evals/cases.yaml")
        spec = only_evaluator(dataset)
        assert (spec.type, spec.name, spec.weight) == ("code_judge", "word-count", 2)
        assert list(spec.evaluator.script) == [*command, str(folder.path / ".agentv" / script)]
        assert spec.evaluator.config == {"least": 3}
        assert not dataset.messages

    def test_it_is_found_in_a_project_below_the_root(self, folder):
        folder.write(".agentv/targets.yaml", "targets: []\n")
        folder.write("team/.agentv/assertions/word-count.ts", "")
        assert only_evaluator(folder.yaml(suite("{type: word-count}"), "team/evals/c.yaml")).type == "code_judge"

    def test_it_works_inside_a_composite(self, folder):
        folder.write(".agentv/assertions/word-count.ts", "")
        entry = "{type: composite, aggregator: weighted_average, assertions: [{type: word-count}]}"
        assert only_evaluator(folder.yaml(suite(entry))).evaluator.members[0].type == "code_judge"

    def test_a_builtin_type_is_not_replaced(self, folder):
        folder.write(".agentv/assertions/contains.ts", "")
        assert only_evaluator(folder.yaml(suite("{type: contains, value: x}"))).type == "contains"

    def test_a_type_without_a_script_is_unknown(self, folder):
        folder.write(".agentv/assertions/other.ts", "")
        assert folder.yaml_error(suite("{type: ../other}")).detail == "Unknown evaluator type '../other'"


class TestPreprocessors:
    SUITE = "preprocessors:\n  - {type: xlsx, command: [cat]}\n  - {type: pdf, command: [old]}\n"

    @staticmethod
    def used(spec):
        return {each.type: list(each.command) for each in spec.evaluator.preprocessors}

    @pytest.mark.parametrize("entry", ["{type: llm-grader}", "{type: rubrics, criteria: [x]}", "Mentions x"])
    def test_those_of_the_suite_apply_to_every_judge(self, folder, entry):
        assert self.used(only_evaluator(folder.yaml(suite(entry, self.SUITE)))) == {"xlsx": ["cat"], "pdf": ["old"]}

    def test_one_of_an_entry_replaces_that_for_the_same_type(self, folder):
        entry = "{type: llm-grader, preprocessors: [{type: application/pdf, command: [new]}]}"
        loaded = folder.yaml(suite(entry, self.SUITE))
        assert self.used(only_evaluator(loaded)) == {"xlsx": ["cat"], "application/pdf": ["new"]}

    def test_they_apply_inside_composites_to_turns_and_to_the_default_judge(self, folder):
        entry = "{type: composite, aggregator: weighted_average, assertions: [Mentions x]}"
        member = only_evaluator(folder.yaml(suite(entry, self.SUITE))).evaluator.members[0]
        turns = "tests:\n  - {id: a, criteria: y, input: z, turns: [{input: w, assertions: [Mentions x]}]}\n"
        case = folder.yaml(self.SUITE + turns).cases[0]
        for spec in (member, case.turns[0].evaluators[0], case.evaluators[0]):
            assert self.used(spec) == {"xlsx": ["cat"], "pdf": ["old"]}

    def test_other_evaluators_stay_as_they_are(self, folder):
        loaded = folder.yaml(suite("{type: contains, value: x}", self.SUITE))
        assert only_evaluator(loaded).settings == {"value": "x", "exact": True}

    @pytest.mark.parametrize(
        ("written", "detail"),
        [
            ("3", "Field 'preprocessors' must be an array, got integer"),
            ("[{type: pdf}]", "Missing required field: 'preprocessors[0].command'"),
            ("[{type: pdf, command: ''}]", "'preprocessors[0].command' is blank"),
        ],
    )
    def test_a_wrong_one_is_reported_once_at_its_line(self, folder, written, detail):
        error = folder.yaml_error(suite("{type: llm-grader}", f"name: s\npreprocessors: {written}\n"))
        assert (error.line, error.detail) == (2, detail)


class TestConversations:
    CASE = "tests:\n  - {{id: a, criteria: y, input: z, turns: [{{input: w}}], {}}}\n"

    @pytest.mark.parametrize("keys", ["mode: conversation", "on_turn_failure: continue", "aggregation: mean"])
    def test_settings_that_describe_our_default_are_accepted(self, folder, keys):
        assert folder.yaml(self.CASE.format(keys)).messages == []

    @pytest.mark.parametrize(
        ("keys", "detail"),
        [
            ("on_turn_failure: end", "Field 'on_turn_failure' has an unknown value 'end'"),
            ("window_size: 0", "Field 'window_size' must be an integer of at least 1"),
            ("mode: chat", "Field 'mode' has an unknown value 'chat'"),
        ],
    )
    def test_others_are_refused_by_name(self, folder, keys, detail):
        assert folder.yaml_error(self.CASE.format(keys)).detail == detail

    @pytest.mark.parametrize(
        ("written", "kept", "first"),
        [
            ("z", [], ["z", "w"]),
            ("[{role: system, content: s}, {role: user, content: z}]", ["s"], ["z", "w"]),
            ("[{role: user, content: z}, {role: assistant, content: hi}]", ["z", "hi"], ["w"]),
        ],
    )
    def test_the_input_of_a_conversation_is_answered_with_its_first_turn(self, folder, written, kept, first):
        suite = self.CASE.format("mode: conversation").replace("input: z", f"input: {written}")
        (case,) = folder.yaml(suite).cases
        assert [message.content for message in case.input] == kept
        assert [message.content for message in case.turns[0].input] == first

    @pytest.mark.parametrize(("keys", "count"), [("", 0), ("criteria: polite", 1), ("expected_output: hi", 1)])
    def test_no_judge_is_added_to_checked_turns_without_criteria(self, folder, keys, count):
        turns = "turns: [{input: a, assertions: [{type: contains, value: b}]}, {input: c}]"
        [loaded] = folder.yaml(f"tests:\n  - {{id: a, {turns}{', ' if keys else ''}{keys}}}\n").cases
        assert len(loaded.evaluators) == count

    @pytest.mark.parametrize(
        "keys", ["mode: conversation", "aggregation: min", "on_turn_failure: continue", "window_size: 2"]
    )
    def test_they_need_turns(self, folder, keys):
        error = folder.yaml_error(f"tests:\n  - {{id: a, criteria: y, input: z, {keys}}}\n")
        assert error.detail == f"Field '{keys.split(':')[0]}' needs 'turns'"


@pytest.mark.parametrize("key", ["cache", "fail_on_error"])
def test_what_is_off_here_may_be_turned_off(folder, key):
    suite = "execution: {{{}: {}}}\ntests: [{{id: a, input: b, criteria: c}}]\n"
    assert folder.yaml(suite.format(key, "false")).messages == []
    (warning,) = folder.yaml(suite.format(key, "true")).messages
    assert f"Field 'execution.{key}' is ignored: it has no effect here (Use `agentv eval --" in warning


def test_an_object_without_a_prompt_is_the_content_of_a_message(folder):
    (case,) = folder.yaml("tests: [{id: a, input: {ticket: {title: Login}}, criteria: c}]\n").cases
    assert [(message.role, message.content) for message in case.input] == [("user", {"ticket": {"title": "Login"}})]


COMPOSITE = "{{type: composite, aggregator: weighted_average, assertions: [{}]}}"


@pytest.mark.parametrize(
    ("assertion", "warning"),
    [
        ("{type: contains, value: 42}", "ignores an assertion whose value is not text"),
        ("{type: skill-trigger, skill: csv}", "finds a skill's name in that of another one"),
        ("{type: tool-trajectory, mode: any_order, minimums: {Bash: 1}}", "calls tools of Copilot, Codex and Pi Bash"),
        ("{type: tool-trajectory, mode: exact, expected: [{tool: Read}]}", "calls tools of Copilot, Codex and Pi Bash"),
        ("{type: tool-trajectory, mode: exact, expected: [{tool: a}], negate: true}", "gives calls that are partly"),
        ("{type: not-contains, value: a}", "scores assertions whose type begins with 'not-' 0"),
        ("{type: code_judge, command: ./check}", "skips the former type 'code_judge'. Use 'code-grader'"),
        (
            "{type: tool-trajectory, mode: exact, expected: [{tool: a, output: {b: 1}}]}",
            "ignores 'input' and 'output' of",
        ),
        ("{type: rubrics, criteria: Is kind}", "ignores `rubrics` whose criteria are not a list"),
        ("{type: equals, value: true}", "ignores an assertion whose value is not text"),
        (COMPOSITE.format("{type: contains, value: x, weight: 9}"), "ignores 'weight' and 'negate' of the members"),
        (COMPOSITE.format("{type: not-contains, value: x}"), "ignores 'weight' and 'negate' of the members"),
        (
            "{type: field-accuracy, fields: [{path: d, match: date, formats: [DD/MM/YYYY]}]}",
            "reads 02/01/2024 as 1 Feb",
        ),
    ],
)
def test_what_agentv_reads_in_another_way_is_a_warning(folder, assertion, warning):
    loaded = folder.yaml(suite(assertion))
    assert any(f"AgentV (TypeScript) {warning}" in message for message in loaded.messages)
