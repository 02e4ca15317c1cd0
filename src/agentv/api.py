"""The Python API: `evaluate`, `assert_passes` and `compare`, for dataset files or cases in memory."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from agentv.datasets.case.header import specs_of
from agentv.datasets.case.keys import OUTCOME_KEYS
from agentv.datasets.loader import CaseSource, InMemoryCases, ignore, warn_caller
from agentv.engine.gates.gate_options import parse_max_errors
from agentv.engine.named_runs import existing_run, named_run, open_baseline
from agentv.engine.prepare import prepare
from agentv.engine.run import Outcome, open_executor, open_store, run
from agentv.engine.run_in_progress import Observer, RunInProgress
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import RunPlan
from agentv.errors import AgentvError, DatasetWarning, NoEvaluatorsError, UsageError
from agentv.evaluators.code.function_evaluator import function_spec
from agentv.model.case import EvalCase
from agentv.model.diagnostics import SHARE, Problems, did_you_mean
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.result import Result
from agentv.registry import TARGETS
from agentv.report.columns import pandas_frame, polars_frame
from agentv.report.junit import headline, story
from agentv.report.notebook import LiveLine, run_html
from agentv.runs.folder import export_records, output_paths
from agentv.runs.store import RunStore
from agentv.runs.summary import RunSummary
from agentv.settings.evaluator_reader import named
from agentv.settings.settings_reader import read_settings
from agentv.targets.python import FunctionTarget
from agentv.targets.target import Target
from agentv.trust.roots import trusting

if TYPE_CHECKING:
    import pandas
    import polars

    from agentv.comparison.comparison import Comparison
OPTIONS = (
    *(
        name
        for name in EvalOptions.__struct_fields__
        if name not in ("paths", "filters", "gates", "draw_seed", "evaluators")
    ),
    *("filter", "threshold", "min_pass_rate", "gate_on", "max_errors", "trust"),
)
"""The options of `evaluate`, named as those of the command."""

Dataset = str | os.PathLike[str] | Sequence[str] | Iterable[EvalCase | Mapping[str, Any]]
GivenRun: TypeAlias = "Run | str | os.PathLike[str]"
GivenTarget = str | dict[str, Any] | Callable[..., Any]
GivenEvaluators = Sequence[str | dict[str, Any] | EvaluatorSpec | Callable[..., Any]]
Given = tuple[Dataset, GivenTarget | None, GivenEvaluators | None]


class Run:
    """A finished run: its folder, summary, exit code and results. A notebook shows it as a table."""

    def __init__(self, path: Path, summary: RunSummary, exit_code: int) -> None:
        self.path = path
        self.summary = summary
        self.exit_code = exit_code

    @classmethod
    def open(cls, run: str | os.PathLike[str] = "latest") -> Run:
        """Open a run on disk: a path, an id, `latest`, `@tag` and so on."""
        store = RunStore.open(existing_run(os.fspath(run)))
        code = None if store.manifest is None else store.manifest.exit_code
        return cls(store.path, store.figures().summary, code or 0)

    @cached_property
    def results(self) -> list[Result]:
        """The records of all jobs in the order of completion."""
        return list(RunStore.open(self.path).records())

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas data frame with a row per job. Needs `pip install 'agentv[pandas]'`."""
        return pandas_frame(RunStore.open(self.path))

    def to_polars(self) -> polars.DataFrame:
        """Return a polars data frame with a row per job. Needs `pip install 'agentv[polars]'`."""
        return polars_frame(RunStore.open(self.path))

    def __repr__(self) -> str:
        targets = self.summary.targets.items()
        means = (
            f"{name} {'not scored' if summary.mean is None else f'{summary.mean:.3f}'}" for name, summary in targets
        )
        return f"<Run {self.path.name}: {', '.join(means)}>"

    def _repr_html_(self) -> str:
        return run_html(self.path, self.summary, RunStore.open(self.path).records())


