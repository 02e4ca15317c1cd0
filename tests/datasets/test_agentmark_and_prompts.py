"""§1.7: variables, prompts that render them, and AgentMark datasets."""

import hashlib
import json

import pytest

from agentv import Message, TextPart


def case(**fields):
    return {"id": "a", "expected_outcome": "It works", "input": {"topic": "birds"}} | fields


def agentmark_name(value):
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.md5(text.encode("ascii")).hexdigest()[:12]


class TestDetection:
    @pytest.mark.parametrize(
        "row",
        [
            {"input": {"userMessage": "Hi"}},
            {"input": {"userMessage": "Hi"}, "expected_output": "Hello"},
            {"input": {"userMessage": "Hi"}, "metadata": {"k": 1}, "tags": ["x"]},
            {"input": {"userMessage": "Hi", "role": "user"}},
        ],
    )
    def test_a_first_row_with_variables_and_no_case_keys_is_agentmark(self, folder, row):
        loaded = folder.rows(row, {"input": {"userMessage": "Second"}})
        assert loaded.ids == [agentmark_name(row["input"]), agentmark_name({"userMessage": "Second"})]

    @pytest.mark.parametrize(
        "row",
        [
            {"input": "Hi"},
            {"input": {"role": "user", "content": "Hi"}},
            {"input": {"userMessage": "Hi"}, "id": "a"},
            {"input": {"userMessage": "Hi"}, "expected_outcome": "x"},
            {"input": {"userMessage": "Hi"}, "outcome": "x"},
            {"input": {"userMessage": "Hi"}, "criteria": "x"},
            {"expected_output": "x"},
        ],
    )
    def test_any_other_first_row_is_not_agentmark(self, folder, row):
        assert folder.row_error(row).detail.startswith("Missing required field: '")

    def test_only_the_first_row_that_is_not_blank_decides(self, folder):
        row = '{"input": {"userMessage": "Hi"}}\n'
        assert len(folder.load(folder.write("a.jsonl", "\n  \n" + row))) == 1
        ours = json.dumps(case(input="Hi")) + "\n"
        assert folder.error(folder.write("b.jsonl", ours + row)).line == 2

    def test_yaml_is_agentmark_only_if_format_is_set(self, folder):
        cases = "evalcases:\n  - input: {userMessage: Hi}\n"
        assert folder.yaml_error(cases).detail == "Missing required field: 'id'"
        assert folder.yaml("format: agentmark\n" + cases).ids == [agentmark_name({"userMessage": "Hi"})]

    def test_a_sidecar_can_set_the_agentmark_format(self, folder):
        rows = ({"id": "a", "input": {"userMessage": "Hi"}}, {"input": "plain text"})
        loaded = folder.rows(*rows, sidecar={"format": "agentmark"})
        assert loaded.ids == ["a", agentmark_name("plain text")]

    def test_a_sidecar_can_unset_the_agentmark_format(self, folder):
        error = folder.row_error({"input": {"userMessage": "Hi"}}, sidecar={"format": "agentv"})
        assert error.detail == "Missing required field: 'id'"

    def test_a_first_row_with_an_id_and_no_outcome_gets_a_hint(self, folder):
        error = folder.row_error({"id": "a", "input": {"userMessage": "Hi"}})
        assert error.detail == "Missing required field: 'expected_outcome'"
        assert error.hint.startswith("Required fields: id, expected_outcome, input\n")
        assert "format: agentmark" in error.hint
        assert "rows.yaml" in error.hint

    def test_the_same_rows_in_jsonl_and_yaml_are_equal(self, folder):
        rows = [{"input": {"userMessage": "Hi"}, "expected_output": "Hello"}, {"input": {"userMessage": "Bye"}}]
        from_jsonl = folder.rows(*rows)
        from_yaml = folder.yaml(json.dumps({"format": "agentmark", "evalcases": rows}))
        assert from_jsonl.cases == from_yaml.cases


