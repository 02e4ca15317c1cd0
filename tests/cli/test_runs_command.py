"""`agentv runs`: the list, the trend, and pruning old runs but not runs in use."""

import io
import json
import random
import shutil
import sys

import msgspec
import pytest

from agentv.report.run_tables import run_list
from agentv.runs import catalogue
from agentv.runs.folder import RunFolder
from kept_runs import KEPT, keep


@pytest.fixture
def project(folder):
    folder.write(".git/HEAD", "")
    return folder


def ids(command, *arguments):
    return [entry["run_id"] for entry in command("runs", *arguments, "--json").printed]


def test_runs_are_listed_newest_first_with_their_figures(project, command):
    keep(1), keep(2, 0.75), keep(3, finished=False)
    lines = command("runs").stdout.splitlines()
    assert lines[0].split()[:3] == ["run", "began", "state"]
    assert "unfinished, 0 of 400" in lines[1]
    assert "20261102-120000-0002" in lines[2] and "0.750  0.708 to 0.792" in lines[2] and "400 of 400" in lines[2]
    assert "20261101-120000-0001" in lines[3]


def test_runs_of_agentv_typescript_are_listed(project, command):
    row = {"timestamp": "2026-11-04T10:00:00Z", "eval_id": "a", "dataset": "old", "score": 1, "target": "t"}
    project.write(".agentv/results/eval_2026.jsonl", [row])
    [entry] = command("runs", "--json").printed
    assert (entry["state"], entry["datasets"], entry["targets"]["t"]["mean"]) == ("foreign", ["old"], 1.0)
    assert command("report", entry["name"]).code == 0


@pytest.mark.parametrize("subcommand", [(), ("trend",), ("prune", "--keep", "0", "--dry-run")])
def test_a_run_in_another_folder_is_listed_by_its_path(project, command, subcommand):
    shutil.copytree(KEPT / keep(1), "runs/first one")
    shown = command("runs", "--in", "runs", *subcommand).stdout
    assert "runs/first one" in shown and "20261101" not in shown
    assert command("report", "runs/first one").code == 0


def test_a_local_folder_with_the_same_name_is_not_the_run_of_the_project(project, command):
    shutil.move(KEPT / keep(1), KEPT / "mine")
    (project.path / "mine").mkdir()
    assert [entry["name"] for entry in command("runs", "--json").printed] == [".agentv/results/mine"]


def test_runs_are_sorted_by_start_time_not_by_folder_name(project, command):
    shutil.move(KEPT / keep(1), KEPT / "zebra")
    shutil.move(KEPT / keep(2), KEPT / "ant")
    assert [entry["name"] for entry in command("runs", "--json").printed] == ["ant", "zebra"]


@pytest.mark.parametrize(
    ("width", "gone"), [(140, []), (115, ["cost", "began"]), (85, ["cost", "began", "passed", "errors", "datasets"])]
)
def test_the_table_is_as_wide_as_the_terminal(project, width, gone):
    keep(1, dataset="a dataset whose name is quite long"), keep(2, name="a target whose name is quite long")
    entries = [msgspec.structs.replace(entry, name=entry.run_id) for entry in catalogue.find_runs(KEPT)]
    table = run_list(entries, width)
    assert table.left_out == gone
    assert max(map(len, table.lines)) <= width
    assert all("400 of 400" in line and "0.800" in line for line in table.lines[1:])


@pytest.mark.parametrize("summary", [None, "{}", '{"run_id": "x", "targets": {"echo": {}}}'])
def test_missing_figures_of_a_finished_run_are_computed_from_its_records(project, command, summary):
    cases = [{"id": "a", "expected_outcome": "x", "input": "yes"}, {"id": "b", "expected_outcome": "x", "input": "no"}]
    project.write("d.yaml", {"evaluators": [{"type": "contains", "value": "yes"}], "evalcases": cases})
    project.write("targets.yaml", {"targets": [{"name": "echo", "provider": "mock"}]})
    assert command("eval", "d.yaml", "--out", "kept/run", "--quiet").code == 0
    (project.path / "kept/run/summary.json").unlink()
    if summary is not None:
        project.write("kept/run/summary.json", summary)
    [entry] = command("runs", "--in", "kept", "--json").printed
    assert (entry["targets"]["echo"]["mean"], entry["targets"]["echo"]["scored"]) == (0.5, 2)


