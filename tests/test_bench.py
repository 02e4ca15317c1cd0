"""The benchmarks run and print well-formed figures. No test asserts on speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.ci

BENCH = Path(__file__).resolve().parent.parent / "bench"
SCRIPTS = (
    "startup",
    "load_jsonl",
    "load_yaml",
    "calls",
    "apis",
    "run_cases",
    "judgements",
    "resume_scan",
    "compare",
    "report",
    "view",
    "executors",
)


def bench(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / script), *args]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    import harness

    return harness


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    import generate

    return generate


SLOW = dict.fromkeys(("apis", "view"), pytest.mark.slow)
"""They import the clients of all vendors, and start a browser."""


@pytest.mark.every(5)
@pytest.mark.parametrize("script", [pytest.param(name, marks=SLOW.get(name, ())) for name in SCRIPTS])
def test_every_line_has_a_name_of_its_own_our_figure_the_floor_and_the_ratio(script, request):
    if script == "view":
        request.getfixturevalue("browser_program")
    done = bench(f"{script}.py", "--cases", "20", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines
    assert len({line["name"] for line in lines}) == len(lines)
    for line in lines:
        assert line["bench"] == script
        assert line["ours"] > 0 and line["floor"] > 0
        assert line["ratio"] == pytest.approx(line["ours"] / line["floor"], abs=0.01, rel=0.01)
        assert line["floor_is"] and line["unit"] in ("ms", "MB", "cases/s")
        assert line.get("bytecode", "cached") == "cached"


def test_run_writes_one_table_to_stdout_and_to_a_file(tmp_path):
    out = tmp_path / "table.md"
    done = bench("run", "--quick", "--rounds", "1", "--only", "load_yaml", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert out.read_text(encoding="utf-8") == done.stdout
    rows = [line for line in done.stdout.splitlines() if line.startswith("| load_yaml | ")]
    assert len(rows) == len(done.stderr.splitlines())


def test_run_can_be_executed_and_knows_every_script():
    assert (BENCH / "run").stat().st_mode & 0o100
    done = bench("run", "--only", "nothing")
    assert done.returncode == 2
    scripts = {path.stem for path in BENCH.glob("*.py") if "harness.main(" in path.read_text(encoding="utf-8")}
    assert all(name in done.stderr for name in scripts)
    assert scripts == set(SCRIPTS)


def test_a_work_that_gives_too_few_cases_is_no_measurement(harness, generate, tmp_path):
    from loading import load_list

    path = generate.write_jsonl(tmp_path / "cases.jsonl", generate.text, 3)
    with pytest.raises(SystemExit, match="gave 3 cases instead of 4"):
        harness.interleaved({"ours": harness.Work(load_list, (str(path),))}, 1, 4)


@pytest.mark.parametrize(
    ("of", "sense", "reached"), [("ours", "≥", True), ("ours", "≤", False), ("ratio", "≥", False), ("ratio", "≤", True)]
)
def test_a_goal_bounds_our_figure_or_the_ratio_from_either_side(harness, of, sense, reached):
    assert harness.Goal(of, sense, 10).reached(ours=20, ratio=0.5) is reached


def test_generated_cases_are_the_same_every_time_and_about_325_bytes(generate, tmp_path):
    first = generate.write_jsonl(tmp_path / "first.jsonl", generate.text, 100).read_bytes()
    again = generate.write_jsonl(tmp_path / "again.jsonl", generate.text, 100).read_bytes()
    assert first == again
    assert len(first) / 100 == pytest.approx(325, abs=3)
    assert len(set(first.splitlines())) == 100


@pytest.mark.parametrize("shape", ["text", "messages"])
def test_generated_yaml_holds_the_same_rows_as_generated_jsonl(generate, tmp_path, shape):
    import yaml

    row = getattr(generate, shape)
    lines = generate.write_jsonl(tmp_path / "cases.jsonl", row, 20).read_text().splitlines()
    document = yaml.safe_load(generate.write_yaml(tmp_path / "cases.yml", row, 20).read_text())
    assert document["evalcases"] == [json.loads(line) for line in lines]


@pytest.mark.slow
def test_runs_that_are_killed_are_accounted_for_and_the_report_is_continued(tmp_path):
    report = tmp_path / "kills.jsonl"
    options = ("--shapes", "trials", "--executors", "local", "--report", str(report))
    found = []
    for _ in range(2):
        done = bench("siege/kills.py", "--kills", "1", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        found.append([json.loads(line) for line in report.read_text().splitlines()])
    assert found[0] == found[1] and sum(run["stops"] for run in found[0]) >= 1
    assert f"| all | all | {len(found[0])} | {84 * len(found[0])} |" in done.stdout


@pytest.mark.slow
def test_a_condition_of_the_siege_is_checked():
    done = bench("siege/conditions.py", "--only", "clock_jumps")
    assert done.returncode == 0 and "| 80 records | as it must be |" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_faults_are_a_table_of_error_classes():
    done = bench("siege/faults.py", "--only", "503,a list")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| 503 | server | server | server | server |" in done.stdout
    assert done.stdout.endswith("faults: 6 behaviours of APIs, 0 wrong\n")


def test_a_stream_of_cases_is_counted():
    done = bench("siege/stream.py", "--cases", "2000")
    assert done.returncode == 0 and "stream: 2,000 of 2,000 cases" in done.stdout, done.stdout + done.stderr


def test_every_reader_accepts_or_refuses_the_corpus():
    done = bench("siege/fuzz.py", "--corpus-only")
    assert done.returncode == 0 and "results_yaml: dash" in done.stdout, done.stderr


def test_fuzzing_counts_the_lines_of_a_reader():
    done = bench("siege/fuzz.py", "--reader", "labels", "--minutes", "0.02")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| labels | " in done.stdout and "0 findings, 0 processes left" in done.stdout


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_changed_inputs_of_the_fuzzer_are_valid(monkeypatch, name):
    monkeypatch.syspath_prepend(str(Path(BENCH) / "siege"))
    from mutations import Mutator

    mutator, seed = Mutator(1), b'{"id": "a", "input": [{"role": "user", "content": "hi"}], "n": 1}'
    changed = [mutator.changed(seed, name) for _ in range(200)]
    assert [json.loads(line) for data in changed for line in data.splitlines() if line]
    assert len(set(changed)) > 100


def test_the_outages_are_a_table_of_scenarios():
    ended = bench("siege/outages.py", "--only", "no such scenario")
    assert ended.returncode == 0
    assert ended.stdout.startswith("| scenario | jobs | undisturbed | took | errors | required | held |")


@pytest.mark.slow
def test_the_growth_of_commands_is_a_table():
    done = bench("growth.py", "--only", "tags", "--sizes", "10", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    head, line, *rows = done.stdout.splitlines()
    assert head.startswith("| input | command | size |") and set(line) <= set("|-:")
    assert [row.split(" | ")[:3] for row in rows] == [["| tags", "`eval`", "10"], ["| tags", "`report`", "10"]]


def test_growth_above_linear_is_reported(monkeypatch, capsys):
    monkeypatch.syspath_prepend(BENCH)
    from growth import Figure, printed

    def figures(*seconds):
        return [Figure("tags", "eval", 10**size, each, 30.0) for size, each in enumerate(seconds)]

    assert list(printed(figures(0.2, 1.2, 10.2))) == []
    assert list(printed(figures(0.2, 0.21, 0.4))) == []
    assert list(printed(figures(0.2, 1.2, 100.2))) == ["time of `eval` with 100 tags: x 100.0"]
    assert "| tags | `eval` | 100 | 100.2 | 30 | 100.0 | - |" in capsys.readouterr().out
