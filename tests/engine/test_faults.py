"""A server with faults of every kind: each case ends as ok or as an error with its class, never as a zero."""

import types
from itertools import chain, count, repeat

import pytest
from run_project import jobs_of

from agentv_testing import Answer, Fault, FaultyServer, RawReply
from virtual_time import skipped_ahead

pytestmark = pytest.mark.ci

CASES = 150
EVERY_KIND = {
    Fault("429", retry_after_s=0.02): 0.02,
    "500": 0.04,
    "503": 0.03,
    "hang": 0.01,
    "half_closed": 0.04,
    "reset": 0.04,
    "truncated": 0.04,
    "wrong_usage": 0.03,
    Fault("slow_drip", delay_s=0.002): 0.03,
    Fault("latency", delay_s=0.02): 0.02,
}
CLASSES = {"rate_limit", "server", "timeout", "network", "invalid_response"}


def target(server, **settings):
    return {
        "name": "default",
        "provider": "openai",
        "model": "m",
        "base_url": server.url,
        "timeout_seconds": 30,
        "retry_initial_delay_ms": 10,
        **settings,
    }


def run(project, faults, *options, cases=CASES, answers="yes", **settings):
    with FaultyServer(answers, faults=faults, seed=3, keep=0) as server:
        project.targets(target(server, **settings))
        project.dataset(*(f"question {number}" for number in range(cases)))
        ended = project.eval("--out", "out", *options)
    return ended, server.counts


@pytest.mark.parametrize("retries", [0, 3])
def test_with_30_percent_faults_no_fault_becomes_a_score(project, retries):
    assert sum(EVERY_KIND.values()) == pytest.approx(0.3)
    ended, counts = run(project, EVERY_KIND, max_retries=retries, timeout_seconds=3)
    assert ended.code == 0
    assert set(counts.by_fault) == {fault if isinstance(fault, str) else fault.kind for fault in EVERY_KIND}
    records = project.records()
    assert len(set(jobs_of(records))) == len(records) == CASES
    ok = [record for record in records if record["status"] == "ok"]
    errors = [record for record in records if record["status"] == "error"]
    assert len(ok) + len(errors) == CASES
    assert {record["score"] for record in ok} == {1.0}
    assert {record["score"] for record in errors} <= {None} and {record["verdict"] for record in errors} <= {None}
    assert {record["error"]["class"] for record in errors} <= CLASSES
    assert all(record["error"]["message"] and record["error"]["stage"] == "target" for record in errors)
    summary = project.summary()
    assert (summary["mean"], summary["scored"], summary["errors"]) == (1.0, len(ok), len(errors))
    assert f"scored      {len(ok)} of {CASES} cases; not scored: {len(errors)} errors" in ended.stdout
    if retries:
        assert len(errors) < 0.08 * CASES and max(record["attempts"] for record in ok) > 1
    else:
        assert len(errors) > 0.1 * CASES and {record["attempts"] for record in records} == {1}


@pytest.mark.parametrize(
    ("fault", "error_class", "attempts"),
    [
        ("429", "rate_limit", 3),
        ("500", "server", 3),
        ("503", "server", 3),
        ("408", "timeout", 3),
        ("401", "auth", 1),
        ("403", "auth", 1),
        ("400", "invalid_response", 1),
        ("404", "invalid_response", 1),
        ("reset", "network", 3),
        ("half_closed", "network", 3),
        ("truncated", "invalid_response", 1),
    ],
)
def test_each_fault_has_its_error_class_and_number_of_attempts(project, fault, error_class, attempts):
    options = ("--max-outage", "0") if fault == "503" else ()
    ended, counts = run(project, {fault: 1.0}, *options, cases=2, max_retries=2)
    assert ended.code == 3
    for record in project.records():
        assert (record["error"]["class"], record["attempts"]) == (error_class, attempts)
    assert counts.requests == 2 * attempts


def test_a_call_that_hangs_is_a_timeout_and_retried(project):
    with FaultyServer(faults={"hang": 1.0}) as server:
        project.targets(target(server, max_retries=2))
        project.dataset("question")
        with skipped_ahead(*(lambda calls=calls: server.counts.requests == calls for calls in (1, 2, 3))):
            assert project.eval("--out", "out").code == 3
    [record] = project.records()
    assert (record["error"]["class"], record["attempts"], server.counts.requests) == ("timeout", 3, 3)


