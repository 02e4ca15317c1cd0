"""A baseline of several runs: which runs are pooled, which are refused, and what the comparison shows."""

import random
import subprocess

import msgspec
import pytest

from agentv import compare
from agentv.engine.run_manifest import git_branch
from agentv.model.manifest import RunLink, TargetEntry
from agentv.runs.record import encode_record
from kept_runs import KEPT, keep
from made_results import made

CASES = 100


def luck(seed, share=0.7):
    """Scores of 0 and 1."""
    chance = random.Random(seed)
    return [chance.random() < share for _ in range(CASES)]


@pytest.fixture
def project(folder):
    """Three equal runs of an experiment, and a candidate that is better."""
    for day in (2, 3, 4):
        keep(day, passed=luck(day), options={"experiment": "nightly"}, git_branch="main")
    keep(9, name="new", passed=[True] * CASES)
    return folder


def name(day):
    return f"202611{day:02d}-120000-000{day}"


@pytest.fixture
def run(command):
    def compared(*arguments, code=0):
        ended = command("compare", *arguments, "--json")
        assert ended.code == code, ended.stderr
        return ended.printed[0] if code in (0, 1, 5) else ended.stderr

    return compared


@pytest.mark.parametrize(
    "baselines",
    [
        [name(2), name(3), name(4)],
        ["nightly"],
        ["@nightly"],
        ["@main"],
        [name(2), "nightly", name(2)],
        ["nightly:gpt"],
    ],
    ids=" ".join,
)
def test_equal_runs_are_one_baseline_with_several_trials(project, run, baselines):
    printed = run(name(9), *(word for each in baselines for word in ("--baseline", each)))
    first, second = printed["runs"]
    assert first["runs"] == [name(2), name(3), name(4)]
    assert (first["records"], first["mean"]["n"], second["records"]) == (300, 100, 100)
    expected = sum(map(sum, map(luck, (2, 3, 4)))) / 300
    assert printed["summary"]["mean_before"] == pytest.approx(expected)
    assert (printed["summary"]["answer"], printed["summary"]["test"]) == ("better", "sign flips")
    assert (
        f"The baseline is 3 runs of the same target, cases and measure: {', '.join(first['runs'])}" in printed["notes"]
    )


def test_a_tag_is_one_run_and_the_candidate_is_never_part_of_the_baseline(project, run, command):
    assert command("runs", "tag", name(3), "main").code == 0
    assert run(name(9), "--baseline", "@main")["runs"][0]["records"] == 100
    assert run(name(4), "--baseline", "nightly")["runs"][0]["runs"] == [name(2), name(3)]


GPT = TargetEntry(name="gpt", provider="python", fingerprint="0")


def changed(**fields):
    return (msgspec.structs.replace(GPT, **fields),)


@pytest.mark.parametrize(
    ("manifest", "passed", "reason"),
    [
        ({"targets": changed(fingerprint="1")}, luck(1), "its target 'gpt' has other settings"),
        ({"name": "claude"}, luck(1), "its target is claude, not gpt"),
        ({"targets": changed(fingerprint="")}, luck(1), "it stores no fingerprint of its target"),
        ({}, luck(1)[1:], "its cases are not those of"),
        ({"judges": changed(name="judge")}, luck(1), "its judge is judge, not none"),
        ({"fingerprints": {"contains": "1"}}, luck(1), "it was scored by other evaluators"),
        ({"defaults": {"verdicts": {"pass": 0.9}}}, luck(1), "it was scored by other evaluators"),
        ({"finished": False}, luck(1), "it is not finished"),
        ({"stopped_early": True}, luck(1), "it was stopped early"),
        ({"options": {"replay": "r.jsonl"}}, luck(1), "it repeats recorded answers"),
        ({"rescored_from": RunLink(run_id=name(2), path="", digest="")}, luck(2), "has the same answers"),
    ],
)
def test_a_run_that_differs_is_refused_with_the_reason(project, run, manifest, passed, reason):
    keep(1, passed=passed, **manifest)
    message = run(name(9), "--baseline", "nightly", "--baseline", name(1), code=2)
    assert f"Cannot pool {name(1)} into the baseline" in message
    assert reason in message


