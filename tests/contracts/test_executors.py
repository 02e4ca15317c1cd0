"""What every executor must do, wherever it runs jobs: one suite over all of them."""

import asyncio
import multiprocessing
import pickle

import pytest

from agentv.engine.job.spec import RunSpec
from agentv.executors.base import ExecutorOptions, LocalLimits
from agentv.executors.local import LocalExecutor
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.job import Job
from agentv.model.result import Result
from agentv.model.values import FrozenDict
from agentv.targets.programs.mock import Mock
from agentv.targets.programs.python import PythonTarget

EXECUTORS = {"local": LocalExecutor}


@pytest.fixture(params=EXECUTORS)
def executor(request):
    return EXECUTORS[request.param]


class Work:
    """A spec and its worker in one, that can be looked at: what began, what ended, how many were at it at once."""

    missing = ()

    def __init__(self, seconds=0.001):
        self.seconds = seconds
        self.capacity = 4
        self.begun = []
        self.cleaned_up = []
        self.at_once = 0
        self.most_at_once = 0

    def open(self, limits):
        return self

    async def aclose(self):
        pass

    async def run(self, job):
        self.begun.append(job)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds if not callable(self.seconds) else self.seconds(job))
            if job == "broken":
                raise RuntimeError("broken")
            return f"done {job}"
        finally:
            self.at_once -= 1
            self.cleaned_up.append(job)


def run(executor, jobs, work, workers=4, emit=None):
    results = []
    work.capacity = workers
    asyncio.run(executor(ExecutorOptions()).run(work, iter(jobs), emit or results.append))
    return results


@pytest.mark.parametrize("jobs", [0, 1, 3, 4, 5, 100])
def test_every_job_is_run_once_and_every_result_handed_on_once(executor, jobs):
    work = Work()
    results = run(executor, range(jobs), work)
    assert sorted(work.begun) == list(range(jobs))
    assert sorted(results) == sorted(f"done {job}" for job in range(jobs))


@pytest.mark.parametrize("workers", [1, 3, 50])
def test_at_most_so_many_are_run_at_once_and_that_many_are(executor, workers):
    work = Work(0.01)
    run(executor, range(60), work, workers)
    assert work.most_at_once == workers


def test_a_result_is_handed_on_before_its_worker_begins_another_job(executor):
    work, handed_on = Work(lambda job: 0.05 if job == 0 else 0.001), []

    def emit(result):
        handed_on.append((result, len(work.begun)))

    run(executor, range(10), work, 2, emit)
    assert handed_on[-1][0] == "done 0"
    assert all(begun <= position + 2 for position, (_, begun) in enumerate(handed_on))


def test_jobs_are_taken_as_they_are_needed_and_not_all_at_once(executor):
    taken = []

    def jobs():
        for number in range(100):
            taken.append(number)
            yield number

    most_ahead = 0

    def emit(result):
        nonlocal most_ahead
        most_ahead = max(most_ahead, len(taken) - len(work.cleaned_up))

    work = Work()
    run(executor, jobs(), work, 4, emit)
    assert len(taken) == 100 and most_ahead <= 4


def test_jobs_that_never_wait_leave_room_for_others(executor):
    class AtOnce(Work):
        async def run(self, job):
            return job

    async def main():
        ticks = 0

        async def clock():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(clock())
        await executor(ExecutorOptions()).run(AtOnce(), iter(range(300_000)), lambda _: None)
        ticking.cancel()
        return ticks

    assert asyncio.run(main()) > 3


@pytest.mark.parametrize("place", ["a job", "the jobs themselves", "whoever takes the results"])
def test_an_exception_ends_it_and_what_is_in_flight_is_cancelled(executor, place):
    work = Work(lambda job: 0.005 if job == "broken" else 10)

    def jobs():
        yield from range(3)
        if place == "the jobs themselves":
            raise RuntimeError("broken")
        yield "broken"
        yield from range(100)

    def emit(result):
        raise RuntimeError("broken")

    if place == "whoever takes the results":
        work = Work(lambda job: 0.005 if job == 0 else 10)
    with pytest.raises(BaseExceptionGroup) as raised:
        run(executor, jobs(), work, 4, emit)
    assert raised.group_contains(RuntimeError, match="broken")
    assert sorted(map(str, work.begun)) == sorted(map(str, work.cleaned_up))
    assert len(work.begun) <= 5


def test_cancelled_it_cancels_what_is_in_flight_and_lets_it_clean_up(executor):
    work, results = Work(10), []

    async def main():
        work.capacity = 3
        running = asyncio.create_task(executor(ExecutorOptions()).run(work, iter(range(10)), results.append))
        while len(work.begun) < 3 and not running.done():
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert sorted(work.begun) == sorted(work.cleaned_up) == [0, 1, 2]
    assert results == []


SAYS_YES = EvaluatorSpec(type="contains", name="contains", settings=FrozenDict({"value": "yes"}))
CASE = EvalCase("a", "Says yes", "yes, please", "yes", evaluators=(SAYS_YES,), metadata=FrozenDict({"k": 1}))


def run_somewhere_else(packed, answers):
    """The other process: nothing but the spec and the job, packed, has come here."""
    spec, job = pickle.loads(packed)

    async def main():
        worker = spec.open(LocalLimits())
        try:
            return await worker.run(job)
        finally:
            await worker.aclose()

    answers.put(pickle.dumps(asyncio.run(main())))


@pytest.mark.parametrize("provider", ["mock", "python"])
def test_a_job_is_run_in_another_process_from_its_spec_alone(provider, tmp_path):
    (tmp_path / "agent.py").write_text("def answer(prompt):\n    return prompt\n")
    targets = {
        "mock": Mock(name="t", provider="mock"),
        "python": PythonTarget(name="t", provider="python", function="agent.py:answer"),
    }
    spec = RunSpec(run_id="r-1", targets=(targets[provider],), home=str(tmp_path))
    job = Job(CASE, "t", trial=2)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=run_somewhere_else, args=(pickle.dumps((spec, job)), answers))
    process.start()
    result = pickle.loads(answers.get(timeout=60))
    process.join()
    assert process.exitcode == 0
    assert isinstance(result, Result)
    assert (result.run_id, result.eval_id, result.target, result.trial) == ("r-1", "a", "t", 2)
    assert (result.status, result.score, result.verdict, result.candidate_answer) == ("ok", 1.0, "pass", "yes, please")


def test_jobs_specs_and_results_are_the_same_after_a_journey():
    spec = RunSpec(run_id="r", targets=(Mock(name="t", provider="mock", response="yes"),), workers=3)
    job = Job(CASE, "t", "short", 2)
    assert pickle.loads(pickle.dumps(spec)) == spec
    there = pickle.loads(pickle.dumps(job))
    assert (there, there.key) == (job, job.key)
