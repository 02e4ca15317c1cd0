"""A run folder may come from others: it runs no command and writes no file that only it names."""

import json
import sys

import pytest

CASE = {"id": "a", "input": "x", "expected_outcome": "y"}
PLAIN = {"type": "contains", "value": "x"}


@pytest.fixture
def project(folder, command):
    """A finished run in `run`, whose stored case is scored by a program that leaves a marker."""
    folder.marker = folder.path / "marker"
    program = f"open({str(folder.marker)!r}, 'w'); print('{{\"score\": 1}}')"
    folder.judge = {"type": "code_judge", "name": "judge", "script": [sys.executable, "-c", program]}
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    folder.write("d.yaml", {"evalcases": [CASE | {"evaluators": [PLAIN]}]})
    assert command("eval", "d.yaml", "--out", "run", "-q").code == 0
    stored = folder.path / "run/cases.jsonl"
    row = json.loads(stored.read_text())
    row["evaluators"] = [folder.judge]
    stored.write_text(json.dumps(row) + "\n")
    return folder


@pytest.mark.parametrize("is_gone", [True, False])
def test_rescoring_runs_no_command_that_only_the_run_names(project, command, is_gone):
    arguments = ("rescore", "run") if is_gone else ("rescore", "run", "--stored-cases")
    if is_gone:
        (project.path / "d.yaml").unlink()
    ended = command(*arguments)
    assert (ended.code, project.marker.exists()) == (2, False)
    assert "that only its folder names" in ended.stderr
    assert f"agentv {' '.join(arguments)} --trust-run" in ended.stderr
    trusted = command(*arguments, "--trust-run")
    assert (trusted.code, project.marker.exists()) == (0, True), trusted.stderr


def test_a_command_that_the_dataset_names_as_well_needs_no_trust(project, command):
    project.write("d.yaml", {"evalcases": [CASE | {"evaluators": [project.judge]}]})
    ended = command("rescore", "run", "--stored-cases")
    assert (ended.code, project.marker.exists()) == (0, True), ended.stderr


def test_my_own_evaluators_replace_those_of_the_run(project, command):
    ended = command("rescore", "run", "--stored-cases", "--evaluator", json.dumps(PLAIN))
    assert (ended.code, project.marker.exists()) == (0, False), ended.stderr


def change_manifest(project, run="run", **options):
    path = project.path / run / "run.json"
    manifest = json.loads(path.read_text())
    manifest["options"] |= options
    manifest.pop("finished_at", None)
    path.write_text(json.dumps(manifest))


def test_a_resumed_rescore_runs_no_evaluator_that_only_the_run_names(project, command):
    assert command("rescore", "run", "d.yaml", "--out", "again", "-q").code == 0
    change_manifest(project, "again", evaluators=[project.judge], every_evaluator=True)
    ended = command("rescore", "--resume", "--out", "again")
    assert (ended.code, project.marker.exists()) == (2, False)
    assert "--trust-run" in ended.stderr


@pytest.mark.parametrize("option", ["record", "dump_prompts", "dump_traces"])
@pytest.mark.parametrize("arguments", [("--resume", "--out", "run"), ("--changed-since", "run")])
def test_a_run_folder_does_not_choose_files_outside_the_project(project, command, tmp_path_factory, option, arguments):
    outside = tmp_path_factory.mktemp("outside") / "file"
    change_manifest(project, **{option: str(outside)})
    ended = command("eval", *arguments)
    assert (ended.code, outside.exists()) == (2, False)
    assert str(outside) in ended.stderr
    assert "--trust-run" in ended.stderr


@pytest.mark.parametrize("arguments", [("--resume", "--out", "run"), ("--changed-since", "run")])
def test_a_run_folder_does_not_allow_datasets_to_read_outside_files(project, command, arguments):
    change_manifest(project, allow_outside_files=True)
    ended = command("eval", *arguments)
    assert (ended.code, "--allow-outside-files" in ended.stderr) == (2, True)
    assert command("eval", *arguments, "--trust-run").code == 0


def test_targets_and_datasets_that_a_run_names_are_judged_like_any_other(project, command, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    entry = {"name": "default", "provider": "cli", "command_template": f"touch {project.marker}"}
    (outside / "targets.yaml").write_text(json.dumps({"targets": [entry]}))
    (outside / "d.yaml").write_text(json.dumps({"evalcases": [CASE | {"evaluators": [project.judge]}]}))
    for options in ({"targets_file": str(outside / "targets.yaml")}, {"paths": [str(outside / "d.yaml")]}):
        change_manifest(project, **{"targets_file": None, "paths": ["d.yaml"], **options})
        ended = command("eval", "--changed-since", "run")
        assert (ended.code, project.marker.exists()) == (2, False)
        assert "is not trusted" in ended.stderr