class TestNames:
    @pytest.mark.parametrize(
        ("value", "name"),
        [
            ({"userMessage": "Hi"}, "40c3656cb63e"),
            ({"userMessage": "Hi", "b": 1, "a": [True, None, 1.5, "é"]}, "19589acb602c"),
            ({"userMessage": "é😀\u2028"}, "995fb1ebcae2"),
        ],
    )
    def test_an_id_is_the_md5_of_the_input_as_canonical_json(self, folder, value, name):
        assert folder.rows({"input": value}).ids == [name] == [agentmark_name(value)]

    def test_the_order_of_keys_does_not_matter(self, folder):
        value = {"userMessage": "Hi", "b": {"y": 1, "x": 2}}
        other = {"b": {"x": 2, "y": 1}, "userMessage": "Hi"}
        assert folder.rows({"input": value}).ids == folder.rows({"input": other}).ids

    def test_a_repeat_gets_a_number(self, folder):
        row = {"input": {"userMessage": "Hi"}}
        name = agentmark_name(row["input"])
        loaded = folder.rows(row, {"input": {"userMessage": "Bye"}}, row, row)
        assert loaded.ids == [name, agentmark_name({"userMessage": "Bye"}), f"{name}-2", f"{name}-3"]
        assert folder.stream("rows.jsonl").ids == loaded.ids

    def test_a_given_id_is_kept_and_may_not_repeat(self, folder):
        row = {"input": {"userMessage": "Hi"}}
        assert folder.rows(row, row | {"id": "mine"}).ids == [agentmark_name(row["input"]), "mine"]
        error = folder.row_error(row, row | {"id": "mine"}, row | {"id": "mine"})
        assert error.detail == "Duplicate id 'mine': first used at line 2"


class TestScoring:
    def test_the_default_judge_scores_only_rows_with_a_reference(self, folder):
        loaded = folder.rows(
            {"input": {"userMessage": "Hi"}, "expected_output": "Hello"}, {"input": {"userMessage": "Bye"}}
        )
        assert [[spec.type for spec in read.evaluators] for read in loaded] == [["llm_judge"], []]

    def test_any_json_but_null_is_a_reference(self, folder):
        outputs = [None, {"a": 1}, [1], 0, False, ""]
        rows = [{"input": {"userMessage": str(n)}, "expected_output": output} for n, output in enumerate(outputs)]
        loaded = folder.rows(*rows)
        assert [read.expected_output[0].content if read.expected_output else None for read in loaded] == outputs

    def test_without_a_reference_only_evaluators_that_need_none_score(self, folder):
        evaluators = [{"type": "contains", "value": "x"}, {"type": "equals"}, {"type": "is_json"}]
        row = {"input": {"userMessage": "Hi"}}
        for loaded in (
            folder.rows(row | {"evaluators": evaluators}),
            folder.rows(row, sidecar={"evaluators": evaluators}),
        ):
            assert [spec.type for spec in loaded[0].evaluators] == ["contains", "is_json"]

    def test_with_a_reference_all_named_evaluators_score(self, folder):
        evaluators = [{"type": "equals"}, {"type": "is_json"}]
        loaded = folder.rows({"input": {"userMessage": "Hi"}, "expected_output": "x", "evaluators": evaluators})
        assert [spec.type for spec in loaded[0].evaluators] == ["equals", "is_json"]

    def test_rubrics_score_without_a_reference(self, folder):
        loaded = folder.rows({"input": {"userMessage": "Hi"}, "rubrics": ["Is polite"]})
        assert [spec.type for spec in loaded[0].evaluators] == ["rubric"]


PROMPT = "Tell me about {{ topic }}."


