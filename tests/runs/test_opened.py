"""Figures of a run for reports: the same as its summary, also after an early stop."""

import pytest

import agentv
from agentv.runs.folder import RunFolder
from agentv.runs.store import RunStore

CASES = [
    {
        "id": str(number),
        "input": "yes" if number % 4 else "no",
        "expected_output": "yes",
        "conversation_id": str(number // 3),
    }
    for number in range(60)
]


def run_of(folder, **options):
    return agentv.evaluate(CASES, str.lower, evaluators=[{"type": "equals"}], out="run", **options)


@pytest.mark.parametrize("trials", [1, 2])
def test_figures_match_the_summary(folder, trials):
    kept = run_of(folder, trials=trials).summary.targets["lower"]
    found = RunStore.open("run").figures()
    [target] = found.summary.targets.values()
    assert (target.cases, target.scored, target.errors) == (kept.cases, kept.scored, kept.errors)
    assert target.mean == pytest.approx(kept.mean) and target.ci95 == pytest.approx(kept.ci95)
    assert found.done == found.jobs == 60 * trials and not found.unfinished


@pytest.mark.parametrize("trials", [1, 2])
def test_an_early_stop_keeps_its_intervals(folder, trials):
    kept = run_of(folder, stop_when="0.2", trials=trials, workers=2).summary.targets["lower"]
    assert kept.early_stop is not None and kept.skipped
    found = RunStore.open("run").figures()
    target = found.summary.targets["lower"]
    assert (target.ci95, target.early_stop, target.evaluators) == (kept.ci95, kept.early_stop, kept.evaluators)
    assert target == kept
    assert found.jobs_saved == kept.early_stop.not_needed and not found.unfinished


@pytest.mark.filterwarnings("ignore::agentv.errors.RunWarning")
def test_a_killed_run_is_unfinished(folder):
    run_of(folder)
    path = RunFolder("run").results_path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:10]) + lines[10][:20])
    RunFolder("run").summary_path.unlink()
    found = RunStore.open("run").figures()
    assert (found.done, found.jobs, found.unfinished) == (10, 60, True)
    assert found.summary.targets["lower"].skipped == 50


@pytest.mark.filterwarnings("ignore::agentv.errors.RunWarning")
def test_records_that_are_missing_from_a_finished_run_are_counted(folder):
    run_of(folder)
    path = RunFolder("run").results_path
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:58]))
    found = RunStore.open("run").figures()
    assert found.missing_note == "58 of 60 jobs are done; 2 records are missing from its file"


def test_case_lines_are_the_lines_in_the_dataset(folder):
    folder.write(
        "a.jsonl",
        [{"id": "one", "input": "x", "expected_outcome": "y"}, {"id": "two", "input": "x", "expected_outcome": "y"}],
    )
    agentv.evaluate("a.jsonl", str.lower, evaluators=[{"type": "contains", "value": "x"}], out="run")
    assert RunStore.open("run").case_lines() == {("a.jsonl", "one"): 1, ("a.jsonl", "two"): 2}
