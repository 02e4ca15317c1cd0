"""§1.2 and §1.6: settings of a document or a sidecar, and how cases override them."""

import json

import pytest

from agentv import Execution, Verdicts


def case(**fields):
    return {"id": "a", "expected_outcome": "It works", "input": "Hello"} | fields


@pytest.fixture(params=["sidecar", "document"])
def dataset(request, folder):
    """Load one case with dataset settings, from JSONL with a sidecar and from a YAML document."""

    def load(settings, *rows):
        rows = rows or (case(),)
        if request.param == "sidecar":
            return folder.rows(*rows, sidecar=settings)
        return folder.yaml(json.dumps(settings | {"evalcases": list(rows)}), "rows.yaml")

    return load


@pytest.fixture(params=["sidecar", "document"])
def dataset_error(request, folder):
    def fail(settings, *rows):
        rows = rows or (case(),)
        if request.param == "sidecar":
            return folder.row_error(*rows, sidecar=settings)
        return folder.yaml_error(json.dumps(settings | {"evalcases": list(rows)}), "rows.yaml")

    return fail


class TestNames:
    def test_the_default_name_of_a_dataset_is_that_of_its_file(self, dataset):
        assert dataset({"description": "x"})[0].dataset == "rows"

    @pytest.mark.parametrize("key", ["dataset", "name"])
    def test_a_dataset_can_set_its_name(self, dataset, key):
        loaded = dataset({key: "Arithmetic"})
        assert loaded[0].dataset == "Arithmetic"
        assert loaded.messages == []

    def test_of_two_name_keys_dataset_wins_with_one_warning(self, dataset):
        loaded = dataset({"name": "theirs", "dataset": "ours"})
        assert loaded[0].dataset == "ours"
        assert loaded.messages == ["rows.yaml, line 1: Field 'name' is ignored because 'dataset' is set"]

    def test_a_blank_name_is_ignored(self, dataset):
        assert dataset({"dataset": "  "})[0].dataset == "rows"

    @pytest.mark.parametrize(
        ("file", "name"),
        [
            ("math.jsonl", "math"),
            ("math.v2.jsonl", "math.v2"),
            ("math.jsonl.gz", "math"),
            ("a/b/math.ndjson", "math"),
            ("Math.JSONL", "Math"),
        ],
    )
    def test_the_default_name_has_no_extension(self, folder, file, name):
        folder.write(file, [case()])
        assert folder.load(file)[0].dataset == name


