"""Names of runs: `latest`, `latest~N`, `@tag`, experiments and unique prefixes; runs made with `--out` are listed."""

import json
import shutil
from pathlib import Path

import pytest

from agentv.errors import UsageError
from agentv.model.manifest import RunManifest
from agentv.runs.folder import RunFolder

KEPT = Path(".agentv/results")


def keep(day, folder=KEPT, experiment=None, run_id=None):
    """Write an empty run of that day of November and return its id."""
    run_id = run_id or f"202611{day:02d}-120000-000{day % 10}"
    created = RunFolder.create(folder / run_id)
    options = {} if experiment is None else {"experiment": experiment}
    moment = f"2026-11-{day:02d}T12:00:00.000Z"
    created.write_manifest(RunManifest(run_id=run_id, started_at=moment, finished_at=moment, options=options))
    created.results_path.write_bytes(b"")
    return run_id


@pytest.fixture
def project(folder):
    """A project with a mock target and one case."""
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    case = {"id": "c0", "input": "yes", "expected_outcome": "x", "tags": ["fast"]}
    folder.write("d.yaml", {"evaluators": [{"type": "contains", "value": "yes"}], "evalcases": [case]})
    return folder


def named(given):
    from agentv.engine.named_runs import existing_run

    return Path(existing_run(given)).name


@pytest.mark.parametrize(
    ("given", "day"),
    [("latest", 3), ("latest~0", 3), ("latest~1", 2), ("latest~2", 1), ("20261102", 2), ("20261101-1", 1)],
)
def test_a_run_is_found_by_age_or_unique_prefix(project, given, day):
    ids = {day: keep(day) for day in (2, 3, 1)}
    assert named(given) == ids[day]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("202611", "3 runs"),
        ("latest~3", "The project has 3 runs"),
        ("20261109", "The project has 3 runs: 20261103"),
        ("@nothing", "No run has the tag, experiment, branch or commit 'nothing'"),
        ("latest~x", "No such run: latest~x"),
    ],
)
def test_a_name_without_exactly_one_run_is_an_error(project, given, expected):
    keep(1), keep(2), keep(3)
    with pytest.raises(UsageError) as raised:
        named(given)
    assert expected in str(raised.value)


def test_latest_in_a_project_without_runs_is_an_error(project, command):
    failed = command("report", "latest")
    assert failed.code == 2 and "No such run: latest" in failed.stderr and "has no runs yet" in failed.stderr


@pytest.mark.parametrize("arguments", [("compare", "nope", "latest"), ("report", "nope"), ("rescore", "nope")])
def test_a_run_that_does_not_exist_is_an_error_that_names_those_that_do(project, command, arguments):
    keep(1)
    assert "No such run: nope\n  The project has 1 run: 20261101" in command(*arguments).stderr


def test_a_folder_named_latest_is_that_folder(project):
    keep(1), keep(2, Path("."), run_id="latest")
    assert named("latest") == "latest"


def test_a_tag_names_one_run_and_moves(project, command):
    first, second = keep(1), keep(2)
    assert "Tagged" in command("runs", "tag", "latest~1", "baseline").stdout
    assert named("@baseline") == first
    moved = command("runs", "tag", second, "baseline")
    assert first in moved.stdout and named("@baseline") == second
    assert [entry["tags"] for entry in command("runs", "--json").printed if "tags" in entry] == [["baseline"]]
    command("runs", "tag", "--remove", "baseline")
    assert command("report", "@baseline").code == 2


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "~1", "@x", "-x"])
def test_an_invalid_tag_is_refused(project, command, name):
    keep(1)
    assert command("runs", "tag", "latest", "--", name).code == 2


def test_a_tag_of_a_removed_run_says_so(project, command):
    command("runs", "tag", keep(1), "old")
    shutil.rmtree(KEPT / "20261101-120000-0001")
    failed = command("report", "@old")
    assert failed.code == 2 and "no longer exists" in failed.stderr


def test_prune_keeps_tagged_runs(project, command):
    command("runs", "tag", keep(1), "baseline"), keep(2)
    command("runs", "prune", "--keep", "0", "--yes")
    assert [entry["run_id"] for entry in command("runs", "--json").printed] == ["20261101-120000-0001"]


def test_an_experiment_groups_runs(project, command):
    keep(1, experiment="prompt-2"), keep(2, experiment="prompt-2"), keep(3, experiment="other")
    assert named("@prompt-2") == "20261102-120000-0002" and named("@prompt-2~1") == "20261101-120000-0001"
    found = command("runs", "--experiment", "prompt*", "--json").printed
    assert [entry["experiment"] for entry in found] == ["prompt-2", "prompt-2"]
    assert "prompt-2" in command("runs").stdout


def test_eval_stores_the_experiment(project, command):
    assert command("eval", "d.yaml", "--experiment", "short-prompt", "--quiet").code == 0
    (entry,) = command("runs", "--json").printed
    assert entry["experiment"] == "short-prompt"
    assert command("report", "@short-prompt").code == 0
    assert command("eval", "d.yaml", "--experiment", "not valid").code == 2


