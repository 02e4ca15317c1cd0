"""Batch mode: requests go through the batch APIs of OpenAI and Anthropic, and each is paid for once."""

import asyncio
import signal
import threading

import pytest

from agentv.engine.calls.open_targets import OpenTargets
from agentv.engine.job.spec import RunFiles, RunSpec
from agentv.executors.executor import LocalLimits
from agentv.extensions.batch import batch_queue, vendor_batches
from agentv.model.result import TokenUsage
from agentv.report.status_line import status_line
from agentv.runs.summary import Snapshot
from agentv.targets.apis.openai import OpenAI
from agentv_testing import Answer, RawReply, SampleRequest
from waiting import wait_until

pytestmark = pytest.mark.ci

CENT = TokenUsage(1000, 900)


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    monkeypatch.setattr(batch_queue, "_QUIET_S", 0.03)
    monkeypatch.setattr(batch_queue, "_FIRST_POLL_S", 0.01)


def echo(request):
    return Answer(f"yes, {request.prompt}", usage=CENT)


@pytest.fixture(params=["openai", "anthropic"])
def batched(request, project, agentv_server):
    """A server and a project whose target is in batch mode."""
    server = agentv_server(echo)
    address = server.url if request.param == "openai" else server.origin
    own = {"provider": request.param, "base_url": address, "model": "m", "api_key": "none"}
    project.entry = {"name": "default", **own, "batch": True, "prices": {"input": 1, "output": 10}}
    project.targets({**project.entry, "retry_initial_delay_ms": 1})
    return server


def calls(server):
    """The requests that were not part of a batch."""
    return [each for each in server.requests if "batches" not in each.path and "files" not in each.path]


def test_all_requests_are_sent_in_one_batch_at_half_the_price(project, batched):
    project.dataset(*["one", "two", "three"])
    assert project.eval("--out", "out").code == 0
    records = project.by_id()
    assert [records[f"c{n}"]["candidate_answer"] for n in range(3)] == ["yes, one", "yes, two", "yes, three"]
    assert [record["execution_metrics"]["cost_usd"] for record in records.values()] == [pytest.approx(0.005)] * 3
    assert len(batched.batches.submitted) == 3 and calls(batched) == []


def test_the_option_turns_batch_mode_on(project, batched):
    project.targets({**project.entry, "batch": False})
    project.dataset("one")
    assert project.eval("--out", "out", "--batch").code == 0
    assert len(batched.batches.submitted) == 1 and calls(batched) == []


def test_trials_are_separate_requests(project, batched):
    project.dataset("one")
    assert project.eval("--out", "out", "--trials", "3").code == 0
    assert len(set(batched.batches.submitted)) == 3


ENDINGS = {"expired": "timeout", "cancelled": "refused"}


@pytest.mark.parametrize("ending", ENDINGS)
def test_requests_that_a_batch_did_not_answer_are_errors(project, batched, ending):
    batched.batches.ending, batched.batches.finished = ending, 2
    project.dataset("one", "two", "three")
    project.eval("--out", "out", "--max-retries", "0")
    records = project.by_id()
    assert [records[f"c{n}"]["status"] for n in range(3)] == ["ok", "ok", "error"]
    assert records["c2"]["error"]["class"] == ENDINGS[ending]
    assert f"batch {'expired' if ending == 'expired' else 'was cancelled'}" in records["c2"]["error"]["message"]


def test_requests_of_an_expired_batch_are_submitted_again(project, batched):
    batched.batches.ending, batched.batches.finished = "expired", 1

    def recover(stage):
        if stage == "results":
            batched.batches.ending = "completed"

    batched.batches.watch = recover
    project.dataset("one", "two", "three")
    assert project.eval("--out", "out").code == 0
    assert len(batched.batches.billed) == 3 and len(set(batched.batches.billed)) == 3
    assert {record["status"] for record in project.records()} == {"ok"}


def test_missing_and_doubled_results(project, batched):
    batched.batches.missing, batched.batches.doubled = [1], [0]
    project.dataset("one", "two", "three")
    project.eval("--out", "out")
    records = project.by_id()
    assert [records[f"c{n}"]["status"] for n in range(3)] == ["ok", "error", "ok"]
    assert "The batch has no result for this request" in records["c1"]["error"]["message"]