class TestPrompts:
    def test_a_text_becomes_a_user_message(self, folder):
        loaded = folder.rows(case(), sidecar={"prompt": PROMPT})
        assert loaded[0].input == (Message("user", "Tell me about birds."),)
        assert loaded[0].variables == {"topic": "birds"}
        assert loaded[0].prompts == ()

    def test_each_message_is_rendered(self, folder):
        prompt = [
            {"role": "system", "content": "You know {{ topic }}."},
            {"role": "user", "content": [{"type": "text", "value": "About {{ topic }}?"}, "{{ topic }}!"]},
            {"role": "assistant", "content": {"raw": "{{ topic }}"}},
        ]
        assert folder.rows(case(), sidecar={"prompt": prompt})[0].input == (
            Message("system", "You know birds."),
            Message("user", (TextPart("About birds?"), TextPart("birds!"))),
            Message("assistant", {"raw": "{{ topic }}"}),
        )

    def test_files_in_messages_are_kept_and_their_names_are_not_rendered(self, folder):
        folder.write("{{ odd.md", "x")
        parts = [{"type": "file", "value": "{{ odd.md"}, {"type": "text", "value": "{{ topic }}"}]
        read = folder.rows(case(), sidecar={"prompt": [{"role": "user", "content": parts}]})[0]
        assert [part.value for part in read.input[0].parts] == ["{{ odd.md", "birds"]

    @pytest.mark.parametrize("name", ["ask.md", "ask.txt", "file://ask.md", "file://ask.prompt", " ask.md "])
    def test_a_prompt_can_be_in_a_file(self, folder, name):
        folder.write(name.strip().removeprefix("file://"), "Tell me about {{ topic }}.\r\n")
        loaded = folder.rows(case(), sidecar={"prompt": name})
        assert loaded[0].input == (Message("user", "Tell me about birds.\n"),)

    @pytest.mark.parametrize("name", ["ask.md", "file://ask.txt", "prompts/ask.txt"])
    def test_a_file_must_exist(self, folder, name):
        error = folder.row_error(case(), sidecar=f"dataset: rows\nprompt: {name}\n")
        assert error.headline == "Invalid dataset at line 2 in rows.yaml"
        assert error.detail == f"File '{name.removeprefix('file://')}' was not found"
        assert "Looked for " in error.hint

    def test_a_file_outside_the_project_is_refused(self, folder):
        folder.write("secret.md", "{{ topic }}")
        folder.write("project/rows.jsonl", [case()])
        folder.write("project/rows.yaml", {"prompt": "../secret.md"})
        assert "outside the project root" in folder.error("project/rows.jsonl").detail

    def test_a_text_of_several_lines_is_never_a_file_name(self, folder):
        loaded = folder.rows(case(), sidecar={"prompt": "{{ topic }}\nsee notes.md"})
        assert loaded[0].input[0].content == "birds\nsee notes.md"

    def test_a_yaml_document_can_have_a_prompt(self, folder):
        loaded = folder.yaml(json.dumps({"prompt": PROMPT, "evalcases": [case()]}))
        assert loaded[0].input == (Message("user", "Tell me about birds."),)

    def test_a_case_can_override_the_prompt(self, folder):
        loaded = folder.rows(case(), case(id="b", prompt="Only {{ topic }}"), sidecar={"prompt": PROMPT})
        assert [read.input[0].content for read in loaded] == ["Tell me about birds.", "Only birds"]

    def test_a_prompt_wins_over_a_user_message(self, folder):
        row = case(input={"topic": "birds", "userMessage": "Hi"})
        assert folder.rows(row, sidecar={"prompt": PROMPT})[0].input[0].content == "Tell me about birds."

    def test_a_missing_variable_is_an_error_with_a_suggestion(self, folder):
        error = folder.row_error(case(input={"topc": "birds"}), sidecar={"prompt": PROMPT})
        assert str(error) == (
            "Invalid eval case at line 1 in rows.jsonl\n"
            "  The prompt uses the variable 'topic', which is missing in this row\n"
            "\n"
            "  Hint: Did you mean 'topc'?"
        )
        assert error.field == "input"

    def test_without_a_similar_name_the_error_lists_all_variables(self, folder):
        error = folder.row_error(case(input={"x": 1, "y": 2}), sidecar={"prompt": PROMPT})
        assert error.hint == "The row has: x, y"
        assert folder.row_error(case(input={}), sidecar={"prompt": PROMPT}).hint == "The row has: no variables"

    def test_the_error_names_the_missing_variable(self, folder):
        prompt = "{% if aside is defined %}{{ aside }}{% endif %}{{ topic }}{{ other }}"
        error = folder.row_error(case(), sidecar={"prompt": prompt})
        assert error.detail == "The prompt uses the variable 'other', which is missing in this row"

    def test_a_missing_attribute_of_a_variable_is_an_error(self, folder):
        error = folder.row_error(case(input={"topic": {"name": "x"}}), sidecar={"prompt": "{{ topic.title }}"})
        assert error.detail.startswith("Cannot render the prompt: ")

    def test_a_broken_template_is_an_error_of_the_dataset(self, folder):
        error = folder.row_error(case(), sidecar="dataset: rows\nprompt: 'Hi {{ topic'\n")
        assert (error.path, error.line, error.field) == ("rows.yaml", 2, "prompt")
        assert error.detail.startswith("The prompt is not a valid template: ")

    @pytest.mark.parametrize(
        ("prompt", "detail"),
        [
            (5, "Field 'prompt' must be a string or an array"),
            ([], "A prompt needs at least one message"),
            (["Hi"], "Field 'prompt[0]' must be"),
            ([{"role": "usr", "content": "Hi"}], "The role of a message must be one of"),
        ],
    )
    def test_a_prompt_of_another_type_is_an_error(self, folder, prompt, detail):
        error = folder.row_error(case(), sidecar={"prompt": prompt})
        assert error.detail.startswith(detail)

    def test_without_a_prompt_the_user_message_is_the_input(self, folder):
        assert folder.rows(case(input={"userMessage": "Hi", "topic": 1}))[0].input == (Message("user", "Hi"),)

    def test_without_a_prompt_or_user_message_the_error_suggests_both(self, folder):
        error = folder.row_error(case())
        assert error.detail == "Field 'input' contains variables, but there is no prompt to render them"
        assert "userMessage" in error.hint
        assert "in rows.yaml" in error.hint

    def test_an_array_of_instances_of_helm_suggests_a_map_and_a_sidecar(self, folder):
        folder.write("instances.json", '[{"id": "a", "input": {"text": "Hi"}, "references": []}]')
        hint = folder.error("instances.json").hint
        assert "in instances.yaml" in hint and "--map input=input.text" in hint

    def test_a_prompt_for_any_other_input_is_ignored_with_one_warning(self, folder):
        loaded = folder.rows(case(input="Hi"), case(id="b", input="Ho"), sidecar={"prompt": PROMPT})
        assert [read.input[0].content for read in loaded] == ["Hi", "Ho"]
        assert loaded.messages == [
            "rows.jsonl, line 1: The prompt is ignored: it applies only if 'input' is an object of variables"
        ]


