"""Malformed and unusual files. The expected result of each is in `NAME.expect.json` next to it.

A new hard case is a new pair of files under `tests/data/hard`. Large files are generated here.
"""

import gzip
import json
import time
from pathlib import Path

import pytest

import agentv
from agentv.datasets.formats import jsonl
from agentv.model.case import case_to_data
from agentv.support.lines import MAX_LINE_BYTES
from agentv.support.processes import forked_call

HARD = Path(__file__).parent.parent / "data" / "hard"
EXPECTATIONS = sorted(HARD.rglob("*.expect.json"))
SECONDS = 10.0  # of processor time


def name_of(path: Path) -> str:
    return path.relative_to(HARD).as_posix().removesuffix(".expect.json")


@pytest.fixture(params=EXPECTATIONS, ids=name_of)
def hard(request, folder, monkeypatch):
    """Return the name of a hard file and its expectation; its folder is the working directory."""
    monkeypatch.chdir(request.param.parent)
    return request.param.name.removesuffix(".expect.json"), json.loads(request.param.read_text("utf-8"))


def test_every_hard_file_has_an_expectation():
    needed_by_another = {"sidecar/broken.yaml", "sidecar/list.yml", "sidecar/stranger.yaml"}
    files = {path.relative_to(HARD).as_posix() for path in HARD.rglob("*") if path.is_file()}
    expected = {name_of(path) for path in EXPECTATIONS}
    assert expected <= files
    assert {name for name in files - expected if not name.endswith(".expect.json")} == needed_by_another


def test_a_hard_file_gives_the_expected_cases_or_the_expected_error(hard, folder):
    file, expected = hard
    if "ids" in expected:
        assert_cases(folder.load(file), expected)
    else:
        assert_error(folder.error(file), expected, file)


def test_a_hard_file_streams_as_it_loads(hard, folder):
    file, expected = hard
    if "ids" in expected:
        streamed = folder.stream(file)
        assert streamed.cases == folder.load(file).cases
        assert_cases(streamed, expected)
    else:
        with pytest.raises(agentv.AgentvError) as raised:
            folder.stream(file)
        assert_error(raised.value, expected, file)


def test_the_command_prints_all_cases_of_a_hard_file_or_an_error(hard, command):
    file, expected = hard
    ended = command("cases", file)
    if "ids" in expected:
        assert ended.code == 0
        assert [printed["id"] for printed in ended.printed] == expected["ids"]
    else:
        assert (ended.code, ended.stdout) == (2, "")
        assert f"Error: {error_start(expected)}" in ended.stderr
        assert "Traceback" not in ended.stderr


def assert_cases(loaded, expected):
    assert loaded.ids == expected["ids"]
    assert [case.line for case in loaded] == expected.get("lines", [case.line for case in loaded])
    for case, wanted in zip(loaded, expected.get("cases", [{}] * len(loaded)), strict=True):
        found = json.loads(json.dumps(case_to_data(case)))
        assert {key: found.get(key) for key in wanted} == wanted
    if "warnings" in expected:
        assert loaded.messages == expected["warnings"]


def assert_error(error, expected, file):
    if "error" in expected:
        assert str(error).split("\n") == expected["error"]
    else:
        assert str(error).startswith(expected["error_starts"])
    assert type(error).__name__ == expected["kind"]
    assert error.line == expected["line"]
    assert error.column == expected["column"]
    assert error.field == expected.get("field")
    assert Path(error.path).stem.split(".")[0] == Path(file).stem.split(".")[0]


def error_start(expected):
    return "\n".join(expected["error"]) if "error" in expected else expected["error_starts"]


# Files that are too large for the repository.


def row(**fields):
    return {"id": "a", "expected_outcome": "It works", "input": "Hello"} | fields


def with_value(key, text):
    """Return a line with raw JSON text as the value of `key`."""
    return json.dumps(row(**{key: "PLACE"})).replace('"PLACE"', text) + "\n"


def document(line, **settings):
    """Return a YAML document with the line as its only case."""
    head = "".join(f"{key}: {value}\n" for key, value in settings.items())
    return head + "evalcases:\n  - " + line.replace('":', '": ')


def test_a_line_of_50_megabytes_is_a_case(folder):
    folder.write("long.jsonl", json.dumps(row(input="x" * 50_000_000)) + "\n" + json.dumps(row(id="b")))
    loaded = folder.load("long.jsonl")
    assert loaded.ids == ["a", "b"]
    assert len(loaded[0].input[0].content) == 50_000_000