@pytest.mark.parametrize("fault", ["wrong_usage", Fault("latency", delay_s=0.01), Fault("slow_drip", delay_s=0.001)])
def test_unusual_but_valid_responses_are_answers(project, fault):
    ended, _ = run(project, {fault: 1.0}, cases=3)
    assert ended.code == 0 and project.summary()["mean"] == 1.0
    if fault == "wrong_usage":
        assert all("token_usage" not in record["execution_metrics"] for record in project.records())


def test_a_refusal_of_the_model_is_an_error_not_an_answer(project):
    ended, counts = run(project, (), cases=2, answers=Answer(None, refusal="I cannot help with that"))
    assert ended.code == 3 and counts.requests == 2
    assert {record["error"]["class"] for record in project.records()} == {"refused"}
    assert {record["score"] for record in project.records()} == {None}


def test_an_unreachable_server_is_an_error_of_every_case(project):
    project.targets(
        {
            "name": "default",
            "provider": "openai",
            "model": "m",
            "base_url": "http://127.0.0.1:9/v1",
            "max_retries": 1,
            "retry_initial_delay_ms": 1,
        }
    )
    project.dataset("q", "q")
    ended = project.eval("--out", "out", "--max-outage", "0")
    assert ended.code == 3
    assert "Every job errored" in ended.stderr and "First network error in c" in ended.stderr
    assert {(record["error"]["class"], record["attempts"]) for record in project.records()} == {("network", 2)}


def test_the_first_error_of_each_class_is_shown_once(project):
    with FaultyServer("yes", faults=["500", None, "401", "500", None]) as server:
        project.targets(target(server, max_retries=0, workers=1))
        project.dataset(*(["q"] * 5))
        ended = project.eval("--out", "out")
    assert ended.stderr.count("First server error in c0") == 1
    assert ended.stderr.count("First auth error in c2") == 1


def test_a_run_stops_if_its_first_jobs_all_fail_authentication(project):
    with FaultyServer("yes", faults=["401"] * 400) as server:
        project.targets(target(server, workers=4))
        project.dataset(*(["q"] * 200))
        ended = project.eval("--out", "out")
        assert server.counts.requests < 40
    assert ended.code == 3
    assert "\nStopped: every job so far failed authentication. Check the API key." in ended.stderr
    assert "agentv eval --retry-errors out" in ended.stdout
    with FaultyServer("yes") as server:
        project.targets(target(server))
        assert project.eval("--retry-errors", "out", "--out", "again", "--quiet").code == 0
    assert project.summary("again")["scored"] == 200


@pytest.mark.parametrize(("fault", "is_permanent"), [("400", True), ("401", True), ("503", False)])
def test_retrying_is_not_suggested_for_errors_that_recur(project, fault, is_permanent):
    with FaultyServer("yes", faults=[fault] * 50) as server:
        project.targets(target(server, max_retries=0))
        project.dataset("q", "r")
        shown = project.eval("--out", "out").stdout
    assert ("--retry-errors" in shown) is not is_permanent
    assert ("recur until their cause is fixed" in shown) is is_permanent


def test_later_authentication_errors_do_not_stop_a_run(project):
    with FaultyServer("yes", faults=[None, *["401"] * 60]) as server:
        project.targets(target(server, workers=1))
        project.dataset(*(["q"] * 60))
        ended = project.eval("--out", "out", "--quiet")
    assert ended.code == 0 and project.summary()["errors"] == 59


def test_a_run_stops_if_its_first_jobs_reach_no_server(project):
    project.targets(target(types.SimpleNamespace(url="http://127.0.0.1:9/v1"), max_retries=1, workers=4))
    project.dataset(*(["q"] * 200))
    ended = project.eval("--out", "out", "--max-outage", "1")
    assert ended.code == 3 and project.records() == []
    assert "agentv targets check default" in ended.stderr
    assert "agentv eval --resume --out out" in ended.stdout


