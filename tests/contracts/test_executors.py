"""The contract of every executor."""

import asyncio
import os
import pickle
import socket
import threading

import msgspec
import pytest
from observable_work import ObservableWork, ids, jobs

from agentv.errors import UsageError
from agentv.executors.executor import ExecutorOptions
from agentv.registry import EXECUTORS
from waiting import let_others_run, wait_until_async


@pytest.fixture(scope="module")
def local_ray():
    """One Ray instance for all tests; an executor uses an existing connection."""
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


MARKS = {"ray": pytest.mark.cluster}


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in EXECUTORS.names()])
def name(request):
    if request.param == "process" and not hasattr(socket, "AF_UNIX"):
        with pytest.raises(UsageError, match="does not run on Windows"):
            EXECUTORS.find("process")(ExecutorOptions())
        pytest.skip("worker processes need Unix sockets")
    if request.param == "ray":
        request.getfixturevalue("local_ray")
    return request.param


@pytest.fixture
def executor(name):
    return EXECUTORS.find(name)(ExecutorOptions(processes=2))


@pytest.fixture
def work(tmp_path):
    return ObservableWork(log=str(tmp_path / "log"))


def run(executor, work, ids, emit=None):
    results = []
    asyncio.run(executor.run(work, jobs(ids), emit or results.append))
    return results


@pytest.mark.parametrize("count", [0, 1, 5, 300])
def test_every_job_runs_once_and_every_result_is_emitted_once(executor, work, count):
    results = run(executor, work, range(count))
    assert ids(results) == dict.fromkeys(map(str, range(count)), 1)
    assert sorted(work.steps("begin")) == sorted(map(str, range(count)))


def test_jobs_are_pulled_on_demand_until_the_source_ends(executor, work):
    pulled, emitted = [], []
    work = msgspec.structs.replace(work, seconds=0.02)

    def source():
        while len(emitted) < 30:
            pulled.append(len(pulled))
            yield from jobs([pulled[-1]])

    asyncio.run(executor.run(work, source(), emitted.append))
    assert ids(emitted) == dict.fromkeys(map(str, pulled), 1)
    assert len(pulled) < 30 + 400


def test_results_are_emitted_in_the_thread_of_the_caller(executor, work):
    places = set()
    run(executor, work, range(20), lambda _: places.add((os.getpid(), threading.get_ident())))
    assert places == {(os.getpid(), threading.get_ident())}


def test_no_job_is_pulled_when_the_targets_cannot_be_opened(executor, work):
    def source():
        pytest.fail("a job was pulled")
        yield

    broken = msgspec.structs.replace(work, problem="Target 't' cannot be opened")
    with pytest.raises(UsageError, match="Target 't' cannot be opened"):
        asyncio.run(executor.run(broken, source(), lambda _: None))


@pytest.mark.parametrize("place", ["a job", "the source of jobs", "the receiver of results"])
def test_an_exception_ends_the_run_and_cancels_jobs_in_flight(executor, work, place):
    def source():
        yield from jobs(["quick" if place == "the receiver of results" else 0, 1, 2])
        if place == "the source of jobs":
            raise RuntimeError("broken")
        yield from jobs(["broken"] if place == "a job" else [])
        yield from jobs(range(3, 100))

    def emit(result):
        raise RuntimeError("broken")

    seconds = 0.01 if place == "the receiver of results" else 30
    work = msgspec.structs.replace(work, seconds=seconds)
    with pytest.raises(BaseException, match="broken") as raised:
        raise_first(lambda: asyncio.run(executor.run(work, source(), emit)))
    assert isinstance(raised.value, RuntimeError)
    assert sorted(work.steps("begin")) == sorted(work.steps("end"))


def raise_first(call):
    """An executor may raise the exceptions of several tasks together."""
    try:
        call()
    except BaseExceptionGroup as group:
        while isinstance(group, BaseExceptionGroup):
            group = group.exceptions[0]
        raise group from None


def test_cancelling_cancels_jobs_in_flight_and_lets_them_clean_up(executor, work):
    work, results = msgspec.structs.replace(work, seconds=30), []

    async def main():
        running = asyncio.create_task(executor.run(work, jobs(range(10)), results.append))
        await wait_until_async(lambda: len(work.steps("enter")) >= 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert sorted(work.steps("begin")) == sorted(work.steps("end")) != []
    assert results == []


def test_jobs_that_wait_for_their_first_call_are_dropped_when_the_receiver_stops(executor, work):
    work, results = msgspec.structs.replace(work, limit=2, capacity=16, seconds=0.05), []
    run(executor, work, range(200), lambda result: results.append(result) or True)
    assert sorted(work.steps("enter")) == sorted(result.eval_id for result in results)
    assert 1 <= len(results) < 100 and sorted(work.steps("begin")) == sorted(work.steps("end"))


def test_all_workers_share_the_limit_of_an_endpoint(executor, work):
    work = msgspec.structs.replace(work, limit=3, capacity=16, seconds=0.01)
    results = run(executor, work, range(100))
    assert len(results) == 100
    assert work.most_at_once() == 3


def test_calls_missing_from_a_replay_are_returned_once(executor, work):
    missing = asyncio.run(executor.run(work, jobs(range(5)), lambda _: None))
    assert missing == ("a call that is not recorded",)


def test_jobs_that_cannot_be_pickled_are_refused(executor, name, work):
    work = msgspec.structs.replace(work, baggage=lambda: 1)
    if name == "local":
        assert len(run(executor, work, range(3))) == 3
        return
    with pytest.raises(UsageError, match="cannot be sent to another process") as raised:
        run(executor, work, range(3))
    assert "top level of a module" in raised.value.hint


def test_jobs_that_never_wait_do_not_block_timers(executor, work):
    async def main():
        running = asyncio.create_task(executor.run(work, jobs(range(3000)), lambda _: None))
        ticks = 0
        while not running.done():
            ticks += 1
            await let_others_run()
        await running
        return ticks

    assert asyncio.run(main()) > 3


def test_the_load_is_reported_during_the_run(executor, work):
    work, loads = msgspec.structs.replace(work, limit=3, seconds=0.01), []
    run(executor, work, range(200), lambda _: loads.append(executor.load().concurrency))
    assert set(loads) <= {0, 1, 2, 3} and 3 in loads


def test_a_spec_and_its_jobs_are_plain_data(work):
    job = next(jobs([1]))
    assert pickle.loads(pickle.dumps(work)) == work
    assert pickle.loads(pickle.dumps(job)).key == job.key


def test_none_instead_of_a_job_means_pull_again_after_the_next_result(executor, work):
    """The second job is held back until the first has a result."""
    emitted = []
    work = msgspec.structs.replace(work, seconds=0.02)

    def source():
        yield from jobs(["first"])
        while not emitted:
            yield None
        yield from jobs(["second"])

    asyncio.run(executor.run(work, source(), emitted.append))
    assert [result.eval_id for result in emitted] == ["first", "second"]
