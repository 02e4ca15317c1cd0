"""`run_cases` of `agentv mcp`: budgets, progress, cancellation, and what a run may start."""

import json
from concurrent.futures import CancelledError

import pytest
from connection import connected, served

from agentv.extensions.mcp.text_limit import MOST_CHARACTERS, MOST_TEXT
from agentv.model.result import TokenUsage
from agentv.runs.catalogue import project_runs
from agentv_testing import Answer, FaultyServer
from waiting import wait_until

PRICED = Answer("good", usage=TokenUsage(100_000, 0))
"""An answer that costs 0.1 USD at 1 USD per million tokens."""


@pytest.fixture
def project(folder):
    """Write a project of six cases, for a model server or a mock."""
    (folder.path / ".git").mkdir()
    check = {"type": "contains", "value": "good"}
    rows = [{"id": f"c{n}", "input": f"Case {n}", "expected_outcome": "x", "evaluators": [check]} for n in range(6)]
    folder.write("evals/cases.jsonl", rows)

    def prepared(url=None):
        api = {"provider": "openai", "model": "m", "base_url": url, "api_key": "k", "max_retries": 0}
        priced = {**api, "name": "default", "prices": {"input": 1, "output": 1}}
        mock = {"name": "default", "provider": "mock", "response": "good"}
        folder.write(".agentv/targets.yaml", {"targets": [priced if url else mock, {**api, "name": "unpriced"}]})
        return folder.path

    return prepared


def served_by(project, model, **limits):
    """Serve the project, whose targets call a model server."""
    project(model.url)
    return served(**limits)


def test_cases_run_within_the_budget_and_the_run_can_be_read(project):
    with FaultyServer(PRICED) as model, served_by(project, model, usd=1) as server:
        found = server.call("run_cases", datasets=["evals"], cases=["c1", "c4"])
        assert found["headlines"] == ["Passed 100 % of the 2 cases"] and found["exit_code"] == 0
        assert found["budget"] == {"spent_usd": 0.2, "left_usd": 0.8, "jobs_started": 2}
        assert server.call("read_run", run=found["run"])["run"]["targets"]["default"]["cost_usd"] == 0.2
        assert model.counts.requests == 2


def test_nothing_runs_without_a_budget_from_the_user(project):
    project()
    with served() as server:
        message = server.error("run_cases", datasets=["evals"], limit=1)
        assert "only the user can set" in message and "start `agentv mcp` with --budget-usd USD" in message
        assert server.call("list_runs")["total"] == 0


def test_the_budget_is_for_all_runs_of_a_server_together(project):
    with FaultyServer(PRICED) as model:
        with served_by(project, model, usd=0.35, jobs=10, workers=6) as server:
            server.call("run_cases", datasets=["evals"], limit=2)
            second = server.call("run_cases", datasets=["evals"])
            assert second["stopped"] == "budget" and second["exit_code"] == 4
            asked = model.counts.requests
            assert asked == 4, "the answer that uses up the budget is the last one"
            assert second["budget"]["jobs_left"] == 6, "jobs that waited for the budget were not started"
            message = server.error("run_cases", datasets=["evals"], limit=1)
            assert "used up" in message and "--budget-usd" in message
            assert model.counts.requests == asked
        with served_by(project, model, usd=1) as server:
            done = server.call("run_cases", resume=second["run"])
            assert done["exit_code"] == 0 and model.counts.requests == 8
            assert done["budget"]["spent_usd"] == pytest.approx(0.4), "what the run cost before is not counted again"


@pytest.mark.filterwarnings("default::agentv.errors.RunWarning")
def test_a_server_without_a_budget_in_usd_counts_only_what_its_own_runs_cost(project):
    with FaultyServer(PRICED) as model, served_by(project, model, jobs=9) as server:
        name = server.call("run_cases", datasets=["evals"])["run"]
        folder = project(model.url) / ".agentv/results" / name
        data = json.loads((folder / "run.json").read_text())
        lines = (folder / "results.jsonl").read_bytes().splitlines(keepends=True)

        def lose_two_results():
            (folder / "run.json").write_text(json.dumps({**data, "finished_at": None, "digests": {}}))
            (folder / "results.jsonl").write_bytes(b"".join(lines[:4]))

        lose_two_results()
        done = server.call("run_cases", resume=name)
        assert model.counts.requests == 8
        assert done["budget"] == {"spent_usd": pytest.approx(0.8), "jobs_started": 8, "jobs_left": 1}
        lose_two_results()
        message = server.error("run_cases", resume=name)
        assert "2 jobs, but only 1 of --max-jobs 9" in message and "with a larger --max-jobs" in message