def test_an_empty_list_of_runs_is_not_an_error(project, command):
    ended = command("runs")
    assert (ended.code, ended.stdout) == (0, "")
    assert "This project has no runs yet" in ended.stderr
    assert "No matching runs" in command("runs", "--dataset", "x").stderr


@pytest.mark.parametrize(
    ("arguments", "days"),
    [
        (("--dataset", "sup*"), [3, 1]),
        (("--target", "claude"), [2]),
        (("--since", "2026-11-02"), [3, 2]),
        (("--state", "finished", "--limit", "1"), [3]),
        (("--state", "unfinished"), []),
    ],
)
def test_filters(project, command, arguments, days):
    keep(1), keep(2, name="claude", dataset="other"), keep(3)
    assert ids(command, *arguments) == [f"202611{day:02d}-120000-000{day}" for day in days]


def test_runs_beyond_the_limit_are_counted(project, command):
    keep(1), keep(2), keep(3)
    assert "2 older runs not shown" in command("runs", "--limit", "1").stderr


def test_the_trend_shows_where_the_level_changed(project, command):
    for day in range(1, 9):
        keep(day, 0.85 if day < 5 else 0.7, passed=[case % 20 < (17 if day < 5 else 14) for case in range(400)])
    lines = command("runs", "trend").stdout.splitlines()
    assert lines[0] == "support · gpt"
    at = next(number for number, line in enumerate(lines) if "went down here" in line)
    assert "from 0.850 to 0.700 on 400 shared cases (p < 0.001)" in lines[at]
    assert "20261105-120000-0005" in lines[at + 1]
    [data] = command("runs", "trend", "--json").printed
    assert [change["run_id"] for change in data["changes"]] == ["20261105-120000-0005"]
    assert (len(data["runs"]), data["shared_cases"]) == (8, 400)


def test_flat_series_show_no_change_in_the_json_of_the_command(project, command):
    draw = random.Random(1)
    for series in range(12):
        for day in range(1, 7):
            keep(day, dataset=f"flat-{series}", passed=[draw.random() < 0.8 for _ in range(30)])
        shutil.move(KEPT, f"series-{series}")
    found = [command("runs", "trend", "--in", f"series-{series}", "--json").printed for series in range(12)]
    assert sum(bool(data["changes"]) for [data] in found) <= 2


def test_a_trend_is_in_the_order_of_time_across_time_zones(project, command):
    first = keep(1, started_at="2026-11-01T10:00:00+05:00")
    second = keep(2, started_at="2026-11-01T06:00:00Z")
    [data] = command("runs", "trend", "--json").printed
    assert [run["run_id"] for run in data["runs"]] == [first, second]


def test_a_noisy_trend_shows_no_change(project, command):
    for day in range(1, 5):
        keep(day, passed=[(case + day) % 5 > 0 for case in range(100)])
    last = command("runs", "trend").stdout.splitlines()[-1]
    assert last == "  no change shown in 4 runs; the last one shares 100 cases with earlier ones"


def test_runs_whose_results_cannot_be_read_are_named(project, command):
    first, second = keep(1, passed=[True]), keep(2)
    (KEPT / second / "results.jsonl").write_text("{not json}\n")
    assert command("runs", "trend").stdout.splitlines()[-1].endswith(f"cannot be read: {second}")
    [data] = command("runs", "trend", "--json").printed
    assert (data["unread"], data["shared_cases"], [run["run_id"] for run in data["runs"]]) == (
        [second],
        0,
        [first, second],
    )


def test_each_dataset_and_target_has_its_own_series(project, command):
    keep(1), keep(2, dataset="other"), keep(3, name="claude"), keep(4)
    found = {
        (*data["datasets"], data["target"]): len(data["runs"]) for data in command("runs", "trend", "--json").printed
    }
    assert found == {("support", "gpt"): 2, ("other", "gpt"): 1, ("support", "claude"): 1}