def test_a_line_above_the_limit_is_an_error(folder):
    folder.write("long.jsonl", [row(), row(id="b", input="x" * 300_000), row(id="c")])
    error = folder.error("long.jsonl", max_line_bytes=200_000)
    assert str(error) == (
        "Failed to parse JSONL file: long.jsonl\n"
        "  Line 2: Invalid JSON - the line is longer than 200,000 bytes\n"
        "\n"
        "  Hint: Raise the limit with --max-line-bytes, or split the data"
    )
    assert error.line == 2
    assert folder.load("long.jsonl", max_line_bytes=400_000).ids == ["a", "b", "c"]
    assert folder.load("long.jsonl", max_line_bytes=200_000, on_error="skip").ids == ["a", "c"]


def test_a_line_above_64_mebibytes_is_rejected_by_default(folder):
    folder.write("long.jsonl", b'{"id": "' + b"x" * MAX_LINE_BYTES + b'"}\n')
    error = folder.error("long.jsonl")
    assert "the line is longer than 67,108,864 bytes" in error.detail


DEEP_PLACES = (
    "metadata",
    "input",
    "expected_output",
    "context",
    "execution",
    "evaluators",
    "rubrics",
    "turns",
    "other",
)


@pytest.mark.parametrize("key", DEEP_PLACES)
@pytest.mark.parametrize("depth", [300, 900, 980, 985, 990, 1_000, 5_000, 100_000])
def test_nesting_above_the_limit_is_an_error_or_ignored_and_never_a_crash(folder, key, depth):
    for opening, closing in (('{"x":', "}"), ("[", "]")):
        folder.write("deep.jsonl", with_value(key, opening * depth + "1" + closing * depth))
        before = time.process_time()
        try:
            folder.load("deep.jsonl")
        except agentv.DatasetError as error:
            assert error.line == 1
        assert time.process_time() - before < SECONDS


@pytest.mark.parametrize("key", ["metadata", "expected_output"])
def test_nesting_of_5000_levels_is_a_line_error(folder, key):
    folder.write("deep.jsonl", json.dumps(row(id="b")) + "\n" + with_value(key, '{"x":' * 5_000 + "1" + "}" * 5_000))
    error = folder.error("deep.jsonl")
    assert error.line == 2
    assert "nested" in error.detail
    assert folder.load("deep.jsonl", on_error="skip").ids == ["b"]


@pytest.mark.parametrize("depth", [257, 900])
def test_nesting_that_parses_but_is_too_deep_for_a_case_is_a_case_error(folder, depth):
    folder.write("deep.jsonl", with_value("metadata", '{"x":' * depth + "1" + "}" * depth))
    error = folder.error("deep.jsonl")
    assert str(error) == "Invalid eval case at line 1 in deep.jsonl\n  The case is nested more than 256 levels deep"


def test_deep_variables_of_an_agentmark_row_are_an_error(folder):
    for depth in (300, 985, 990):
        folder.write("deep.jsonl", '{"input": {"userMessage": "x", "y": ' + "[" * depth + "]" * depth + "}}")
        assert folder.error("deep.jsonl").line == 1


def test_200_levels_are_read_in_both_formats_and_are_equal(folder):
    value = '{"x":' * 200 + "1" + "}" * 200
    folder.write("deep.jsonl", with_value("metadata", value))
    folder.write("other.yaml", document(with_value("metadata", value)))
    assert folder.load("deep.jsonl").cases == folder.load("other.yaml").cases


@pytest.mark.parametrize("text", ["[" * 5_000, '{"x": ' * 5_000, "- " * 5_000, "? " * 5_000, "[" * 100_000])
def test_nesting_of_5000_levels_in_yaml_is_an_error(folder, text):
    before = time.process_time()
    error = folder.yaml_error("evalcases:\n" + text)
    assert isinstance(error, agentv.DatasetParseError)
    assert "nested more than 256 levels deep" in error.detail or "Invalid YAML" in error.detail
    assert time.process_time() - before < SECONDS


def test_aliases_cannot_nest_deeper_than_the_limit(folder):
    levels = "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 400))
    error = folder.yaml_error("a0: &a0 [x]\n" + levels + "evalcases: []\n")
    assert "nested more than 256 levels deep" in error.detail