def test_a_stopped_run_goes_on_when_it_is_resumed_after_its_cause_is_fixed(project):
    is_fixed = []
    with FaultyServer(lambda _: "yes" if is_fixed else RawReply(b"{}", 401)) as server:
        project.targets(target(server, workers=4))
        project.dataset(*(["q"] * 100))
        assert project.eval("--out", "out").code == 3
        failed = len(project.records())
        is_fixed.append(True)
        assert project.eval("--resume", "--out", "out").code == 0
    assert project.summary()["errors"] == failed < 80 and len(project.records()) == 100


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("401", "the judge of every job so far failed authentication"),
        ("503", "the judge of every job so far failed with a server error"),
        (None, "no job so far reached its judge"),
    ],
)
def test_a_run_stops_if_the_judge_of_its_first_jobs_is_dead(project, fault, reason):
    with FaultyServer("yes") as server, FaultyServer("no", faults={fault or "401": 1.0}) as judge:
        dead = judge if fault else types.SimpleNamespace(url="http://127.0.0.1:9/v1")
        project.targets(target(server, workers=4), target(dead, name="judge", workers=4, max_retries=0))
        project.dataset(*(["q"] * 200), evaluators=[{"type": "llm_judge", "name": "j"}])
        ended = project.eval("--out", "out", "--max-outage", "0")
        assert server.counts.requests < 80
    assert ended.code == 3 and f"\nStopped: {reason}" in ended.stderr
    assert "agentv eval --retry-errors out" in ended.stdout


UNAVAILABLE = RawReply(b"{}", 503)
VERDICT = '{"reasoning": "fine", "hits": [], "misses": [], "score": 1.0}'


@pytest.mark.parametrize(
    ("usable", "options", "jobs"),
    [(0, [], range(20, 61)), (3, [], range(100, 101)), (0, ["--keep-going"], range(100, 101))],
)
def test_a_run_stops_if_the_verdicts_of_its_first_jobs_are_all_unusable(project, usable, options, jobs):
    def verdict(request):
        return VERDICT if request.number <= usable else "I would say 8 out of 10."

    with FaultyServer("yes", faults=["500"]) as server, FaultyServer(verdict) as judge:
        project.targets(target(server, workers=4, max_retries=0), target(judge, name="judge", workers=4))
        judged, checked = [{"type": "llm_judge", "name": "j"}], [{"type": "contains", "value": "yes"}]
        cases = [{"input": "q", "evaluators": judged if number else checked} for number in range(100)]
        project.dataset(*cases)
        ended = project.eval("--out", "out", *options)
        assert len(project.records()) in jobs
        if len(project.records()) == 100:
            return
        assert ended.code == 3 and "none of their replies so far is a usable verdict" in ended.stderr
        assert "agentv eval --retry-errors out" in ended.stdout
        # The judge may be fixed without a change of the project.
        assert len(project.records()) < 100 - 20 and project.eval("--resume", "--out", "out").code == 3
        assert len(project.records()) >= 40


@pytest.mark.parametrize(
    ("executor", "answered"),
    [("local", 0), ("local", 5), ("process", 5), pytest.param("ray", 5, marks=pytest.mark.cluster)],
)
def test_a_dead_judge_holds_back_the_target_and_stops_a_run_that_can_be_resumed(project, executor, answered):
    dead_from = [answered]

    def verdict(request):
        return VERDICT if request.number <= dead_from[0] else RawReply(b"{}", 503)

    with FaultyServer("yes", latency_s=0.02) as server, FaultyServer(verdict) as judge:
        address = judge if answered else types.SimpleNamespace(url="http://127.0.0.1:9/v1")
        project.targets(target(server, workers=4), target(address, name="judge", workers=4))
        project.dataset(*(["q"] * 100), evaluators=[{"type": "llm_judge", "name": "j"}])
        ended = project.eval("--out", "out", "--max-outage", "1", "--executor", executor, "--processes", "2")
        # A worker that starts late has no verdict before the judge dies: its first calls, at most 4, are errors.
        late = 0 if executor == "local" else 4
        assert server.counts.requests < 50 and ended.code == 3 and len(project.records()) <= answered + late
        assert "Stopped: the judge 'judge' does not answer" in ended.stderr
        assert "agentv eval --resume --out out" in ended.stdout
        assert answered or "agentv targets check judge" in ended.stderr
        if answered:
            dead_from[0] = 10_000
            assert project.eval("--resume", "--out", "out", "--quiet").code == 0
            assert server.counts.requests == 100 and len(set(jobs_of(project.records()))) == 100


