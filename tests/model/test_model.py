"""The data model: immutability, equality, pickling and fingerprints of cases (§1.9)."""

import copy
import json
import pickle

import msgspec
import pytest

from agentv import EvalCase, EvaluatorSpec, Execution, FilePart, ImagePart, Message, TextPart, ToolCall
from agentv.model.case import CaseDetails, PromptInput, case_to_data
from agentv.model.origin import Origin, Place
from agentv.model.response import Response
from agentv.model.values import MAX_DEPTH, FrozenDict, FrozenList, NestingError, digest, freeze, to_json

ROW = {
    "id": "a",
    "expected_outcome": "It works",
    "input": [
        {"role": "system", "content": {"rules": ["be brief", {"n": 1}]}},
        {"role": "user", "content": [{"type": "text", "value": "Hi"}, {"type": "file", "value": "notes.md"}]},
    ],
    "expected_output": [
        {"role": "assistant", "tool_calls": [{"tool": "Read", "input": {"path": ["x"]}, "output": {"ok": True}}]},
        {"role": "assistant", "content": {"status": "done", "items": [1, 2.5, None]}},
    ],
    "conversation_id": "c",
    "execution": {"target": "t", "trials": 2, "verdicts": {"pass": 0.9}, "thresholds": {"rubric": 0.5}},
    "evaluators": [{"type": "equals", "value": {"k": [1]}, "transform": {"regex": "x"}}],
    "rubrics": ["Is polite", {"id": "r", "outcome": "Is brief"}],
    "context": ["one", "two"],
    "turns": [{"input": "More?", "expected_output": {"k": [1]}}],
    "user": {"goal": "Buy"},
    "workspace": {"template": "repo", "setup": ["make"]},
    "description": "A note",
    "metadata": {"k": {"deep": [1, {"x": None}]}},
    "tags": ["fast"],
}


@pytest.fixture
def read(folder):
    """Read the case of a row, from JSONL or YAML."""

    def read_row(row, name="d.jsonl"):
        folder.write("notes.md", "Notes")
        for place in ("", "sub/"):
            folder.write(f"{place}repo/Makefile", "all:\n")
        folder.write("other/Makefile", "all:\n")
        if name.endswith(".jsonl"):
            folder.write(name, [row])
        else:
            folder.write(name, {"evalcases": [row]})
        return folder.load(name)[0]

    return read_row


def changed(**fields):
    return {key: value for key, value in (ROW | fields).items() if value is not None}


class TestImmutable:
    @pytest.mark.parametrize("field", [*EvalCase.__struct_fields__, "line", "dataset", "rubrics", "anything"])
    def test_no_field_can_be_set_or_deleted(self, read, field):
        case = read(ROW)
        with pytest.raises(AttributeError):
            setattr(case, field, "x")
        with pytest.raises((AttributeError, TypeError)):
            delattr(case, field)

    def test_no_nested_container_can_be_changed(self, read):
        case = read(ROW)
        containers = list(walk(case))
        assert len(containers) > 12
        for container in containers:
            if isinstance(container, dict):
                changes = [
                    lambda c: c.__setitem__("k", 1),
                    lambda c: c.update(k=1),
                    lambda c: c.pop("k", None),
                    lambda c: c.clear(),
                    lambda c: c.setdefault("new", 1),
                    lambda c: c.popitem(),
                    lambda c: c.__ior__({"k": 1}),
                    lambda c: c.__delitem__("k"),
                ]
            else:
                changes = [
                    lambda c: c.append(1),
                    lambda c: c.extend([1]),
                    lambda c: c.__setitem__(0, 1),
                    lambda c: c.insert(0, 1),
                    lambda c: c.clear(),
                    lambda c: c.pop(),
                    lambda c: c.remove(1),
                    lambda c: c.sort(),
                    lambda c: c.reverse(),
                    lambda c: c.__iadd__([1]),
                    lambda c: c.__imul__(2),
                    lambda c: c.__delitem__(0),
                ]
            for change in changes:
                with pytest.raises(TypeError, match="cannot be changed"):
                    change(container)

    def test_changing_the_source_values_does_not_change_the_case(self):
        given = {"a": [1, {"b": 2}]}
        frozen = freeze(given)
        given["a"][1]["b"] = 3
        assert frozen == {"a": [1, {"b": 2}]}

    def test_a_copy_can_be_changed(self, read):
        metadata = dict(read(ROW).metadata)
        metadata["k"] = 1
        assert metadata == {"k": 1}

    def test_replace_returns_a_changed_copy(self, read):
        case = read(ROW)
        other = msgspec.structs.replace(case, id="b")
        assert (other.id, other.input, other.expected_output) == ("b", case.input, case.expected_output)
        assert case.id == "a"


