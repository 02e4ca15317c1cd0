"""Properties of all datasets: formats agree, no bytes crash a reader, selections are consistent."""

import csv
import gzip
import io
import json
import re
import time
import warnings
from functools import lru_cache
from itertools import chain

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import agentv
from agentv import AgentvError, EvalCase
from agentv.datasets.case.keys import CaseKeys, ExecutionKeys, HeaderKeys
from agentv.datasets.case.prompts import resolved_data
from agentv.datasets.discovery import GivenFormat, find_datasets
from agentv.datasets.files import is_guideline
from agentv.datasets.formats.dataset_format import BadRow, ReadOptions
from agentv.datasets.selection import Selection
from agentv.model.case import case_to_data
from agentv.model.values import freeze, to_json
from agentv.registry import EVALUATORS
from agentv.support import patterns as globs
from agentv.support.hash_table import IdSet, PackedIds
from agentv.support.lines import line_batches, open_for_writing
from agentv.support.yaml.yaml_parser import YamlError, parse_yaml

SECONDS = 20.0  # of processor time

texts = st.text(max_size=20)
names = st.text(min_size=1, max_size=12).filter(lambda text: text.strip())
numbers = st.integers() | st.integers(-(10**60), 10**60) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
json_objects = st.dictionaries(texts, json_values, max_size=4)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder that is reused by all examples."""
    folder = tmp_path_factory.mktemp("properties")
    for name in ("jsonl", "yaml"):
        (folder / name).mkdir()
    return folder


def load(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return agentv.load_cases(path, **options)


def printed(cases):
    return [to_json(case_to_data(case)) for case in cases]


# The same cases in both formats.

tool_calls = st.lists(
    st.fixed_dictionaries({"tool": texts}, optional={"input": json_values, "output": json_values}), max_size=2
)
parts = texts | st.fixed_dictionaries({"type": st.just("text"), "value": texts})
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        "content": texts | json_objects | st.lists(parts, max_size=3),
    },
    optional={"name": texts, "tool_calls": tool_calls},
)
rows = st.fixed_dictionaries(
    {"id": names, "expected_outcome": texts, "input": texts | st.lists(messages, min_size=1, max_size=3) | messages},
    optional={
        "expected_output": json_values | st.lists(messages, min_size=1, max_size=3),
        "conversation_id": texts,
        "metadata": json_objects,
        "tags": st.lists(texts, max_size=3),
        "context": texts | st.lists(texts, max_size=3),
        "description": texts,
        "rubrics": st.lists(names, min_size=1, max_size=3, unique=True),
        "evaluators": st.lists(st.sampled_from([{"type": "is_json"}, {"type": "equals", "value": "x"}]), max_size=3),
        "execution": st.fixed_dictionaries({}, optional={"target": texts, "trials": st.integers(1, 9)}),
        "turns": st.lists(
            st.fixed_dictionaries({"input": texts}, optional={"expected_output": json_values}), max_size=2
        ),
    },
)
datasets = st.lists(rows, min_size=1, max_size=4, unique_by=lambda row: row["id"])

NOT_PRINTABLE = re.compile("[\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")


def as_yaml(value, indent=""):
    """Return a value as block-style YAML with quoted strings, after a space or a newline."""
    if isinstance(value, dict) and value:
        lines = [f"{indent}{quoted(key)}:{as_yaml(item, indent + '  ')}" for key, item in value.items()]
        return "\n" + "\n".join(lines)
    if isinstance(value, list) and value:
        return "\n" + "\n".join(f"{indent}-{as_yaml(item, indent + '  ')}" for item in value)
    return " " + (quoted(value) if isinstance(value, str) else json.dumps(value))


def quoted(text):
    escaped = json.dumps(text, ensure_ascii=False)
    return NOT_PRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", escaped)


@given(rows=datasets)
def test_the_same_cases_in_yaml_and_in_jsonl_are_equal_and_print_the_same(place, rows):
    (place / "jsonl/d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8", newline="\n")
    (place / "yaml/d.yaml").write_text("evalcases:" + as_yaml(rows) + "\n", "utf-8", newline="\n")
    from_jsonl, from_yaml = load(place / "jsonl/d.jsonl"), load(place / "yaml/d.yaml")
    assert from_jsonl == from_yaml
    assert printed(from_jsonl) == printed(from_yaml)
    assert [case.fingerprint for case in from_jsonl] == [case.fingerprint for case in from_yaml]
    assert [case.id for case in from_jsonl] == [row["id"] for row in rows]


@given(rows=datasets, ends=st.sampled_from(["\n", "\r\n", "\n\n", "\n \t\r\n"]), bom=st.booleans(), final=st.booleans())
def test_line_ends_blank_lines_and_a_byte_order_mark_change_no_case(place, rows, ends, bom, final):
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (place / "jsonl/d.jsonl").write_text("\n".join(lines), "utf-8", newline="\n")
    text = ("\ufeff" if bom else "") + ends.join(lines) + (ends if final else "")
    (place / "jsonl/e.jsonl").write_bytes(text.encode())
    (place / "jsonl/f.jsonl.gz").write_bytes(gzip.compress(text.encode(), 1))
    expected = load(place / "jsonl/d.jsonl")
    assert load(place / "jsonl/e.jsonl") == expected
    assert load(place / "jsonl/f.jsonl.gz") == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert list(agentv.stream_cases(place / "jsonl/e.jsonl")) == expected


@given(value=json_values)
def test_yaml_gives_the_value_that_json_gives(value):
    assert same(parse_yaml(("x:" + as_yaml({"x": value}, "  ")).encode())["x"]["x"], value)


def same(left, right):
    """Whether values and types are equal: 1, 1.0 and true differ."""
    return to_json(freeze(left)) == to_json(right)


# Arbitrary file contents.

KNOWN = sorted({*CaseKeys.__struct_fields__, *CaseKeys.aliases, *CaseKeys.unsupported, "userMessage"})
HEADER = sorted({*HeaderKeys.__struct_fields__, *HeaderKeys.aliases, *HeaderKeys.unsupported, "evalcases", "tests"})
INNER = sorted(
    {
        *ExecutionKeys.__struct_fields__,
        "role",
        "content",
        "tool_calls",
        "type",
        "value",
        "tool",
        "input",
        "id",
        "prompt",
    }
    | {
        "goal",
        "template",
        "rubrics",
        "evaluators",
        "aggregator",
        "userMessage",
        "weight",
        "required",
        "expected_outcome",
    }
)
WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "text",
        "file",
        "image",
        "x.md",
        "../x",
        "agentmark",
        "{{ x }}",
        "{{",
        "a",
        *EVALUATORS.names(),
    ]
)
inner = st.recursive(
    scalars | WORDS,
    lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(st.sampled_from(INNER), deeper, max_size=4),
    max_leaves=10,
)
any_row = st.dictionaries(st.sampled_from(KNOWN), inner, max_size=6).map(
    lambda row: {"id": "a", "expected_outcome": "x", "input": "y"} | row
)
any_header = st.dictionaries(st.sampled_from(HEADER), inner, max_size=5)

VALID = b'{"id": "a", "expected_outcome": "x", "input": [{"role": "user", "content": "\xc3\xa9"}], "tags": ["t"]}\n'
VALID_YAML = (
    b"dataset: d\nevalcases:\n  - id: &a x\n    expected_outcome: [*a]\n    input: |\n      text\n    tags: {a: 'b'}\n"
)
YAML_PIECES = (
    b": ~- ~\n~\n  ~&a ~*a~!~!!str ~<<: ~'~\"~|~>~#~---~...~[~]~{~}~,~? ~\t~%~@~evalcases:~id~0x~.inf~"
    b"\xef\xbb\xbf~\xc2\x85~\xe2\x80\xa8"
).split(b"~")
JSON_PIECES = b'{~}~[~]~"~:~,~\n~\\~\\ud800~NaN~1e999~null~"id"~"input"~\r~\x00~\xff~-~//~#'.split(b"~")


def edited(valid, pieces):
    """Bytes similar to valid ones, with some removed and some inserted."""

    def edit(places):
        data = valid
        for start, length, piece in places:
            at = start % (len(data) + 1)
            data = data[:at] + piece + data[at + length :]
        return data

    return st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9), st.sampled_from(pieces)), max_size=4).map(edit)


json_bytes = (
    st.binary(max_size=200) | edited(VALID * 2, JSON_PIECES) | st.lists(st.sampled_from(JSON_PIECES)).map(b"".join)
)
yaml_bytes = (
    st.binary(max_size=200) | edited(VALID_YAML, YAML_PIECES) | st.lists(st.sampled_from(YAML_PIECES)).map(b"".join)
)


def assert_cases_or_a_clean_error(path, **options):
    """Check that a file gives printable and hashable cases, or an error with a position, in time."""
    started = time.process_time()
    try:
        cases = load(path, **options)
    except AgentvError as error:
        assert str(error).startswith(error.headline)
        assert "Traceback" not in str(error)
    else:
        assert cases
        for case in cases:
            assert isinstance(case, EvalCase)
            assert to_json(case_to_data(case)) and case.fingerprint and hash(case) is not None
            assert case == case and case.id.strip() and case.line > 0
    assert time.process_time() - started < SECONDS


@given(data=json_bytes)
@example(b"\x1f\x8b")
@example(b"\x28\xb5\x2f\xfd")
@example(b"\xff\xfe")
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b'"' * 100_000)
@example(b"\\" * 100_000)
def test_any_bytes_as_jsonl_give_cases_or_a_clean_error(place, data):
    (place / "jsonl/any.jsonl").write_bytes(data)
    assert_cases_or_a_clean_error(place / "jsonl/any.jsonl")
    assert_cases_or_a_clean_error(place / "jsonl/any.jsonl", on_error="skip", max_line_bytes=100)


@given(data=yaml_bytes)
@example(b"[" * 100_000)
@example(b"- " * 100_000)
@example(b"{a: " * 100_000)
@example(b"a: " * 100_000)
@example(b"&a " * 100_000)
@example(b"? " * 100_000)
@example(b"'" + b"\n" * 100_000)
@example(b"a: &a [" + b"*a," * 1000)
@example(b"a: &a {b: 1}\nc:\n" + b"  - {<<: *a}\n" * 10_000)
def test_any_bytes_as_yaml_give_cases_or_a_clean_error(place, data):
    (place / "yaml/any.yaml").write_bytes(data)
    assert_cases_or_a_clean_error(place / "yaml/any.yaml")
    assert_cases_or_a_clean_error(place / "yaml/any.yaml", on_error="skip")


@given(data=json_bytes, cut=st.integers(0, 40), noise=st.binary(max_size=4), flip=st.integers(0, 500))
def test_any_bytes_compressed_or_broken_give_cases_or_a_clean_error(place, data, cut, noise, flip):
    for suffix in ("gz", "zst"):
        file = place / f"jsonl/any.jsonl.{suffix}"
        with open_for_writing(str(file)) as stream:
            stream.write(data)
        packed = bytearray(file.read_bytes())
        file.write_bytes(bytes(packed[: max(0, len(packed) - cut)]) + noise)
        assert_cases_or_a_clean_error(file)
        packed[flip % len(packed)] ^= 0x55
        file.write_bytes(bytes(packed))
        assert_cases_or_a_clean_error(file)


@given(data=yaml_bytes)
def test_any_bytes_as_a_sidecar_give_cases_or_a_clean_error(place, data):
    (place / "jsonl/side.jsonl").write_bytes(VALID)
    (place / "jsonl/side.yaml").write_bytes(data)
    assert_cases_or_a_clean_error(place / "jsonl/side.jsonl")


@given(row=any_row, header=any_header)
def test_any_values_under_known_keys_give_the_same_cases_or_error_in_both_formats(place, row, header):
    (place / "jsonl/known.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    (place / "jsonl/known.yaml").write_text(json.dumps(header), "utf-8")
    (place / "yaml/known.yaml").write_text(as_yaml({**header, "evalcases": [row]}).lstrip("\n"), "utf-8")
    for file in ("jsonl/known.jsonl", "yaml/known.yaml"):
        assert_cases_or_a_clean_error(place / file)
    (place / "jsonl/alone.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    (place / "yaml/alone.yaml").write_text("evalcases:" + as_yaml([row]) + "\n", "utf-8")
    assert outcome(place / "jsonl/alone.jsonl") == outcome(place / "yaml/alone.yaml")


def outcome(path):
    """Return the cases, or the error and its key without the line, which differs between formats."""
    try:
        return printed(load(path))
    except agentv.DatasetError as error:
        return error.detail, error.field, error.hint.replace(str(path.parent), "")


@given(row=any_row)
def test_all_loaded_cases_can_be_resolved(place, row):
    (place / "jsonl/row.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    try:
        cases = load(place / "jsonl/row.jsonl")
    except AgentvError:
        return
    for case in cases:
        assert to_json(resolved_data(case))


@given(text=st.text(alphabet="ab:-#'\"|>[]{}&*!%@`,? \n\t0x1.e+_~<=\\\u2028\x85", max_size=60))
def test_any_text_is_yaml_or_a_yaml_error_with_a_place(text):
    try:
        parse_yaml(text.encode())
    except YamlError as error:
        lines = re.split("\r\n?|\n", text)
        assert 1 <= error.line <= len(lines) + 1
        assert error.column is None or error.column >= 1


# Lines, ids, globs, selections.


class Pieces(io.RawIOBase):
    """A stream that returns its bytes in given pieces."""

    def __init__(self, data, sizes):
        self.data, self.sizes = data, chain(sizes, iter(lambda: 7, None))

    def read(self, size=-1):
        wanted = next(self.sizes)
        piece, self.data = self.data[:wanted], self.data[wanted:]
        return piece


@given(
    data=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\xc2\x85", b"\xe2\x80\xa8", b"\n\n"])).map(b"".join),
    sizes=st.lists(st.integers(1, 9), max_size=20),
)
def test_lines_are_split_at_line_feeds_in_any_chunks(data, sizes):
    expected = re.findall(rb"[^\n]*\n|[^\n]+", data)
    batches = list(line_batches(Pieces(data, sizes)))
    assert [line for batch, _ in batches for line in batch] == expected
    assert [cut for _, cut in batches].count(True) == (bool(data) and not data.endswith(b"\n"))


@given(
    data=st.lists(st.sampled_from([b"a", b"bcdef", b"\n"])).map(b"".join),
    sizes=st.lists(st.integers(1, 9), max_size=20),
    limit=st.integers(1, 6),
)
def test_exactly_the_lines_above_the_limit_are_none(data, sizes, limit):
    expected = re.findall(rb"[^\n]*\n|[^\n]+", data)
    found = [line for batch, _ in line_batches(Pieces(data, sizes), limit) for line in batch]
    assert found == [line if len(line.rstrip(b"\n")) <= limit else None for line in expected]


@given(batches=st.lists(st.lists(st.text(alphabet="abc", min_size=1, max_size=3), max_size=20), max_size=20))
def test_packed_ids_and_sets_report_the_same_repeats(batches):
    packed, exact, seen = PackedIds(), IdSet(), set()
    for batch in batches:
        expected = []
        for position, id in enumerate(batch):
            if id in seen:
                expected.append(position)
            seen.add(id)
        assert packed.repeats(batch) == exact.repeats(batch) == expected


segments = st.lists(st.sampled_from(["a", "b", "ab", ".", "-"]), min_size=1, max_size=3).map("".join)
paths = st.lists(segments, min_size=1, max_size=4).map("/".join)
glob_segments = (
    st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[a-b]", ".", "-"]), min_size=1, max_size=3)
    .map("".join)
    .filter(lambda text: "**" not in text)
)
patterns = st.lists(glob_segments | st.just("**"), min_size=1, max_size=4).map("/".join)


@given(pattern=patterns, path=paths)
def test_globs_match_by_their_definition(pattern, path):
    assert globs.matches(pattern, path) == fits(tuple(pattern.split("/")), tuple(path.split("/")))


@given(first=patterns, second=patterns, path=paths)
def test_braces_are_alternatives(first, second, path):
    either = globs.matches(first, path) or globs.matches(second, path)
    assert globs.matches(f"{{{first},{second}}}", path) == either


@lru_cache(maxsize=100_000)
def fits(pattern, path):
    """The definition: `**` is any number of folders (at the end at least one name), `*` stays in its segment."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(path)
        return any(fits(pattern[1:], path[skipped:]) for skipped in range(len(path)))
    return bool(path) and segment_fits(pattern[0], path[0]) and fits(pattern[1:], path[1:])


