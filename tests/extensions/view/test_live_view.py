"""A running eval in the list of runs and in its own view: progress, the end, and a lost connection."""

import errno
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from waiting import wait_until

ANSWER = "def answer(prompt):\n    return open(f'gate-{prompt}').read()\n"
"""Waits until the test writes the answer into a named pipe."""


@pytest.fixture
def gated(folder):
    """An eval of three cases, each of which waits for the test."""
    folder.write(".git/HEAD", "")
    folder.write("target.py", ANSWER)
    target = {"name": "letters", "provider": "python", "function": "target.py:answer"}
    folder.write("targets.yaml", {"targets": [target]})
    checks = [{"type": "contains", "value": "yes"}]
    cases = [{"id": each, "input": each, "expected_outcome": "Says yes", "evaluators": checks} for each in "abc"]
    folder.write("evals/letters.jsonl", cases)
    for letter in "abc":
        os.mkfifo(f"gate-{letter}")
    return folder


@contextmanager
def running_eval(*options):
    command = [sys.executable, "-m", "agentv", "eval", "evals/letters.jsonl", "--target", "letters", "--quiet"]
    with subprocess.Popen([*command, "--workers", "3", *options], stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def let_answer(letter, process, answer="yes"):
    """Let a case be answered, as soon as its target waits."""

    def is_written():
        try:
            gate = os.open(f"gate-{letter}", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            assert error.errno == errno.ENXIO
            return False
        os.write(gate, answer.encode())
        os.close(gate)
        return True

    wait_until(is_written, process)


def test_a_running_eval_appears_fills_in_and_ends(gated, served):
    with served() as page:
        page.get_by_text("There are no runs yet").wait_for()
        run = page.locator("tbody.run")
        with running_eval() as process:
            run.get_by_text("0 of 3 done").wait_for()
            assert run.locator(".run-state").inner_text() == "running" and "letters · letters" in run.inner_text()
            let_answer("a", process)
            run.get_by_text("1 of 3 done").wait_for()
            bar = run.get_by_role("progressbar")
            assert (bar.get_attribute("aria-valuenow"), bar.get_attribute("aria-valuemax")) == ("1", "3")
            page.keyboard.press("Enter")
            page.locator(".live-line", has_text="1 of 3 done").wait_for()
            let_answer("b", process, "no")
            page.locator(".live-line", has_text="2 of 3 done").wait_for()
            page.locator(".spacer .row").nth(1).wait_for()
            page.get_by_role("link", name="Runs").click()
            run.get_by_text("2 of 3 done").wait_for()
            page.reload()
            run.get_by_text("2 of 3 done").wait_for()
            let_answer("c", process)
            assert process.wait() == 0
        run.locator(".run-state.finished").wait_for()
        run.locator(".col-mean", has_text="0.667").wait_for()


HIDE = """() => {
    Object.defineProperty(document, "hidden", { value: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_many_windows_share_one_stream_and_go_on_when_its_reader_closes(gated, served):
    """A browser opens six connections to a server at most: eight windows have to share one stream of events."""
    readers = []
    with served() as first:
        first.context.on("request", lambda sent: sent.url.endswith("/api/events") and readers.append(sent.frame.page))
        first.reload()
        windows = [first, *(first.context.new_page() for _ in range(7))]
        for window in windows[1:]:
            window.goto(first.server.origin)
        with running_eval() as process:
            for done, leave in enumerate(("close", "hide", None)):
                for window in windows:
                    window.locator("tbody.run").get_by_text(f"{done} of 3 done").wait_for()
                assert len(readers) == done + 1
                if leave is not None:
                    windows.remove(readers[-1])
                    readers[-1].close() if leave == "close" else readers[-1].evaluate(HIDE)
                    let_answer("abc"[done], process)


def test_the_page_of_a_resumed_run_reads_on(gated, served):
    """The run stops after one result, and the page has read all there is when it is resumed."""
    with running_eval("--out", "run") as process:
        let_answer("a", process)
        wait_until(lambda: "\n" in (gated.path / "run/results.jsonl").read_text(), process)
    with served("run", fragment="#view=run") as page:
        page.locator(".count-line").get_by_text("1 result", exact=True).wait_for()
        page.locator(".facts").get_by_text("1 of 3 jobs done").wait_for()
        with running_eval("--out", "run", "--resume") as process:
            let_answer("b", process)
            let_answer("c", process, "no")
            assert process.wait() == 0
        page.locator(".count-line").get_by_text("3 results", exact=True).wait_for()
        page.locator(".counts").get_by_text("1 failed").wait_for()
        page.locator(".card").get_by_text("66.7 % of 3 passed").wait_for()


def test_a_lost_connection_is_shown_until_it_is_found_again(gated, server, browser):
    with server() as first, browser.new_context() as context:
        page = context.new_page()
        page.goto(first.url)
        line = page.locator(".connection")
        page.get_by_text("There are no runs yet").wait_for()
        context.set_offline(True)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        line.get_by_text("Connection lost; trying again").wait_for()
        gated.write(
            ".agentv/results/later/run.json", {"schema_version": 1, "run_id": "later", "started_at": "2026-11-01"}
        )
        context.set_offline(False)
        page.locator("tbody.run", has_text="later").wait_for()
        assert line.inner_text() == ""