def walk(value):
    """Yield every dict and list inside a value, including structs and tuples."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from walk(getattr(value, field))
    elif isinstance(value, tuple):
        for item in value:
            yield from walk(item)
    elif isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from walk(item)


class TestEquality:
    @pytest.mark.parametrize("name", ["d.jsonl", "other.jsonl", "sub/d.yaml"])
    def test_cases_with_the_same_content_are_equal_across_files_and_formats(self, read, folder, name):
        folder.write("sub/notes.md", "Notes")
        first, second = read(ROW, "first.yaml"), read(ROW, name)
        assert first == second
        assert hash(first) == hash(second)
        assert len({first, second}) == 1

    def test_the_origin_of_a_case_is_stored_but_not_compared(self, folder):
        folder.write("repo/Makefile", "all:\n")
        folder.write("a.jsonl", [changed(input="x")])
        folder.write("b.jsonl", "\n\n" + json.dumps(changed(input="x")))
        folder.write("b.yaml", "dataset: Named\n")
        first, second = folder.load("a.jsonl")[0], folder.load("b.jsonl")[0]
        assert (first.path, first.line, first.dataset) == ("a.jsonl", 1, "a")
        assert (second.path, second.line, second.dataset) == ("b.jsonl", 3, "Named")
        assert first == second

    def test_the_order_of_keys_does_not_matter(self, read):
        assert read(ROW) == read(dict(reversed(ROW.items())), "b.jsonl")

    def test_shorthand_equals_its_full_form(self, read):
        assert read(changed(input="Hi")) == read(changed(input=[{"role": "user", "content": "Hi"}]))
        assert read(changed(expected_output="Hi")) == read(
            changed(expected_output=[{"role": "assistant", "content": "Hi"}])
        )

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("id", "b"),
            ("expected_outcome", "Other"),
            ("input", "Other"),
            ("expected_output", "Other"),
            ("expected_output", None),
            ("conversation_id", "other"),
            ("execution", {"target": "other"}),
            ("evaluators", [{"type": "equals", "value": 2}]),
            ("evaluators", []),
            ("rubrics", ["Other"]),
            ("context", ["one"]),
            ("turns", [{"input": "Other"}]),
            ("user", {"goal": "Other"}),
            ("workspace", {"template": "other"}),
            ("description", "Other"),
            ("metadata", {}),
            ("tags", ["slow"]),
        ],
    )
    def test_each_field_counts(self, read, field, value):
        assert read(ROW) != read(changed(**{field: value}))

    def test_a_case_does_not_equal_other_types(self, read):
        assert read(ROW) != ROW
        assert read(ROW) != "a"

    def test_messages_parts_and_calls_are_equal_by_content(self):
        assert Message("user", (TextPart("a"), FilePart("f", "1", "/x/f"))) == Message(
            "user", (TextPart("a"), FilePart("f", "1", "/y/f"))
        )
        assert FilePart("f", "1") != FilePart("f", "2")
        assert FilePart("f", "1") != ImagePart("f", "1")
        assert ToolCall("Read", freeze({"a": 1})) == ToolCall("Read", {"a": 1})
        assert EvaluatorSpec(type="a", name="b") != EvaluatorSpec(type="a", name="c")


class TestHashing:
    def test_a_case_and_everything_in_it_is_hashable(self, read):
        case = read(ROW)
        for value in (
            case,
            *case.input,
            *case.expected_output,
            *case.evaluators,
            case.execution,
            case.details,
            *case.turns,
        ):
            assert hash(value) == hash(copy.copy(value))

    def test_frozen_containers_hash_by_content(self):
        assert hash(freeze({"a": [1, {"b": 2}]})) == hash(freeze({"a": [1, {"b": 2}]}))
        assert hash(freeze({"a": 1, "b": 2})) == hash(freeze({"b": 2, "a": 1}))


class TestPickling:
    @pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
    def test_a_case_survives_pickling(self, read, protocol):
        case = read(ROW)
        again = pickle.loads(pickle.dumps(case, protocol))
        assert again == case
        assert (again.path, again.line, again.dataset) == (case.path, case.line, case.dataset)
        assert again.fingerprint == case.fingerprint
        assert case_to_data(again) == case_to_data(case)
        assert isinstance(again.metadata, FrozenDict)
        assert isinstance(again.metadata["k"]["deep"], FrozenList)

    def test_shorthand_survives_pickling(self, read):
        case = read(changed(input="Hi", expected_output="Ho"))
        again = pickle.loads(pickle.dumps(case))
        assert again.input == (Message("user", "Hi"),)
        assert again.expected_output == (Message("assistant", "Ho"),)

    def test_copies_are_equal(self, read):
        case = read(ROW)
        assert copy.copy(case) == copy.deepcopy(case) == case


def fingerprints(case):
    return case.input_fingerprint, case.fingerprint


class TestFingerprints:
    """Fields included in both fingerprints, in `fingerprint` only, and in neither."""

    def test_fingerprints_ignore_key_order_format_and_file(self, read, folder):
        backwards = json.loads(json.dumps(ROW), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
        expected = fingerprints(read(ROW))
        assert fingerprints(read(backwards)) == expected
        assert fingerprints(read(ROW, "other.yaml")) == expected
        folder.write("sub/notes.md", "Notes")
        assert fingerprints(read(ROW, "sub/d.jsonl")) == expected

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("id", "b"),
            ("tags", ["other"]),
            ("metadata", {"other": 1}),
            ("description", "Other"),
            ("conversation_id", "other"),
            ("execution", {"target": "other", "trials": 9}),
            ("evaluators", [{"type": "is_json"}]),
            ("evaluators", []),
        ],
    )
    def test_fields_that_neither_fingerprint_includes(self, read, field, value):
        assert fingerprints(read(changed(**{field: value}))) == fingerprints(read(ROW))

    def test_neither_fingerprint_includes_the_dataset_name(self, read, folder):
        before = fingerprints(read(ROW))
        folder.write("d.yaml", "dataset: Other\ntags: [x]\nmetadata: {k: 1}\ndescription: d\n")
        assert fingerprints(read(ROW)) == before

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("expected_output", "Other"),
            ("expected_output", None),
            ("expected_outcome", "Other"),
            ("rubrics", ["Other"]),
            ("rubrics", None),
            ("context", ["one"]),
            ("context", None),
            ("turns", [{"input": "More?", "expected_output": "Other"}]),
        ],
    )
    def test_references_change_only_the_fingerprint(self, read, field, value):
        before, after = read(ROW), read(changed(**{field: value}))
        assert after.input_fingerprint == before.input_fingerprint
        assert after.fingerprint != before.fingerprint

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("input", "Other"),
            ("input", ROW["input"][1:]),
            ("input", list(reversed(ROW["input"]))),
            ("turns", [{"input": "Other", "expected_output": {"k": [1]}}]),
            ("turns", None),
            ("user", {"goal": "Other"}),
            ("workspace", {"template": "other"}),
        ],
    )
    def test_inputs_change_both_fingerprints(self, read, field, value):
        before, after = read(ROW), read(changed(**{field: value}))
        assert after.input_fingerprint != before.input_fingerprint
        assert after.fingerprint != before.fingerprint

    def test_the_content_of_a_file_changes_both_fingerprints(self, read, folder):
        before = read(ROW)
        folder.write("notes.md", "Other notes")
        after = folder.load("d.jsonl")[0]
        assert after.input_fingerprint != before.input_fingerprint
        assert after.fingerprint != before.fingerprint

    def test_the_content_of_a_reference_file_changes_only_the_fingerprint(self, folder):
        reference = [{"role": "assistant", "content": [{"type": "file", "value": "answer.md"}]}]
        folder.write("d.jsonl", [{"id": "a", "expected_outcome": "x", "input": "y", "expected_output": reference}])
        folder.write("answer.md", "One")
        before = folder.load("d.jsonl")[0]
        folder.write("answer.md", "Two")
        after = folder.load("d.jsonl")[0]
        assert after.input_fingerprint == before.input_fingerprint
        assert after.fingerprint != before.fingerprint

    def test_a_rendered_prompt_has_the_fingerprint_of_its_text(self, folder):
        folder.write("plain.jsonl", [{"id": "a", "expected_outcome": "x", "input": "About birds"}])
        row = {"id": "a", "expected_outcome": "x", "input": {"topic": "birds", "unused": 1}}
        folder.write("rendered.jsonl", [row])
        folder.write("rendered.yaml", "prompt: About {{ topic }}\n")
        assert fingerprints(folder.load("plain.jsonl")[0]) == fingerprints(folder.load("rendered.jsonl")[0])
        folder.write("rendered.yaml", "prompt: Of {{ topic }}\n")
        assert fingerprints(folder.load("plain.jsonl")[0]) != fingerprints(folder.load("rendered.jsonl")[0])

    def test_roles_names_and_tool_calls_change_the_fingerprint(self):
        questions = [
            Message("user", "x"),
            Message("system", "x"),
            Message("user", "x", (), "ann"),
            Message("user", (TextPart("x"),)),
            Message("user", "x", (ToolCall("Read"),)),
            Message("user", "x", (ToolCall("Read", freeze({"a": 1})),)),
            Message("user", freeze({"x": 1})),
            Message("user", freeze({"x": True})),
            Message("user", freeze({"x": "1"})),
        ]
        assert len({EvalCase("a", "x", (question,)).input_fingerprint for question in questions}) == len(questions)

    def test_each_of_several_prompts_changes_the_fingerprint(self):
        def case(*prompts):
            inputs = tuple(PromptInput(id, (Message("user", text),)) for id, text in prompts)
            return EvalCase("a", "x", (), (), details=CaseDetails(prompts=inputs))

        cases = [case(("p", "x")), case(("p", "y")), case(("q", "x")), case(("p", "x"), ("q", "y"))]
        assert len({one.input_fingerprint for one in cases}) == 4

    def test_fingerprints_are_32_hex_digits_and_stable(self):
        case = EvalCase("a", "It works", "Hello", "Hi")
        assert fingerprints(case) == ("ec35698479d7c958e7ad1e061dddf05b", "a3d9f92791ae95013bec8824d0e72770")

    def test_fingerprints_of_a_case_with_all_fields_are_stable(self, read):
        assert fingerprints(read(ROW)) == ("449847ead12aeff4412f5e671aa32ac1", "a588e9392dbef04201c7aa48020f4087")

    def test_the_fingerprint_of_an_evaluator_depends_on_its_settings(self):
        def spec(**fields):
            return EvaluatorSpec(**({"type": "contains", "name": "n", "settings": freeze({"value": "x"})} | fields))

        before = spec().fingerprint
        for same in (spec(name="other"), spec(weight=2.0)):
            assert same.fingerprint == before
        for other in (
            spec(type="icontains"),
            spec(settings=freeze({"value": "y"})),
            spec(negate=True),
            spec(target="judge"),
            spec(transform=freeze({"regex": "x"})),
        ):
            assert other.fingerprint != before


class TestPrinting:
    def test_fields_are_printed_in_a_fixed_order_under_current_names(self, read):
        data = json.loads(to_json(case_to_data(read(ROW))))
        assert list(data) == [
            "id",
            "dataset",
            "conversation_id",
            "expected_outcome",
            "input",
            "expected_output",
            "context",
            "execution",
            "evaluators",
            "turns",
            "user",
            "workspace",
            "description",
            "metadata",
            "tags",
        ]
        for field in ("id", "input", "expected_output", "expected_outcome", "metadata", "tags", "context", "user"):
            assert data[field] == ROW[field]
        assert data["execution"] == {
            "target": "t",
            "trials": 2,
            "verdicts": {"pass": 0.9, "borderline": 0.6},
            "thresholds": {"rubric": 0.5},
        }
        assert [(one["type"], one["name"]) for one in data["evaluators"]] == [
            ("rubric", "rubric"),
            ("equals", "equals"),
        ]

    def test_empty_fields_are_omitted(self, read):
        row = {"id": "a", "expected_outcome": "x", "input": "y"}
        assert case_to_data(read(row)) == row | {
            "dataset": "d",
            "input": [{"role": "user", "content": "y"}],
            "execution": {"target": "default"},
            "evaluators": [{"type": "llm_judge", "name": "llm_judge"}],
        }

    def test_a_printed_case_loads_as_an_equal_case(self, read, folder):
        case = read(ROW)
        printed = json.loads(to_json(case_to_data(case)))
        del printed["dataset"]
        assert read(printed) == msgspec.structs.replace(case, details=msgspec.structs.replace(case.details, rubrics=()))


class TestValues:
    def test_freezing_keeps_json_values_equal(self):
        value = {"a": [1, 2.5, "x", None, True, {"b": []}]}
        assert freeze(value) == value
        assert to_json(freeze(value)) == to_json(value)

    def test_nesting_is_limited(self):
        value = []
        for _ in range(MAX_DEPTH - 1):
            value = [value]
        assert freeze(value) == value
        with pytest.raises(NestingError, match="nested more than 256 levels deep"):
            freeze([value])

    def test_a_digest_does_not_depend_on_the_order_of_keys(self):
        assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
        assert digest({"a": 1}) != digest({"a": 1.0})
        assert digest([1, 2]) != digest([2, 1])

    def test_output_is_compact_utf_8(self):
        assert to_json({"é": "日本\u2028", "a": [1, 2]}) == '{"é":"日本\u2028","a":[1,2]}'.encode()


def test_a_case_is_small():
    place = Place(Origin(), 1)
    case = EvalCase("a", "b", "c", "d", None, FrozenDict(), (), Execution(), (), CaseDetails(), place, 0)
    assert case.__sizeof__() <= 160


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([("assistant", "four")], "four"),
        ([("assistant", "four"), ("assistant", "")], "four"),
        ([("assistant", "four"), ("tool", "saved"), ("assistant", None)], "four"),
        ([("assistant", "four"), ("user", "thanks")], "four"),
        ([("assistant", "four"), ("user", "and five?"), ("assistant", "")], ""),
        ([("assistant", [1])], "[1]"),
        ([], ""),
    ],
)
def test_the_text_of_a_response_is_that_of_its_last_message_with_content(messages, text):
    assert Response(messages=tuple(Message(role, content) for role, content in messages)).text == text


@pytest.mark.parametrize("reference", [(), (Message("assistant", 'a "b" é'),)])
def test_a_case_of_plain_texts_has_the_fingerprints_of_the_same_messages(reference):
    text = reference[0].content if reference else ()
    short = EvalCase("1", "Names it", input="é", expected_output=text)
    assert short.fingerprints == EvalCase("1", "Names it", (Message("user", "é"),), reference).fingerprints
