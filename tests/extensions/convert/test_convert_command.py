"""`agentv convert`: lossless round trips that never overwrite files by accident."""

import gzip
import io
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import agentv
from agentv.cli import cli
from agentv.errors import UsageError
from agentv.extensions.convert.conversion import content_hash
from agentv.support.yaml.yaml_parser import parse_yaml
from agentv.support.yaml.yaml_writer import write_yaml

YAML = """\
# What this dataset is for.
description: Comments stay  # also this one

execution:
  target: gpt

evalcases:
  - id: 007  # an id keeps its zeros
    expected_outcome: |
      Two lines
      of text
    input: "yes"
    metadata: {when: 2026-11-15, off: on, big: 123456789012345678901234567890}
  - id: b
    outcome: y
    input_messages: [{role: user, content: hi}]
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    return tmp_path


def convert(*arguments):
    result = CliRunner().invoke(cli, ["convert", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def printed(path):
    result = CliRunner().invoke(cli, ["cases", str(path), "-q"])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.filterwarnings("ignore::agentv.DatasetWarning")
@pytest.mark.parametrize("target", ["b.jsonl", "b.ndjson", "b.jsonl.gz", "b.jsonl.zst", "b.yml"])
def test_a_round_trip_keeps_cases_and_fingerprints(here, target):
    Path("a.yaml").write_text(YAML, encoding="utf-8")
    convert("a.yaml", target)
    convert(target, "c.yaml")
    for path in (target, "c.yaml"):
        assert agentv.load_cases(path) == agentv.load_cases("a.yaml")
        assert printed(path) == printed("a.yaml")


def test_yaml_to_yaml_keeps_comments_and_the_name(here):
    Path("a.yaml").write_text(YAML, encoding="utf-8")
    convert("a.yaml", "b.yaml")
    assert Path("b.yaml").read_text(encoding="utf-8") == YAML.replace("description:", "dataset: a\ndescription:", 1)


def test_settings_are_written_to_the_sidecar(here):
    Path("a.yaml").write_text(YAML, encoding="utf-8")
    convert("a.yaml", "b.jsonl")
    assert Path("b.yaml").read_text(encoding="utf-8") == (
        "dataset: a\ndescription: Comments stay\nexecution:\n  target: gpt\n"
    )
    assert [json.loads(line)["id"] for line in Path("b.jsonl").read_text(encoding="utf-8").splitlines()] == ["007", "b"]


def test_agentmark_rows_stay_agentmark_rows(here):
    row = '{"input": {"userMessage": "%s"}, "expected_output": null}\n'
    Path("a.jsonl").write_text(row % "x" + row % "x" + row % "y", encoding="utf-8")
    convert("a.jsonl", "b.yaml")
    assert "format: agentmark\n" in Path("b.yaml").read_text(encoding="utf-8")
    assert printed("b.yaml") == printed("a.jsonl")


def test_a_document_of_tests_keeps_cases_without_an_outcome(here):
    Path("a.yaml").write_text("tests: [{id: a, input: q, expected_output: r}]\n", encoding="utf-8")
    convert("a.yaml", "b.jsonl")
    assert printed("b.jsonl") == printed("a.yaml")


@pytest.mark.parametrize("target", ["b.jsonl", "b.yaml"])
def test_defaults_of_evaluators_under_tests_are_written_out(here, target):
    calls = "{type: tool-trajectory, mode: exact, expected: [{tool: a, args: {x: 1}}]}"
    suite = f"""\
assertions: [{{type: code-grader, command: "true"}}]
tests:
  - {{id: a, input: q, assertions: [{{type: composite, aggregator: weighted_average, assertions: [{calls}]}}]}}
  - {{id: b, input: q, turns: [{{input: r, assertions: [{calls}]}}], execution: {{evaluators: [{calls}]}}}}