def test_first_calls_that_wait_for_a_place_are_held_back_as_well(project):
    verdicts = chain([VERDICT] * 10, repeat(RawReply(b"{}", 503)))
    with FaultyServer(lambda request: "yes" if request.prompt == "q" else next(verdicts), latency_s=0.05) as server:
        project.targets(target(server), target(server, name="judge", model="j"))
        project.dataset(*(["q"] * 1000), evaluators=[{"type": "llm_judge", "name": "j"}])
        ended = project.eval("--out", "out", "--max-outage", "2", "--quiet")
        assert ended.code == 3 and sum(each.prompt == "q" for each in server.requests) < 300
    assert "Resume with: agentv eval --resume --out out" in ended.stderr


def test_a_judge_model_that_fails_is_not_an_outage_of_the_target_at_its_endpoint(project):
    def reply(request):
        return RawReply(b"{}", 503) if request.model == "wrong" else "yes"

    with FaultyServer(reply, latency_s=0.01) as server:
        project.targets(target(server, workers=20), target(server, name="judge", model="wrong", workers=20))
        judged = {"evaluators": [{"type": "llm_judge", "name": "j"}]}
        project.dataset(*[{"input": "q", **(judged if number % 2 else {})} for number in range(80)])
        project.eval("--out", "out", "--quiet", "--max-retries", "1")
    found = project.records()
    assert sum(record["status"] == "ok" for record in found) == 40 and len(found) == 80


@pytest.mark.parametrize(("allowed", "least"), [("5", 6), ("10%", 21)])
def test_a_run_stops_when_more_jobs_have_errored_than_allowed(project, allowed, least):
    with FaultyServer("yes", faults={"400": 0.5}) as server:
        project.targets(target(server, workers=4))
        project.dataset(*(["q"] * 200))
        ended = project.eval("--out", "out", "--max-errors", allowed)
        errors = sum(record["status"] == "error" for record in project.records())
        assert ended.code == 3 and least <= errors <= least + 10 and len(project.records()) < 100
        assert "Stopped: " in ended.stderr and "Use --keep-going to run the other jobs." in ended.stderr
        assert "agentv eval --retry-errors out" in ended.stdout
        assert project.eval("--resume", "--out", "out").code == 3
        assert len(project.records()) < 100
        assert project.eval("--resume", "--out", "out", "--keep-going").code == 3
    assert len(set(jobs_of(project.records()))) == len(project.records()) == 200


@pytest.mark.every(2)
@pytest.mark.parametrize("executor", ["local", "process", pytest.param("ray", marks=pytest.mark.cluster)])
@pytest.mark.parametrize("option", ["--max-errors=5", "--fail-fast"])
def test_jobs_that_wait_for_their_first_call_are_dropped_when_a_run_stops(project, option, executor):
    with FaultyServer("yes", faults={"400": 1.0}, latency_s=1.0) as server:
        project.targets(target(server, workers=4))
        project.dataset(*(["q"] * 200))
        project.eval("--out", "out", option, "--executor", executor, "--processes", "2")
        # 4 calls a second fail: the failure that stops the run is one of the first 8, and has 5 s to reach the workers.
        assert server.counts.requests == len(project.records()) < 30
    assert project.summary()["skipped"] == 200 - len(project.records())
    assert project.manifest().get("finished_at") is None


def test_with_keep_going_all_jobs_run_and_the_gate_still_fails(project):
    with FaultyServer("yes", faults={"400": 0.5}) as server:
        project.targets(target(server))
        project.dataset(*(["q"] * 100))
        assert project.eval("--out", "out", "--max-errors", "5", "--keep-going").code == 3
    assert len(project.records()) == 100


class Outage(list):
    """The faults of a server that fails a number of requests after some answers."""

    def __init__(self, answers, fault, failures):
        super().__init__([None] * answers + [fault] * failures)


@pytest.mark.every(3)
@pytest.mark.parametrize("executor", [(), ("--executor", "process", "--processes", "2")])
@pytest.mark.parametrize("fault", ["reset", "503"])
def test_jobs_wait_for_a_server_that_is_down(project, fault, executor):
    with FaultyServer("yes", faults=Outage(20, fault, 18), latency_s=0.01) as server:
        # On a busy machine, the five requests that prove an outage fail one after another: retries wait for them.
        project.targets(target(server, workers=4, retry_initial_delay_ms=200))
        project.dataset(*(["q"] * 80))
        ended = project.eval("--out", "out", *executor)
        assert server.counts.by_fault[fault] == 18
    assert ended.code == 0 and project.summary()["errors"] == 0
    assert "Task was destroyed" not in ended.stderr