VALUES = [
    ("text", "text"),
    ("", ""),
    ("{{ other }} {% raw %}", "{{ other }} {% raw %}"),
    ("<b> & \"quotes\" 'too'", "<b> & \"quotes\" 'too'"),
    ("two\nlines\n", "two\nlines\n"),
    (None, ""),
    (True, "true"),
    (False, "false"),
    (0, "0"),
    (-7, "-7"),
    (12345678901234567890, "12345678901234567890"),
    (10**60, str(10**60)),
    (1.5, "1.5"),
    (1.0, "1.0"),
    ({"b": 1, "a": [1, None, "é"]}, '{"b":1,"a":[1,null,"é"]}'),
    ([], "[]"),
    ({}, "{}"),
    ([1.0, True], "[1.0,true]"),
]


class TestRendering:
    @pytest.mark.parametrize(("value", "text"), VALUES)
    def test_strings_are_inserted_unchanged_null_as_nothing_the_rest_as_json(self, folder, value, text):
        loaded = folder.rows(case(input={"value": value, "other": "WRONG"}), sidecar={"prompt": "<{{ value }}>"})
        assert loaded[0].input[0].content == f"<{text}>"

    def test_templates_in_data_are_not_evaluated(self, folder):
        attack = "{{ secret }} {% for x in range(9) %}x{% endfor %} {{ 7 * 7 }} {# gone? #}"
        row = case(input={"topic": attack, "secret": "s3cret", "list": [attack], "deep": {"k": attack}})
        loaded = folder.rows(row, sidecar={"prompt": "{{ topic }}|{{ list[0] }}|{{ deep.k }}"})
        assert loaded[0].input[0].content == "|".join([attack] * 3)
        plain = folder.rows(
            case(input=attack, expected_output=attack, metadata={"k": attack}), sidecar={"dataset": "rows"}
        )
        assert plain[0].input[0].content == plain[0].expected_output[0].content == plain[0].metadata["k"] == attack
        user = folder.rows(case(input={"userMessage": attack}), sidecar={"dataset": "rows"})
        assert user[0].input[0].content == attack

    @pytest.mark.parametrize(
        "prompt",
        [
            "{{ x.__class__ }}",
            "{{ x['__class__'] }}",
            "{{ x|attr('__class__') }}",
            "{{ x.__init__.__globals__ }}",
            "{% include 'rows.jsonl' %}",
            "{% import 'os' as os %}",
            "{{ open('rows.jsonl') }}",
            "{{ x.update(x) }}",
        ],
    )
    def test_a_template_can_only_read_its_variables(self, folder, prompt):
        error = folder.row_error(case(input={"x": {"k": 1}}), sidecar={"prompt": prompt})
        assert error.detail.startswith(("The prompt ", "Cannot render the prompt: "))

    @pytest.mark.parametrize("name", ["name", "source", "template", "ctx", "range", "loop", "items", "é"])
    def test_a_variable_may_have_any_name(self, folder, name):
        loaded = folder.rows(case(input={name: "value"}), sidecar={"prompt": "{{ " + name + " }}"})
        assert loaded[0].input[0].content == "value"

    def test_templates_can_use_control_flow_and_filters(self, folder):
        prompt = "{% for bird in birds %}{{ loop.index }}. {{ bird | upper }}\n{% endfor %}{{ more | default('none') }}"
        row = case(input={"birds": ["owl", "tit"]})
        assert folder.rows(row, sidecar={"prompt": prompt})[0].input[0].content == "1. OWL\n2. TIT\nnone"

    def test_variables_keep_their_types(self, folder):
        variables = {"topic": "x", "n": 1.0, "deep": {"k": [None, True]}}
        assert folder.rows(case(input=variables), sidecar={"prompt": PROMPT})[0].variables == variables