@lru_cache(maxsize=100_000)
def segment_fits(pattern, name):
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(segment_fits(pattern[1:], name[skipped:]) for skipped in range(len(name) + 1))
    if not name:
        return False
    if pattern[0] == "[":
        inside, rest = pattern[1:].split("]", 1)
        wanted = {"ab": "ab", "a-b": "ab", "!a": None}[inside]
        return (name[0] in wanted if wanted else name[0] != "a") and segment_fits(rest, name[1:])
    return pattern[0] in ("?", name[0]) and segment_fits(pattern[1:], name[1:])


@given(pattern=st.text(max_size=20) | st.text(alphabet="[]!^-{},*?ab/&~|\\", max_size=12), path=st.text(max_size=20))
def test_no_pattern_crashes(pattern, path):
    assert globs.matches(pattern, path) in (True, False)
    assert is_guideline("/project/" + path.replace("\0", ""), "/project", (pattern,)) in (True, False)


ids = st.lists(st.text(alphabet="abcdef0123", min_size=1, max_size=6), min_size=1, max_size=60, unique=True)


def chosen(cases, **options):
    return [case.id for case in Selection(**options).apply(cases, lambda: cases)]


@given(ids=ids, size=st.integers(1, 70), seed=st.integers(0, 99))
def test_a_sample_has_the_right_size_and_order_and_contains_smaller_ones(ids, size, seed):
    cases = [EvalCase(id) for id in ids]
    sample = chosen(cases, sample=size, seed=seed)
    assert len(sample) == min(size, len(ids))
    assert sample == [id for id in ids if id in set(sample)]
    if size > 1:
        assert set(chosen(cases, sample=size - 1, seed=seed)) <= set(sample)
    shuffled = chosen(cases[::-1], sample=size, seed=seed)
    assert set(shuffled) == set(sample)


