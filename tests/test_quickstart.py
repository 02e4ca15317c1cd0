"""The quickstart of the README: a pass, a fail and an error, without a key or a network."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture
def ended(tmp_path):
    """The command in a copy, in a process of its own, and the records that it leaves."""
    (tmp_path / ".git").mkdir()
    shutil.copytree(REPOSITORY / "examples" / "quickstart", tmp_path / "examples" / "quickstart")
    command = [sys.executable, "-m", "agentv", "eval", "examples/quickstart/evals"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=False)
    [run] = (tmp_path / ".agentv" / "results").iterdir()
    lines = (run / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return done, run, {record["eval_id"]: record for record in map(json.loads, lines)}


def test_the_quickstart_prints_the_summary_and_stores_a_run(ended):
    done, run, _ = ended
    assert done.returncode == 0
    assert "default  0.833  0.359 to 0.996  6 of 7  83.3 % (5 of 6)  1" in done.stdout
    assert f"Results: .agentv/results/{run.name}" in done.stdout
    assert {path.name for path in run.iterdir()} == {"run.json", "cases.jsonl", "results.jsonl", "summary.json"}


def test_the_quickstart_has_a_pass_a_fail_and_an_error(ended):
    _, _, records = ended
    assert len(records) == 7
    assert (records["basket"]["verdict"], records["basket"]["score"]) == ("pass", 1.0)
    assert (records["discount"]["verdict"], records["discount"]["misses"]) == ("fail", ["does not contain '4.50'"])
    broken = records["divide-by-zero"]
    assert (broken["status"], broken["score"], broken["error"]["class"]) == ("error", None, "process")
    assert "ZeroDivisionError: division by zero (agent.py, line 49)" in broken["error"]["message"]


def test_the_quickstart_checks_tool_calls(ended):
    _, _, records = ended
    assert records["basket"]["trace_summary"]["tool_calls_by_name"] == {"calculate": 1, "find_price": 2}
    checked = {each["type"]: each["score"] for each in records["one-melon"]["evaluator_results"]}
    assert checked == {"contains": 1.0, "tool_trajectory": 1.0}