"""
    Path("a.yaml").write_text(suite, encoding="utf-8")
    convert("a.yaml", target)
    assert printed(target) == printed("a.yaml")


def test_shards_become_one_file(here):
    for index in range(2):
        Path(f"a-0000{index}-of-00002.jsonl").write_text(
            f'{{"id": "{index}", "expected_outcome": "x", "input": "q"}}\n', encoding="utf-8"
        )
    convert("a-*.jsonl", "b.jsonl.gz")
    assert gzip.decompress(Path("b.jsonl.gz").read_bytes()).count(b"\n") == 2
    assert [case.dataset for case in agentv.load_cases("b.jsonl.gz")] == ["a", "a"]


def test_an_error_in_the_source_writes_nothing(here):
    Path("a.jsonl").write_text('{"id": "a"}\n', encoding="utf-8")
    with pytest.raises(agentv.InvalidCaseError):
        convert("a.jsonl", "b.yaml")
    assert not Path("b.yaml").exists()


def test_an_existing_file_is_kept_unless_forced(here):
    Path("a.yaml").write_text(YAML, encoding="utf-8")
    Path("b.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"b\.yaml already exists"):
        convert("a.yaml", "b.yaml")
    assert Path("b.yaml").read_text(encoding="utf-8") == "mine"
    convert("a.yaml", "b.yaml", "--force")
    assert len(agentv.load_cases("b.yaml")) == 2


def test_a_file_is_not_replaced_by_its_own_sidecar_unless_forced(here):
    Path("a.yaml").write_text(YAML, encoding="utf-8")
    with pytest.raises(UsageError, match="would overwrite its source"):
        convert("a.yaml", "a.jsonl")
    before = printed("a.yaml")
    convert("a.yaml", "a.jsonl", "--force")
    assert printed("a.jsonl") == before


def test_files_that_the_result_cannot_find_stop_the_conversion(here):
    Path("evals").mkdir()
    Path("evals/note.md").write_text("hello", encoding="utf-8")
    Path("other").mkdir()
    part = '{"role": "user", "content": [{"type": "file", "value": "note.md"}]}'
    Path("evals/a.jsonl").write_text(f'{{"id": "a", "expected_outcome": "x", "input": [{part}]}}\n', encoding="utf-8")
    with pytest.raises(agentv.AgentvError, match="back; it was removed"):
        convert("evals/a.jsonl", "other/a.yaml")
    assert not Path("other/a.yaml").exists()


def test_several_datasets_are_converted_one_by_one(here):
    for name in ("a", "b"):
        Path(f"{name}.yaml").write_text(YAML, encoding="utf-8")
    with pytest.raises(UsageError, match="has 2 datasets"):
        convert(".", "c.jsonl")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["yes", "no", "null", "~", "", "1e3", "0o17", "0x1F", "1_000", "12:30", "2026-11-15", "<<", "- a", "a: b", "#",
     " x", "x\n", "\nx", "a\n  b\n", "a \nb", "a\tb\n\tc", "\u2028", "a\x85b", "\ufeff", "|", "'", '"', "a\r\nb",
     "%", "@", "`"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(texts, values, max_size=4))
def test_yaml_output_reads_back_the_same(data):
    stream = io.BytesIO()
    write_yaml(data, stream)
    assert exactly(parse_yaml(stream.getvalue()) or {}) == exactly(data)


def exactly(value):
    """Return a value with its types: 1, 1.0 and True are equal in Python but differ here."""
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exactly(item) for item in value]
    kind = next(each for each in (bool, int, float, str, type(None)) if isinstance(value, each))
    return kind, math.copysign(1, value) if kind is float else 0, value


@given(rows=st.lists(st.tuples(texts, values), min_size=1, max_size=4))
@pytest.mark.filterwarnings("ignore::agentv.DatasetWarning")
def test_a_round_trip_is_the_identity(tmp_path, rows):
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    lines = [
        {
            "id": f"case-{index}",
            "expected_outcome": text,
            "input": text,
            "expected_output": value,
            "metadata": {"v": value},
        }
        for index, (text, value) in enumerate(rows)
    ]
    source = folder / "a.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    convert(source, folder / "b.yaml")
    convert(folder / "b.yaml", folder / "c.jsonl")
    written = (folder / "c.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(line) for line in written[:-1]] == lines


def test_an_unwritable_target_is_an_error_without_a_traceback(folder, command):
    folder.write("d.yaml", {"evalcases": [{"id": "a", "expected_outcome": "x", "input": "y"}]})
    (folder.path / "copy.yaml").mkdir()
    assert "Error: copy.yaml is a folder" in command("convert", "d.yaml", "copy.jsonl", "--force").stderr
    (folder.path / "other.yaml").symlink_to("nowhere/other.yaml")
    ended = command("convert", "d.yaml", "other.jsonl")
    assert ended.code == 2 and "Error: Cannot write other.yaml" in ended.stderr
    assert not (folder.path / "other.jsonl").exists()


FIELDS = {
    "expected_outcome": ["", "polite"],
    "input": ["a", "b", [{"role": "system", "content": "a"}, {"role": "user", "content": "a"}]],
    "expected_output": ["1", "2", {"n": 1}],
    "conversation_id": ["c"],
    "metadata": [{"a": 1}, {"a": 2}],
    "tags": [["x"], ["y"]],
    "execution": [{"target": "t"}, {"trials": 3}],
    "evaluators": [[{"type": "equals", "value": "1"}], [{"type": "equals", "value": "1", "weight": 2}]],
    "context": [["a"], ["b"]],
    "turns": [[{"input": "more"}], [{"input": "more", "assertions": [{"type": "contains", "value": "x"}]}]],
    "workspace": [{"template": "."}],
}


@pytest.mark.filterwarnings("ignore::agentv.DatasetWarning")
def test_the_hash_that_verifies_a_conversion_covers_every_field(folder):
    cases = [
        {"id": "a", "expected_outcome": "fine", "input": "q", key: value}
        for key, values in FIELDS.items()
        for value in values
    ]
    hashes = []
    for number, case in enumerate(cases):
        hashes.append(content_hash(agentv.load_cases(folder.write(f"{number}.yaml", {"evalcases": [case]}))[0]))
    assert len(set(hashes)) == len(cases)
    again = [content_hash(agentv.load_cases(f"{number}.yaml")[0]) for number in range(len(cases))]
    assert again == hashes


def test_an_extension_that_cannot_be_written_is_refused_with_those_that_can(folder, command):
    folder.write("d.yaml", {"evalcases": [{"id": "a", "expected_outcome": "x", "input": "hi"}]})
    ended = command("convert", "d.yaml", "d.txt")
    assert ended.code == 2 and "Cannot write d.txt: its extension is not one of .yaml, .yml, .jsonl" in ended.stderr
    assert ".mdx" not in ended.stderr
