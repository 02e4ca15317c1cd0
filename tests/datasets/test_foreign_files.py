"""Files that are not datasets: the message names what they are and what to do."""

import json
import shlex

import pytest

from agentv.datasets.formats.indentation import indentation_hint


def rows(*keys):
    return [dict.fromkeys(keys, "x")]


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("promptfooconfig.yaml", {"prompts": ["x"], "providers": ["y"], "tests": []}, "promptfoo"),
        ("evals.json", {"skill_name": "x", "evals": []}, "an evals.json file of Agent Skills"),
        ("sample.prompt.yml", {"messages": [], "testData": []}, "a prompt file of GitHub Models"),
        ("set.evalset.json", {"eval_set_id": "x", "eval_cases": []}, "an eval set of Google ADK"),
        ("other.yaml", {"targets": []}, "a targets file"),
        ("data.jsonl", rows("input", "ideal"), "a row of OpenAI Evals"),
        ("data.jsonl", rows("input", "expectedOutput"), "a dataset item of Langfuse"),
        ("data.jsonl", rows("inputs", "outputs"), "an example of LangSmith"),
        ("data.jsonl", rows("instance_id", "problem_statement"), "a task of SWE-bench"),
        ("data.jsonl", rows("instruction", "output"), "the format of Alpaca"),
        ("data.json", json.dumps(rows("instruction", "output")), "the format of Alpaca"),
        ("data.yaml", json.dumps(rows("user_input", "reference")), "a row of a Ragas test set"),
        ("page.jsonl", "<!DOCTYPE html>\n<html></html>\n", "an HTML page"),
        ("page.yaml", "<html>\n</html>\n", "an HTML page"),
        ("data.parquet", b"PAR1\0\0", "a Parquet file"),
        ("data.xlsx", b"PK\x03\x04", "a spreadsheet"),
        ("suite.eval.ts", "export default {}", "a TypeScript program"),
        ("data.yaml", "question,answer\nWho?,Me\n", "This is a table"),
        ("data.jsonl", "question,answer\nWho?,Me\n", "This is a table"),
    ],
)
def test_a_file_of_another_tool_is_named(folder, file, content, named):
    assert named in str(folder.error(folder.write(file, content)))


@pytest.mark.parametrize(
    ("table", "case"),
    [
        ("question,answer\nWho?,Me\n", {"input": "Who?", "expected_output": "Me"}),
        ("name;x\tquery\nq\tWhat?\n", {"input": "What?"}),
        ("prompt,criteria\nHi,Greets\n", {"input": "Hi", "expected_outcome": "Greets"}),
    ],
)
def test_the_hint_for_a_table_is_a_command_that_converts_it(folder, command, table, case):
    file = folder.write("rows.tsv" if "\t" in table else "rows.csv", table)
    hinted = shlex.split(folder.error(file).hint.partition("Convert its rows: ")[2])
    ended = command(*hinted[1:])
    assert ended.code == 0, ended.stderr
    loaded = folder.load("rows-cases.jsonl").cases[0]
    found = {"input": loaded.input[0].content, "expected_outcome": loaded.expected_outcome}
    found["expected_output"] = "".join(message.content for message in loaded.expected_output)
    assert found | case == found


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "tests:\n  - id: a\n    criteria: x\n   input: y\n",
            "'input' COLUMN 5, like 'criteria'",
        ),
        ("tests:\n  - id: a\n      criteria: x\n", "'criteria' COLUMN 5, like 'id' on line 2"),
        ("tests:\n  - id: a\n  criteria: x\n", "'criteria' COLUMN 5, like 'id' on line 2"),
        (
            "tests:\n  - id: a\n    x: y\n - id: b\n",
            "this item COLUMN 3, like the item",
        ),
        ("name: a\n tests: []\n", "'tests' COLUMN 1, like 'name' on line 1"),
        (
            "tests:\n  - id: a\n    input: |\n    text\n    x: y\n",
            "Check the indentation of this line",
        ),
        ("tests:\n  - id: a\n    input: note: this\n", "Quote text that contains a colon"),
    ],
)
def test_wrong_indentation_has_a_hint_with_the_column(folder, text, hint):
    assert hint.replace("COLUMN", "should probably start in column") in folder.yaml_error(text).hint


def test_other_syntax_errors_have_no_hint_about_indentation():
    assert indentation_hint("found unexpected end of stream", ["a: ["], 0, 4) == ""
