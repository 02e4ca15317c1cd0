"""Report formats: valid JUnit, CSV without formulas, Markdown without markup from texts."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from agentv import AgentvError
from agentv.report.formats import report_format, write_report
from agentv.report.markdown import append_step_summary, notes_of
from agentv.runs.store import RunStore

ACTING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def written(name, path):
    run = RunStore.open(path)
    stream = io.BytesIO()
    report_format(name).write(run, run.figures(), stream)
    return stream.getvalue()


def junit(path):
    return JUnitXml.fromstring(written("junit", path))


def cases_of(path):
    return {case.name: case for suite in junit(path) for case in suite}


def test_junit_has_a_case_for_each_job_with_its_target_time_and_reason(shop):
    cases = cases_of("run")
    assert set(cases) == {"passes", "nearly", "fails", "breaks", "unscored"}
    assert {case.classname for case in cases.values()} == {"shop.shop"}
    assert cases["passes"].time >= 0
    assert cases["passes"].is_passed and cases["nearly"].is_passed
    [failure] = cases["fails"].result
    assert isinstance(failure, Failure) and failure.message.startswith("score 0.200")
    [error] = cases["breaks"].result
    assert isinstance(error, Error) and error.type == "process" and "KeyError" in error.message
    [skipped] = cases["unscored"].result
    assert isinstance(skipped, Skipped)


def test_junit_counts_match_its_test_cases(shop):
    found = junit("run")
    assert (found.tests, found.failures, found.errors, found.skipped) == (5, 1, 1, 1)
    root = ElementTree.fromstring(written("junit", "run"))
    for suite in root:
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
        assert int(suite.get("errors")) == len(suite.findall("testcase/error"))


def test_junit_names_the_line_of_the_dataset(shop):
    root = ElementTree.fromstring(written("junit", "run"))
    case = root.find(".//testcase[@name='fails']")
    assert (case.get("file"), case.get("line")) == ("evals/shop.jsonl", "3")
    values = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert values["target"] == "shop" and values["verdict"] == "fail" and values["score"] == "0.2"


def test_trials_and_prompts_are_separate_test_cases(folder, record):
    rows = [record("a", trial=1), record("a", trial=2, prompt="short")]
    folder.write("results.jsonl", rows)
    assert list(cases_of("results.jsonl")) == ["a", "a (short, trial 2)"]


def test_junit_lists_each_miss_once(folder):
    said = {"name": "e", "type": "contains", "score": 0, "misses": ["says no name"]}
    folder.write("rows.jsonl", [{"test_id": "a", "score": 0, "misses": ["says no name", "too long"], "scores": [said]}])
    [case] = next(iter(junit("rows.jsonl")))
    assert case.result[0].text.splitlines()[2:] == ["e: 0.000", "  missed: says no name", "missed: too long"]


def test_junit_accepts_any_text(hostile):
    found = junit(hostile)
    assert found.tests == found.failures + found.errors > 0
    for suite in found:
        for case in suite:
            for result in case.result:
                assert not ACTING.search(case.name + result.message + (result.text or ""))


def rows_of(path):
    csv.field_size_limit(10_000_000)
    text = written("csv", path).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_has_a_row_for_each_job_and_a_column_for_each_evaluator(shop):
    rows = {row["eval_id"]: row for row in rows_of("run")}
    scores = {"passes": "1.0", "nearly": "0.7", "fails": "0.2", "breaks": "", "unscored": ""}
    assert {name: row["score"] for name, row in rows.items()} == scores
    assert {name: row["score.python"] for name, row in rows.items()} == scores
    assert rows["breaks"]["error_class"] == "process"
    assert rows["passes"]["tags"] == "first" and rows["fails"]["line"] == "3"


@pytest.mark.parametrize(
    "start", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", " =1", "\uff1d1", "|calc", "%0A=1"]
)
def test_no_cell_is_a_formula(folder, record, start):
    folder.write("results.jsonl", [record(start, candidate_answer=start, tags=[start])])
    [row] = rows_of("results.jsonl")
    for cell in (row["eval_id"], row["candidate_answer"], row["tags"]):
        assert cell.startswith(("'", "\\x0d"))  # a return is written out, and starts nothing
    assert row["score"] == "0.0"


def test_csv_keeps_text_and_escapes_control_characters(hostile):
    rows = rows_of(hostile)
    assert not any(ACTING.search(cell) for row in rows for cell in row.values() if cell)
    assert max(len(row["candidate_answer"]) for row in rows) == 1_000_000


def test_parquet_has_typed_columns(shop):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_report("parquet", RunStore.open("run"), RunStore.open("run").figures(), "results.parquet")
    rows = {row["eval_id"]: row for row in parquet.read_table("results.parquet").to_pylist()}
    assert [rows[name]["score"] for name in ("passes", "nearly", "fails", "breaks")] == [1.0, 0.7, 0.2, None]
    assert rows["passes"]["tags"] == ["first"] and rows["fails"]["line"] == 3


def test_parquet_accepts_any_text(hostile):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(written("parquet", hostile)))
    assert table.num_rows == len(list(RunStore.open(hostile).records()))


def test_markdown_has_figures_intervals_and_failed_results(shop):
    text = written("markdown", "run").decode()
    assert "| `shop` | **0.633** |" in text
    assert "3 of 5 (1 unscored)" in text and "1 (process 1)" in text
    assert "### Failed: 1" in text and "| `fails` | `shop` | 0.200 |" in text
    assert "### Borderline: 1" in text and "### Errors (not scored): 1" in text


def test_markdown_escapes_text(hostile):
    text = written("markdown", hostile).decode()
    assert not ACTING.search(text)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert not re.search(r"<script|<img|javascript:|@someone|https?://", outside)
    assert max(map(len, text.splitlines())) < 1000
    for line in text.splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line)) in (5, 6, 7, 10)


@pytest.mark.filterwarnings("ignore::agentv.errors.RunWarning")  # its manifest is changed by hand
def test_markdown_of_an_unfinished_run_says_so(shop):
    manifest = json.loads(Path("run/run.json").read_text())
    manifest["counts"]["jobs"] = 9
    shop.write("run/run.json", manifest)
    assert "**Unfinished**: 5 of 9 jobs" in written("markdown", "run").decode()


def test_github_annotations_are_at_the_line_of_the_case(shop, monkeypatch):
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    notes = list(notes_of(RunStore.open("run")))
    assert notes[0].startswith("::error file=evals/shop.jsonl,line=4,title=breaks (shop)::process error: KeyError")
    assert notes[1].startswith("::error file=evals/shop.jsonl,line=3,title=fails (shop)::score 0.200")
    assert notes[2].startswith("::warning file=evals/shop.jsonl,line=2,title=nearly (shop)::score 0.700")
    assert len(notes) == 3


def test_github_paths_are_relative_to_the_checkout(shop, monkeypatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(shop.path.parent))
    assert f"file={shop.path.name}/evals/shop.jsonl," in next(notes_of(RunStore.open("run")))


def test_github_paths_are_found_from_another_folder(shop, monkeypatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(shop.path.parent))
    monkeypatch.chdir(shop.path.parent)
    assert f"file={shop.path.name}/evals/shop.jsonl," in next(notes_of(RunStore.open(f"{shop.path.name}/run")))


def test_github_annotations_are_single_lines_with_a_total(hostile):
    notes = list(notes_of(RunStore.open(hostile)))
    assert len(notes) == 11
    assert notes[-1].endswith("10 of 20 are annotated")
    assert not any("\n" in note or ACTING.search(note) or len(note) > 1500 for note in notes)


def test_the_step_summary_is_appended(shop):
    shop.write("summary.md", "before\n")
    append_step_summary(RunStore.open("run"), RunStore.open("run").figures(), "summary.md")
    text = Path("summary.md").read_text()
    assert text.startswith("before\n## Run ") and "### Failed: 1" in text


def test_a_failed_report_keeps_the_previous_file(shop, monkeypatch):
    shop.write("report.md", "old")
    run = RunStore.open("run")
    figures = run.figures()
    shop.write("run/results.jsonl", b"{}\n")
    with pytest.raises(AgentvError):
        write_report("markdown", run, figures, "report.md")
    assert Path("report.md").read_text() == "old"
    assert [path.name for path in shop.path.iterdir() if path.name.endswith(".tmp")] == []