def test_jobs_are_limited_for_targets_without_a_price(project):
    with FaultyServer("good") as model:
        with served_by(project, model, usd=1) as server:
            message = server.error("run_cases", datasets=["evals"], targets=["unpriced"])
            assert "price of target 'unpriced' is unknown" in message and "--max-jobs N" in message
        with served_by(project, model, jobs=7) as server:
            done = server.call("run_cases", datasets=["evals"], targets=["unpriced"])
            assert done["budget"] == {"spent_usd": 0.0, "jobs_started": 6, "jobs_left": 1}
            message = server.error("run_cases", datasets=["evals"], targets=["unpriced"])
            assert "6 jobs, but only 1 of --max-jobs 7" in message and "Select fewer cases" in message
        assert model.counts.requests == 6


def test_a_target_that_does_not_report_its_cost_ends_the_budget(folder):
    (folder.path / ".git").mkdir()
    checks = [{"type": "contains", "value": "y"}]
    rows = [{"id": f"c{n}", "input": "x", "expected_outcome": "y", "evaluators": checks} for n in range(9)]
    folder.write("evals/cases.jsonl", rows)
    program = {"name": "default", "provider": "cli", "command_template": "echo y"}
    folder.write(".agentv/targets.yaml", {"targets": [program]})
    with served(usd=1, workers=1, allows_programs=True) as server:
        for expected in ("does not report the cost", "cannot be enforced any more"):
            message = server.error("run_cases", datasets=["evals"])
            assert expected in message and "--max-jobs N" in message


def test_a_cancelled_run_and_that_of_a_lost_client_are_resumed(project):
    with FaultyServer(PRICED, faults=(None, None, "hang", None, "hang")) as model:
        path = project(model.url)
        with connected(path, "--budget-usd", "2", "--workers", "1") as server:
            call = server.start("run_cases", datasets=["evals"])
            wait_until(lambda: model.counts.requests == 3 and server.progress)
            assert server.progress[-1][1] == 6, "progress has the number of jobs"
            call.cancel()
            with pytest.raises(CancelledError):
                call.result(30)
            wait_until(lambda: [(run.state, run.done) for run in project_runs(path)] == [("unfinished", 2)])
            server.start("run_cases", resume="latest")
            wait_until(lambda: model.counts.requests == 5)
        assert [(run.state, run.done) for run in project_runs(path)] == [("unfinished", 3)], "the client is gone"
        with served(usd=1) as server:
            done = server.call("run_cases", resume="latest")
            assert done["targets"]["default"]["scored"] == 6 and "stopped" not in done
        assert model.counts.requests == 8, "finished jobs did not run again"
        assert [run.state for run in project_runs(path)] == ["finished"]


def test_failed_cases_of_an_earlier_run_run_again(project):
    reply = lambda seen: "bad" if b"Case 2" in seen.raw else "good"  # noqa: E731
    with FaultyServer(reply) as model, served_by(project, model, jobs=20) as server:
        server.call("run_cases", datasets=["evals"], targets=["unpriced"])
        again = server.call("run_cases", only="failed", only_from="latest")
        assert again["targets"]["unpriced"]["jobs"] == 1


PROGRAMS = {
    "code_judge": {"evaluators": [{"type": "code_judge", "script": ["touch", "{mark}"]}]},
    "python": {"evaluators": [{"type": "python", "function": "own.py:score"}]},
    "target": {"execution": {"target": "program"}},
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_programs_start_only_if_the_user_allows_them(folder, kind):
    (folder.path / ".git").mkdir()
    mark = folder.path / "mark"
    checks = [{"type": "contains", "value": "y"}]
    entry = {"id": "a", "input": "x", "expected_outcome": "y", "evaluators": checks, **PROGRAMS[kind]}
    folder.write("evals/cases.yaml", json.loads(json.dumps({"evalcases": [entry]}).replace("{mark}", str(mark))))
    folder.write("evals/own.py", f"open({str(mark)!r}, 'w').close()\ndef score(answer): return 1\n")
    program = {"name": "program", "provider": "cli", "command_template": f"touch {mark}"}
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}, program]})
    with served(jobs=9) as server:
        message = server.error("run_cases", datasets=["evals"])
        assert "Programs are not allowed" in message and "--allow-programs" in message
        assert not mark.exists()
    with served(jobs=9, allows_programs=True) as server:
        server.call("run_cases", datasets=["evals"])
        assert mark.exists()


