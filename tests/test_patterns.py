"""Regular expressions with a time limit."""

import re
import signal
import threading

import pytest

from agentv.support.patterns import SlowPattern, search

ENDLESS = re.compile(r"(a+)+$")
LONG = "a" * 40 + "b"


def test_a_pattern_is_found():
    assert search(re.compile(r"(\d+)-(\d+)"), "on 10-12")[2] == "12"
    assert search(re.compile(r"(\d+)-(\d+)"), "never") is None


def test_an_endless_search_is_stopped_and_its_timer_is_cleared():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(SlowPattern, match=r"longer than 0.01 s"):
        search(ENDLESS, LONG, limit_seconds=0.01)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_threads_search_without_a_limit():
    found = []
    thread = threading.Thread(target=lambda: found.append(search(ENDLESS, "aaa")))
    thread.start()
    thread.join()
    assert found[0][0] == "aaa"


def test_a_slow_pattern_is_an_error_in_its_case_only(folder, monkeypatch):
    import agentv

    monkeypatch.setattr("agentv.support.patterns.search.__defaults__", (0.01,))
    rows = [{"id": id, "expected_outcome": "x", "input": text} for id, text in (("slow", LONG), ("quick", "aaa"))]
    entry = {"type": "regex", "value": ENDLESS.pattern}
    results = agentv.evaluate(rows, lambda prompt: prompt, [entry], out="out").results
    assert {result.eval_id: result.status for result in results} == {"slow": "error", "quick": "ok"}