class TestExecution:
    def test_all_settings_reach_the_case(self, dataset):
        execution = {
            "target": "azure",
            "trials": 3,
            "timeout_seconds": 60,
            "verdicts": {"pass": 0.9, "borderline": 0.5},
            "thresholds": {"rubric": 0.7},
        }
        assert dataset({"execution": execution})[0].execution == Execution(
            target="azure", trials=3, timeout_seconds=60.0, verdicts=Verdicts(0.9, 0.5), thresholds={"rubric": 0.7}
        )

    def test_execution_settings_are_merged_by_key(self, dataset):
        above = {"target": "azure", "trials": 3, "timeout_seconds": 60, "thresholds": {"rubric": 0.7}}
        rows = (
            case(id="a", execution={"trials": 5}),
            case(id="b", execution={"target": "openai", "timeout_seconds": 1}),
            case(id="c", execution={}),
            case(id="d"),
            case(id="e", execution={"trials": None, "target": None}),
        )
        found = [read.execution for read in dataset({"execution": above}, *rows)]
        assert [(one.target, one.trials, one.timeout_seconds) for one in found] == [
            ("azure", 5, 60.0),
            ("openai", 3, 1.0),
            ("azure", 3, 60.0),
            ("azure", 3, 60.0),
            ("azure", 3, 60.0),
        ]
        assert all(one.thresholds == {"rubric": 0.7} for one in found)

    def test_a_cases_target_replaces_all_targets_of_the_dataset(self, dataset):
        loaded = dataset({"execution": {"targets": ["a", "b"]}}, case(execution={"target": "c"}))
        assert (loaded[0].execution.target, loaded[0].execution.targets) == ("c", ())

    def test_a_cases_targets_replace_the_target_of_the_dataset(self, dataset):
        loaded = dataset({"execution": {"target": "c"}}, case(execution={"targets": ["a", "b"]}))
        assert (loaded[0].execution.target, loaded[0].execution.targets) == (None, ("a", "b"))

    def test_a_top_level_target_is_still_accepted(self, dataset):
        assert dataset({"target": "azure"})[0].execution.target == "azure"

    def test_execution_target_overrides_a_top_level_target(self, dataset):
        loaded = dataset({"target": "old", "execution": {"target": "new"}})
        assert loaded[0].execution.target == "new"
        assert loaded.messages == ["rows.yaml, line 1: Field 'target' is ignored because 'execution.target' is set"]

    def test_the_effective_target_is_printed_and_defaults_to_default(self, folder, command):
        folder.write("rows.jsonl", [case(), case(id="b", execution={"target": "x"})])
        printed = command("cases", "-q", "rows.jsonl").printed
        assert [one["execution"] for one in printed] == [{"target": "default"}, {"target": "x"}]

    @pytest.mark.parametrize(
        ("execution", "detail"),
        [
            ({"trials": 0}, "Field 'execution.trials' must be an integer of at least 1"),
            ({"trials": "3"}, "Field 'execution.trials' must be an integer or an object, got string"),
            ({"timeout_seconds": 0}, "Field 'execution.timeout_seconds' must be a number greater than 0"),
            ({"targets": "a"}, "Field 'execution.targets' must be an array, got string"),
            ({"verdicts": {"pass": 2}}, "Field 'execution.verdicts.pass' must be a number of at most 1"),
            ({"inherit_evaluators": "yes"}, "Field 'execution.inherit_evaluators' must be a boolean, got string"),
            ({"workers": 0}, "Field 'execution.workers' must be an integer of at least 1"),
            ({"evaluators": "rubric"}, "Field 'execution.evaluators' must be an array, got string"),
        ],
    )
    def test_invalid_settings_are_errors_in_a_dataset_and_in_a_case(self, folder, dataset_error, execution, detail):
        error = dataset_error({"execution": execution})
        assert error.headline == "Invalid dataset at line 1 in rows.yaml"
        assert detail.split(" must ")[0] in error.detail
        assert folder.row_error(case(execution=execution), sidecar={"dataset": "rows"}).detail == detail

    def test_cached_settings_do_not_mix_up_cases(self, folder):
        rows = [case(id=str(n), execution={"trials": 1 + n % 3}) for n in range(9)]
        assert [read.execution.trials for read in folder.rows(*rows)] == [1, 2, 3] * 3


class TestMetadataAndTags:
    SETTINGS = {"metadata": {"suite": "math", "level": {"n": 1}}, "tags": ["fast", "fast", "math"]}

    def test_metadata_and_tags_apply_to_each_case(self, dataset):
        read = dataset(self.SETTINGS)[0]
        assert read.metadata == {"suite": "math", "level": {"n": 1}}
        assert read.tags == ("fast", "math")

    def test_metadata_is_merged_by_key_and_tags_are_united(self, dataset):
        read = dataset(self.SETTINGS, case(metadata={"level": {"m": 2}, "own": 1}, tags=["own", "fast"]))[0]
        assert read.metadata == {"suite": "math", "level": {"m": 2}, "own": 1}
        assert read.tags == ("fast", "math", "own")

    def test_cases_can_be_filtered_by_dataset_metadata_and_tags(self, folder):
        folder.write("rows.jsonl", [case(), case(id="b", tags=["own"])])
        folder.write("rows.yaml", self.SETTINGS)
        assert folder.load("rows.jsonl", filter="tag=fast").ids == ["a", "b"]
        assert folder.load("rows.jsonl", filter=["tag=own", "metadata.suite=math"]).ids == ["b"]


