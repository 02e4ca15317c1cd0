"""§1.1 and §1.6: the datasets in files, folders and globs, and notes about skipped files."""

import gzip
import json
import os

import pytest

from agentv.datasets.discovery import find_datasets
from agentv.datasets.formats.dataset_format import base_of, shard_of, suffix_of, suggested


def case(id="a", **fields):
    return {"id": id, "expected_outcome": "It works", "input": "Hello"} | fields


def document(*ids):
    return {"evalcases": [case(id) for id in ids]}


@pytest.fixture
def find(folder):
    """Return the files of each dataset at these paths, with notes and warnings."""

    def found(*paths):
        notes, warnings = [], []
        sources = find_datasets(list(paths), lambda warning: warnings.append(str(warning)), notes.append)
        return [list(source.files) for source in sources], notes, warnings

    return found


class TestNames:
    @pytest.mark.parametrize(
        ("name", "kind", "base", "suffix"),
        [
            ("a.yaml", "yaml", "a", ".yaml"),
            ("a.YML", "yaml", "a", ".YML"),
            ("x/a.jsonl", "jsonl", "x/a", ".jsonl"),
            ("a.ndjson", "jsonl", "a", ".ndjson"),
            ("a.jsonl.gz", "jsonl", "a", ".jsonl.gz"),
            ("a.Jsonl.ZST", "jsonl", "a", ".Jsonl.ZST"),
            ("a.b.jsonl", "jsonl", "a.b", ".jsonl"),
            ("a.yaml.gz", None, "a", ".yaml.gz"),
            ("a.json", None, "a", ".json"),
            ("a.gz", None, "a", ".gz"),
            ("jsonl", None, "jsonl", ""),
            ("a.jsonl.bak", None, "a.jsonl", ".bak"),
        ],
    )
    def test_the_extension_suggests_the_format(self, name, kind, base, suffix):
        assert suggested(name) == ([kind] if kind else [])
        assert (base_of(name), suffix_of(name)) == (base, suffix)

    @pytest.mark.parametrize(
        ("name", "shard"),
        [
            ("d/name-00000-of-00008.jsonl", ("d/name", 0, 8)),
            ("name-00007-of-00008.jsonl.gz", ("name", 7, 8)),
            ("a-b-00001-of-00002.ndjson", ("a-b", 1, 2)),
            ("name-0-of-8.jsonl", None),
            ("name-00000-of-00008.yaml", None),
            ("name.jsonl", None),
        ],
    )
    def test_shards_are_recognized_by_their_names(self, name, shard):
        found = shard_of(name)
        assert (found and (found.base, found.index, found.count)) == shard


