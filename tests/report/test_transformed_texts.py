"""Where a transform changed an answer, every report shows the scored text next to the raw one."""

import csv
import io
import json

import pytest

from agentv.report.formats import report_format, write_report
from agentv.runs.store import RunStore


@pytest.fixture
def run(folder, record):
    """Records of answers that were transformed by the target, by an evaluator, by both, in vain, and not at all."""

    def judged(name="e", **more):
        return {"name": name, "type": "equals", "score": 0.0, "weight": 1.0, "verdict": "fail", **more}

    failure = {"class": "invalid_response", "message": "Cannot transform the answer: no", "stage": "evaluator"}
    failed = {"status": "error", "score": None, "verdict": None, "error": failure}
    both = [judged("a|b", candidate_answer="by e3"), judged("other")]
    rows = [
        record("target", candidate_answer="by t1", raw_answer="raw t1", evaluator_results=[judged()]),
        record("own", candidate_answer="raw e2", evaluator_results=[judged("strict", candidate_answer="")]),
        record("both", candidate_answer="by t3", raw_answer="raw t3", evaluator_results=both),
        record("vain", raw_answer="raw t4", **failed),
        record("plain", candidate_answer="as it is", evaluator_results=[judged()]),
    ]
    folder.write("results.jsonl", rows)
    return "results.jsonl"


def test_the_terminal_shows_both_texts_under_a_worst_case_and_an_error(run, command):
    lines = [line.strip() for line in command("report", run).stdout.splitlines()]
    shown = [line for line in lines if ": raw" in line or ": by" in line or "(empty)" in line or "scored text" in line]
    assert shown == [
        "raw answer: raw t4",
        "scored text: by t1",
        "raw answer: raw t1",
        "text scored by strict: (empty)",
        "raw answer: raw e2",
        "text scored by a|b: by e3",
        "raw answer: raw t3",
    ]
    place = lines.index("scored text: by t1")
    assert lines[place - 1].startswith("0.000  target")


def test_json_has_both_texts(run, command):
    (details,) = json.loads(command("report", run, "--json").stdout)["details"].values()
    keys = ("raw_answer", "scored_answer", "scored_by")
    assert [tuple(note.get(key) for key in keys) for note in details["worst"]] == [
        ("raw t1", "by t1", None),
        ("raw e2", "", "strict"),
        ("raw t3", "by e3", "a|b"),
        (None, None, None),
    ]
    assert details["errors"]["invalid_response"]["raw_answer"] == "raw t4"


def test_markdown_csv_and_junit_have_both_texts(run):
    def written(name):
        stream, store = io.BytesIO(), RunStore.open(run)
        report_format(name).write(store, store.figures(), stream)
        return stream.getvalue().decode()

    rows = {line.split("|")[1].strip(" `"): line for line in written("markdown").splitlines() if line.startswith("| `")}
    assert "<br>scored text: `by t1`<br>raw answer: `raw t1` |" in rows["target"]
    assert "<br>text scored by a&#124;b: `by e3`<br>raw answer: `raw t3` |" in rows["both"]
    assert rows["vain"].endswith("<br>raw answer: `raw t4` |") and "<br>" not in rows["plain"]
    table = list(csv.DictReader(io.StringIO(written("csv"))))
    assert [row["raw_answer"] for row in table] == ["raw t1", "", "raw t3", "raw t4", ""]
    assert "answer:\nby t3\n\ntext scored by a|b:\nby e3\n\nraw answer:\nraw t3" in written("junit")


def test_the_page_shows_the_raw_answer_beside_the_scored_text(run, chromium, tmp_path):
    store = RunStore.open(run)
    write_report("html", store, store.figures(), "report.html")
    with chromium(tmp_path / "report.html", "#open=0", width=1280, height=720) as page:
        section = page.locator(".detail .transformed")
        section.wait_for()
        assert section.locator("h4").all_inner_texts() == ["Raw answer", "Scored text"]
        assert [section.locator(each).all_inner_texts() for each in ("del", "ins")] == [["raw"], ["by"]]
        left, right = (side.bounding_box() for side in section.locator(".side-by-side > div").all())
        assert left["y"] == right["y"] and left["x"] < right["x"]
        page.evaluate("location.hash = 'open=1'")
        section.get_by_text("Text scored by strict").wait_for()
        assert "The scored text is empty." in section.inner_text()
        page.evaluate("location.hash = 'open=2'")
        section.get_by_text("Text scored by a|b").wait_for()
        assert section.locator("h4").all_inner_texts()[1::2] == ["Scored text", "Text scored by a|b"]
        page.evaluate("location.hash = 'open=4'")
        section.wait_for(state="detached")