class TestOtherKeys:
    def test_known_keys_without_effect_on_cases_cause_no_warning(self, dataset):
        loaded = dataset({"$schema": "x.json", "version": "1.0", "description": "Sums", "format": "agentv"})
        assert loaded.messages == []
        assert loaded[0].description is None

    def test_an_unknown_key_is_a_warning_with_a_suggestion(self, dataset):
        loaded = dataset({"dataset": "rows", "descripton": "x"})
        assert loaded.messages == ["rows.yaml, line 1: Unknown field 'descripton' (Did you mean 'description'?)"]
        assert (loaded.warnings[0].path, loaded.warnings[0].line, loaded.warnings[0].field) == (
            "rows.yaml",
            1,
            "descripton",
        )

    @pytest.mark.parametrize(
        ("settings", "detail"),
        [
            ({"dataset": 5}, "Field 'dataset' must be a string, got integer"),
            ({"tags": "x"}, "Field 'tags' must be an array, got string"),
            ({"metadata": []}, "Field 'metadata' must be an object, got array"),
            ({"evaluator": 5}, "Field 'evaluator' must be a string, got integer"),
            ({"execution": []}, "Field 'execution' must be an object, got array"),
        ],
    )
    def test_a_key_of_the_wrong_type_is_an_error(self, dataset_error, settings, detail):
        assert dataset_error(settings).detail == detail

    def test_an_unknown_format_is_an_error_that_lists_the_known_ones(self, dataset_error):
        error = dataset_error({"format": "agentmrk"})
        assert error.field == "format"
        assert error.hint == "Did you mean 'agentmark'?"


class TestSidecars:
    def test_yaml_comes_before_yml(self, folder):
        folder.write("rows.yml", "dataset: second\n")
        folder.write("rows.yaml", "dataset: first\n")
        assert folder.rows(case())[0].dataset == "first"
        (folder.path / "rows.yaml").unlink()
        assert folder.load("rows.jsonl")[0].dataset == "second"

    @pytest.mark.parametrize("name", ["rows.jsonl.yaml", "rows-meta.yaml", "rows.json", "metadata.yaml", ".rows.yaml"])
    def test_files_with_other_names_are_not_sidecars(self, folder, name):
        folder.write(name, "dataset: wrong\n")
        assert folder.rows(case())[0].dataset == "rows"

    @pytest.mark.parametrize("file", ["rows.jsonl", "rows.ndjson", "rows.jsonl.gz", "rows.ndjson.zst", "rows.JSONL"])
    def test_the_sidecar_name_has_no_compression_extension(self, folder, file):
        folder.write(file, [case()])
        folder.write("rows.yaml", "dataset: named\n")
        loaded = folder.load(file)
        assert loaded[0].dataset == "named"
        assert loaded.warnings == []

    def test_an_empty_sidecar_is_valid(self, folder):
        loaded = folder.rows(case(), sidecar="# nothing yet\n")
        assert loaded[0].dataset == "rows"
        assert "Sidecar metadata file not found" not in str(loaded.warnings)

    def test_a_file_without_sidecar_keys_causes_one_warning(self, folder):
        loaded = folder.rows(case(), sidecar={"services": {"web": {}}, "volumes": {}})
        assert loaded[0].dataset == "rows"
        assert loaded.messages == ["rows.yaml has the name of a sidecar, but none of its keys"]

    def test_a_single_unsupported_key_in_a_sidecar_is_an_error(self, folder):
        assert folder.row_error(case(), sidecar={"depends_on": ["x"]}).detail == "Field 'depends_on' is not supported"

    def test_an_error_in_a_sidecar_names_the_sidecar_and_its_line(self, folder):
        error = folder.row_error(case(), sidecar="dataset: rows\nexecution:\n  trials: none\n")
        assert (error.path, error.line, error.column, error.field) == ("rows.yaml", 3, 3, "execution.trials")
        assert error.headline == "Invalid dataset at line 3 in rows.yaml"

    def test_a_list_of_cases_in_a_sidecar_is_ignored_with_a_warning(self, folder):
        loaded = folder.rows(case(), sidecar={"dataset": "both", "evalcases": [case(id="other")]})
        assert loaded.ids == ["a"]
        assert loaded[0].dataset == "both"
        assert loaded.messages == [
            "rows.yaml: the list of cases in this sidecar is ignored; the cases are in rows.jsonl"
        ]

    def test_a_missing_sidecar_is_reported_for_each_file(self, folder):
        for name in ("a.jsonl", "b.jsonl"):
            folder.write(name, [case()])
        texts = [str(warning) for warning in folder.load("a.jsonl", "b.jsonl").warnings]
        assert [text.split("\n")[0] for text in texts] == [
            "Sidecar metadata file not found: a.yaml",
            "Sidecar metadata file not found: b.yaml",
        ]

    def test_agentmark_files_need_no_sidecar(self, folder):
        assert folder.rows({"input": {"userMessage": "Hi"}}).warnings == []
