"""Every scenario of the source documents, through `load_cases` and through `agentv cases`.

The numbers are those of the documents: 000 the JSONL format, 001 the YAML schema, 002 the design of JSONL datasets,
003 the JSONL shorthand, 004 the rules for AgentMark datasets.
"""

import gzip
import hashlib
import json
import os
import subprocess
import sys

import pytest

import agentv
from agentv import DatasetWarning, Message, ToolCall
from agentv.model.case import case_to_data


@pytest.fixture
def read(folder, command):
    """The one case of a dataset as Python has it and as the command prints it: (case, printed, warnings)."""

    def read_one(text, name="dataset.jsonl"):
        folder.write(name, text)
        loaded = folder.load(name)
        ended = command("cases", name)
        assert ended.code == 0
        assert ended.printed == [json.loads(json.dumps(case_to_data(case))) for case in loaded]
        assert len(loaded) == 1
        return loaded[0], ended.printed[0], loaded.messages

    return read_one


@pytest.fixture
def read_yaml(read):
    """The same for a case whose keys are given as YAML, indented by four."""

    def read_keys(keys):
        text = "evalcases:\n  - id: test\n    expected_outcome: Goal\n"
        return read(text + "".join(f"    {line}\n" for line in keys.strip("\n").split("\n")), "dataset.yaml")

    return read_keys


class Test000JsonlDatasetFormat:
    def test_string_input_in_jsonl(self, read):
        case, printed, _ = read('{"id": "test", "expected_outcome": "Goal", "input": "What is 2+2?"}')
        assert case.input == (Message("user", "What is 2+2?"),)
        assert printed["input"] == [{"role": "user", "content": "What is 2+2?"}]

    def test_array_input_in_jsonl(self, read):
        case, printed, _ = read(
            '{"id": "test", "expected_outcome": "Goal", "input": [{"role": "user", "content": "Query"}]}'
        )
        assert case.input == (Message("user", "Query"),)
        assert printed["input"] == [{"role": "user", "content": "Query"}]

    def test_input_messages_alias_in_jsonl(self, read):
        case, printed, warnings = read(
            '{"id": "test", "expected_outcome": "Goal", "input_messages": [{"role": "user", "content": "Query"}]}'
        )
        assert case.input == case.input_messages == (Message("user", "Query"),)
        assert printed["input"] == [{"role": "user", "content": "Query"}]
        assert "input_messages" not in printed
        assert warnings == ["dataset.jsonl, line 1: Field 'input_messages' is deprecated: use 'input'"]

    def test_string_expected_output_in_jsonl(self, read):
        case, printed, _ = read(
            '{"id": "test", "expected_outcome": "Goal", "input": "Query", "expected_output": "Answer"}'
        )
        assert case.expected_output == (Message("assistant", "Answer"),)
        assert printed["expected_output"] == [{"role": "assistant", "content": "Answer"}]

    def test_object_expected_output_in_jsonl(self, read):
        case, printed, _ = read(
            '{"id": "test", "expected_outcome": "Goal", "input": "Query", "expected_output": {"riskLevel": "High"}}'
        )
        assert case.expected_output == (Message("assistant", {"riskLevel": "High"}),)
        assert printed["expected_output"] == [{"role": "assistant", "content": {"riskLevel": "High"}}]

    def test_array_expected_output_in_jsonl(self, read):
        messages = [{"role": "assistant", "tool_calls": [{"tool": "Read", "input": {"file_path": "config.json"}}]}]
        row = {"id": "test", "expected_outcome": "Goal", "input": "Query", "expected_output": messages}
        case, printed, _ = read(json.dumps(row))
        calls = (ToolCall("Read", {"file_path": "config.json"}),)
        assert case.expected_output == (Message("assistant", None, calls),)
        assert printed["expected_output"] == messages

    def test_expected_messages_alias_in_jsonl(self, read):
        case, printed, warnings = read(
            '{"id": "test", "expected_outcome": "Goal", "input": "Query",'
            ' "expected_messages": [{"role": "assistant", "content": "Answer"}]}'
        )
        assert case.expected_output == case.expected_messages == (Message("assistant", "Answer"),)
        assert printed["expected_output"] == [{"role": "assistant", "content": "Answer"}]
        assert "expected_messages" not in printed
        assert warnings == ["dataset.jsonl, line 1: Field 'expected_messages' is deprecated: use 'expected_output'"]

    def test_jsonl_and_yaml_produce_same_eval_case_with_new_fields(self, folder, command):
        folder.write(
            "yaml/dataset.yaml",
            "evalcases:\n"
            "  - id: test-1\n"
            "    expected_outcome: Goal\n"
            '    input: "Query"\n'
            "    expected_output: { riskLevel: High }\n",
        )
        folder.write(
            "jsonl/dataset.jsonl",
            '{"id": "test-1", "expected_outcome": "Goal", "input": "Query", "expected_output": {"riskLevel": "High"}}',
        )
        from_yaml, from_jsonl = folder.load("yaml/dataset.yaml")[0], folder.load("jsonl/dataset.jsonl")[0]
        assert from_yaml == from_jsonl
        assert hash(from_yaml) == hash(from_jsonl)
        assert from_yaml.fingerprint == from_jsonl.fingerprint
        assert command("cases", "yaml/dataset.yaml").stdout == command("cases", "jsonl/dataset.jsonl").stdout