@pytest.mark.parametrize("body", [b"<!doctype html><h1>Back soon</h1>", b""])
def test_a_page_instead_of_an_answer_is_an_outage_if_the_endpoint_answered_before(project, body):
    replies = chain(["yes"] * 20, [RawReply(body)] * 10, repeat("yes"))
    with FaultyServer(lambda _: next(replies), latency_s=0.01) as server:
        project.targets(target(server, workers=2))
        project.dataset(*(["q"] * 60))
        ended = project.eval("--out", "out")
    assert ended.code == 0 and project.summary()["errors"] == 0


def test_pages_from_an_endpoint_that_never_answered_are_errors_at_once(project):
    with FaultyServer(lambda _: RawReply(b"<html>Welcome</html>")) as server:
        project.targets(target(server, workers=2))
        project.dataset(*(["q"] * 20))
        assert project.eval("--out", "out").code == 3
        assert server.counts.requests == 20
    assert {record["error"]["class"] for record in project.records()} == {"invalid_response"}


def test_no_server_error_makes_a_run_wait_longer_than_an_outage_may_last(project):
    busy = RawReply(b"{}", 503, headers={"Retry-After": "3600"})
    replies = chain(["yes"] * 10, [busy] * 8, repeat("yes"))
    with FaultyServer(lambda _: next(replies), latency_s=0.01) as server:
        project.targets(target(server, workers=8))
        project.dataset(*(["q"] * 40))
        ended = project.eval("--out", "out", "--max-outage", "2", "--deadline", "200")
    assert ended.code == 0 and len(project.records()) == 40


@pytest.mark.parametrize("executor", ["local", "process"])
def test_after_the_longest_outage_jobs_are_unfinished_and_run_when_the_run_is_resumed(project, executor):
    answered, is_back = count(), []
    with FaultyServer(lambda _: "yes" if is_back or next(answered) < 40 else UNAVAILABLE, latency_s=0.01) as server:
        project.targets(target(server, workers=8))
        project.dataset(*(["q"] * 150))
        ended = project.eval("--out", "out", "--max-outage", "1.5", "--executor", executor)
        assert ended.code == 3 and f"Stopped: target 'default': {server.url} has been down for " in ended.stderr
        assert {record["status"] for record in project.records()} == {"ok"} and len(project.records()) == 40
        is_back.append(True)
        assert project.eval("--resume", "out").code == 0
    assert project.summary()["scored"] == 150


def test_a_target_that_is_down_does_not_stop_another(project):
    with FaultyServer("yes") as server, FaultyServer(faults={"503": 1.0}) as down:
        project.targets(target(server), target(down, name="down"))
        project.dataset(*(["q"] * 30))
        ended = project.eval("--out", "out", "--max-outage", "1", "--target", "default", "--target", "down")
    assert ended.code == 3 and "target 'down'" in ended.stderr
    assert [record["target"] for record in project.records()] == ["default"] * 30


def test_without_outages_only_the_jobs_that_always_fail_are_errors(project):
    with FaultyServer(lambda request: UNAVAILABLE if "bad" in request.prompt else "yes") as server:
        project.targets(target(server, workers=4, max_retries=2))
        project.dataset(*(["bad", "q", "q"] * 20))
        assert project.eval("--out", "out", "--max-outage", "0").code == 0
        assert server.counts.requests == 20 * 3 + 40
    assert project.summary()["errors"] == 20


def test_a_fallback_answers_at_once_while_the_target_is_down(project):
    with FaultyServer("yes", faults=Outage(40, "503", 10_000), latency_s=0.01) as server, FaultyServer("yes") as spare:
        fallback = {**target(spare), "name": "spare"}
        project.targets(target(server, workers=8, fallback_targets=["spare"]), fallback)
        project.dataset(*(["q"] * 150))
        ended = project.eval("--out", "out")
    assert ended.code == 0 and project.summary()["errors"] == 0 and project.summary()["fallbacks"] >= 100