def test_runs_made_with_out_are_listed_and_found(project, command):
    command("eval", "d.yaml", "--out", "kept/monday", "--quiet")
    command("eval", "d.yaml", "--quiet")
    names = [entry["name"] for entry in command("runs", "--json").printed]
    assert names[1] == "kept/monday" and len(names) == 2
    assert Path(named("latest~1")).name == "monday"
    run_id = json.loads(Path("kept/monday/run.json").read_bytes())["run_id"]
    assert named(run_id) == "monday"
    assert command("report", run_id).code == 0


def test_runs_of_python_and_rescores_with_out_are_listed(project, command):
    import agentv

    agentv.evaluate("d.yaml", lambda prompt: "yes", out="from-python")
    assert command("rescore", "latest", "d.yaml", "--out", "scored-again").code == 0
    assert [entry["name"] for entry in command("runs", "--json").printed] == ["scored-again", "from-python"]


def test_a_run_in_the_temporary_folder_is_not_listed(project, command, tmp_path_factory):
    command("eval", "d.yaml", "--out", str(tmp_path_factory.mktemp("elsewhere") / "run"), "--quiet")
    assert command("runs", "--json").printed == [] and not Path(".agentv/runs.jsonl").exists()


def test_a_moved_project_still_lists_its_runs(project, command, monkeypatch, tmp_path_factory):
    command("eval", "d.yaml", "--out", "kept/monday", "--quiet")
    moved = tmp_path_factory.mktemp("elsewhere") / "project"
    Path.cwd().rename(moved)
    monkeypatch.chdir(moved)
    assert [entry["name"] for entry in command("runs", "--json").printed] == ["kept/monday"]


def test_a_removed_run_is_no_longer_listed(project, command):
    command("eval", "d.yaml", "--out", "kept/monday", "--quiet")
    Path("kept").rename("other")
    assert command("runs", "--json").printed == []
    assert command("report", "latest").code == 2


def test_prune_leaves_runs_made_with_out(project, command):
    command("eval", "d.yaml", "--out", "kept/monday", "--quiet")
    command("runs", "prune", "--keep", "0", "--yes")
    assert Path("kept/monday/run.json").is_file()


def test_a_line_that_is_not_json_in_the_list_of_runs_is_ignored(project, command):
    command("eval", "d.yaml", "--out", "kept/monday", "--quiet")
    with Path(".agentv/runs.jsonl").open("a") as file:
        file.write('{"path": "kept\n[]\n')
    command("eval", "d.yaml", "--out", "kept/tuesday", "--quiet")
    assert len(command("runs", "--json").printed) == 2


@pytest.mark.parametrize("option", ["--changed-since", "--retry-errors"])
def test_a_run_keeps_the_run_that_latest_meant(project, command, option):
    command("eval", "d.yaml", "--quiet")
    first = named("latest")
    assert command("eval", option, "latest", "--quiet").code == 0
    manifest = json.loads((KEPT / named("latest") / "run.json").read_bytes())
    assert manifest["options"][option[2:].replace("-", "_")] == first


def test_compare_names_the_runs_that_were_compared(project, command):
    command("eval", "d.yaml", "--out", "a", "--quiet"), command("eval", "d.yaml", "--out", "b", "--quiet")
    text = command("compare", "latest~1", "latest").stdout
    assert "latest" not in text


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (("--filter", "a*,c"), {"a1", "c"}),
        (("--filter", "tag=slow,fast"), {"a1", "b"}),
        (("--filter", "tag=slow,a1"), {"b"}),
        (("--filter", "c,tag=slow"), {"b", "c"}),
        (("--filter", "metadata.k=1,2"), {"a1", "b"}),
        (("--filter", "x,y"), {"x,y"}),
        (("--filter", "tag=fast,slow", "--filter", "b"), {"b"}),
        (("--tag", "fast,slow"), {"a1", "b"}),
        (("--exclude-tag", "slow"), {"a1", "c", "x,y"}),
        (("--exclude-tag", "slow,fast"), {"c", "x,y"}),
        (("--exclude-tag", "slow", "--exclude-tag", "fast"), {"c", "x,y"}),
        (("--filter", "tag!=sl*"), {"a1", "c", "x,y"}),
        (("--filter", "metadata.k!=1"), {"b", "c", "x,y"}),
        (("--exclude-tag", "slow", "--filter", "a1,b"), {"a1"}),
    ],
)
def test_filters_take_alternatives_and_exclusions(folder, command, arguments, ids):
    more = {"a1": {"tags": ["fast"], "metadata": {"k": 1}}, "b": {"tags": ["slow"], "metadata": {"k": 2}}}
    rows = [{"id": id, "input": "x", "expected_outcome": "y", **more.get(id, {})} for id in ("a1", "b", "c", "x,y")]
    folder.write("d.yaml", {"evalcases": rows})
    assert {case["id"] for case in command("cases", "d.yaml", *arguments, "--json").printed} == ids


def test_excluding_every_case_names_the_filter(folder, command):
    folder.write("d.yaml", {"evalcases": [{"id": "a", "input": "x", "expected_outcome": "y", "tags": ["slow"]}]})
    failed = command("cases", "d.yaml", "--exclude-tag", "slow")
    assert failed.code == 2 and "tag!=slow" in failed.stderr