def test_filters_can_precede_the_subcommand(project, command):
    keep(1), keep(2, dataset="other")
    [data] = command("runs", "--dataset", "other", "trend", "--json").printed
    assert data["datasets"] == ["other"]


def test_prune_keeps_the_newest(project, command):
    for day in range(1, 6):
        keep(day)
    ended = command("runs", "prune", "--keep", "2", "--yes")
    assert (ended.code, ended.stderr) == (0, "Removed 3 runs, kept 2\n")
    assert ids(command) == ["20261105-120000-0005", "20261104-120000-0004"]


def test_prune_by_age_and_count_removes_runs_that_match_both(project, command):
    keep(1)
    manifest = json.loads((KEPT / keep(2) / "run.json").read_text())
    manifest["started_at"] = "2020-01-01T00:00:00Z"
    project.write(f"{KEPT}/20261102-120000-0002/run.json", manifest)
    assert command("runs", "prune", "--older-than", "104w", "--yes").stderr == "Removed 1 run, kept 1\n"
    assert ids(command) == ["20261101-120000-0001"]


def test_prune_without_a_terminal_needs_yes(project, command, monkeypatch):
    keep(1)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    ended = command("runs", "prune", "--keep", "0")
    assert ended.code == 2
    assert "--yes" in ended.stderr and len(ids(command)) == 1


def test_prune_fails_if_a_run_cannot_be_removed(project, command, monkeypatch):
    keep(1), keep(2)

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    # Root may remove anything, so that no file permission could refuse here.
    monkeypatch.setattr(shutil, "rmtree", refuse)
    ended = command("runs", "prune", "--keep", "1", "--yes")
    assert ended.code == 2
    assert "Cannot remove" in ended.stderr and "Removed 0 runs, kept 2" in ended.stderr


def test_a_dry_run_removes_nothing(project, command):
    keep(1), keep(2)
    ended = command("runs", "prune", "--keep", "1", "--dry-run")
    assert "20261101-120000-0001" in ended.stdout and "Would remove 1 run" in ended.stderr
    assert len(ids(command)) == 2


def test_a_run_in_progress_is_never_removed(project, command):
    busy = keep(1)
    keep(2)
    with RunFolder(KEPT / busy).lock():
        assert ids(command, "--state", "running") == [busy]
        command("runs", "prune", "--keep", "0", "--yes")
        assert ids(command) == [busy]


def test_a_run_that_resumes_during_prune_is_not_removed(project):
    from agentv import UsageError
    from agentv.runs.catalogue import find_runs, remove_run

    busy = keep(1)
    [entry] = find_runs(KEPT)
    with RunFolder(KEPT / busy).lock(), pytest.raises(UsageError, match="in use"):
        remove_run(entry)
    assert (KEPT / busy / "run.json").is_file()


def test_links_and_other_folders_are_not_removed(project, command):
    run_id = keep(1)
    shutil.move(KEPT / run_id, project.path / "elsewhere")
    (KEPT / run_id).symlink_to(project.path / "elsewhere", target_is_directory=True)
    project.write(".agentv/results/notes/readme.txt", "mine")
    row = {"timestamp": "2020-01-01T10:00:00Z", "eval_id": "a", "score": 1}
    project.write(".agentv/results/eval_2020.jsonl", [row])
    command("runs", "prune", "--keep", "0", "--yes")
    assert (project.path / "elsewhere/run.json").is_file() and (KEPT / "notes/readme.txt").is_file()
    assert (KEPT / "eval_2020.jsonl").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prune",), "prune needs to know which runs are old"),
        (("prune", "--older-than", "soon"), "--older-than takes hours, days or weeks"),
        (("--since", "yesterday"), "--since takes a date"),
        (("--in", "nowhere"), "No such folder: nowhere"),
    ],
)
def test_usage_errors_exit_with_2(project, command, arguments, message):
    ended = command("runs", *arguments)
    assert ended.code == 2
    assert message in ended.stderr
