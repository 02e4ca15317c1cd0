"""§1.4, row by row: how values of `input` and `expected_output` are read, in both formats."""

import json

import pytest

from agentv import FilePart, ImagePart, Message, TextPart, ToolCall

SHAPES = 'Write a string, or a list of messages such as [{"role": "user", "content": "…"}]'
REQUIRED = "Required fields: id, expected_outcome, input"
ROLES = "system, user, assistant, tool"


def case(**fields):
    return {"id": "a", "expected_outcome": "It works", "input": "Hello"} | fields


@pytest.fixture(params=["jsonl", "yaml"])
def read(request, folder):
    """Load one row, from JSONL or YAML: the result must be the same."""

    def read_row(row):
        if request.param == "jsonl":
            return folder.rows(row)
        return folder.yaml(json.dumps({"evalcases": [row]}, ensure_ascii=False))

    return read_row


@pytest.fixture(params=["jsonl", "yaml"])
def fail(request, folder):
    def fail_row(row):
        if request.param == "jsonl":
            return folder.row_error(row)
        return folder.yaml_error(json.dumps({"evalcases": [row]}, ensure_ascii=False))

    return fail_row


MESSAGES = [
    ([{"role": "user", "content": "Hi"}], (Message("user", "Hi"),)),
    (
        [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi", "name": "ann"}],
        (Message("system", "Be brief"), Message("user", "Hi", (), "ann")),
    ),
    ([{"role": "user", "content": {"a": [1, None]}}], (Message("user", {"a": [1, None]}),)),
    ([{"role": "user", "content": ""}], (Message("user", ""),)),
    ([{"role": "user", "content": []}], (Message("user", ()),)),
    ([{"role": "user", "content": ["one", "two"]}], (Message("user", (TextPart("one"), TextPart("two"))),)),
    (
        [{"role": "user", "content": [{"type": "text", "value": "one"}, "two"]}],
        (Message("user", (TextPart("one"), TextPart("two"))),),
    ),
    (
        [{"role": "user", "content": [{"type": "image", "value": "https://example.org/a.png"}]}],
        (Message("user", (ImagePart("https://example.org/a.png"),)),),
    ),
    ([{"role": "assistant", "tool_calls": [{"tool": "Read"}]}], (Message("assistant", None, (ToolCall("Read"),)),)),
    (
        [
            {
                "role": "assistant",
                "content": "Reading",
                "tool_calls": [
                    {
                        "tool": "Read",
                        "input": {"path": ["a"]},
                        "output": "text",
                        "id": "1",
                        "timestamp": "2026-11-15T10:00:00Z",
                        "duration_ms": 12,
                    }
                ],
            },
            {"role": "tool", "content": "text", "name": "Read"},
        ],
        (
            Message(
                "assistant",
                "Reading",
                (ToolCall("Read", {"path": ["a"]}, "text", "1", "2026-11-15T10:00:00Z", 12.0),),
            ),
            Message("tool", "text", (), "Read"),
        ),
    ),
    # A single message is a list of one message.
    ({"role": "user", "content": "Hi"}, (Message("user", "Hi"),)),
    ({"role": "system", "content": {"k": 1}}, (Message("system", {"k": 1}),)),
    ({"role": "assistant", "tool_calls": [{"tool": "Read"}]}, (Message("assistant", None, (ToolCall("Read"),)),)),
]


@pytest.mark.parametrize(
    ("value", "messages"), [("Hi", (Message("user", "Hi"),)), ("", (Message("user", ""),)), *MESSAGES]
)
def test_input_becomes_messages(read, value, messages):
    assert read(case(input=value))[0].input == messages


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("Hi", (Message("assistant", "Hi"),)),
        ("", (Message("assistant", ""),)),
        *MESSAGES,
        # Any other object, list, number or boolean is the content of one assistant message.
        ({"riskLevel": "High"}, (Message("assistant", {"riskLevel": "High"}),)),
        ({}, (Message("assistant", {}),)),
        ({"role": "user"}, (Message("assistant", {"role": "user"}),)),
        ({"content": "x"}, (Message("assistant", {"content": "x"}),)),
        ([], (Message("assistant", []),)),
        ([1, 2], (Message("assistant", [1, 2]),)),
        (["one", "two"], (Message("assistant", ["one", "two"]),)),
        ([{"role": "user"}], (Message("assistant", [{"role": "user"}]),)),
        # Not read as parts, although it looks like them.
        ([{"type": "text", "value": "x"}], (Message("assistant", [{"type": "text", "value": "x"}]),)),
        ([{"type": "file", "value": "none.md"}], (Message("assistant", [{"type": "file", "value": "none.md"}]),)),
        ([[{"role": "user", "content": "x"}]], (Message("assistant", [[{"role": "user", "content": "x"}]]),)),
        (42, (Message("assistant", 42),)),
        (0, (Message("assistant", 0),)),
        (1.5, (Message("assistant", 1.5),)),
        (True, (Message("assistant", True),)),
        (False, (Message("assistant", False),)),
        (None, ()),
    ],
)
def test_expected_output_becomes_messages(read, value, messages):
    loaded = read(case(expected_output=value))
    assert loaded[0].expected_output == messages
    assert loaded.messages == []


