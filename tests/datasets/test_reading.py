"""Reading datasets: stop at or skip errors, unique ids, and streaming equal to loading."""

import gzip
import json
import pickle
import warnings

import pytest

import agentv
from agentv import (
    AgentvError,
    DatasetError,
    DatasetNotFoundError,
    DatasetParseError,
    DatasetWarning,
    InvalidCaseError,
    InvalidDatasetError,
    UsageError,
)
from agentv.support.yaml.yaml_file import parsed


def case(id="a", **fields):
    return {"id": id, "expected_outcome": "It works", "input": "Hello"} | fields


def line(id="a", **fields):
    return json.dumps(case(id, **fields)) + "\n"


MIXED = (
    line("a")
    + "{bad}\n"
    + "\n"
    + line("b")
    + json.dumps({"id": "c", "input": "x"})
    + "\n"
    + line("d", tags="wrong")
    + line("a")
    + "[1]\n"
    + line("e")
)


class TestStopOnError:
    def test_the_first_error_in_the_file_is_the_one_that_is_raised(self, folder):
        assert folder.error(folder.write("d.jsonl", MIXED)).line == 2

    def test_a_repeated_id_comes_before_an_error_on_a_later_line(self, folder):
        folder.write("d.jsonl", line("a") + line("b") + line("a") + "{bad}\n")
        assert folder.error("d.jsonl").detail == "Duplicate id 'a': first used at line 1"

    def test_an_error_on_an_earlier_line_comes_before_a_repeated_id(self, folder):
        folder.write("d.jsonl", line("a") + "{bad}\n" + line("a"))
        assert folder.error("d.jsonl").line == 2

    def test_streaming_may_raise_after_yielding_cases(self, folder):
        folder.write("d.jsonl", "".join(line(str(n)) for n in range(1000)) + "{bad}\n")
        folder.write("d.yaml", "dataset: d\n")
        seen = []
        with pytest.raises(DatasetParseError) as raised:
            for read in agentv.stream_cases("d.jsonl"):
                seen.append(read.id)
        assert raised.value.line == 1001
        assert seen[:2] == ["0", "1"]

    def test_the_command_prints_no_case_after_an_error_on_the_last_line(self, folder, command):
        folder.write("d.jsonl", "".join(line(str(n)) for n in range(1000)) + "{bad}\n")
        ended = command("cases", "d.jsonl")
        assert (ended.code, ended.stdout) == (2, "")
        assert "Line 1001: Invalid JSON" in ended.stderr

    def test_an_error_in_the_second_file_prints_no_case_of_the_first(self, folder, command):
        folder.write("a.jsonl", line("a"))
        folder.write("b.jsonl", "{bad}\n")
        ended = command("cases", "a.jsonl", "b.jsonl")
        assert (ended.code, ended.stdout) == (2, "")

    def test_a_mistake_after_blank_lines_is_reported_on_its_physical_line(self, folder, command):
        text = line("a") + "\n" * 20 + " \t\r\n" * 21 + json.dumps({"id": "b", "expected_outcome": "x"}) + "\n"
        error = folder.error(folder.write("d.jsonl", text))
        assert error.line == 43
        assert error.headline == "Invalid eval case at line 43 in d.jsonl"
        ended = command("cases", "d.jsonl")
        assert ended.code == 2
        assert "Error: Invalid eval case at line 43 in d.jsonl\n  Missing required field: 'input'\n" in ended.stderr
        assert "Traceback" not in ended.stderr

    @pytest.mark.parametrize("before", [0, 255, 256, 257, 511, 512, 1000])
    def test_lines_are_counted_across_batches(self, folder, before):
        folder.write("d.jsonl", "".join(line(str(n)) for n in range(before)) + "{bad}\n" + line("z"))
        assert folder.error("d.jsonl").line == before + 1

    def test_case_lines_are_counted_across_batches(self, folder):
        folder.write("d.jsonl", "\n" + "".join(line(str(n)) + "\n" for n in range(700)))
        assert [read.line for read in folder.load("d.jsonl")] == list(range(2, 1402, 2))