def test_results_that_cannot_be_read_are_errors_of_their_jobs(project, batched):
    batched.batches.cut = [1]
    project.dataset("one", "two", "three")
    project.eval("--out", "out")
    records = project.by_id()
    assert [records[f"c{n}"]["status"] for n in range(3)] == ["ok", "error", "ok"]
    assert "A line of the results cannot be read" in records["c1"]["error"]["message"]


def test_results_that_were_damaged_on_the_way_are_read_again(project, batched):
    batched.batches.cut, downloads = [0, 2], []

    def recover(stage):
        downloads.extend([stage] if stage == "results" else [])
        if len(downloads) == 2:
            batched.batches.cut = ()

    project.dataset("one", "two", "three")
    batched.batches.watch = recover
    assert project.eval("--out", "out").code == 0


def test_a_request_that_the_provider_refuses_is_an_error_of_its_job(project, batched):
    error = b'{"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}}'
    batched.answers = lambda request: RawReply(error, 400) if "two" in request.prompt else echo(request)
    project.dataset("one", "two")
    project.eval("--out", "out")
    records = project.by_id()
    assert records["c0"]["status"] == "ok"
    assert (records["c1"]["error"]["class"], "too long" in records["c1"]["error"]["message"]) == (
        "invalid_response",
        True,
    )


def test_a_refusal_in_a_batch_has_its_cost(project, batched):
    batched.answers = Answer("x", refusal="no", stop_reason="content_filter", usage=CENT)
    project.dataset("one")
    project.eval("--out", "out")
    record = project.by_id()["c0"]
    assert (record["error"]["class"], record["execution_metrics"]["cost_usd"]) == ("refused", pytest.approx(0.005))


def test_large_runs_are_split_into_batches(project, batched, monkeypatch):
    for kind in (vendor_batches.OpenAIBatchApi, vendor_batches.AnthropicBatchApi):
        monkeypatch.setattr(kind, "max_requests", 4)
    project.dataset(*[f"case {n}" for n in range(10)])
    assert project.eval("--out", "out").code == 0
    created = [each for each in batched.requests if each.method == "POST" and each.path.endswith("batches")]
    assert len(created) == 3 and len(project.records()) == 10


def test_a_lost_response_does_not_submit_a_batch_twice(project, agentv_server):
    server = agentv_server(echo, faults=["reset"])
    target = {"name": "default", "provider": "openai", "base_url": server.url, "model": "m", "batch": True}
    project.targets(target)
    project.dataset("one", "two")
    assert project.eval("--out", "out").code == 0
    assert len(server.batches.submitted) == 2


def test_a_budget_reserves_the_expected_cost_of_a_batch(project, batched):
    project.targets({**project.entry, "max_output_tokens": 900})
    project.dataset(*["one " * 1000] * 40)
    assert project.eval("--out", "out", "--budget-usd", "0.1").code == 4
    assert len(batched.batches.billed) * 0.005 <= 0.105
    assert len(batched.batches.billed) >= 18
    assert project.eval("--resume", "--out", "out", "--budget-usd", "1").code == 0
    assert len(batched.batches.billed) == len(project.records()) == 40


def test_judges_may_use_batches(project, batched):
    verdict = '{"score": 1, "reasoning": "good", "hits": [], "misses": []}'
    batched.answers = lambda request: Answer(verdict) if request.model == "judge" else echo(request)
    judge = {**project.entry, "name": "judge", "model": "judge"}
    project.targets(project.entry, judge)
    project.dataset("one", "two", evaluators=[{"type": "llm_judge"}])
    assert project.eval("--target", "default", "--out", "out").code == 0
    assert len(batched.batches.submitted) == 4 and calls(batched) == []


def test_conversations_are_refused_by_name(project, batched):
    project.dataset({"input": "one", "turns": [{"input": "two"}]})
    ended = project.eval("--out", "out")
    assert ended.code == 2 and "Target 'default' is in batch mode, which has no conversations" in ended.stderr


