"""Files that are not datasets: the message names what they are and what to do."""

import pytest

from agentv.support.yaml.yaml_parser import indentation_hint


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("other.yaml", {"targets": []}, "a targets file"),
        ("task.yaml", "id: a\ninputs: {prompt: x}\ngraders: [{type: trigger}]\n", "a task of waza"),
        (
            "up.yaml",
            "schema_version: v1\nengine: {}\nskills: [{path: .}]\ncases: {files: [a.yaml]}\n",
            "an eval of skill-up",
        ),
        ("page.jsonl", "<!DOCTYPE html>\n<html></html>\n", "an HTML page"),
        ("page.yaml", "<html>\n</html>\n", "an HTML page"),
        ("data.parquet", b"PAR1\0\0", "Not a valid Parquet file"),
        ("data.xlsx", b"PK\x03\x04", "Not a valid spreadsheet"),
        ("data.xls", b"\xd0\xcf\x11\xe0", "an old spreadsheet"),
        ("suite.ts", "export default {}", "a TypeScript program"),
        ("data.yaml", "question,answer\nWho?,Me\n", "This is a table"),
        ("data.jsonl", "question,answer\nWho?,Me\n", "This is a table"),
    ],
)
def test_a_file_of_another_tool_is_named(folder, file, content, named):
    assert named in str(folder.error(folder.write(file, content)))


@pytest.mark.parametrize("name", ["empty.csv", "empty.json"])
def test_an_empty_file_is_called_empty(folder, name):
    assert folder.error(folder.write(name, "\n")).detail == "The file is empty"


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