PLACES_OF_NUMBERS = ("metadata.n", "expected_output", "id", "execution.workers")


def with_number(place, digits):
    key, _, inner = place.partition(".")
    return with_value(key, f'{{"{inner}": {digits}}}' if inner else digits)


@pytest.mark.parametrize("place", PLACES_OF_NUMBERS)
def test_integers_of_4000_digits_are_exact_in_both_formats(folder, place, command):
    line = with_number(place, "7" * 4_000)
    folder.write("big.jsonl", line)
    folder.write("other.yaml", document(line, dataset="big"))
    loaded = folder.load("big.jsonl")
    assert loaded.cases == folder.load("other.yaml").cases
    assert loaded[0].fingerprint == folder.load("other.yaml")[0].fingerprint
    printed = command("cases", "big.jsonl").stdout
    assert "7" * 4_000 in printed
    assert printed == command("cases", "other.yaml").stdout


@pytest.mark.parametrize("place", PLACES_OF_NUMBERS)
@pytest.mark.parametrize("digits", [4_301, 5_000])
def test_integers_of_5000_digits_are_a_line_error(folder, place, digits):
    line = with_number(place, "7" * digits)
    folder.write("big.jsonl", json.dumps(row(id="b")) + "\n" + line)
    error = folder.error("big.jsonl")
    assert error.detail == f"Line 2: Invalid JSON - a number is out of range, at column {line.index('7777') + 1}"
    assert error.hint == "Write very large numbers as strings"


@pytest.mark.parametrize(
    "digits", ["7" * 5_000, "-" + "7" * 5_000, "0x" + "f" * 5_000, "0o" + "7" * 5_000, "7" * 4_301]
)
def test_integers_of_5000_digits_are_an_error_in_yaml(folder, digits):
    error = folder.yaml_error(f"evalcases:\n  - {{id: a, expected_outcome: x, input: y, metadata: {{n: {digits}}}}}\n")
    assert error.detail.startswith("Line 2: Invalid YAML - found an integer of more than 4,300 digits, at column ")


def test_a_weight_out_of_range_is_an_error(folder):
    folder.write("big.jsonl", with_value("evaluators", '[{"type": "is_json", "weight": %s}]' % ("7" * 400)))
    assert folder.error("big.jsonl").detail == "Field 'evaluators[0].weight': number out of range"


@pytest.mark.parametrize("blank", ["\n", "\r\n", " " * 40 + "\n"])
@pytest.mark.parametrize("start", ["", json.dumps(row()) + "\n"])
def test_a_small_file_of_blank_lines_is_an_error_soon(folder, monkeypatch, blank, start):
    monkeypatch.setattr(jsonl, "MOST_BLANK_LINES", 1_000)
    folder.write("blank.jsonl.gz", gzip.compress((start + blank * 1_000 + json.dumps(row(id="b"))).encode()))
    assert folder.load("blank.jsonl.gz").ids[-1] == "b"
    folder.write("blank.jsonl.gz", gzip.compress((start + blank * 1_000_000).encode()))
    assert folder.error("blank.jsonl.gz").detail == "The file has more than 1,000 blank lines"


@pytest.mark.parametrize("trials", [10_001, 1_000_000_000, 10**30])
def test_a_dataset_cannot_ask_for_an_endless_number_of_trials(folder, trials):
    folder.write("many.jsonl", [row(execution={"trials": trials})])
    assert folder.error("many.jsonl").detail.startswith("Field 'execution.trials'")


def test_an_object_of_many_repeated_keys_is_checked_in_linear_time():
    text = "{" + ",".join(['"k": 1', '"l": 2'] * 50_000) + "}"
    assert len(jsonl._decoded(text)[1]) == 99_998


def test_a_template_without_limits_is_an_error_of_its_case(folder, monkeypatch):
    monkeypatch.setattr(forked_call, "MAX_EXTRA_BYTES", 64 * 2**20)
    prompt = "{% set a = name %}" + "{% set a = a ~ a %}" * 50 + "{{ a }}"
    folder.write("d.yaml", json.dumps({"prompt": prompt, "evalcases": [row(input={"name": "Ada"})]}))
    assert "the template is nested too deeply, or needs more than 64 MiB of memory" in str(folder.error("d.yaml"))
