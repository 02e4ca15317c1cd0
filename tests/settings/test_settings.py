"""Reading settings: the fields of a struct are its schema, and every problem is reported with its key."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from msgspec import Meta

from agentv.datasets.case.keys import CaseKeys, HeaderKeys
from agentv.model.diagnostics import Problems
from agentv.model.manifest import RunManifest
from agentv.model.result import Result
from agentv.registry import EVALUATORS, TARGETS
from agentv.runs.summary import RunSummary
from agentv.settings.settings_reader import (
    ProjectConfig,
    check_config,
    declares,
    field_of,
    known_keys,
    read_settings,
    read_value,
)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    aliases: ClassVar[dict[str, str]] = {"title": "name"}

    name: str
    size: Annotated[int, Meta(ge=0)] = 0


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    aliases: ClassVar[dict[str, str]] = {"command": "script", "run_it": "script"}
    unsupported: ClassVar[dict[str, str]] = {"old_way": "Use `script`"}

    script: str | list[str]
    source: str | None = None
    max_size: Annotated[int, Meta(ge=1, le=9)] | None = None
    share: Annotated[float, Meta(gt=0)] = 1.0
    mode: Literal["fast", "slow"] | None = None
    part: Part | None = None
    parts: list[str | Part] | None = None
    pair: tuple[int, int] | None = None
    anything: Any = None


def read(data, strict=False):
    problems = Problems()
    return read_settings(Sample, data, ("a",), problems, strict=strict), problems


class Choosing(msgspec.Struct, frozen=True, kw_only=True):
    mode: Literal["all_of", "all-of", "any"] | Part


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({}, "Known values: all_of, any"),
        ({"other": 1}, "Known values: all_of, any"),
        ({"mod": "any"}, "Did you mean 'mode' instead of 'mod'?"),
    ],
)
def test_a_missing_field_is_an_error_with_a_suggestion(data, hint):
    problems = Problems()
    read_settings(Choosing, data, (), problems)
    assert [(error.message, error.hint) for error in problems.errors] == [("Missing required field: 'mode'", hint)]


@pytest.mark.parametrize(
    "data",
    [
        {"script": "x"},
        {"command": "x"},
        {"runIt": "x"},
        {"run-it": "x"},
        {"script": "x", "from": None, "mode": None},
        {"script": None, "command": "x"},
    ],
)
def test_a_field_is_read_under_all_its_names_and_null_is_absent(data):
    settings, problems = read(data)
    assert settings == Sample(script="x")
    assert problems == []


@pytest.mark.parametrize("key", ["max_size", "maxSize", "max-size"])
def test_camel_case_and_kebab_case_are_the_same_key(key):
    assert field_of(Sample, key).name == "max_size"


@pytest.mark.parametrize("key", ["MAX_SIZE", "MaxSize", "maxsize", "max size"])
def test_other_spellings_are_unknown_keys_with_a_suggestion(key):
    settings, problems = read({"script": "x", key: 1})
    assert settings == Sample(script="x")
    assert [(problem.severity, problem.message) for problem in problems] == [("warning", f"Unknown field 'a.{key}'")]


def test_renamed_fields_use_the_names_that_users_write():
    assert "from" in known_keys(Sample)
    assert read({"script": "x", "from": "there"})[0].source == "there"


WRONG = [
    ({}, ("a", "script"), "Missing required field: 'a.script'", ""),
    ({"script": 3}, ("a", "script"), "Field 'a.script' must be a string or an array, got integer", ""),
    ({"script": ["x", 3]}, ("a", "script", 1), "Field 'a.script[1]' must be a string, got integer", ""),
    ({"script": "x", "max_size": 0}, ("a", "max_size"), "Field 'a.max_size' must be an integer of at least 1", ""),
    ({"script": "x", "maxSize": 10}, ("a", "maxSize"), "Field 'a.maxSize' must be an integer of at most 9", ""),
    ({"script": "x", "max_size": True}, ("a", "max_size"), "Field 'a.max_size' must be an integer, got boolean", ""),
    ({"script": "x", "share": 0}, ("a", "share"), "Field 'a.share' must be a number greater than 0", ""),
    ({"script": "x", "share": float("inf")}, ("a", "share"), "Field 'a.share' must be a finite number, got inf", ""),
    ({"script": "x", "share": float("nan")}, ("a", "share"), "Field 'a.share' must be a finite number, got nan", ""),
    (
        {"script": "x", "mode": "fasd"},
        ("a", "mode"),
        "Field 'a.mode' has an unknown value 'fasd'",
        "Did you mean 'fast'?",
    ),
    (
        {"script": "x", "mode": "best"},
        ("a", "mode"),
        "Field 'a.mode' has an unknown value 'best'",
        "Known values: fast, slow",
    ),
    ({"script": "x", "part": {}}, ("a", "part", "name"), "Missing required field: 'a.part.name'", ""),
    ({"script": "x", "part": 3}, ("a", "part"), "Field 'a.part' must be an object, got integer", ""),
    (
        {"script": "x", "parts": ["p", {"title": "q", "size": -1}]},
        ("a", "parts", 1, "size"),
        "Field 'a.parts[1].size' must be an integer of at least 0",
        "",
    ),
    (
        {"script": "x", "parts": [None]},
        ("a", "parts", 0),
        "Field 'a.parts[0]' must be a string or an object, got null",
        "",
    ),
    ({"script": "x", "pair": [1]}, ("a", "pair"), "Field 'a.pair' must be an array of length 2, got 1", ""),
    ({"script": "x", "old_way": 1}, ("a", "old_way"), "Field 'a.old_way' is not supported", "Use `script`"),
    ({"script": "x", "oldWay": 1}, ("a", "oldWay"), "Field 'a.oldWay' is not supported", "Use `script`"),
]


@pytest.mark.parametrize(("data", "path", "message", "hint"), WRONG)
def test_errors_have_a_path(data, path, message, hint):
    settings, problems = read(data)
    assert settings is None
    assert [(problem.path, problem.message, problem.hint) for problem in problems] == [(path, message, hint)]


def test_an_unknown_key_is_a_warning_or_with_strict_an_error():
    data = {"script": "x", "part": {"name": "p", "siez": 1}}
    settings, problems = read(data)
    assert settings.part == Part(name="p")
    assert [(problem.severity, problem.hint) for problem in problems] == [("warning", "Did you mean 'size'?")]
    settings, problems = read(data, strict=True)
    assert settings is None
    assert [problem.severity for problem in problems] == ["error"]


def test_the_name_of_a_field_overrides_its_aliases_in_any_order():
    for data in ({"script": "own", "command": "other"}, {"command": "other", "script": "own"}):
        settings, problems = read(data)
        assert settings.script == "own"
        assert [problem.message for problem in problems] == ["Field 'a.command' is ignored because 'a.script' is set"]


def test_of_two_aliases_the_first_wins():
    settings, problems = read({"command": "first", "run_it": "second"})
    assert settings.script == "first"
    assert len(problems) == 1


def test_lists_of_structs_are_read_like_structs():
    settings, problems = read({"script": "x", "parts": ["a", {"title": "b"}]})
    assert settings.parts == ["a", Part(name="b")]
    assert problems == []


def test_a_single_value_is_read_like_a_field():
    problems = Problems()
    assert read_value(list[str], ["a"], ("tags",), problems) == ["a"]
    assert read_value(list[str], "a", ("tags",), problems) is None
    assert [problem.message for problem in problems] == ["Field 'tags' must be an array, got string"]


@pytest.mark.parametrize(
    ("path", "known"),
    [
        (("script",), True),
        (("maxSize",), True),
        (("nothing",), False),
        (("part", "size"), True),
        (("part", "siez"), False),
        (("parts", 0, "size"), True),
        (("parts", 0, "siez"), False),
        (("anything", "at", "all"), True),
    ],
)
def test_a_path_is_declared_when_all_its_keys_are_known(path, known):
    assert declares(Sample, path) is known


SETTINGS = [EVALUATORS.find(name) for name in EVALUATORS.names()] + [TARGETS.find(name) for name in TARGETS.names()]


def unions_in(info):
    if isinstance(info, msgspec.inspect.UnionType):
        yield info
    for name in ("types", "item_types", "fields"):
        for part in getattr(info, name, ()):
            yield from unions_in(part)
    for name in ("item_type", "value_type", "type"):
        if hasattr(info, name):
            yield from unions_in(getattr(info, name))


def bounded(info):
    names = ("gt", "ge", "lt", "le", "min_length", "max_length", "pattern")
    return any(getattr(info, name, None) is not None for name in names)


@pytest.mark.parametrize("kind", [*SETTINGS, ProjectConfig, HeaderKeys, CaseKeys, RunManifest, RunSummary])
def test_no_union_has_both_a_fixed_tuple_and_a_bounded_value(kind):
    """msgspec 0.22 crashes the process if a list is read as such a union."""
    for union in unions_in(msgspec.inspect.type_info(kind)):
        if any(isinstance(option, msgspec.inspect.TupleType) for option in union.types):
            assert not any(bounded(option) for option in union.types)


@pytest.mark.parametrize(
    ("data", "findings"),
    [
        ({"guideline_patterns": ["**/*.md", " "]}, ["Field 'guideline_patterns[1]' is blank"]),
        ({"guideline_patterns": []}, ["Field 'guideline_patterns' is empty: no file will be a guideline"]),
        ({"guideline_pattern": ["a"]}, ["Unknown field 'guideline_pattern'"]),
        ({"execution": {"trials": 0}}, ["Field 'execution.trials' must be an integer of at least 1"]),
        ({"hooks": {"before_session": "x"}}, ["Field 'hooks' is ignored: it has no effect here"]),
        ({"execution": {"otel_file": "x"}}, ["Field 'execution.otel_file' is ignored: it has no effect here"]),
        ([], ["A configuration must be an object, got array"]),
        (None, []),
    ],
)
def test_a_configuration_is_checked(data, findings):
    assert [problem.message for problem in check_config(data)] == findings


def test_a_result_always_has_version_score_and_verdict():
    result = Result(
        timestamp="2026-11-15T00:00:00Z",
        run_id="r",
        eval_id="a",
        dataset="d",
        dataset_path="d.yaml",
        target="t",
        trial=1,
        status="unscored",
        score=None,
        verdict=None,
    )
    data = msgspec.to_builtins(result)
    assert data["schema_version"] == 1
    assert data["score"] is None
    assert data["verdict"] is None
    assert "reasoning" not in data
    assert msgspec.convert(data, Result) == result