def test_tool_loops_are_refused_by_name(project, batched):
    tool = {"name": "look", "function": "tools.py:look", "parameters": {"type": "object"}}
    project.targets({**project.entry, "tools": [tool]})
    project.write("tools.py", "def look():\n    return 1\n")
    project.dataset("one")
    assert "'batch' cannot be combined with tools that run here" in project.eval("--out", "out").stderr


def test_other_targets_have_no_batch_mode(project):
    project.dataset("one")
    ended = project.eval("--out", "out", "--batch")
    assert ended.code == 2 and "Target 'default' (provider 'mock') has no batch mode" in ended.stderr


class Killer:
    """Kills a run when its server reaches a stage."""

    def __init__(self, server, stage, occurrence=1):
        self.stage, self.left, self.process = stage, occurrence, None
        self.is_killed = threading.Event()
        server.batches.watch = self.watch

    def watch(self, stage):
        if stage == self.stage and not self.is_killed.is_set():
            self.left -= 1
            if not self.left:
                wait_until(lambda: self.process is not None)
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
                self.is_killed.set()


@pytest.mark.every(3)
@pytest.mark.parametrize("stage", ["file", "created", "poll", "results"])
def test_a_run_killed_at_any_stage_pays_for_each_request_once(project, batched, stage):
    if stage == "file" and project.entry["provider"] == "anthropic":
        pytest.skip("there is no file")
    project.dataset(*["one", "two", "three", "four"])
    killer = Killer(batched, stage)
    killer.process = project.spawn("d.yaml", "--out", "out")
    assert killer.is_killed.wait(200)
    killer.process.communicate()
    batched.batches.watch = lambda _: None
    assert project.eval("--resume", "--out", "out").code == 0
    assert len(project.records()) == 4
    assert len(batched.batches.billed) == 4 and len(set(batched.batches.billed)) == 4


def test_an_interrupted_run_leaves_its_batch_running(project, batched):
    batched.batches.polls = 10_000
    project.dataset("one", "two")
    process = project.spawn("d.yaml", "--out", "out")
    wait_until(lambda: any(each.method == "GET" for each in batched.requests), process)
    process.send_signal(signal.SIGINT)
    output = "".join(process.communicate())
    assert process.returncode == 130
    assert "Submitted batches keep running" in output and "agentv eval --resume --out out" in output
    batched.batches.polls = 0
    assert project.eval("--resume", "--out", "out").code == 0
    assert len(batched.batches.submitted) == len(batched.batches.billed) == 2


def test_a_run_that_stops_does_not_wait_for_batches_and_finds_them_when_it_is_resumed(project, batched):
    batched.batches.polls = 10_000
    project.targets({**project.entry}, {"name": "wrong", "provider": "mock", "response": "no", "delay_ms": 400})
    project.dataset("one", "two")
    ended = project.eval("--out", "out", "--fail-fast", "--target", "default", "--target", "wrong")
    assert ended.code == 1 and {record["target"] for record in project.records()} == {"wrong"}
    assert "Submitted batches keep running" in ended.stdout + ended.stderr
    batched.batches.polls = 0
    assert project.eval("--resume", "--out", "out").code == 0
    assert len(batched.batches.submitted) == len(batched.batches.billed) == 2


def test_the_progress_display_shows_the_batch_that_is_waited_for(project, agentv_server):
    batched = agentv_server(echo)
    shown, limits = [], LocalLimits()
    target = OpenAI(name="default", provider="openai", base_url=batched.url, model="m", batch=True)
    files = RunFiles(batches_folder=str(project.path / "batches"))
    spec = RunSpec(run_id="r", targets=(target,), files=files)

    async def respond():
        targets = OpenTargets(spec, limits)
        batched.batches.watch = lambda _: shown.append(limits.load().text)
        await targets.get("default").responder.respond(SampleRequest("one"))
        await targets.aclose()

    asyncio.run(respond())
    assert "batch 1 of 1: 0 of 1 request done" in shown
    line = status_line(Snapshot(done=0, total=1, text="batch 1 of 1: 0 of 1 request done"), None)
    assert line == "0/1 (0 %) · batch 1 of 1: 0 of 1 request done"
