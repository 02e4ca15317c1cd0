"""Cases that depend on others: check what they name, and hold their jobs back until the others have finished."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from agentv.errors import InvalidCaseError, UsageError
from agentv.model.case import NO_DETAILS, EvalCase
from agentv.model.diagnostics import Problem, did_you_mean
from agentv.model.job import Job
from agentv.model.result import Result

CaseRef = tuple[str, str]
"""A case: its dataset and its id."""


class Dependencies(msgspec.Struct, frozen=True):
    """The dependencies of a run: the cases that each case waits for, and the jobs per target of those waited for.

    `datasets` maps the files of a dataset to its path.
    """

    waits_for: dict[CaseRef, tuple[CaseRef, ...]] = {}
    jobs: dict[CaseRef, dict[str, int]] = {}
    datasets: dict[str, str] = {}

    def ref(self, path: str, id: str) -> CaseRef:
        """Return a case by its file and id."""
        return self.datasets.get(path, path), id


def has_dependencies(case: EvalCase) -> bool:
    """Whether a case depends on others. Fast, because most do not."""
    return case.details is not NO_DETAILS and bool(case.details.depends_on)


def dependency_problems(
    dependents: Mapping[str, EvalCase], case_ids: Iterable[str]
) -> Iterator[tuple[EvalCase, Problem]]:
    """Yield the problems of the dependencies in one dataset, whose ids are `case_ids`: unknown ids and cycles."""
    ids = set(case_ids)
    for case in dependents.values():
        for index, id in enumerate(case.details.depends_on):
            if id not in ids:
                message = f"Case '{case.id}' depends on '{id}', but no case of this dataset has that id"
                yield case, Problem(("depends_on", index), message, did_you_mean(id, ids))
    for cycle in _cycles({id: case.details.depends_on for id, case in dependents.items()}):
        case = dependents[cycle[0]]
        what = "depends on itself" if len(cycle) == 1 else f"is in a cycle: {' → '.join((*cycle, cycle[0]))}"
        yield case, Problem(("depends_on",), f"Case '{case.id}' {what}", "Remove one of these dependencies")


def _cycles(graph: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield each cycle once, without recursion: from every case that lies on one, the path back to it."""
    edges = {id: {other for other in others if other in graph} for id, others in graph.items()}
    while True:
        free = [id for id, others in edges.items() if not others & edges.keys()]
        if not free:
            break
        for id in free:
            del edges[id]
    reported: set[str] = set()
    for start in edges:
        path, at = [start], start
        while (after := min(edges[at] & edges.keys())) not in path:
            path.append(at := after)
        cycle = path[path.index(after) :]
        if not reported.intersection(cycle):
            reported.update(cycle)
            yield tuple(cycle)


def read_dependencies(
    dependents: list[EvalCase],
    stream: Callable[[], Iterable[EvalCase]],
    counts: Callable[[EvalCase], dict[str, int]],
    datasets: dict[str, str],
    *,
    whole: bool,
) -> Dependencies:
    """Return the dependencies of a run after reading its cases again. Raises InvalidCaseError or UsageError.

    `whole` means that no case was left out by a selection.
    """
    dependencies = Dependencies(datasets=datasets)
    ids: dict[str, list[str]] = {dependencies.ref(case.path, "")[0]: [] for case in dependents}
    for case in dependents:
        dataset, id = dependencies.ref(case.path, case.id)
        dependencies.waits_for[dataset, id] = tuple((dataset, other) for other in case.details.depends_on)
    prerequisites = {ref for refs in dependencies.waits_for.values() for ref in refs}
    for case in stream():
        ref = dependencies.ref(case.path, case.id)
        if ref[0] in ids:
            ids[ref[0]].append(case.id)
        if ref in prerequisites:
            dependencies.jobs[ref] = dict(counts(case))
    for dataset, case_ids in ids.items():
        own = {case.id: case for case in dependents if dependencies.ref(case.path, "")[0] == dataset}
        for case, problem in dependency_problems(own, case_ids):
            raise _error(case, problem, whole=whole)
    return dependencies


def _error(case: EvalCase, problem: Problem, *, whole: bool) -> InvalidCaseError | UsageError:
    if whole or problem.path == ("depends_on",):
        headline = f"Invalid eval case at line {case.line} in {case.path}"
        place: Any = {"path": case.path, "line": case.line, "field": problem.field}
        return InvalidCaseError(headline, problem.message, problem.hint, **place)
    other = case.details.depends_on[int(problem.path[1])]
    message = f"Case '{case.id}' in {case.path} depends on '{other}', which is not selected"
    return UsageError(message, hint="Select both: cases that depend on each other must run together")


class DependencyGate:
    """Holds back jobs until all jobs of the cases they depend on, with the same target, have a record.

    A case has failed if all its jobs with that target ended in errors; a low score is not a failure. `skip` receives a
    job that is not run because of that, and the reason.
    """

    def __init__(self, dependencies: Dependencies, skip: Callable[[Job, str], None]) -> None:
        self._dependencies = dependencies
        self._skip = skip
        self._left = {
            (ref, target): count for ref, counts in dependencies.jobs.items() for target, count in counts.items()
        }
        self._answered: set[tuple[CaseRef, str]] = set()
        self._held: deque[Job] = deque()
        self._in_flight = 0

    def add_result(self, result: Result) -> None:
        """Take note of a record."""
        key = (self._dependencies.ref(result.dataset_path, result.eval_id), result.target)
        if key in self._left:
            self._left[key] -= 1
            if result.status != "error":
                self._answered.add(key)

    def ended(self) -> None:
        """Count a job that was admitted and has ended."""
        self._in_flight -= 1

    def admits(self, job: Job) -> bool:
        """Whether a job may run now. Otherwise it is held back or skipped."""
        if self._is_waiting(job):
            self._held.append(job)
            return False
        self._in_flight += 1
        refusal = self._refusal(job)
        if refusal:
            self._skip(job, refusal)
        return not refusal

    def held_jobs(self, is_stopped: Callable[[], bool]) -> Iterator[Job | None]:
        """Yield the held jobs, each as soon as it may run; None as long as all of them wait for jobs in flight."""
        while self._held and not is_stopped():
            ready = next((job for job in self._held if not self._is_waiting(job)), None)
            if ready is not None:
                self._held.remove(ready)
                if self.admits(ready):
                    yield ready
            elif self._in_flight:
                yield None
            else:
                return  # the cases that they depend on were not read to the end

    def _refusal(self, job: Job) -> str:
        """Return why a job is not run, if a case it depends on failed; empty if it runs."""
        policy = job.case.details.on_dependency_failure or "skip"
        failed = [ref[1] for ref in self._refs(job) if (ref, job.target) not in self._answered]
        if not failed or policy == "run":
            return ""
        names = " and ".join(f"'{id}'" for id in failed)
        what = "which has no answer" if len(failed) == 1 else "which have no answers"
        return f"{'Skipped' if policy == 'skip' else 'Failed'}: it depends on {names}, {what}"

    def _refs(self, job: Job) -> tuple[CaseRef, ...]:
        ref = self._dependencies.ref(job.case.path, job.case.id)
        return self._dependencies.waits_for.get(ref, ())

    def _is_waiting(self, job: Job) -> bool:
        return any(self._left.get((ref, job.target), 0) > 0 for ref in self._refs(job))