def test_data_is_kept_with_its_types_and_not_as_parts(read):
    content = read(case(expected_output=[{"type": "text", "value": "x"}, True, 1, 1.0]))[0].expected_output[0].content
    assert isinstance(content, list)
    assert [type(item) for item in content[1:]] == [bool, int, float]


MALFORMED = [
    ("input", 42, "input", "Field 'input' must be a string, an array of messages or an object, got integer", SHAPES),
    ("input", 1.5, "input", "Field 'input' must be a string, an array of messages or an object, got number", SHAPES),
    ("input", True, "input", "Field 'input' must be a string, an array of messages or an object, got boolean", SHAPES),
    ("input", [], "input", "Missing required field: 'input'", REQUIRED),
    ("input", None, "input", "Missing required field: 'input'", REQUIRED),
    ("input", [1, 2], "input[0]", "Field 'input[0]' must be a message, got integer", SHAPES),
    ("input", ["Hi"], "input[0]", "Field 'input[0]' must be a message, got string", SHAPES),
    ("input", [[]], "input[0]", "Field 'input[0]' must be a message, got array", SHAPES),
    ("input", [{"content": "Hi"}], "input[0].role", "Missing required field: 'input[0].role'", SHAPES),
    ("input", [{"role": "user"}], "input[0]", "A message needs 'content' or 'tool_calls'", ""),
    ("input", [{"role": "user", "content": None}], "input[0]", "A message needs 'content' or 'tool_calls'", ""),
    (
        "input",
        [{"role": "usr", "content": "Hi"}],
        "input[0].role",
        f"The role of a message must be one of {ROLES}, got 'usr'",
        "Did you mean 'user'?",
    ),
    (
        "input",
        [{"role": 5, "content": "Hi"}],
        "input[0].role",
        f"The role of a message must be one of {ROLES}, got integer",
        "",
    ),
    (
        "input",
        [{"role": "user", "content": "Hi"}, "and more"],
        "input[1]",
        "Field 'input[1]' must be a message, got string",
        SHAPES,
    ),
    (
        "input",
        [{"role": "user", "content": 5}],
        "input[0].content",
        "Field 'input[0].content' must be a string, an object or an array of parts, got integer",
        "",
    ),
    (
        "input",
        [{"role": "user", "content": "Hi", "name": 5}],
        "input[0].name",
        "Field 'input[0].name' must be a string, got integer",
        "",
    ),
    (
        "input",
        [{"role": "user", "content": [5]}],
        "input[0].content[0]",
        "Field 'input[0].content[0]' must be a string or an object such as "
        '{"type": "text", "value": "…"}, got integer',
        "",
    ),
    (
        "input",
        [{"role": "user", "content": ["ok", {"type": "video", "value": "x"}]}],
        "input[0].content[1].type",
        "The type of a part must be one of text, file, image, got 'video'",
        "",
    ),
    (
        "input",
        [{"role": "user", "content": [{"value": "x"}]}],
        "input[0].content[0].type",
        "The type of a part must be one of text, file, image, but it is missing",
        "",
    ),
    (
        "input",
        [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        "input[0].content[0].value",
        "Missing required field: 'input[0].content[0].value'",
        "Put the text or file name in 'value', not in 'text'",
    ),
    (
        "input",
        [{"role": "user", "content": [{"type": "text", "value": 5}]}],
        "input[0].content[0].value",
        "Field 'input[0].content[0].value' must be a string, got integer",
        "",
    ),
    (
        "input",
        [{"role": "assistant", "tool_calls": {"tool": "Read"}}],
        "input[0].tool_calls",
        "Field 'input[0].tool_calls' must be an array, got object",
        "",
    ),
    (
        "input",
        [{"role": "assistant", "tool_calls": ["Read"]}],
        "input[0].tool_calls[0]",
        'Field \'input[0].tool_calls[0]\' must be an object such as {"tool": "Read", "input": {…}}, got string',
        "",
    ),
    (
        "input",
        [{"role": "assistant", "tool_calls": [{"input": {}}]}],
        "input[0].tool_calls[0].tool",
        "Missing required field: 'input[0].tool_calls[0].tool'",
        "",
    ),
    (
        "input",
        [{"role": "assistant", "tool_calls": [{"function": {"name": "Read", "arguments": "{}"}}]}],
        "input[0].tool_calls[0]",
        "A tool call needs 'tool'; this one has the format of a chat API",
        'Write {"tool": name, "input": arguments}',
    ),
    (
        "input",
        [{"role": "assistant", "tool_calls": [{"tool": "Read", "duration_ms": "long"}]}],
        "input[0].tool_calls[0].duration_ms",
        "Field 'input[0].tool_calls[0].duration_ms' must be a number, got string",
        "",
    ),
    (
        "input",
        {"role": "customer", "content": "Hi"},
        "input",
        f"Role 'customer' is not one of {ROLES}, so 'input' is read as variables",
        "",
    ),
    (
        "expected_output",
        [{"role": "assistant", "content": "a"}, {"role": "bot", "content": "b"}],
        "expected_output[1].role",
        f"The role of a message must be one of {ROLES}, got 'bot'",
        "",
    ),
    (
        "expected_output",
        [{"role": "assistant", "content": "a"}, 5],
        "expected_output[1]",
        "Field 'expected_output[1]' must be a message, got integer",
        SHAPES,
    ),
    (
        "expected_output",
        {"role": "assistant", "content": None},
        "expected_output",
        "A message needs 'content' or 'tool_calls'",
        "",
    ),
    ("input_messages", "Hi", "input_messages", "Field 'input_messages' must be an array, got string", ""),
    (
        "input_messages",
        {"role": "user", "content": "Hi"},
        "input_messages",
        "Field 'input_messages' must be an array, got object",
        "",
    ),
    ("input_messages", ["Hi"], "input_messages[0]", "Field 'input_messages[0]' must be a message, got string", SHAPES),
    ("expected_messages", "Hi", "expected_messages", "Field 'expected_messages' must be an array, got string", ""),
    ("expected_messages", {"a": 1}, "expected_messages", "Field 'expected_messages' must be an array, got object", ""),
    (
        "expected_messages",
        [{"a": 1}],
        "expected_messages[0].role",
        "Missing required field: 'expected_messages[0].role'",
        SHAPES,
    ),
]


@pytest.mark.parametrize(("key", "value", "field", "detail", "hint"), MALFORMED)
def test_malformed_values_are_errors_with_their_path(fail, key, value, field, detail, hint):
    row = case(**{key: value})
    if key == "input_messages":
        del row["input"]
    error = fail(row)
    assert (error.detail, error.hint, error.field, error.line) == (detail, hint, field, 1)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ({"role": "bot", "content": "x"}, {"role": "bot", "content": "x"}),
        ([{"role": "bot", "content": "x"}], [{"role": "bot", "content": "x"}]),
    ],
)
def test_data_that_looks_like_a_message_with_an_unknown_role_is_a_warning(read, value, content):
    loaded = read(case(expected_output=value))
    assert loaded[0].expected_output == (Message("assistant", content),)
    assert len(loaded.messages) == 1
    assert (
        f"Role 'bot' is not one of {ROLES}; the value is read as the content of one assistant message"
        in loaded.messages[0]
    )