class TestSkipping:
    def test_bad_cases_are_skipped_with_a_warning_for_each(self, folder):
        folder.write("d.jsonl", MIXED)
        loaded = folder.load("d.jsonl", on_error="skip")
        assert loaded.ids == ["a", "b", "e"]
        skipped = [warning for warning in loaded.warnings if str(warning).startswith("Skipped a case")]
        assert sorted(warning.line for warning in skipped) == [2, 5, 6, 7, 8]
        assert {warning.path for warning in skipped} == {"d.jsonl"}
        texts = {warning.line: str(warning) for warning in skipped}
        assert texts[5] == "Skipped a case at line 5 in d.jsonl: Missing required field: 'expected_outcome'"
        assert texts[7] == "Skipped a case at line 7 in d.jsonl: Duplicate id 'a': first used at line 1"
        assert texts[8] == "Skipped a case at line 8 in d.jsonl: Invalid JSON - Expected JSON object, got array"

    def test_skipped_cases_are_counted(self, folder):
        from agentv.datasets.dataset import Options
        from agentv.datasets.loader import case_source

        folder.write("d.jsonl", MIXED)
        source = case_source("d.jsonl", warn=lambda _: None, note=lambda _: None, options=Options(on_error="skip"))
        assert len(list(source.stream())) == 3
        assert source.sink.skipped == 5

    def test_streaming_skips_the_same(self, folder):
        folder.write("d.jsonl", MIXED)
        loaded, streamed = folder.load("d.jsonl", on_error="skip"), folder.stream("d.jsonl", on_error="skip")
        assert streamed.cases == loaded.cases
        assert streamed.messages == loaded.messages

    def test_a_sample_reads_twice_and_warns_once(self, folder):
        folder.write("d.jsonl", MIXED)
        streamed = folder.stream("d.jsonl", on_error="skip", sample=2)
        assert len(streamed) == 2
        assert [str(warning) for warning in streamed.warnings] == [
            str(warning) for warning in folder.load("d.jsonl", on_error="skip").warnings
        ]

    def test_it_works_in_yaml(self, folder):
        folder.write("d.yaml", {"evalcases": [case("a"), "text", {"id": "b"}, case("c"), case("a")]})
        loaded = folder.load("d.yaml", on_error="skip")
        assert loaded.ids == ["a", "c"]
        assert len(loaded.messages) == 3

    def test_an_error_in_the_settings_is_not_skipped(self, folder):
        folder.write("d.jsonl", line())
        folder.write("d.yaml", "evaluator: nonsense\n")
        assert isinstance(folder.error("d.jsonl", on_error="skip"), InvalidDatasetError)

    def test_a_file_without_valid_cases_is_an_error(self, folder):
        error = folder.error(folder.write("d.jsonl", "{bad}\n{worse}\n"), on_error="skip")
        assert error.detail == "All of its cases have errors"

    def test_a_broken_archive_is_an_error(self, folder):
        folder.write("d.jsonl.gz", gzip.compress(line().encode())[:-4])
        assert isinstance(folder.error("d.jsonl.gz", on_error="skip"), DatasetParseError)

    def test_many_repeated_ids_take_no_longer_than_many_cases(self, folder):
        folder.write("d.jsonl", "".join(line(str(n % 10_000)) for n in range(20_000)))
        loaded = folder.load("d.jsonl", on_error="skip")
        assert len(loaded) == 10_000
        assert loaded.messages[0] == "Skipped a case at line 10001 in d.jsonl: Duplicate id '0': first used at line 1"
        assert loaded.messages[-1].endswith("line 20000 in d.jsonl: Duplicate id '9999': first used at line 10000")

    def test_the_command_skips_with_an_option(self, folder, command):
        folder.write("d.jsonl", MIXED)
        ended = command("cases", "--on-error", "skip", "d.jsonl")
        assert ended.code == 0
        assert [printed["id"] for printed in ended.printed] == ["a", "b", "e"]
        assert ended.stderr.count("Warning: Skipped a case at line ") == 5

    def test_any_other_on_error_value_is_a_usage_error(self, folder):
        folder.write("d.jsonl", line())
        assert str(folder.error("d.jsonl", on_error="ignore")) == "on_error must be one of stop, skip, got 'ignore'"