class TestFolders:
    def test_a_folder_gives_one_dataset_per_file_in_path_order(self, folder, find):
        for name in (
            "evals/b.jsonl",
            "evals/a.yaml",
            "evals/a/z.yml",
            "evals/a-b/c.ndjson",
            "evals/sub/deep/d.jsonl.gz",
        ):
            folder.write(name, [case()] if "jso" in name else document("a"))
        assert find("evals")[0] == [
            ["evals/a/z.yml"],
            ["evals/a-b/c.ndjson"],
            ["evals/a.yaml"],
            ["evals/b.jsonl"],
            ["evals/sub/deep/d.jsonl.gz"],
        ]

    def test_two_datasets_may_use_the_same_id(self, folder):
        folder.write("evals/a.yaml", document("same"))
        folder.write("evals/b.yaml", document("same"))
        loaded = folder.load("evals")
        assert [(read.id, read.dataset, read.path) for read in loaded] == [
            ("same", "a", "evals/a.yaml"),
            ("same", "b", "evals/b.yaml"),
        ]

    @pytest.mark.parametrize("hidden", [".hidden", ".git", ".venv", "node_modules", "venv", "__pycache__", "deep/.x"])
    def test_hidden_folders_and_installed_packages_are_skipped(self, folder, find, hidden):
        folder.write("evals/a.yaml", document("a"))
        folder.write(f"evals/{hidden}/b.yaml", document("b"))
        assert find("evals") == ([["evals/a.yaml"]], [], [])
        assert find("evals/**/*.yaml") == ([["evals/a.yaml"]], [], [])

    def test_virtual_environments_are_recognized_by_their_contents(self, folder, find):
        folder.write("evals/a.yaml", document("a"))
        folder.write("evals/env311/pyvenv.cfg", "home = /usr\n")
        folder.write("evals/env311/lib/b.yaml", document("b"))
        assert find("evals")[0] == [["evals/a.yaml"]]
        assert find("evals/**/*.yaml")[0] == [["evals/a.yaml"]]

    def test_hidden_files_are_skipped(self, folder, find):
        folder.write("evals/a.yaml", document("a"))
        folder.write("evals/.b.yaml", document("b"))
        assert find("evals")[0] == [["evals/a.yaml"]]

    def test_a_hidden_folder_given_by_the_user_is_searched(self, folder, find):
        folder.write(".evals/a.yaml", document("a"))
        assert find(".evals")[0] == [[".evals/a.yaml"]]
        assert find(".evals/*.yaml")[0] == [[".evals/a.yaml"]]

    def test_yaml_without_cases_and_results_files_are_skipped_with_a_note(self, folder, find):
        folder.write("evals/a.yaml", document("a"))
        folder.write("evals/compose.yaml", "services: {}\n")
        folder.write("evals/list.yaml", "- 1\n")
        folder.write("evals/run.jsonl", [{"eval_id": "a", "score": 0.5}])
        folder.write("evals/run2.jsonl", [{"test_id": "a", "score": 1}])
        assert find("evals") == (
            [["evals/a.yaml"]],
            [
                "evals/compose.yaml: passed over, no list of cases",
                "evals/list.yaml: passed over, no list of cases",
                "evals/run.jsonl: passed over, a results file",
                "evals/run2.jsonl: passed over, a results file",
            ],
            [],
        )

    def test_the_command_prints_notes_unless_quiet(self, folder, command):
        folder.write("evals/a.yaml", document("a"))
        folder.write("evals/compose.yaml", "services: {}\n")
        assert command("cases", "evals").stderr == "Note: evals/compose.yaml: passed over, no list of cases\n"
        assert command("cases", "--quiet", "evals").stderr == ""

    def test_a_sidecar_is_skipped_without_a_note(self, folder, find):
        folder.write("evals/a.jsonl", [case()])
        folder.write("evals/a.yaml", "dataset: A\n")
        folder.write("evals/b.jsonl.gz", gzip.compress(json.dumps(case()).encode()))
        folder.write("evals/b.yml", "dataset: B\n")
        assert find("evals") == ([["evals/a.jsonl"], ["evals/b.jsonl.gz"]], [], [])
        assert find("evals/*") == find("evals")

    def test_yaml_and_jsonl_datasets_of_the_same_name_are_an_error_in_a_folder(self, folder):
        folder.write("evals/a.jsonl", [case("line")])
        folder.write("evals/a.yaml", document("doc"))
        for path in ("evals", "evals/*"):
            error = folder.error(path)
            assert str(error) == (
                "Two datasets with the same name: evals/a.yaml and evals/a.jsonl\n"
                "  Both contain cases\n"
                "\n"
                "  Hint: Pass the file you want, or rename one of the two"
            )

    def test_datasets_of_the_same_name_can_be_loaded_by_path(self, folder):
        folder.write("evals/a.jsonl", [case("line")])
        folder.write("evals/a.yaml", document("doc") | {"dataset": "both"})
        assert folder.load("evals/a.yaml").ids == ["doc"]
        loaded = folder.load("evals/a.jsonl")
        assert loaded.ids == ["line"]
        assert loaded[0].dataset == "both"
        assert loaded.messages == [
            "evals/a.yaml: the list of cases in this sidecar is ignored; the cases are in evals/a.jsonl"
        ]

    def test_a_glob_that_matches_only_one_of_them_loads_it(self, folder):
        folder.write("evals/a.jsonl", [case("line")])
        folder.write("evals/a.yaml", document("doc"))
        assert folder.load("evals/*.yaml").ids == ["doc"]

    def test_a_folder_without_datasets_is_an_error(self, folder):
        folder.write("evals/notes.txt", "x")
        error = folder.error("evals")
        assert error.headline == "No dataset found in evals"
        suffixes = ".yaml, .yml, .jsonl, .ndjson, .mdx, .jsonl.gz, .jsonl.zst"
        assert error.hint == f"Datasets are files with cases: {suffixes}. Pass other files, such as .csv, by name"

    def test_a_broken_file_in_a_folder_is_an_error(self, folder):
        folder.write("evals/a.yaml", document("a"))
        folder.write("evals/b.jsonl", "version https://git-lfs.github.com/spec/v1\n")
        assert folder.error("evals").path == "evals/b.jsonl"