def test_answers_from_the_cache_or_of_another_run_are_not_counted_twice(project, run):
    for day, field in ((1, {"cached": True}), (5, {"carried_from": name(2)})):
        keep(day, passed=[])
        records = (made(eval_id=f"case-{n}", dataset="support", target="gpt", **field) for n in range(CASES))
        (KEPT / name(day) / "results.jsonl").write_bytes(b"".join(map(encode_record, records)))
    assert "came from the cache" in run(name(9), "--baseline", name(2), "--baseline", name(1), code=2)
    assert "would count twice" in run(name(9), "--baseline", name(2), "--baseline", name(5), code=2)


@pytest.mark.parametrize("key", ["conversation_id", "cluster"])
def test_one_cluster_that_changed_is_not_a_change_of_level(folder, run, key):
    """12 of 60 cases fall, but all of them are about one document."""
    for day, broken in ((2, -1), (3, 0)):
        records = [
            made(
                eval_id=f"case-{n}",
                dataset="support",
                target="gpt",
                score=float(n // 12 != broken),
                **{key: f"{n // 12}"},
            )
            for n in range(60)
        ]
        keep(day)
        (KEPT / name(day) / "results.jsonl").write_bytes(b"".join(map(encode_record, records)))
    keep(9, name="new", passed=[True] * 60)
    assert run(name(9), "--baseline", name(2), "--baseline", name(3))["runs"][0]["runs"] == [name(2), name(3)]


def test_a_change_of_level_inside_the_pool_names_the_run(project, run):
    keep(5, passed=luck(5, 0.2))
    keep(6, passed=luck(6, 0.2))
    message = run(name(9), *(word for day in range(2, 7) for word in ("--baseline", name(day))), code=2)
    assert f"The level of the baseline changed at {name(5)}" in message
    assert f"Pool only the runs before {name(5)}, or only those since" in message


def test_of_a_branch_the_newest_run_and_those_equal_to_it_count(project, run):
    keep(5, passed=luck(5), targets=changed(fingerprint="1"), git_branch="main")
    keep(6, passed=luck(6), targets=changed(fingerprint="1"), git_branch="main")
    keep(7, passed=luck(7), git_branch="main", dataset="another")
    printed = run(name(9), "--baseline", "@main")
    assert printed["runs"][0]["runs"] == [name(5), name(6)]
    left_out = f"Not part of the baseline: {name(4)}, {name(3)}, {name(2)}, because its target 'gpt' has other settings"
    assert left_out in printed["notes"]


def test_unfinished_runs_of_an_experiment_are_left_out_with_a_note(project, run):
    keep(5, passed=luck(5)[:9], finished=False, options={"experiment": "nightly"})
    printed = run(name(9), "--baseline", "nightly")
    assert len(printed["runs"][0]["runs"]) == 3
    assert f"Not part of the baseline: {name(5)}, because it is not finished" in printed["notes"]


@pytest.mark.parametrize("given", ["@nothing", "nothing", "@nothing:gpt"])
def test_an_unknown_baseline_is_an_error(project, run, given):
    assert "nothing" in run(name(9), "--baseline", given, code=2)


def test_the_python_api_pools_a_list_of_runs(project):
    found = compare([name(2), name(3), name(4)], name(9))
    assert (found.answer, found.sides[0].records) == ("better", 300)


@pytest.mark.parametrize(
    ("commands", "variables", "branch"),
    [
        ([], {}, None),
        ([["init", "-qb", "trunk"]], {}, "trunk"),
        ([["init", "-qb", "feature/x"]], {"GITHUB_REF_NAME": "merge"}, "feature/x"),
        (
            [["init", "-qb", "x"], ["commit", "-qm", "a", "--allow-empty"], ["checkout", "-q", "--detach"]],
            {"GITHUB_HEAD_REF": "fix"},
            "fix",
        ),
    ],
)
def test_a_run_records_the_git_branch(tmp_path, monkeypatch, commands, variables, branch):
    for name in ("GITHUB_HEAD_REF", "GITHUB_REF_NAME"):
        monkeypatch.delenv(name, raising=False)
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    for words in commands:
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)
    assert git_branch(str(tmp_path)) == branch