class Test001YamlSchema:
    def test_string_shorthand_for_single_user_query(self, read_yaml):
        case, printed, _ = read_yaml('input: "What is 2+2?"')
        assert case.input == (Message("user", "What is 2+2?"),)
        assert printed["input"] == [{"role": "user", "content": "What is 2+2?"}]

    def test_full_message_array(self, read_yaml):
        case, printed, _ = read_yaml(
            """
input:
  - role: system
    content: "You are a calculator"
  - role: user
    content: "What is 2+2?"
"""
        )
        assert case.input == (Message("system", "You are a calculator"), Message("user", "What is 2+2?"))
        assert printed["input"] == [
            {"role": "system", "content": "You are a calculator"},
            {"role": "user", "content": "What is 2+2?"},
        ]

    def test_input_messages_alias(self, read_yaml):
        case, printed, warnings = read_yaml(
            """
input_messages:
  - role: user
    content: "Query"
"""
        )
        assert case.input == (Message("user", "Query"),)
        assert printed["input"] == [{"role": "user", "content": "Query"}]
        assert warnings == ["dataset.yaml, line 4: Field 'input_messages' is deprecated: use 'input'"]

    def test_string_shorthand(self, read_yaml):
        case, printed, _ = read_yaml('input: Query\nexpected_output: "The answer is 4"')
        assert case.expected_output == (Message("assistant", "The answer is 4"),)
        assert printed["expected_output"] == [{"role": "assistant", "content": "The answer is 4"}]

    def test_structured_object(self, read_yaml):
        case, printed, _ = read_yaml(
            """
input: Query
expected_output:
  riskLevel: High
  reasoning: "Explanation"
"""
        )
        assert case.expected_output == (Message("assistant", {"riskLevel": "High", "reasoning": "Explanation"}),)
        assert printed["expected_output"] == [
            {"role": "assistant", "content": {"riskLevel": "High", "reasoning": "Explanation"}}
        ]

    def test_full_message_array_with_tool_calls(self, read_yaml):
        case, printed, _ = read_yaml(
            """
input: Query
expected_output:
  - role: assistant
    tool_calls:
      - tool: Read
        input: { file_path: "config.json" }
  - role: assistant
    content: { status: "done" }
"""
        )
        assert case.expected_output == (
            Message("assistant", None, (ToolCall("Read", {"file_path": "config.json"}),)),
            Message("assistant", {"status": "done"}),
        )
        assert printed["expected_output"] == [
            {"role": "assistant", "tool_calls": [{"tool": "Read", "input": {"file_path": "config.json"}}]},
            {"role": "assistant", "content": {"status": "done"}},
        ]

    def test_expected_messages_alias(self, read_yaml):
        case, printed, warnings = read_yaml(
            """
input: Query
expected_messages:
  - role: assistant
    content: "Answer"
"""
        )
        assert case.expected_output == (Message("assistant", "Answer"),)
        assert printed["expected_output"] == [{"role": "assistant", "content": "Answer"}]
        assert warnings == ["dataset.yaml, line 5: Field 'expected_messages' is deprecated: use 'expected_output'"]

    def test_both_input_and_input_messages_specified(self, read_yaml):
        case, printed, warnings = read_yaml(
            """
input: "New query"
input_messages:
  - role: user
    content: "Old query"
"""
        )
        assert case.input == (Message("user", "New query"),)
        assert "Old query" not in json.dumps(printed)
        assert warnings == ["dataset.yaml, line 5: Field 'input_messages' is ignored because 'input' is set"]

    def test_both_expected_output_and_expected_messages_specified(self, read_yaml):
        case, printed, warnings = read_yaml(
            """
input: Query
expected_output: { riskLevel: High }
expected_messages:
  - role: assistant
    content: "Old answer"
"""
        )
        assert case.expected_output == (Message("assistant", {"riskLevel": "High"}),)
        assert "Old answer" not in json.dumps(printed)
        assert warnings == [
            "dataset.yaml, line 6: Field 'expected_messages' is ignored because 'expected_output' is set"
        ]