def evaluate(
    dataset: Dataset,
    target: GivenTarget | None = None,
    evaluators: GivenEvaluators | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Run:
    """Run every case of `dataset` with `target`, score the answers, store the records and return the run.

    `dataset` is a path, or an iterable of cases or dicts. `target` is a name from the targets file, a dict of settings
    (its `tools` may be functions), or a function that takes the prompt (or `messages`, `case`, `variables`, `trial` by
    name) and returns the answer.
    `evaluators` replace those of the cases: types, dicts, or functions that take `answer`, `case`, `input`, `expected`,
    `tool_calls`, `messages`, `metrics` or `context` by name and return a number from 0 to 1, a bool or a `Score`. Other
    options are those of `agentv eval`: `trials`, `workers`, `sample`, `seed`, `limit`, `timeout_s`, `max_retries`,
    `fail_fast`, `threshold` and so on. `trust` names files and folders outside the project of the working directory
    that may run programs and read variables. Works inside a running event loop; a notebook shows the progress, unless
    `progress` is False. Ctrl-C cancels the calls in flight and raises KeyboardInterrupt; finished records are kept.
    """
    observer = Observer() if options.pop("progress", None) is False else _observer()
    outcome = _executed((dataset, target, evaluators), out, options, observer)
    if outcome.stopped == "interrupted":
        raise KeyboardInterrupt(f"Finished records are kept in {outcome.folder}")
    return _run_of(outcome)


async def evaluate_async(
    dataset: Dataset, target: GivenTarget | None = None, evaluators: GivenEvaluators | None = None, **options: Any
) -> Run:
    """Like `evaluate`, for async code. The run has its own event loop; cancelling the task stops the run."""
    out = options.pop("out", None)
    observer = _Started(Observer() if options.pop("progress", None) is False else _observer())
    run_it = partial(_executed, (dataset, target, evaluators), out, options, observer)
    outcome = asyncio.ensure_future(asyncio.to_thread(run_it))
    try:
        return _run_of(await asyncio.shield(outcome))
    except asyncio.CancelledError:
        for each in observer.runs:
            each.interrupt()
        await asyncio.wait([outcome])
        outcome.exception()  # retrieved, so that asyncio does not log it
        raise


def compare(before: GivenRun | list[GivenRun], after: GivenRun, **options: Any) -> Comparison:
    """Compare the second run with the first, as `agentv compare` does. A list of runs is pooled into one baseline.

    A run is the return value of `evaluate`, or a path, an id, `RUN:target` or `RUN:prompt` as in the command. Options
    are `threshold`, `margin`, `changes`, `seed` and `allow_changed_measure`.
    """
    from agentv.comparison import run_comparison, scores  # late: they import numpy
    from agentv.comparison.sampling.selected_variant import correct_selection  # late: as above

    loaded = []
    for source in (before, after):
        if isinstance(source, list | tuple):
            loaded.append(scores.RunScores(*open_baseline(list(map(_name, source)))))
        else:
            path, picked = named_run(_name(source))
            loaded.append(scores.RunScores(path, _name(source), picked))
    comparison = run_comparison.compare_runs(loaded[0], loaded[1], run_comparison.CompareOptions(**options))
    return correct_selection(comparison, loaded[0], loaded[1])


def _name(run: GivenRun) -> str:
    return str(run.path) if isinstance(run, Run) else os.fspath(run)


def assert_passes(
    answer: Any,
    evaluators: GivenEvaluators | None = None,
    *,
    case: EvalCase | Mapping[str, Any] | None = None,
    **fields: Any,
) -> Result:
    """Score one answer, and raise AssertionError with the reasons if it does not pass. Return its record.

    `answer` is text, messages with tool calls, data, or any other value that a target function may return. `fields` are
    those of a case, such as `input` and `expected_output`; or pass a `case`, whose own evaluators are the default. An
    answer that could not be scored raises AgentvError: an error is not a failure.
    """
    __tracebackhide__ = True  # pytest shows the test that failed, not this function
    if case is not None and fields:
        raise UsageError("Pass either a case or its fields", f"Both 'case' and '{next(iter(fields))}' are given")
    entry = case if case is not None else {"id": "answer", "input": "", **fields}
    if evaluators == [] or (evaluators is None and case is None):
        raise NoEvaluatorsError(
            "assert_passes needs evaluators", hint='For example: [{"type": "contains", "value": "yes"}]'
        )

    def answering() -> Any:
        return answer

    with TemporaryDirectory(prefix="agentv-answer-") as folder:
        plan = _prepared(([entry], answering, evaluators), {"trials": 1}, None)
        run(plan, open_store(plan, os.path.join(folder, "run"), listed=False), open_executor(plan), Observer())
        (result,) = RunStore.open(os.path.join(folder, "run")).records()
    if result.error is not None:
        raise AgentvError("The answer could not be scored", result.error.message)
    if result.score is None:
        raise AgentvError("The answer was not scored", "All its evaluators have the weight 0, or there are none")
    if result.verdict != "pass":
        raise AssertionError(f"{headline(result)}\n{story(result)}")
    return result


def _run_of(outcome: Outcome) -> Run:
    return Run(outcome.folder, outcome.summary, outcome.verdict.exit_code)


def _observer() -> Observer:
    """Return a progress display in a notebook, else an observer that shows nothing."""
    if "IPython" not in sys.modules:
        return Observer()
    return _LiveProgress() if LiveLine.is_available() else Observer()


class _LiveProgress(Observer):
    """Shows the progress of a run in a line that is updated."""

    def watch(self, running: RunInProgress) -> AbstractContextManager[None]:
        return LiveLine(running.snapshot).shown()


class _Started(Observer):
    """Stores the run when it starts, so that it can be interrupted."""

    def __init__(self, display: Observer) -> None:
        self.runs: list[RunInProgress] = []
        self._display = display

    def watch(self, running: RunInProgress) -> AbstractContextManager[None]:
        self.runs.append(running)
        return self._display.watch(running)


def _executed(inputs: Given, out: Any, options: dict[str, Any], observer: Observer) -> Outcome:
    if not isinstance(out, str | os.PathLike | None):
        raise UsageError(f"'out' must be a path, got {type(out).__name__}")
    folder, file = output_paths(None if out is None else os.fspath(out))
    trusted = options.get("trust") or ()
    with trusting([trusted] if isinstance(trusted, str | os.PathLike) else trusted):
        plan = _prepared(inputs, options, None if file is None else file[0])
        outcome = run(plan, open_store(plan, folder), open_executor(plan), observer)
    if file is not None:
        export_records(outcome.folder / "results.jsonl", *file)
    return outcome


def _prepared(inputs: Given, settings: dict[str, Any], export_path: str | None) -> RunPlan:
    dataset, target, evaluators = inputs
    paths = _paths(dataset)
    options = _options(paths or (), settings)
    cases: CaseSource | InMemoryCases
    if paths is None:
        given_cases = _given(dataset)
        if evaluators is not None:
            given_cases = map(_with_outcome, given_cases)
        cases = InMemoryCases(given_cases, options.selection, warn_caller)
    else:
        cases = options.open_cases(warn_caller, ignore)
    targets = () if target is None or isinstance(target, str) else (_target(target),)
    if isinstance(target, str):
        options = msgspec.structs.replace(options, targets=(target,))
    return prepare(options, cases, given=targets, evaluators=_specs(evaluators), written=export_path)


def _options(paths: tuple[str, ...], settings: dict[str, Any]) -> EvalOptions:
    for name in settings:
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS) or f"Known: {', '.join(OPTIONS)}"
            raise UsageError(f"Unknown option '{name}'", hint=hint)
    filters = settings.get("filter", ())
    gates: dict[str, Any] = {
        name: _share(name, settings[name]) for name in ("threshold", "min_pass_rate") if settings.get(name) is not None
    }
    if settings.get("gate_on") is not None:
        gates["gate_on"] = settings["gate_on"]
    if settings.get("max_errors") is not None:
        gates["max_errors"], gates["errors_are_share"] = parse_max_errors(str(settings["max_errors"]))
    fields = {name: value for name, value in settings.items() if name in EvalOptions.__struct_fields__}
    data = {**fields, "paths": paths, "filters": [filters] if isinstance(filters, str) else filters}
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