@pytest.mark.parametrize(
    ("value", "warning"),
    [
        ([{"role": "user", "content": "Hi", "nam": "x"}], "Unknown field 'nam' in a message (Did you mean 'name'?)"),
        (
            [{"role": "user", "content": "Hi", "weight": 1}],
            "Unknown field 'weight' in a message (A message has role, content, tool_calls, name)",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "value": "Hi", "valu": 1}]}],
            "Unknown field 'valu' in a part (Did you mean 'value'?)",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"tool": "Read", "inputs": {}}]}],
            "Unknown field 'input[0].tool_calls[0].inputs' (Did you mean 'input'?)",
        ),
    ],
)
def test_unknown_keys_in_a_message_are_warnings_with_a_suggestion(read, value, warning):
    loaded = read(case(input=value))
    assert len(loaded.messages) == 1
    assert loaded.messages[0].endswith(f", line 1: {warning}")


def test_the_old_names_are_read_as_the_same_messages(read):
    loaded = read(case(expected_output="Hi"))[0]
    assert loaded.input_messages == loaded.input
    assert loaded.expected_messages == loaded.expected_output
    for name in ("input_messages", "expected_messages"):
        with pytest.raises(AttributeError):
            setattr(loaded, name, ())


@pytest.mark.parametrize(("new", "old"), [("input", "input_messages"), ("expected_output", "expected_messages")])
def test_the_value_of_an_old_name_is_ignored_if_the_new_one_is_set(read, new, old):
    loaded = read(case(**{new: "New", old: {"not": "even an array"}}))
    assert getattr(loaded[0], new)[0].content == "New"
    assert len(loaded.messages) == 1
    assert loaded.messages[0].endswith(f"Field '{old}' is ignored because '{new}' is set")