class TestNamedFiles:
    def test_a_pipe_is_refused_and_not_read(self, folder):
        os.mkfifo(folder.path / "d.jsonl")
        assert "it is a pipe or a device" in str(folder.error("d.jsonl"))

    def test_a_file_given_by_the_user_is_never_skipped(self, folder):
        folder.write("compose.yaml", "services: {}\n")
        folder.write("run.jsonl", [{"eval_id": "a", "score": 0.5}])
        assert folder.error("compose.yaml").detail == "Missing required field: 'evalcases'"
        assert "This looks like a results file" in folder.error("run.jsonl").hint

    def test_a_file_in_a_skipped_folder_can_be_loaded_by_path(self, folder):
        folder.write("node_modules/.x/a.yaml", document("a"))
        assert folder.load("node_modules/.x/a.yaml").ids == ["a"]

    def test_a_missing_file_is_an_error_with_a_suggestion(self, folder):
        folder.write("evals/dataset.jsonl", [case()])
        error = folder.error("evals/datset.jsonl")
        assert str(error) == "No such file: evals/datset.jsonl\n\n  Hint: Did you mean 'evals/dataset.jsonl'?"
        assert error.path == "evals/datset.jsonl"
        assert folder.error("nowhere/at-all.jsonl").hint == ""

    def test_paths_can_be_path_objects_and_lists(self, folder):
        folder.write("a.yaml", document("a"))
        folder.write("b.yaml", document("b"))
        assert folder.load(folder.path / "a.yaml", "b.yaml").ids == ["a", "b"]

    def test_several_paths_keep_their_order_without_repeats(self, folder):
        for name in "abc":
            folder.write(f"evals/{name}.yaml", document(name))
        assert folder.load("evals/c.yaml", "evals/a.yaml").ids == ["c", "a"]
        assert folder.load("evals/b.yaml", "evals").ids == ["b", "a", "c"]

    def test_no_path_at_all_is_an_error(self, folder):
        assert folder.error().headline == "No dataset given"


class TestGlobs:
    def test_a_glob_gives_one_dataset_per_file(self, folder, find):
        for name in ("a.jsonl", "b.jsonl", "deep/c.jsonl", "d.txt"):
            folder.write(f"evals/{name}", [case()])
        assert find("evals/*.jsonl")[0] == [["evals/a.jsonl"], ["evals/b.jsonl"]]
        assert find("evals/**/*.jsonl")[0] == [["evals/a.jsonl"], ["evals/b.jsonl"], ["evals/deep/c.jsonl"]]
        assert find("evals/[ab].jsonl")[0] == [["evals/a.jsonl"], ["evals/b.jsonl"]]
        assert find("evals/{a,deep/c}.jsonl")[0] == [["evals/a.jsonl"], ["evals/deep/c.jsonl"]]
        assert find("evals/?.*")[0] == [["evals/a.jsonl"], ["evals/b.jsonl"]]

    def test_a_glob_without_a_match_is_an_error(self, folder):
        folder.write("evals/a.txt", "x")
        assert str(folder.error("evals/*.jsonl")) == "No dataset found: evals/*.jsonl\n  No file matches the pattern"
        assert "1 file matches, but it is not a dataset" in folder.error("evals/*").detail

    def test_a_file_whose_name_looks_like_a_glob_can_be_named(self, folder):
        folder.write("a[1].yaml", document("a"))
        assert folder.load("a[1].yaml").ids == ["a"]