@given(ids=ids, share=st.floats(0.01, 1.0), seed=st.integers(0, 9))
def test_a_fraction_is_a_sample_of_the_rounded_number(ids, share, seed):
    cases = [EvalCase(id) for id in ids]
    assert chosen(cases, sample=share, seed=seed) == chosen(cases, sample=max(1, round(share * len(ids))), seed=seed)


@given(ids=ids, count=st.integers(1, 9), limit=st.integers(1, 9))
def test_shards_are_a_partition_and_a_limit_takes_the_first(ids, count, limit):
    cases = [EvalCase(id) for id in ids]
    parts = [chosen(cases, shard=(index, count)) for index in range(1, count + 1)]
    assert sorted(chain(*parts)) == sorted(ids)
    for index, part in enumerate(parts, 1):
        assert part == [id for id in ids if id in set(part)]
        assert chosen(cases, shard=(index, count), limit=limit) == part[:limit]


cells = st.text(max_size=8) | st.sampled_from(["", " ", "{", '{"a": 1}', "[1, 2]", "a", "b\nc", 'say "x"'])
TABLES = [
    ("id,input,expected_output,topic", ""),
    ("input,expected_outcome", ""),
    ("qid,question,answer,topic", "id=qid,input=question,expected_output=answer,metadata.*=*"),
    ("question,answer,rule", "input=question,expected_output=answer,expected_outcome=rule,metadata.a=answer"),
]


@settings(deadline=None)
@given(st.sampled_from(TABLES), st.lists(st.lists(cells, min_size=4, max_size=4), min_size=1, max_size=4))
def test_a_table_is_read_alike_with_and_without_the_fast_path(place, table, rows):
    header, fields = table
    width = header.count(",") + 1
    path = place / "table.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header.split(","), *(row[:width] for row in rows)])
    source = find_datasets(str(path), print, print, given_format=GivenFormat(fields=fields))[0]
    try:
        document = source.format.open(source)
    except AgentvError:
        return
    both = [
        [
            {key: value for key, value in (row if isinstance(row, dict) else _filled(row)).items() if value != ""}
            for batch in source.format.read(document, ReadOptions(plain=plain))
            for row in batch.rows
            if not isinstance(row, BadRow)
        ]
        for plain in (True, False)
    ]
    assert both[0] == both[1]


def _filled(row):
    return {key: value for key, value in msgspec.structs.asdict(row).items() if value is not None}