def _with_outcome(case: EvalCase | Mapping[str, Any]) -> EvalCase | Mapping[str, Any]:
    """Add an empty expected outcome to a case without one: the program's own evaluators replace it."""
    if not isinstance(case, Mapping) or any(key in case for key in OUTCOME_KEYS):
        return case
    return {"expected_outcome": "", **case}


def _target(target: dict[str, Any] | Callable[..., Any]) -> Target:
    if not isinstance(target, dict):
        name = getattr(target, "__name__", "function")
        return FunctionTarget(name=name, provider="python", call=target)
    settings = {"name": "target", **target}
    if isinstance(settings.get("tools"), list | tuple):
        settings["tools"] = [{"function": tool} if callable(tool) else tool for tool in settings["tools"]]
    if (provider := TARGETS.canonical(str(settings.get("provider", "")))) is None:
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
    functions: dict[int, EvaluatorSpec] = {}
    for number, each in enumerate(cast("list[object]", evaluators)):
        if callable(each):
            functions[number] = function_spec(each)
        elif not isinstance(each, str | dict | EvaluatorSpec):
            got = type(each).__name__
            raise UsageError(f"'evaluators[{number}]' must be a string, a dict, a function or a spec, got {got}")
    entries = [_entry(each) for each in evaluators if not callable(each)]
    specs, warned = specs_of(entries) if entries else ((), [])
    for problem in warned:
        warn_caller(DatasetWarning(problem.message, field=problem.field, hint=problem.hint))
    others = iter(specs)
    return named(tuple(functions[number] if number in functions else next(others) for number in range(len(evaluators))))


def _entry(value: Any) -> Any:
    """Return an entry of `evaluators`; a string is a type, as with `--evaluator`."""
    if isinstance(value, str) and " " in value.strip():
        hint = 'For a criterion that a judge checks, use {"type": "rubric", "rubrics": ["…"]}'
        raise UsageError(f"Unknown evaluator type '{value}'", hint=hint)
    if isinstance(value, str):
        return {"type": value}
    return value.to_data() if isinstance(value, EvaluatorSpec) else value