class TestRepeatedIds:
    def found(self, file):
        """Return detail and line of the error, which is the same when loading and streaming."""
        errors = []
        for way in (agentv.load_cases, lambda path: list(agentv.stream_cases(path))):
            with warnings.catch_warnings(), pytest.raises(InvalidCaseError) as raised:
                warnings.simplefilter("ignore")
                way(file)
            errors.append(raised.value)
        assert {(error.field, error.hint) for error in errors} == {("id", "Ids must be unique within a dataset")}
        [found] = {(error.detail, error.line) for error in errors}
        return found

    def test_both_lines_are_named(self, folder):
        folder.write("d.jsonl", line("a") + "\n" + line("b") + line("a"))
        assert self.found("d.jsonl") == ("Duplicate id 'a': first used at line 1", 4)

    def test_repeats_in_different_batches(self, folder):
        folder.write("d.jsonl", "".join(line(str(n)) for n in range(3000)) + line("7"))
        assert self.found("d.jsonl") == ("Duplicate id '7': first used at line 8", 3001)

    def test_in_yaml(self, folder):
        folder.write("d.yaml", "evalcases:\n" + "".join(f"  - {json.dumps(case(id))}\n\n" for id in "aba"))
        assert self.found("d.yaml") == ("Duplicate id 'a': first used at line 2", 6)

    def test_on_one_line_of_yaml(self, folder):
        folder.write("d.yaml", {"evalcases": [case("a"), case("b"), case("a")]})
        assert self.found("d.yaml") == ("Duplicate id 'a': first used at line 1", 1)

    def test_an_integer_and_the_same_text(self, folder):
        folder.write("d.jsonl", line("7") + line(7))
        assert self.found("d.jsonl") == ("Duplicate id '7': first used at line 1", 2)

    def test_ids_that_differ_in_case_or_space_are_different(self, folder):
        assert folder.load(folder.write("d.jsonl", line("a") + line("A") + line(" a"))).ids == ["a", "A", " a"]


class TestStreaming:
    @pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".yaml"])
    def test_streaming_yields_the_same_cases_as_loading(self, folder, suffix):
        rows = [
            case(str(n), input=[{"role": "user", "content": f"q{n}"}] if n % 3 else f"q{n}", metadata={"n": n})
            | ({"evaluators": [{"type": "is_json"}]} if n % 5 == 0 else {})
            for n in range(800)
        ]
        if suffix == ".yaml":
            folder.write("d.yaml", {"evalcases": rows})
        else:
            text = "".join(json.dumps(row) + "\n" for row in rows).encode()
            folder.write("d" + suffix, gzip.compress(text) if suffix.endswith("gz") else text)
        loaded = folder.load("d" + suffix)
        assert folder.stream("d" + suffix).cases == loaded.cases
        assert [read.line for read in folder.stream("d" + suffix)] == [read.line for read in loaded]
        assert len(loaded) == 800

    def test_several_files_are_streamed_in_order(self, folder):
        folder.write("a.jsonl", line("a"))
        folder.write("b.yaml", {"evalcases": [case("b")]})
        assert folder.stream("a.jsonl", "b.yaml").ids == ["a", "b"]

    def test_a_missing_file_is_an_error_before_the_first_case(self, folder):
        with pytest.raises(DatasetNotFoundError):
            agentv.stream_cases("none.jsonl")


