"""Regular expressions with a time limit."""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentv.support.patterns import SlowPattern, search

ENDLESS = re.compile(r"(a+)+$")
LONG = "a" * 40 + "b"


def test_a_pattern_is_found():
    assert search(re.compile(r"(\d+)-(\d+)"), "on 10-12")[2] == "12"
    assert search(re.compile(r"(\d+)-(\d+)"), "never") is None


@pytest.mark.timeout(method="thread")  # the other method has a timer of its own
def test_an_endless_search_is_stopped_and_its_timer_is_cleared():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(SlowPattern, match=r"longer than 0.01 s"):
        search(ENDLESS, LONG, limit_seconds=0.01)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


# (pattern, text): each takes minutes or longer
SLOW = {
    "nested repetitions": (r"(a+)+$", LONG),
    "one repetition of alternatives": (r"^(?:a|aa)+$", "a" * 60 + "b"),
    "optional parts": ("a?" * 40 + "a" * 40, "a" * 40),
    "alternatives without repetition": ("(?:a|a)" * 40 + "$", "a" * 40 + "b"),
    "one repetition in a long text": ("a*b", "a" * 2_000_000),
    "a counted repetition": (r"(?:a|aa){1,60}$", "a" * 60 + "b"),
    "a reference to a group": (r"(a*)(a*)(a*)\1\2\3b", "a" * 3000),
}


needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="needs fork: a search is tried in a process that may end"
)


@needs_fork
@pytest.mark.parametrize("name", SLOW)
def test_a_slow_search_is_stopped_in_every_thread(name):
    pattern, text = re.compile(SLOW[name][0]), SLOW[name][1]
    with pytest.raises(SlowPattern, match=r"longer than 0.02 s"):
        search(pattern, text, limit_seconds=0.02)
    with ThreadPoolExecutor(1) as threads, pytest.raises(SlowPattern, match=r"longer than 0.02 s"):
        threads.submit(search, pattern, text, 0.02).result()


def test_other_threads_find_the_same():
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(search, ENDLESS, "aaa").result()[0] == "aaa"
        assert threads.submit(search, ENDLESS, "aab").result() is None


@needs_fork
def test_a_slow_pattern_is_an_error_in_its_case_only(folder, monkeypatch):
    import agentv

    monkeypatch.setattr("agentv.support.patterns.search.__defaults__", (0.01,))
    rows = [{"id": id, "expected_outcome": "x", "input": text} for id, text in (("slow", LONG), ("quick", "aaa"))]
    entry = {"type": "regex", "value": ENDLESS.pattern}
    results = agentv.evaluate(rows, lambda prompt: prompt, [entry], out="out").results
    assert {result.eval_id: result.status for result in results} == {"slow": "error", "quick": "ok"}