@pytest.mark.parametrize(("new", "old"), [("input", "input_messages"), ("expected_output", "expected_messages")])
def test_the_old_name_is_read_if_the_new_one_is_null(read, new, old):
    loaded = read(case(**{new: None, old: [{"role": "user", "content": "Old"}]}))
    assert getattr(loaded[0], new)[0].content == "Old"


def test_a_deprecated_name_is_reported_once_per_file(folder):
    messages = [{"role": "user", "content": "Hi"}]
    rows = [{"id": str(n), "expected_outcome": "x", "input_messages": messages} for n in range(5)]
    assert folder.rows(*rows).messages == ["rows.jsonl, line 1: Field 'input_messages' is deprecated: use 'input'"]


def test_file_parts_have_a_path_and_compare_by_name_and_content(folder):
    folder.write("a.txt", "same")
    folder.write("b/a.txt", "same")
    row = case(input=[{"role": "user", "content": [{"type": "file", "value": "a.txt"}]}])
    folder.write("rows.jsonl", [row])
    folder.write("b/rows.jsonl", [row])
    first, second = folder.load("rows.jsonl")[0], folder.load("b/rows.jsonl")[0]
    assert isinstance(first.input[0].parts[0], FilePart)
    assert first.input[0].parts[0].path != second.input[0].parts[0].path
    assert first == second
    folder.write("b/a.txt", "other")
    assert folder.load("b/rows.jsonl")[0] != first
