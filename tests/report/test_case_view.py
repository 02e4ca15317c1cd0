"""The case view in a real Chromium: why a case failed, its conversation in time, diffs, settings and judge calls."""

import json
import subprocess
from pathlib import Path

import pytest

from agentv.report.formats import write_report
from agentv.runs.store import RunStore
from agentv_testing import Answer, FaultyServer

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
DIFF = """\
diff --git a/app.py b/app.py
--- a/app.py
+++ b/app.py
@@ -1,3 +1,3 @@
 import os
-print("old")
+print("<b>new</b>")

diff --git a/notes/plan.md b/notes/plan.md
new file mode 100644
--- /dev/null
+++ b/notes/plan.md
@@ -0,0 +1,2 @@
+--- a line that looks like a header
++++ another
diff --git a/logo.png b/logo.png
Binary files a/logo.png and b/logo.png differ
diff --git a/long.txt b/long.txt
--- a/long.txt
+++ b/long.txt
@@ -0,0 +1,3000 @@
LONG# 2 more changed, but their diffs are too long: a.bin, b.bin
""".replace("LONG", "".join(f"+line {number}\n" for number in range(3000)))
CALLS = [
    {"tool": "search", "input": {"q": "rome"}, "output": "3 trains", "timestamp": "2026-11-15T10:00:00.000Z"},
    {"tool": "book", "input": {"id": 42}, "output": {"ok": False}, "timestamp": "2026-11-15T10:00:00.300Z"},
]
ODD_ID = "it's \u202eodd\\ $(id)"
TRAIN = {"city": "Rome", "seats": 1, "class": "first", "direct": True, "price": 42.5, "day": "Monday"}


def page_of(path, file="report.html"):
    run = RunStore.open(path)
    write_report("html", run, run.figures(), file)
    return Path(file).resolve()


def found(name, score, **more):
    verdict = "pass" if score == 1 else "fail"
    return {"name": name, "type": "contains", "score": score, "weight": 1.0, "verdict": verdict, **more}


@pytest.fixture
def agent_run(folder, record):
    """A run folder of an agent: tool calls with times, changed files, images, and a long conversation."""
    calls = [CALLS[0] | {"duration_ms": 100.0}, CALLS[1] | {"duration_ms": 200.0}]
    image = [{"type": "image", "value": PIXEL}, {"type": "text", "value": "What is it?"}]
    records = [
        record(
            "booking",
            output_messages=[
                {"role": "assistant", "tool_calls": calls},
                {"role": "assistant", "content": [{"type": "image", "value": PIXEL}, "Booked a train to Paris."]},
            ],
            candidate_answer="Booked a train to Paris.",
            evaluator_results=[
                found("polite", 1.0, hits=["thanks"]),
                found("city", 0.0, misses=["does not contain 'Rome'", "b", "c", "d"]),
            ],
            file_changes=DIFF,
        ),
        record("long", output_messages=[{"role": "assistant", "content": f"message {n}"} for n in range(1000)]),
        record(
            "data",
            candidate_answer=json.dumps(TRAIN | {"seats": 2}),
        ),
        record(
            "broken",
            status="error",
            score=None,
            verdict=None,
            error={"class": "timeout", "message": "no answer in 5 s", "stage": "target"},
        ),
    ]
    place = {"dataset": "texts", "dataset_path": "evals/texts.jsonl"}
    cases = [
        {
            "id": "booking",
            "expected_outcome": "Books Rome",
            "input": [{"role": "user", "content": image}],
            "expected_output": [{"role": "assistant", "content": "Booked a train to Rome."}],
        },
        {
            "id": "data",
            "input": [{"role": "user", "content": "x"}],
            "expected_output": [{"role": "assistant", "content": TRAIN}],
        },
    ]
    folder.write("agent/results.jsonl", records)
    folder.write("agent/cases.jsonl", [{**case, **place} for case in cases])
    folder.write("agent/run.json", json.dumps({"schema_version": 1, "run_id": "agent", "started_at": "2026-11-15"}))
    return folder


def test_the_reasons_are_at_the_top_and_calls_are_on_a_time_line(agent_run, chromium):
    with chromium(page_of("agent"), "#open=0", width=1280, height=720) as page:
        reasons = page.locator(".detail .reasons")
        reasons.get_by_text("does not contain 'Rome'").wait_for()
        assert "Why it failed" in reasons.inner_text() and "and 1 more, listed below" in reasons.inner_text()
        assert "polite" not in reasons.inner_text()
        box = reasons.bounding_box()
        assert box["y"] + box["height"] < 720
        lines = page.locator(".timeline li")
        assert [line.split() for line in lines.all_inner_texts()] == [
            ["1", "search", "100", "ms"],
            ["2", "book", "200", "ms"],
        ]
        bars = lines.locator("i").evaluate_all("bars => bars.map(bar => [bar.style.left, bar.style.width])")
        assert bars == [["0%", "20%"], ["60%", "40%"]]
        assert '"ok":false' in page.locator(".tool-call").nth(1).text_content()
        lines.nth(1).locator("button").click()
        assert page.evaluate("document.activeElement.closest('.tool-call') !== null")