ROW = '{"id": "%s", "expected_outcome": "Goal", "input": "Query"}\n'
YAML = "evalcases:\n  - {id: %s, expected_outcome: Goal, input: Query}\n"


def shell(folder, *arguments, **environment):
    """The command as users run it: a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "agentv", *arguments],
        cwd=folder.path,
        env=os.environ | environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


class Test002FormatDetection:
    @pytest.mark.parametrize("name", ["a.jsonl", "a.JSONL", "a.JsonL"])
    def test_jsonl_by_its_extension(self, folder, name):
        assert folder.load(folder.write(name, ROW % "a")).ids == ["a"]

    @pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.YAML", "a.Yml"])
    def test_yaml_by_its_extension(self, folder, name):
        assert folder.load(folder.write(name, YAML % "a")).ids == ["a"]

    NAMES = ["a.jsonl", "a.yaml", "a.json", "a.txt", "a.csv", "a", "a.toml"]
    CONTENTS = [
        ROW % "a",
        "\ufeff\n" + ROW % "a" + ROW % "b",
        YAML % "a",
        '{"dataset": "x", "evalcases": [%s]}' % (ROW % "a"),
        '{\n  "execution": {"cases": 1},\n  "tests": [%s]\n}' % (ROW % "a"),
    ]

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("content", CONTENTS)
    def test_a_named_file_is_read_by_its_content_whatever_its_extension(self, folder, name, content):
        assert folder.load(folder.write(name, content)).ids[0] == "a"

    def test_a_compressed_file_is_recognized_too(self, folder):
        assert folder.load(folder.write("a.gz", gzip.compress((ROW % "a").encode()))).ids == ["a"]

    def test_the_extension_suggests_a_format_where_the_content_says_nothing(self, folder):
        assert isinstance(folder.error(folder.write("a.jsonl", "{bad")), agentv.DatasetParseError)
        assert isinstance(folder.error(folder.write("b.yaml", "key: 1")), agentv.InvalidDatasetError)

    def test_in_a_folder_other_extensions_are_not_looked_at(self, folder):
        for name in self.NAMES:
            folder.write(f"evals/{name.replace('a', name.removeprefix('a.'), 1)}", ROW % name)
        assert folder.load("evals").ids == ["a.jsonl"]

    @pytest.mark.parametrize("name", ["cases.json", "cases.csv", "cases", "cases.yaml.gz", "cases.gz", "cases.toml"])
    def test_unsupported_file_format(self, folder, command, name):
        error = folder.error(folder.write(name, '{"question": "x"}\n'))
        assert error.headline == f"Unsupported file format: {name}"
        for suffix in (".yaml", ".yml", ".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst"):
            assert suffix in error.detail
        ended = command("cases", name)
        assert (ended.code, ended.stdout) == (2, "")
        assert f"Error: Unsupported file format: {name}" in ended.stderr

    def test_a_table_is_pointed_to_a_map_of_its_columns(self, folder):
        error = folder.error(folder.write("my rows.CSV", "question,b\n1,2\n"))
        assert error.hint.startswith("Say which field is what: --map 'input=question,metadata.*=*'")


class Test002SidecarMetadata:
    def test_found_it_gives_the_metadata_fields(self, folder, command):
        folder.write("evals/dataset.jsonl", ROW % "a")
        folder.write(
            "evals/dataset.yaml",
            "description: Sums\ndataset: math\nexecution:\n  target: azure_base\nevaluator: rubric\n",
        )
        loaded = folder.load("evals/dataset.jsonl")
        assert loaded.warnings == []
        assert loaded[0].dataset == "math"
        assert loaded[0].execution.target == "azure_base"
        assert [evaluator.type for evaluator in loaded[0].evaluators] == ["rubric"]
        ended = command("cases", "evals/dataset.jsonl")
        assert ended.stderr == ""
        assert ended.printed[0]["dataset"] == "math"
        assert ended.printed[0]["execution"] == {"target": "azure_base"}
        assert ended.printed[0]["evaluators"] == [{"type": "rubric", "name": "rubric"}]

    def test_not_found_there_are_defaults(self, folder, command):
        folder.write("evals/dataset.jsonl", ROW % "a")
        case = folder.load("evals/dataset.jsonl")[0]
        assert case.dataset == "dataset"
        assert [evaluator.type for evaluator in case.evaluators] == ["llm_judge"]
        assert case.description is None
        printed = command("cases", "evals/dataset.jsonl").printed[0]
        assert printed["dataset"] == "dataset"
        assert printed["execution"] == {"target": "default"}
        assert printed["evaluators"] == [{"type": "llm_judge", "name": "llm_judge"}]
        assert "description" not in printed

    def test_precedence_line_over_sidecar_over_default(self, folder, command):
        folder.write("dataset.yaml", "execution:\n  target: azure_base\nevaluator: llm_judge\n")
        messages = [{"role": "user", "content": "Query"}]
        rows = [
            {"id": "test-1", "input_messages": messages},
            {"id": "test-2", "input_messages": messages, "execution": {"target": "openai"}},
            {"id": "test-3", "input_messages": messages, "evaluators": [{"type": "rubric"}]},
        ]
        folder.write("dataset.jsonl", [row | {"expected_outcome": "Goal"} for row in rows])
        expected = [("azure_base", "llm_judge"), ("openai", "llm_judge"), ("azure_base", "rubric")]
        loaded = folder.load("dataset.jsonl")
        assert [(case.execution.target, case.evaluators[0].type) for case in loaded] == expected
        printed = command("cases", "dataset.jsonl").printed
        assert [(case["execution"]["target"], case["evaluators"][0]["type"]) for case in printed] == expected

    def test_sidecar_not_found_is_a_warning_and_not_an_error(self, folder):
        folder.write("evals/dataset.jsonl", ROW % "a")
        ended = shell(folder, "cases", "evals/dataset.jsonl")
        assert ended.returncode == 0
        assert ended.stderr == (
            "Warning: Sidecar metadata file not found: evals/dataset.yaml\n"
            "  Using defaults: target=default, evaluator=llm_judge\n"
        )
        assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == ["a"]

    def test_sidecar_not_found_is_a_dataset_warning_in_python_once_per_file(self, folder):
        folder.write("evals/dataset.jsonl", ROW % "a" + ROW % "b")
        with pytest.warns(DatasetWarning) as caught:
            agentv.load_cases("evals/dataset.jsonl")
        assert [str(warning.message) for warning in caught] == [
            "Sidecar metadata file not found: evals/dataset.yaml\n  Using defaults: target=default, evaluator=llm_judge"
        ]
        assert caught[0].filename == __file__

    def test_sidecar_not_found_is_not_mentioned_with_quiet(self, folder, command):
        folder.write("evals/dataset.jsonl", ROW % "a")
        ended = command("cases", "--quiet", "evals/dataset.jsonl")
        assert (ended.code, ended.stderr) == (0, "")


class Test002LineParsing:
    def test_single_line(self, folder):
        assert folder.load(folder.write("a.jsonl", ROW % "a")).ids == ["a"]

    def test_multiple_lines_in_their_order(self, folder):
        assert folder.load(folder.write("a.jsonl", ROW % "b" + ROW % "a" + ROW % "c")).ids == ["b", "a", "c"]

    def test_empty_lines_and_whitespace_are_skipped(self, folder):
        text = "\n" + ROW % "a" + "\n   \n\t\n" + "  " + ROW % "b" + "\n"
        loaded = folder.load(folder.write("a.jsonl", text))
        assert [(case.id, case.line) for case in loaded] == [("a", 2), ("b", 6)]

    def test_a_line_that_is_no_object(self, folder):
        error = folder.error(folder.write("a.jsonl", ROW % "a" + "\n" * 5 + "[1, 2]\n"))
        assert error.detail == "Line 7: Invalid JSON - Expected JSON object, got array"

    def test_stop_on_the_first_error_and_load_nothing(self, folder, command):
        folder.write("a.jsonl", ROW % "a" + "{bad}\n" + ROW % "b" + "{worse\n")
        assert folder.error("a.jsonl").line == 2
        ended = command("cases", "a.jsonl")
        assert (ended.code, ended.stdout) == (2, "")


class Test002FileReferences:
    def test_paths_are_relative_to_the_jsonl_file(self, folder, command):
        folder.write("evals/subfolder/attachments/code.py", "print('hi')\n")
        part = {"type": "file", "value": "./attachments/code.py"}
        messages = [{"role": "user", "content": [part]}]
        folder.write(
            "evals/subfolder/test.jsonl", [{"id": "test", "expected_outcome": "Goal", "input_messages": messages}]
        )
        case = folder.load("evals/subfolder/test.jsonl")[0]
        assert case.input[0].parts[0].value == "./attachments/code.py"
        assert case.input[0].parts[0].path == str(folder.path / "evals/subfolder/attachments/code.py")
        printed = command("cases", "--resolve", "evals/subfolder/test.jsonl").printed[0]
        assert printed["input"][0]["content"] == [part | {"text": "print('hi')\n"}]

    def test_and_to_the_yaml_file(self, folder):
        folder.write("evals/subfolder/attachments/code.py", "print('hi')\n")
        content = "[{role: user, content: [{type: file, value: ./attachments/code.py}]}]"
        folder.write(
            "evals/subfolder/test.yaml", f"evalcases: [{{id: test, expected_outcome: Goal, input: {content}}}]\n"
        )
        part = folder.load("evals/subfolder/test.yaml")[0].input[0].parts[0]
        assert part.path == str(folder.path / "evals/subfolder/attachments/code.py")

    def test_the_same_guideline_patterns_match(self, folder, command):
        folder.write(".agentv/config.yaml", "guideline_patterns: ['**/*.instructions.md']\n")
        folder.write("evals/python.instructions.md", "Write tests.\n")
        content = [{"type": "file", "value": "python.instructions.md"}, {"type": "text", "value": "Go"}]
        row = {"id": "a", "expected_outcome": "Goal", "input": [{"role": "user", "content": content}]}
        folder.write("evals/a.jsonl", [row])
        folder.write("evals/b.yaml", {"evalcases": [row]})
        for file in ("evals/a.jsonl", "evals/b.yaml"):
            parts = command("cases", "--resolve", file).printed[0]["input"][0]["content"]
            assert parts[0] == content[0] | {"text": "Write tests.\n", "guideline": True}
            assert parts[1] == content[1]


class Test002ErrorMessages:
    """The three shapes, word for word, as a user sees them."""

    def error_of(self, folder, text):
        folder.write("evals/test.jsonl", text)
        folder.write("evals/test.yaml", "dataset: test\n")
        ended = shell(folder, "cases", "evals/test.jsonl")
        assert (ended.returncode, ended.stdout) == (2, "")
        return ended.stderr

    def test_parse_errors(self, folder):
        text = "".join(ROW % n for n in range(41)) + '{"id": "t", "input":  }\n'
        assert self.error_of(folder, text) == (
            "Error: Failed to parse JSONL file: evals/test.jsonl\n"
            "  Line 42: Invalid JSON - expected a value, found '}', at column 23\n"
            "\n"
            "  Hint: Each line must be a complete JSON object\n"
        )

    def test_missing_required_fields(self, folder):
        text = "".join(ROW % n for n in range(9)) + '{"id": "t", "input": "Query"}\n'
        assert self.error_of(folder, text) == (
            "Error: Invalid eval case at line 10 in evals/test.jsonl\n"
            "  Missing required field: 'expected_outcome'\n"
            "\n"
            "  Required fields: id, expected_outcome, input\n"
        )

    def test_invalid_field_types(self, folder):
        text = "".join(ROW % n for n in range(4)) + '{"id": "t", "expected_outcome": "x", "input_messages": "Query"}\n'
        assert self.error_of(folder, text) == (
            "Error: Invalid eval case at line 5 in evals/test.jsonl\n"
            "  Field 'input_messages' must be an array, got string\n"
        )

    def test_the_same_for_yaml_with_the_line_of_the_key(self, folder):
        folder.write(
            "evals/test.yaml",
            "evalcases:\n"
            "  - id: a\n"
            "    expected_outcome: Goal\n"
            "\n"
            "    input_messages: Query\n"
            "  - id: b\n"
            "    input: Query\n",
        )
        ended = shell(folder, "cases", "evals/test.yaml")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == (
            "Error: Invalid eval case at line 5 in evals/test.yaml\n"
            "  Field 'input_messages' must be an array, got string\n"
        )

    def test_the_same_for_yaml_with_the_line_of_the_case(self, folder):
        folder.write("evals/test.yaml", YAML % "a" + "  - id: b\n    input: Query\n")
        ended = shell(folder, "cases", "evals/test.yaml")
        assert ended.stderr == (
            "Error: Invalid eval case at line 3 in evals/test.yaml\n"
            "  Missing required field: 'expected_outcome'\n"
            "\n"
            "  Required fields: id, expected_outcome, input\n"
        )


class Test003JsonlShorthand:
    def test_string_shorthand_in_jsonl(self, read):
        case, _, _ = read('{"id": "test", "expected_outcome": "Goal", "input": "What is 2+2?"}')
        assert case.input_messages == (Message("user", "What is 2+2?"),)

    def test_array_input_via_alias_in_jsonl(self, read):
        case, _, _ = read('{"id": "test", "expected_outcome": "Goal", "input": [{"role": "user", "content": "Query"}]}')
        assert case.input_messages == (Message("user", "Query"),)

    def test_string_expected_output_shorthand_in_jsonl(self, read):
        case, _, _ = read('{"id": "test", "expected_outcome": "Goal", "input": "Query", "expected_output": "Answer"}')
        assert case.expected_messages == (Message("assistant", "Answer"),)

    def test_object_shorthand_in_jsonl(self, read):
        case, _, _ = read(
            '{"id": "test", "expected_outcome": "Goal", "input": "Query", "expected_output": {"riskLevel": "High"}}'
        )
        assert case.expected_messages == (Message("assistant", {"riskLevel": "High"}),)

    def test_array_with_tool_calls_via_alias_in_jsonl(self, read):
        case, _, _ = read(
            '{"id": "test", "expected_outcome": "Goal", "input": "Query",'
            ' "expected_output": [{"role": "assistant", "tool_calls": [{"tool": "Read"}]}]}'
        )
        assert case.expected_messages == (Message("assistant", None, (ToolCall("Read"),)),)


AGENTMARK = """\
{"input":{"userMessage":"Why is 1/0 infinity?"}}
{"input":{"userMessage":"What is 7 times 9?"},"expected_output":"7 times 9 equals 63."}
{"input":{"userMessage":"How do I find the area of a circle?"},"expected_output":"To find the area of a circle, \
multiply pi (π) by the radius squared (r²). The formula is A = πr²."}
{"input":{"userMessage":"What's the capital of France?"},"expected_output":"The capital of France is Paris."}
{"input":{"userMessage":"Write a function in Python to check if a number is prime."}}
"""


class Test004AgentMark:
    def test_input_only_format(self, read):
        case, printed, warnings = read('{"input": {"userMessage": "Your test question goes here"}}')
        assert case.input == (Message("user", "Your test question goes here"),)
        assert case.expected_output == ()
        assert case.evaluators == ()
        assert case.variables == printed["variables"] == {"userMessage": "Your test question goes here"}
        assert printed["evaluators"] == []
        assert warnings == []

    def test_input_output_format(self, read):
        case, printed, warnings = read(
            '{"input": {"userMessage": "Your test question goes here"},'
            ' "expected_output": "The expected answer to the question"}'
        )
        assert case.input == (Message("user", "Your test question goes here"),)
        assert case.expected_output == (Message("assistant", "The expected answer to the question"),)
        assert printed["evaluators"] == [{"type": "llm_judge", "name": "llm_judge"}]
        assert warnings == []

    def test_input_is_required(self, folder):
        error = folder.error(folder.write("a.jsonl", AGENTMARK + '{"expected_output": "x"}\n'))
        assert str(error) == (
            "Invalid eval case at line 6 in a.jsonl\n  Missing required field: 'input'\n\n  Required fields: input"
        )

    def test_input_must_be_an_object_with_a_user_message(self, folder):
        error = folder.error(folder.write("a.jsonl", AGENTMARK + '{"input": {"question": "x"}}\n'))
        assert (error.line, error.field) == (6, "input")
        assert error.detail == "Field 'input' contains variables, but there is no prompt to render them"
        assert "userMessage" in error.hint
        assert "prompt" in error.hint

    def test_user_message_must_be_a_string(self, folder):
        error = folder.error(folder.write("a.jsonl", AGENTMARK + '{"input": {"userMessage": 5}}\n'))
        assert (error.line, error.field) == (6, "input.userMessage")
        assert error.detail == "Field 'input.userMessage' must be a string, got integer"

    def test_blank_lines_do_not_stop_a_load_and_comments_do(self, folder):
        assert len(folder.load(folder.write("a.jsonl", AGENTMARK.replace("\n", "\n\n")))) == 5
        assert folder.error(folder.write("a.jsonl", AGENTMARK + "// more\n")).line == 6

    def test_the_example_dataset_loads_unchanged_and_without_a_word(self, folder, command):
        folder.write("agentmark.jsonl", AGENTMARK)
        loaded = folder.load("agentmark.jsonl")
        assert loaded.warnings == []
        assert [case.input[0].content for case in loaded] == [
            "Why is 1/0 infinity?",
            "What is 7 times 9?",
            "How do I find the area of a circle?",
            "What's the capital of France?",
            "Write a function in Python to check if a number is prime.",
        ]
        assert [case.expected_output[0].content if case.expected_output else None for case in loaded] == [
            None,
            "7 times 9 equals 63.",
            "To find the area of a circle, multiply pi (π) by the radius squared (r²). The formula is A = πr².",
            "The capital of France is Paris.",
            None,
        ]
        assert [bool(case.evaluators) for case in loaded] == [False, True, True, True, False]
        ended = command("cases", "agentmark.jsonl")
        assert (ended.code, ended.stderr) == (0, "")
        assert len(ended.printed) == 5

    def test_its_names_are_those_that_agentmark_gives(self, folder):
        loaded = folder.load(folder.write("agentmark.jsonl", AGENTMARK))
        rows = [json.loads(line) for line in AGENTMARK.splitlines()]
        texts = [json.dumps(row["input"], sort_keys=True, separators=(",", ":")) for row in rows]
        assert loaded.ids == [hashlib.md5(text.encode()).hexdigest()[:12] for text in texts]
        assert loaded.ids[0] == "8fbcbc360da4"
