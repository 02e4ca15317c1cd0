"""The progress display: a redrawn line on a terminal, plain lines otherwise."""

import io
import os
import sys
import threading

import pytest

from agentv.cli.display import Pace, Progress, status_line
from agentv.runs.summary import Snapshot
from waiting import wait_until

FULL = Snapshot(
    done=142,
    total=1000,
    scored=130,
    passed=105,
    errors={"timeout": 2, "rate_limit": 10},
    cost_usd=0.4215,
    concurrency=20,
)


@pytest.mark.parametrize(
    ("snapshot", "rate", "line"),
    [
        (Snapshot(done=0, total=10), None, "0/10 (0 %)"),
        (Snapshot(done=3), 0.5, "3 · 30/min"),
        (Snapshot(done=3), 4 / 60, "3 · 4/min"),
        (Snapshot(done=3), 0.005, "3 · 18/h"),
        (Snapshot(done=3, total=9, waits_s=4.0), 0.5, "3/9 (33 %) · 30/min · ETA 12.0 s"),
        (
            Snapshot(done=3, total=9, waits_s=86_000),
            0.5,
            "3/9 (33 %) · 30/min · waiting 23h 53m for a rate limit or a retry",
        ),
        (
            Snapshot(done=3, total=9, down="https://api.example.com", down_s=130.0, waits_s=6.0, concurrency=4),
            None,
            "3/9 (33 %) · waiting for https://api.example.com: no answer for 2m 10s · concurrency 4",
        ),
        (Snapshot(done=3, total=9, waits_s=4.0), 3.0, "3/9 (33 %) · 3.0/s · ETA 4.0 s"),
        (
            Snapshot(done=3, total=9, failing={"server": 2, "timeout": 1}, concurrency=4),
            0.5,
            "3/9 (33 %) · 30/min · 3 failing (server 2, timeout 1) · ETA 12.0 s · concurrency 4",
        ),
        (
            Snapshot(done=3, total=9, down="https://a.example", down_s=130.0, down_targets=("judge gpt",)),
            None,
            "3/9 (33 %) · waiting for https://a.example (judge gpt): no answer for 2m 10s",
        ),
        (Snapshot(done=10, total=10, scored=10, passed=9), 2500.0, "10/10 (100 %) · 2500/s · passed 90 % of 10"),
        (
            FULL,
            35.2,
            "142/1000 (14 %) · 35.2/s · passed 81 % of 130 · 12 errors (rate_limit 10, timeout 2) · $0.4215"
            " · ETA 24.4 s · concurrency 20",
        ),
    ],
)
def test_the_status_line_shows_known_values(snapshot, rate, line):
    assert status_line(snapshot, rate) == line


def test_the_rate_is_measured_over_30_seconds():
    pace = Pace()
    assert pace.rate(500, 0.0) is None  # done before, by the run that is resumed
    assert pace.rate(500, 1.0) is None
    assert pace.rate(520, 2.0) == 10.0
    for second in range(3, 100):
        rate = pace.rate(520 + 5 * (second - 2), float(second))
    assert rate == 5.0


class Lines(io.StringIO):
    """A stream that sets an event after enough lines."""

    def __init__(self, wanted):
        super().__init__()
        self._wanted = wanted
        self.there = threading.Event()

    def flush(self):
        if self.getvalue().count("\n") >= self._wanted:
            self.there.set()


def test_plain_lines_are_printed_on_a_timer_if_something_changed():
    stream, done = Lines(3), iter([0, 1, 1, 2, 2, 2])
    last = [0]

    def snapshot():
        last[0] = next(done, last[0])
        return Snapshot(done=last[0], total=2, concurrency=1)

    with Progress(snapshot, stream, False, plain_interval_s=0.001) as progress:
        progress.note("Error: the first one")
        wait_until(lambda: "Error: the first one\n" in stream.getvalue())
        assert stream.there.wait(200)
    progress.stop()
    lines = stream.getvalue().splitlines()
    assert lines[-1].startswith("2/2 (100 %)")
    assert "\x1b" not in stream.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "agentv-progress"]


def test_a_run_shorter_than_the_interval_has_one_line():
    stream = io.StringIO()
    with Progress(lambda: Snapshot(done=5, total=5), stream, False):
        pass
    assert stream.getvalue() == "5/5 (100 %)\n"


def test_the_rate_leaves_out_results_from_before_a_resume():
    stream, done = Lines(1), iter([Snapshot(done=0, total=1000)])
    progress = Progress(lambda: next(done, Snapshot(done=500, earlier=500, total=1000)), stream, interactive=False)
    progress.start()
    progress.stop()
    assert stream.getvalue() == "500/1000 (50 %)\n"


def test_notes_before_and_after_the_run_are_printed():
    stream = io.StringIO()
    progress = Progress(lambda: Snapshot(done=0), stream, True)
    progress.note("before")
    progress.stop()
    progress.note("after")
    assert stream.getvalue() == "before\nafter\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_redraws_the_line_below_notes_and_erases_it(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    ours, theirs = os.openpty()
    drawn = threading.Event()
    calls = []

    def snapshot():
        calls.append(1)
        if len(calls) > 3:
            drawn.set()
        return FULL

    with open(theirs, "w", encoding="utf-8") as stream:
        before = sys.stdout
        with Progress(snapshot, stream, True) as progress:
            progress.note("Error: [bold] the first one")
            assert drawn.wait(200)
            assert sys.stdout is before
        stream.flush()
        os.set_blocking(ours, False)
        shown = all_of(ours)
    os.close(ours)
    assert "Error: [bold] the first one" in shown
    assert shown.count("142/1000 (14 %)") >= 2
    assert "concurrency 20" in shown
    # Finally the line is erased and the cursor is shown again.
    assert shown[shown.rindex("concurrency 20") :].endswith(("\x1b[2K", "\x1b[?25h"))
    assert "\x1b[2K" in shown[shown.rindex("concurrency 20") :]


def all_of(terminal):
    read = b""
    try:
        while piece := os.read(terminal, 65536):
            read += piece
    except BlockingIOError:
        pass
    return read.decode()


def test_a_closed_stream_or_missing_character_is_not_an_error():
    gone = io.TextIOWrapper(io.BytesIO())
    gone.close()
    with Progress(lambda: Snapshot(done=1), gone, False) as progress:
        progress.note("unheard")
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with Progress(lambda: FULL, plain, False) as progress:
        progress.note("größer")
    plain.seek(0)
    assert plain.read().splitlines()[0] == "gr??er"