def test_images_of_the_dataset_are_shown_and_those_of_answers_are_text(agent_run, chromium):
    with chromium(page_of("agent"), "#open=0") as page:
        page.locator(".message.user img").wait_for()
        assert page.locator(".detail img").count() == 1
        assert "image data:image/png" in page.locator(".message.answer").last.text_content()


def test_expected_is_beside_actual_with_the_words_that_differ(agent_run, chromium):
    with chromium(page_of("agent"), "#open=0") as page:
        expected = page.locator(".detail .expected")
        titles = ["Expected outcome (criteria)", "Reference answer", "Answer"]
        assert expected.locator("h4").all_inner_texts() == titles
        assert [expected.locator(each).all_inner_texts() for each in ("del", "ins")] == [["Rome"], ["Paris"]]
        left, right = (side.bounding_box() for side in expected.locator(".side-by-side > div").all())
        assert left["y"] == right["y"] and left["x"] < right["x"]
        page.set_viewport_size({"width": 390, "height": 800})
        left, right = (side.bounding_box() for side in expected.locator(".side-by-side > div").all())
        assert left["x"] == right["x"] and left["y"] < right["y"]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.evaluate("location.hash = 'open=2'")
        expected.get_by_text("Monday").first.wait_for()
        assert [expected.locator(each).all_inner_texts() for each in ("del", "ins")] == [["1"], ["2"]]


def test_changed_files_are_a_coloured_diff(agent_run, chromium):
    with chromium(page_of("agent"), "#open=0") as page:
        files = page.locator(".file-diff")
        files.first.wait_for()
        heads = [text.split("\n") for text in files.locator("summary").all_inner_texts()]
        assert [" ".join(head).replace("▸", "").replace("▾", "").split() for head in heads] == [
            ["app.py", "+1", "−1"],
            ["notes/plan.md", "new", "+2", "−0"],
            ["logo.png", "+0", "−0"],
            ["long.txt", "+3,000", "−0"],
        ]
        assert files.first.locator("ins").inner_text().strip() == '+print("<b>new</b>")'
        assert files.first.locator("del").inner_text().strip() == '-print("old")'
        assert "2 more changed, but their diffs are too long" in page.locator(".files").inner_text()
        assert files.nth(3).locator(".line").count() == 0
        files.nth(3).locator("summary").click()
        rest = files.nth(3).get_by_role("button", name="Show all 3,001 lines")
        rest.click()
        rest.wait_for(state="detached")
        assert files.nth(3).locator(".line").count() == 3001


def test_errors_say_class_stage_and_message_and_long_conversations_are_shortened(agent_run, chromium):
    with chromium(page_of("agent"), "#open=3") as page:
        page.locator(".reasons").get_by_text("no answer in 5 s").wait_for()
        assert "timeout · target" in page.locator(".reasons").inner_text()
        assert "The settings of the target are not stored" in page.locator(".settings").inner_text()
        page.evaluate("location.hash = 'open=1'")
        page.locator(".reasons").get_by_text("The record has no reason.").wait_for()
        rest = page.get_by_role("button", name="Show the 920 messages between")
        rest.wait_for()
        assert page.locator(".message").count() == 80
        rest.click()
        rest.wait_for(state="detached")
        assert page.locator(".message").count() == 1000


LONG_LISTS = {
    "findings": ({"hits": ["met"] * 500}, ".findings li", "Show all 500 findings"),
    "evaluators": ({"evaluator_results": [found(f"e{n}", 1.0) for n in range(500)]}, ".evaluator", "500 evaluators"),
    "warnings": ({"warnings": ["odd"] * 500}, ".reasons .note", "Show all 500 warnings"),
    "calls": (
        {"output_messages": [{"role": "assistant", "tool_calls": [{"tool": "t", "input": {}}] * 500}]},
        ".tool-call",
        "Show all 500 tool calls",
    ),
    "parts": ({"output_messages": [{"content": ["x"] * 500}]}, ".message p.text", "Show all 500 parts"),
    "files": (
        {"file_changes": "".join(f"diff --git a/f{n} b/f{n}\n" for n in range(500))},
        ".file-diff",
        "Show all 500 files",
    ),
}


def test_long_lists_of_a_case_show_their_start_and_the_rest_on_request(folder, record, chromium):
    folder.write("long.jsonl", [record(name, **values) for name, (values, *_) in LONG_LISTS.items()])
    with chromium(page_of("long.jsonl")) as page:
        for row, (_, entries, button) in enumerate(LONG_LISTS.values()):
            page.evaluate(f"location.hash = 'open={row}'")
            rest = page.locator(".detail").get_by_role("button", name=button)
            rest.wait_for()
            assert 0 < page.locator(f".detail {entries}").count() <= 200, entries
            rest.click()
            rest.wait_for(state="detached")
            assert page.locator(f".detail {entries}").count() == 500, entries


