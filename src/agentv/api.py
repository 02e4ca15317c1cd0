"""The Python API: `agentv.evaluate` and `agentv.compare`, for dataset files or cases in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from agentv.datasets.case.header import specs_of
from agentv.datasets.loader import CaseSource, InMemoryCases, ignore, warn_caller
from agentv.engine.named_runs import named_run
from agentv.engine.prepare import prepare
from agentv.engine.run import Observer, Outcome, RunInProgress, open_executor, open_store, run
from agentv.engine.run_options import EvalOptions, parse_max_errors
from agentv.engine.run_plan import RunPlan
from agentv.errors import DatasetWarning, UsageError
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.manifest import RunSummary
from agentv.model.result import Result
from agentv.registry import TARGETS
from agentv.runs.folder import export_records, output_paths
from agentv.runs.store import RunStore
from agentv.settings.diagnostics import SHARE, Problems, did_you_mean
from agentv.settings.settings_reader import read_settings
from agentv.targets.python import FunctionTarget
from agentv.targets.target import Target

if TYPE_CHECKING:
    from agentv.comparison.comparison import Comparison

OPTIONS = (
    *(name for name in EvalOptions.__struct_fields__ if name not in ("paths", "filters", "gates")),
    *("filter", "threshold", "min_pass_rate", "gate_on", "max_errors"),
)
"""The options of `evaluate`, named as those of the command."""

Dataset = str | os.PathLike[str] | Sequence[str] | Iterable[EvalCase | Mapping[str, Any]]
GivenRun: TypeAlias = "Run | str | os.PathLike[str]"
GivenTarget = str | dict[str, Any] | Callable[..., Any]
GivenEvaluators = Sequence[str | dict[str, Any] | EvaluatorSpec]
Given = tuple[Dataset, GivenTarget | None, GivenEvaluators | None]


class Run:
    """A finished run: its folder, summary, exit code and results."""

    def __init__(self, outcome: Outcome) -> None:
        self.path: Path = outcome.folder
        self.summary: RunSummary = outcome.summary
        self.exit_code: int = outcome.verdict.exit_code

    @cached_property
    def results(self) -> list[Result]:
        """The records of all jobs in the order of completion."""
        return list(RunStore.open(self.path).records())

    def __repr__(self) -> str:
        targets = self.summary.targets.items()
        means = (f"{name} {'not scored' if found.mean is None else f'{found.mean:.3f}'}" for name, found in targets)
        return f"<Run {self.path.name}: {', '.join(means)}>"


def evaluate(
    dataset: Dataset,
    target: GivenTarget | None = None,
    evaluators: GivenEvaluators | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Run:
    """Run every case of `dataset` with `target`, score the answers, store the records and return the run.

    `dataset` is a path, or an iterable of cases or dicts. `target` is a name from the targets file, a dict of settings,
    or a function that takes the prompt (or `messages`, `case`, `variables`, `trial` by name) and returns the answer.
    `evaluators` replace those of the cases. Other options are those of `agentv eval`: `trials`, `workers`, `sample`,
    `seed`, `limit`, `timeout_s`, `max_retries`, `fail_fast`, `threshold` and so on. Works inside a running event loop.
    Ctrl-C cancels the calls in flight and raises KeyboardInterrupt; finished records are kept.
    """
    outcome = _executed((dataset, target, evaluators), out, options, Observer())
    if outcome.stopped == "interrupted":
        raise KeyboardInterrupt(f"Finished records are kept in {outcome.folder}")
    return Run(outcome)


async def evaluate_async(
    dataset: Dataset,
    target: GivenTarget | None = None,
    evaluators: GivenEvaluators | None = None,
    **options: Any,
) -> Run:
    """Like `evaluate`, for async code. The run has its own event loop; cancelling the task stops the run."""
    out = options.pop("out", None)
    observer = _Started()
    run_it = partial(_executed, (dataset, target, evaluators), out, options, observer)
    outcome = asyncio.ensure_future(asyncio.to_thread(run_it))
    try:
        return Run(await asyncio.shield(outcome))
    except asyncio.CancelledError:
        for each in observer.runs:
            each.interrupt()
        await asyncio.wait([outcome])
        outcome.exception()  # retrieved, so that asyncio does not log it
        raise


def compare(before: GivenRun, after: GivenRun, **options: Any) -> Comparison:
    """Compare the second run with the first, as `agentv compare` does.

    A run is the return value of `evaluate`, or a path, an id, `RUN:target` or `RUN:prompt` as in the command. Options
    are `threshold`, `margin`, `changes`, `seed` and `allow_changed_measure`.
    """
    from agentv.comparison import run_comparison, scores  # late: they import numpy

    loaded = []
    for given in (before, after):
        name = str(given.path) if isinstance(given, Run) else os.fspath(given)
        path, target = named_run(name)
        loaded.append(scores.RunScores(path, name, target))
    return run_comparison.compare_runs(loaded[0], loaded[1], run_comparison.CompareOptions(**options))


class _Started(Observer):
    """Stores the run when it starts, so that it can be interrupted."""

    def __init__(self) -> None:
        self.runs: list[RunInProgress] = []

    def watch(self, running: RunInProgress) -> AbstractContextManager[None]:
        self.runs.append(running)
        return nullcontext()


def _executed(given: Given, out: Any, options: dict[str, Any], observer: Observer) -> Outcome:
    if not isinstance(out, str | os.PathLike | None):
        raise UsageError(f"'out' must be a path, got {type(out).__name__}")
    folder, file = output_paths(None if out is None else os.fspath(out))
    plan = _prepared(given, options, None if file is None else file[0])
    outcome = run(plan, open_store(plan, folder), open_executor(plan), observer)
    if file is not None:
        export_records(outcome.folder / "results.jsonl", *file)
    return outcome


def _prepared(given: Given, named: dict[str, Any], written: str | None) -> RunPlan:
    dataset, target, evaluators = given
    paths = _paths(dataset)
    options = _options(paths or (), named)
    cases: CaseSource | InMemoryCases
    if paths is None:
        cases = InMemoryCases(_given(dataset), options.selection, warn_caller)
    else:
        cases = options.open_cases(warn_caller, ignore)
    targets = () if target is None or isinstance(target, str) else (_target(target),)
    if isinstance(target, str):
        options = msgspec.structs.replace(options, targets=(target,))
    return prepare(options, cases, given=targets, evaluators=_specs(evaluators), written=written)


def _options(paths: tuple[str, ...], given: dict[str, Any]) -> EvalOptions:
    for name in given:
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS) or f"Known: {', '.join(OPTIONS)}"
            raise UsageError(f"Unknown option '{name}'", hint=hint)
    filters = given.get("filter", ())
    gates: dict[str, Any] = {
        name: _share(name, given[name]) for name in ("threshold", "min_pass_rate") if given.get(name) is not None
    }
    if given.get("gate_on") is not None:
        gates["gate_on"] = given["gate_on"]
    if given.get("max_errors") is not None:
        gates["max_errors"], gates["errors_are_share"] = parse_max_errors(str(given["max_errors"]))
    known = {name: value for name, value in given.items() if name in EvalOptions.__struct_fields__}
    data = {**known, "paths": paths, "filters": [filters] if isinstance(filters, str) else filters}
    try:
        return msgspec.convert({**data, "gates": gates or None}, EvalOptions).lasting()
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        name = place.strip("`").removeprefix("$.").removeprefix("gates.").replace("filters", "filter")
        raise UsageError(f"Invalid value for option '{name}'" if name else "Invalid option", what) from None


def _share(name: str, value: Any) -> float:
    try:
        return SHARE.read(value)
    except ValueError as error:
        raise UsageError(f"Option '{name}' {error}") from None


def _paths(dataset: Dataset) -> tuple[str, ...] | None:
    """Return the paths of a dataset; None if it is an iterable of cases."""
    if isinstance(dataset, str | os.PathLike):
        return (os.fspath(dataset),)
    if isinstance(dataset, Sequence) and dataset and all(isinstance(each, str | os.PathLike) for each in dataset):
        return tuple(os.fspath(each) for each in dataset)
    return None


def _given(dataset: Dataset) -> Iterable[EvalCase | Mapping[str, Any]]:
    """Return the dataset as an iterable of cases. Raise UsageError if it is not one."""
    if isinstance(dataset, EvalCase | Mapping):
        raise UsageError("'dataset' must be a list of cases, got a single case", hint="Put it into a list")
    if not isinstance(dataset, Iterable):
        raise UsageError(f"'dataset' must be a path or an iterable of cases, got {type(dataset).__name__}")
    return cast("Iterable[EvalCase | Mapping[str, Any]]", dataset)


def _target(target: dict[str, Any] | Callable[..., Any]) -> Target:
    if not isinstance(target, dict):
        name = getattr(target, "__name__", "function")
        return FunctionTarget(name=name, provider="python", call=target)
    settings = {"name": "target", **target}
    provider = TARGETS.canonical(str(settings.get("provider", "")))
    if provider is None:
        unknown = str(settings.get("provider"))
        raise UsageError(f"Unknown provider '{unknown}'", hint=TARGETS.suggestion(unknown))
    problems = Problems()
    read = read_settings(TARGETS.find(provider), settings, (), problems, strict=True)
    for problem in problems.errors:
        raise UsageError(f"Invalid target: {problem.message}", hint=problem.hint)
    assert isinstance(read, Target)
    return read


def _specs(evaluators: GivenEvaluators | None) -> tuple[EvaluatorSpec, ...] | None:
    if evaluators is None:
        return None
    if isinstance(evaluators, str | dict | EvaluatorSpec) or not isinstance(evaluators, Iterable):
        got = type(evaluators).__name__
        raise UsageError(f"'evaluators' must be a list, got {got}", hint='For example: evaluators=[{"type": "equals"}]')
    evaluators = list(evaluators)
    for number, each in enumerate(evaluators):
        if not isinstance(each, str | dict | EvaluatorSpec):
            raise UsageError(
                f"'evaluators[{number}]' must be a string, a dict or an EvaluatorSpec, got {type(each).__name__}",
                hint='To use a function, name its file: {"type": "python", "function": "checks.py:score"}',
            )
    entries = [each.to_data() if isinstance(each, EvaluatorSpec) else each for each in evaluators]
    specs, warned = specs_of(entries)
    for problem in warned:
        warn_caller(DatasetWarning(problem.message, field=problem.field, hint=problem.hint))
    return specs