@pytest.mark.filterwarnings("default::agentv.errors.RunWarning")
def test_a_run_folder_cannot_send_a_resumed_run_out_of_the_project(project):
    path = project()
    with served(jobs=20) as server:
        name = server.call("run_cases", datasets=["evals"])["run"]
        manifest = path / ".agentv/results" / name / "run.json"
        data = json.loads(manifest.read_text())
        other = path.parent / "other.jsonl"
        other.write_text((path / "evals/cases.jsonl").read_text())
        for changed in (
            {"paths": [str(other)]},
            {"record": str(other)},
            {"replay": str(other)},
            {"cases_from": str(other)},
            {"stop_when": str(path.parent)},
            {"allow_outside_files": True},
        ):
            options = {**data["options"], **changed}
            manifest.write_text(json.dumps({**data, "finished_at": None, "options": options}))
            message = server.error("run_cases", resume=name)
            assert "outside the project" in message or "only its folder names" in message


def other_run(path, rows):
    """Write a run by hand, as another program might."""
    path.mkdir(parents=True)
    row = {"schema_version": 1, "run_id": "many", "eval_id": "a", "dataset": "d", "dataset_path": "d.jsonl", "trial": 1}
    ended = {"timestamp": "2026-11-15T10:00:00Z", "status": "ok", "score": 0.0, "verdict": "fail"}
    (path / "results.jsonl").write_text("".join(json.dumps({**row, **ended, **more}) + "\n" for more in rows))


def test_of_many_targets_the_first_are_listed(project):
    other_run(project() / ".agentv/results/many", [{"target": f"t{number}"} for number in range(60)])
    with served(jobs=1) as server:
        [listed] = server.call("list_runs")["runs"]
        read = server.call("read_run", run="many")
    assert (len(listed["targets"]), listed["more_targets"], len(read["headlines"])) == (50, 10, 50)


VERY_LONG = "x" * 100_000
LONG_NAMES = {
    "words": {"eval_id": "id " * 30_000, "target": "target " * 9_000, "dataset": "d " * 30_000},
    "one word": {"eval_id": VERY_LONG, "target": VERY_LONG, "dataset": VERY_LONG, "dataset_path": VERY_LONG},
    "half a pair": {"eval_id": "\ud83d" + "€" * 50_000, "target": "\ud83d/~0~1\x00\x1b[31m", "tags": [VERY_LONG] * 20},
}


@pytest.mark.parametrize("names", LONG_NAMES.values(), ids=LONG_NAMES)
def test_answers_with_very_long_names_are_short_and_name_results_that_can_be_read(project, names):
    rows = [{"target": "t", **names, "trial": trial} for trial in (1, 2)]
    others = {**names, "eval_id": "last", "score": 0.5}
    targets = [{**others, "target": f"{names['target']}{number}"} for number in range(9)]
    other_run(project() / ".agentv/results/odd", [*rows, *targets])
    with served(jobs=1) as server:
        for tool, arguments in (
            ("list_runs", {}),
            ("read_run", {"run": "odd"}),
            ("read_failures", {"run": "odd", "limit": 50}),
            ("compare_runs", {"before": "odd", "after": "odd"}),
        ):
            result = server.reply(tool, **arguments)
            assert len(json.dumps(result.structured_content, ensure_ascii=False)) < 1.3 * MOST_CHARACTERS, tool
            assert len(result.content[0].text) < 1.1 * MOST_TEXT, tool
            assert result.structured_content.get("cut_hint", "") in result.content[0].text, tool
        assert len(server.call("read_run", run="odd")["summary"]) == 10, "names that start alike are all kept"
        failed = server.call("read_failures", run="odd")["failures"][0]
        wanted = {name: failed[name] for name in ("case", "target", "trial")}
        found = server.call("read_result", run="odd", **wanted, place="/eval_id")
    assert found["characters"] == len(names["eval_id"])