def test_an_answer_that_was_cut_off_says_at_which_limit(folder, record, chromium):
    reasons = {"stop": "", "length": "at the token limit", "max_turns": "at the turn limit"}
    records = [record(name, execution_metrics={"stop_reason": name}, score=1.0) for name in reasons]
    folder.write("cut.jsonl", records)
    with chromium(page_of("cut.jsonl")) as page:
        for row, (name, text) in enumerate(reasons.items()):
            page.evaluate(f"location.hash = 'open={row}'")
            page.locator(".detail").get_by_role("heading", name=name, exact=True).wait_for()
            figures = page.locator(".detail .figures").inner_text()
            assert text in figures and ("cut off" in figures) is bool(text)


def test_huge_diffs_and_ids_do_not_break_the_case(folder, record, chromium):
    start = "diff --git a/x b/x\n--- a/x\n+++ b/x\n"
    long_hunk = start + "@@ -1 +1,150000 @@\n" + "+y\n" * 150_000
    changes = [start + "@@ -1 +1 @@\n" + "-y\n+z\n" * 100_000, long_hunk]
    rows = [record(f"{n}{'i' * 200_000}", file_changes=text) for n, text in enumerate(changes)]
    folder.write("huge.jsonl", rows)
    with chromium(page_of("huge.jsonl"), "#open=0") as page:
        page.locator(".files").get_by_role("button", name="Show all 599,993 characters").wait_for()
        assert len(page.locator("#detail-title").inner_text()) == len(page.locator(".again code").inner_text()) == 1_000
        page.evaluate("location.hash = 'open=1'")
        page.locator("#detail-title").get_by_text("1iii").wait_for()
        page.locator(".file-diff summary").click()
        page.get_by_role("button", name="Show all 150,001 lines").click()
        page.locator(".file-diff .line").nth(2_500).wait_for(state="attached")  # the others follow in parts


@pytest.fixture
def talk(folder, command):
    """A real run of a conversation: a model with a system prompt and a key, checks of turns, and a judge; in `run`."""
    replies = {"Hi": "Where to?", "To Rome": "And when?", "Tomorrow": "Booked: train 41."}

    def answer(request):
        return Answer(replies.get(request.prompt, '{"score": 0.25, "hits": [], "misses": ["wrong train"]}'))

    turns = [
        {"input": "To Rome", "evaluators": [{"type": "contains", "value": "when"}]},
        {"input": "Tomorrow", "expected_output": "Booked: train 42.", "evaluators": [{"type": "equals"}]},
    ]
    case = {"id": ODD_ID, "expected_outcome": "Books a train", "input": "Hi", "turns": turns}
    with FaultyServer(answer) as server:
        model = {"provider": "openai", "model": "m", "base_url": server.url, "api_key": "sk-secret-0123456789"}
        seller = {"name": "default", "system_prompt": "You sell <b>trains</b>.", **model}
        folder.write("models/all.yaml", {"targets": [seller, {"name": "grader", **model}]})
        folder.write("evals/talk.jsonl", [{**case, "evaluators": [{"type": "llm_judge"}]}])
        options = ("--target", "default", "--targets", "models/all.yaml", "--judge", "grader", "--timeout", "60")
        ended = command("eval", "evals/talk.jsonl", *options, "--out", "run", "--quiet")
    assert ended.code == 0, ended.stderr
    return folder


def words_of(text):
    """The words of a command as the shell passes them to a program."""
    ended = subprocess.run(["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, check=True)
    return ended.stdout.decode().split("\0")[:-1]


def test_checks_are_next_to_their_turns_and_the_judge_and_the_target_are_shown(talk, chromium, command):
    file = page_of("run")
    assert "sk-secret" not in json.dumps(RunStore.open("run").manifest.targets[0].settings)
    with chromium(file, "#open=0") as page:
        talk = page.locator(".talk .conversation > *")
        talk.first.wait_for()
        first_lines = talk.evaluate_all("parts => parts.map(part => part.firstElementChild.textContent)")
        expected = [
            "user",
            "assistant",
            "user",
            "assistant",
            "Checks of turn 1",
            "user",
            "assistant",
            "Checks of turn 2",
        ]
        assert first_lines == expected
        assert talk.nth(7).locator("ins").all_text_contents() == ["41"]
        assert "turn-" not in page.locator("section.evaluators").inner_text()
        page.get_by_text("Judge prompt and reply · m").click()
        call = page.locator(".judge-call")
        call.get_by_text('"misses": ["wrong train"]').wait_for()
        assert "Books a train" in call.locator(".message").last.text_content()
        settings = page.locator("section.settings")
        assert "You sell <b>trains</b>." in settings.inner_text() and "openai" in settings.inner_text()
        assert "sk-secret" not in page.locator("body").inner_text()
        again = words_of(page.locator(".again code").inner_text())
    assert again[:5] == ["agentv", "eval", "evals/talk.jsonl", "--case", ODD_ID]
    assert again[5:] == ["--target", "default", "--targets", "models/all.yaml", "--judge", "grader", "--timeout", "60"]
    ended = command(*again[1:], "--dry-run")
    assert ended.code == 0, ended.stderr