class TestErrors:
    @pytest.mark.parametrize(
        ("name", "content", "kind"),
        [
            ("d.jsonl", "{bad}\n", DatasetParseError),
            ("d.jsonl", "{}\n", InvalidCaseError),
            ("d.jsonl", "", InvalidDatasetError),
            ("d.yaml", "a: [", DatasetParseError),
            ("d.yaml", "a: 1", InvalidDatasetError),
            ("d.csv", "a,b", InvalidDatasetError),
            ("d.txt", "a,b", DatasetNotFoundError),
        ],
    )
    def test_every_loading_error_has_a_position_and_a_hint(self, folder, name, content, kind):
        error = folder.error(folder.write(name, content))
        assert type(error) is kind
        assert isinstance(error, DatasetError)
        assert isinstance(error, AgentvError)
        assert error.path == name
        for attribute in ("line", "column", "field"):
            assert hasattr(error, attribute)
        assert isinstance(error.hint, str)
        assert error.exit_code == 2

    def test_an_error_survives_pickling(self, folder):
        error = folder.error(folder.write("d.jsonl", line() + '{"id": "b", "input": }\n'))
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert (again.path, again.line, again.column, again.field, again.hint) == (
            "d.jsonl",
            2,
            22,
            None,
            "Each line must be a complete JSON object",
        )

    def test_a_position_in_yaml_is_that_of_the_key(self, folder):
        text = (
            "evalcases:\n"
            "  - id: a\n"
            "    expected_outcome: x\n"
            "    input: y\n"
            "    execution:\n"
            "      target: z\n"
            "      trials: many\n"
        )
        error = folder.yaml_error(text)
        assert (error.path, error.line, error.column, error.field) == ("cases.yaml", 7, 7, "execution.trials")

    def test_a_position_in_a_merged_mapping_is_that_of_the_merge(self, folder):
        text = (
            "metadata: {shared: &shared {input: 5}}\nevalcases:\n  - id: a\n    expected_outcome: x\n    <<: *shared\n"
        )
        assert folder.yaml_error(text).line == 5

    def test_usage_errors_are_not_dataset_errors(self, folder):
        error = folder.error(folder.write("d.jsonl", line()), limit=0)
        assert isinstance(error, UsageError)
        assert not isinstance(error, DatasetError)


class TestWarnings:
    def test_a_warning_has_a_position_and_a_hint(self, folder):
        folder.write("d.jsonl", line("a") + line("b", expected_ouput="x"))
        folder.write("d.yaml", "dataset: d\n")
        (warning,) = folder.load("d.jsonl").warnings
        assert isinstance(warning, DatasetWarning)
        assert isinstance(warning, UserWarning)
        assert str(warning) == "d.jsonl, line 2: Unknown field 'expected_ouput' (Did you mean 'expected_output'?)"
        assert (warning.path, warning.line, warning.field) == ("d.jsonl", 2, "expected_ouput")
        assert warning.hint == "Did you mean 'expected_output'?"

    def test_a_warning_in_yaml_has_a_column(self, folder):
        text = "evalcases:\n  - id: a\n    expected_outcome: x\n    input: y\n    colour: red\n"
        (warning,) = folder.yaml(text).warnings
        assert (warning.line, warning.column, warning.field) == (5, 5, "colour")

    def test_a_warning_points_at_the_calling_line(self, folder):
        folder.write("d.jsonl", line())
        with pytest.warns(DatasetWarning) as caught:
            agentv.load_cases("d.jsonl")
        assert caught[0].filename == __file__
        with pytest.warns(DatasetWarning) as caught:
            list(agentv.stream_cases("d.jsonl"))
        assert caught[0].filename == __file__

    def test_a_warning_can_be_turned_into_an_error(self, folder):
        folder.write("d.jsonl", line())
        with warnings.catch_warnings():
            warnings.simplefilter("error", DatasetWarning)
            with pytest.raises(DatasetWarning):
                agentv.load_cases("d.jsonl")

    def test_the_command_prints_a_warning_on_stderr(self, folder, command):
        folder.write("d.yaml", {"evalcases": [case(colour="red")]})
        ended = command("cases", "d.yaml")
        assert ended.stderr == (
            "Warning: d.yaml, line 1: Unknown field 'colour' (Put your own data under 'metadata')\n"
        )
        assert len(ended.printed) == 1


def test_a_small_yaml_file_is_parsed_once_by_a_whole_run(folder, command):
    rows = [{"id": "a", "expected_outcome": "x", "input": "q", "evaluators": [{"type": "contains", "value": "q"}]}]
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    folder.write("evals/parsed-once.yaml", {"description": str(folder.path), "evalcases": rows})
    before = parsed.cache_info().misses
    assert command("eval", "evals", "--out", "run", "--quiet").code == 0
    in_the_run = parsed.cache_info().misses - before
    assert command("eval", "evals", "--out", "again", "--quiet").code == 0
    assert parsed.cache_info().misses == before + in_the_run
    assert in_the_run <= 2, "the dataset and the targets file, once each"