class TestSeveralPrompts:
    PROMPTS = [{"id": "short", "prompt": "{{ topic }}?"}, {"id": "long", "prompt": PROMPT}]

    def test_every_prompt_renders_the_case(self, folder):
        read = folder.rows(case(), sidecar={"prompts": self.PROMPTS})[0]
        assert read.input == ()
        assert [(prompt.id, prompt.input) for prompt in read.prompts] == [
            ("short", (Message("user", "birds?"),)),
            ("long", (Message("user", "Tell me about birds."),)),
        ]

    def test_a_list_of_one_prompt_is_one_variant(self, folder):
        read = folder.rows(case(), sidecar={"prompts": self.PROMPTS[:1]})[0]
        assert [prompt.id for prompt in read.prompts] == ["short"]

    def test_prompts_are_printed(self, folder, command):
        folder.write("rows.jsonl", [case()])
        folder.write("rows.yaml", {"prompts": self.PROMPTS})
        printed = command("cases", "rows.jsonl").printed[0]
        assert [prompt["id"] for prompt in printed["prompts"]] == ["short", "long"]
        assert printed["variables"] == {"topic": "birds"}

    @pytest.mark.parametrize(
        ("prompts", "detail"),
        [
            ([{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}], "The prompt id 'a' is used twice"),
            ([{"prompt": "x"}], "Missing required field: 'prompts[0].id'"),
            ([{"id": "a"}], "Missing required field: 'prompts[0].prompt'"),
            ([{"id": "a", "prompt": "{{"}], "The prompt is not a valid template"),
            ("x", "Field 'prompts' must be an array, got string"),
        ],
    )
    def test_an_invalid_list_of_prompts_is_an_error(self, folder, prompts, detail):
        assert folder.row_error(case(), sidecar={"prompts": prompts}).detail.startswith(detail)

    def test_prompt_and_prompts_together_are_an_error(self, folder):
        error = folder.row_error(case(), sidecar={"prompt": "x", "prompts": self.PROMPTS})
        assert error.detail == "Both 'prompt' and 'prompts' are set"
