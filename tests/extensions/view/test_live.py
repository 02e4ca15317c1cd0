"""Runs in progress: they appear, fill in, end, are resumed and deleted while the page is open."""

import shutil
from contextlib import ExitStack, contextmanager

import msgspec
import pytest

from agentv.model.manifest import Counts, RunManifest
from agentv.model.result import ExecutionMetrics
from agentv.runs.folder import RunFolder
from agentv.runs.record import encode_record
from agentv.runs.store import RunStore
from agentv.runs.summary import SummaryBuilder
from made_results import failed, made

JOBS = 4
MANIFEST = RunManifest(run_id="live", started_at="2026-11-15T10:00:00.000Z", counts=Counts(cases=JOBS, jobs=JOBS))


class Writer:
    """An evaluation that writes its records when a test says so."""

    def __init__(self, folder):
        self.folder = folder
        self.store = RunStore(folder)
        self.store.start_writing()

    def write(self, id, **values):
        self.store.append(made(eval_id=id, **values))

    def write_raw(self, data):
        with self.folder.results_path.open("ab") as file:
            file.write(data)

    def finish(self, *results):
        self.folder.write_summary(SummaryBuilder("live").add_all(results).build())
        ended = msgspec.structs.replace(MANIFEST, finished_at="2026-11-15T10:00:09.000Z", exit_code=0)
        self.folder.write_manifest(ended)


@contextmanager
def writing(path):
    """Write to a run folder, as `agentv eval` and `agentv eval --resume` do."""
    folder = RunFolder(path) if (path / "run.json").is_file() else RunFolder.create(path)
    with folder.lock():
        folder.write_manifest(MANIFEST)
        writer = Writer(folder)
        yield writer
        writer.store.close()


def until(events, kind, is_wanted=lambda data: True):
    """The first event that fits."""
    return next(data for name, data in events if name == kind and is_wanted(data))


@pytest.fixture
def runs(folder):
    """The folder for runs of a project."""
    (folder.path / ".agentv/results").mkdir(parents=True)
    return folder.path / ".agentv/results"


def test_a_run_appears_fills_in_and_ends(runs, server):
    with server() as view, view.login().events() as events:
        assert view.first_line.startswith("Serving 0 runs at ")
        with writing(runs / "live") as run:
            until(events, "runs")
            [id] = view.run_ids()
            run.write("a", execution_metrics=ExecutionMetrics(cost_usd=0.25))
            run.store.append(failed(eval_id="b"))
            found = until(events, "progress", lambda data: data["done"] == 2 and data["errors"])
            assert (found["jobs"], found["errors"], found["cost_usd"], found["state"]) == (4, 1, 0.25, "running")
            head = view.head(id, covers=2)
            assert (head["live"], head["complete"], head["total"], head["covers"]) == (True, False, 2, 2)
            block = view.get(f"/api/runs/{id}/rows?first=1")
            assert (block["first"], block["id"], block["complete"]) == (1, ["b"], False)
            assert block["names"]["errors"] == ["timeout"] and block["names"]["targets"] == []
            line = encode_record(made(eval_id="c"))
            run.write_raw(line[:30])
            assert view.get(f"/api/runs/{id}/rows?first=2")["n"] == 0
            run.write_raw(line[30:])
            until(events, "progress", lambda data: data["done"] == 3)
            run.write("d")
            run.finish(made())
        until(events, "progress", lambda data: data["state"] == "finished" and data["done"] == 4)
        rows, _ = view.rows(id)
        assert [row["id"] for row in rows] == ["a", "b", "c", "d"]
        head = view.head(id)
        assert (head["live"], head["complete"], head["run"]["finished_at"]) == (False, True, "2026-11-15T10:00:09.000Z")


def test_errors_and_cost_of_a_running_eval_are_those_of_all_its_results(runs, server):
    total = 20_000
    with writing(runs / "live") as run:
        metrics = ExecutionMetrics(cost_usd=0.5)
        run.write_raw(b"".join(encode_record(made(eval_id=f"{n}", execution_metrics=metrics)) for n in range(total)))
        with server() as view, view.login().events() as events:
            found = {}
            while found.get("cost_usd") != total / 2:
                found = until(events, "progress")
                assert found["cost_usd"] in (None, found["done"] / 2) and found["errors"] in (None, 0)


def test_rate_and_time_left_are_known_after_two_looks(runs, server):
    with writing(runs / "live") as run, server() as view, view.login().events() as events:
        run.write("a")
        until(events, "progress", lambda data: data["done"] == 1)
        run.write("b")
        found = until(events, "progress", lambda data: data["done"] == 2)
        assert found["rate"] > 0 and found["seconds_left"] == pytest.approx(2 / found["rate"])


def test_many_runs_in_progress_are_followed_at_once(runs, server):
    with ExitStack() as stack:
        for number in range(12):
            stack.enter_context(writing(runs / f"live-{number}")).write("a")
        view = stack.enter_context(server())
        events = stack.enter_context(view.login().events())
        waiting = set(view.run_ids())
        assert len(waiting) == 12
        while waiting:
            waiting.discard(until(events, "progress", lambda data: data["done"] == 1)["id"])


def test_a_resumed_run_continues_and_a_deleted_run_disappears(runs, server):
    with writing(runs / "live") as run:
        run.write("a")
        run.finish(made())
    with server() as view, view.login().events() as events:
        [listed] = view.get("/api/runs")["runs"]
        assert (listed["state"], listed["done"]) == ("finished", 1)
        assert len(view.rows(listed["id"])[0]) == 1
        assert view.head(listed["id"])["covers"] is None
        with writing(runs / "live") as run:
            until(events, "progress", lambda data: data["state"] == "running")
            assert view.head(listed["id"], covers=1)["covers"] == 1
            run.write("b")
            until(events, "progress", lambda data: data["done"] == 2)
        until(events, "progress", lambda data: data["state"] == "unfinished")
        assert len(view.rows(listed["id"])[0]) == 2
        shutil.rmtree(runs / "live")
        until(events, "runs")
        assert view.run_ids() == []
        assert view.head(listed["id"])["error"]["view"] == "runs"


def test_a_run_that_is_written_again_is_read_again(runs, server):
    with writing(runs / "live") as run:
        run.write("first")
    with server() as view:
        [id] = view.login().run_ids()
        assert [row["id"] for row in view.rows(id)[0]] == ["first"]
        shutil.rmtree(runs / "live")
        with writing(runs / "live") as run:
            run.write("x")
        assert [row["id"] for row in view.rows(id)[0]] == ["x"]


def test_ctrl_c_ends_the_server_and_its_connections(runs, server):
    with server() as view, view.login().events() as events:
        assert view.stop() == 0
        assert list(events) == []
        note, *rest = view.process.stderr.read().splitlines()
        assert note.startswith("Note: There are no runs yet.") and rest == ["Press Ctrl-C to stop", "", "Stopped"]