class TestShards:
    def write(self, folder, count=3, base="evals/big", missing=()):
        for index in set(range(count)) - set(missing):
            rows = [case(f"{index}-{n}") for n in range(2)]
            folder.write(f"{base}-{index:05d}-of-{count:05d}.jsonl", rows)

    def test_shards_are_one_dataset_in_their_order_with_one_sidecar(self, folder, find):
        self.write(folder)
        folder.write("evals/big.yaml", "dataset: Big\ntags: [big]\n")
        files = [f"evals/big-{index:05d}-of-00003.jsonl" for index in range(3)]
        assert find("evals") == ([files], [], [])
        loaded = folder.load("evals")
        assert loaded.ids == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"]
        assert {(read.dataset, read.tags) for read in loaded} == {("Big", ("big",))}
        assert [(read.path, read.line) for read in loaded][3] == (files[1], 2)
        assert loaded.warnings == []

    def test_a_missing_sidecar_of_shards_is_reported_once(self, folder):
        self.write(folder)
        warnings = folder.load("evals").warnings
        assert len(warnings) == 1
        assert str(warnings[0]).startswith("Sidecar metadata file not found: evals/big.yaml\n")

    @pytest.mark.parametrize("paths", [("evals",), ("evals/*.jsonl",), ("evals/big-*",)])
    def test_a_missing_shard_in_a_folder_or_glob_is_an_error(self, folder, paths):
        self.write(folder, missing=[1])
        error = folder.error(*paths)
        assert error.headline == "1 of 3 shards of evals/big is missing: 00001"

    def test_a_subset_of_shards_given_by_path_loads_with_a_warning(self, folder):
        self.write(folder)
        loaded = folder.load("evals/big-00002-of-00003.jsonl", "evals/big-00000-of-00003.jsonl")
        assert loaded.ids == ["0-0", "0-1", "2-0", "2-1"]
        assert loaded.messages == ["1 of 3 shards of evals/big is missing: 00001"]

    def test_two_files_for_the_same_shard_are_an_error(self, folder):
        self.write(folder)
        folder.write("evals/big-00001-of-00003.jsonl.gz", gzip.compress(json.dumps(case("x")).encode()))
        assert folder.error("evals").headline == "Two files for the same shard of evals/big"

    def test_a_repeated_id_across_shards_names_both_files(self, folder):
        self.write(folder, count=2)
        folder.write("evals/big-00001-of-00002.jsonl", [case("new"), case("0-1")])
        error = folder.error("evals")
        assert error.headline == "Invalid eval case at line 2 in evals/big-00001-of-00002.jsonl"
        assert error.detail == "Duplicate id '0-1': first used at line 2 of evals/big-00000-of-00002.jsonl"

    def test_an_error_names_the_shard_and_its_line(self, folder):
        self.write(folder, count=2)
        folder.write("evals/big-00001-of-00002.jsonl", "\n{bad\n")
        error = folder.error("evals")
        assert (error.path, error.line) == ("evals/big-00001-of-00002.jsonl", 2)

    def test_a_shard_may_be_empty_if_another_has_cases(self, folder):
        self.write(folder, count=2)
        folder.write("evals/big-00001-of-00002.jsonl", "")
        assert folder.load("evals").ids == ["0-0", "0-1"]

    def test_yaml_and_shards_of_the_same_name_are_an_error(self, folder):
        self.write(folder)
        folder.write("evals/big.yaml", document("a"))
        assert folder.error("evals").headline.startswith("Two datasets with the same name: evals/big.yaml and ")


def test_the_cases_of_an_earlier_run_are_skipped(folder, find):
    folder.write("evals/d.yaml", document("a"))
    folder.write("first/run.json", "{}")
    folder.write("first/cases.jsonl", [case()])
    files, notes, _ = find(".")
    assert files == [["./evals/d.yaml"]]
    assert notes == ["./first/cases.jsonl: passed over, the cases of an earlier run"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_dataset_in_another_encoding_is_an_error(folder, encoding):
    text = "evalcases:\n  - {id: a, expected_outcome: x, input: q}\n"
    (folder.path / "d.yaml").write_bytes(text.encode(encoding))
    assert folder.error(".").path == "./d.yaml"


class TestMisspeltLists:
    @pytest.mark.parametrize("key", ["evalcase", "evalCases", "eval-cases", "test", "Cases"])
    def test_cases_under_a_misspelt_key_are_not_skipped(self, folder, find, key):
        folder.write("d/good.yaml", document("a"))
        folder.write("d/typo.yaml", {key: [case("b")]})
        assert find("d") == ([["d/good.yaml"], ["d/typo.yaml"]], [], [])
        assert "Missing required field: 'evalcases'" in str(folder.error("d"))

    @pytest.mark.parametrize(
        "other", [{"test": [{"run": "pytest"}]}, {"rows": [case("b")]}, {"test": case("b")}, [case("b")]]
    )
    def test_other_lists_under_a_similar_key_are_skipped(self, folder, find, other):
        folder.write("d/good.yaml", document("a"))
        folder.write("d/other.yaml", json.dumps(other))
        assert find("d") == ([["d/good.yaml"]], ["d/other.yaml: passed over, no list of cases"], [])

    def test_if_all_files_are_skipped_the_error_lists_them(self, folder):
        for number in range(12):
            folder.write(f"d/{number:02}.yaml", "a: 1\n")
        error = folder.error("d")
        assert str(error).startswith("No dataset found in d\n  d/00.yaml: passed over, no list of cases\n  d/01.yaml: ")
        assert "  d/09.yaml: passed over, no list of cases\n  and 2 more\n" in str(error)
