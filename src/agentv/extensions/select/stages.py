"""Run the rounds of a choice on cases of their own, and the confirmation on others."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from agentv.cli.run_series import RunSeries
from agentv.datasets.selection import CaseName, write_case_list
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import RunPlan
from agentv.errors import UsageError, plural
from agentv.extensions.select.rounds import Schedule, surviving
from agentv.model.values import cluster_of, draw_rank, sampling_unit
from agentv.runs.record import ScoreRecord
from agentv.runs.store import RunStore

_FEWEST = 6
"""The fewest cases that can confirm anything: five that all agree are a coincidence in 6 % of comparisons."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A finished round: the mean of each variant over all its cases so far, and those that went on."""

    run: str
    cases: int
    means: dict[str, float]
    errors: dict[str, int]
    survivors: tuple[str, ...]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The finished rounds and the winner. `confirmation` is the run that compares it with the baseline, if it is not.

    `calls` is the number of answers in all runs.
    """

    baseline: str
    winner: str
    stages: tuple[Stage, ...]
    confirmation: Path | None
    calls: int


def shuffled_units(plan: RunPlan, seed: int) -> list[list[CaseName]]:
    """Return the cases of a plan in random order, those of a cluster together."""
    units: dict[str, list[CaseName]] = {}
    for case in plan.cases.stream_again():
        unit = sampling_unit(cluster_of(case), case.path, case.id)
        units.setdefault(unit, []).append((case.dataset, case.id))
    return [units[name] for name in sorted(units, key=lambda name: draw_rank(seed, name))]


def check_schedule(schedule: Schedule, calls: int | None) -> None:
    """Raise UsageError if a round would have no case, or the confirmation too few."""
    if schedule.confirmation >= _FEWEST and all(each.cases for each in schedule.rounds):
        return
    have = f"{plural(schedule.cases, 'case')}{'' if calls is None else ' within --calls'}"
    hint = "Add cases" if calls is None else "Allow more calls"
    message = f"Too few cases to choose a variant and confirm it on other cases: {have}"
    raise UsageError(message, hint=f"{hint}, or pass fewer variants")


def run_stages(series: RunSeries, options: EvalOptions, schedule: Schedule, units: list[list[CaseName]]) -> Choice:
    """Run what is not complete yet."""
    names, rest = list(options.targets), iter(units)
    scores: dict[str, dict[CaseName, float]] = {}
    stages: list[Stage] = []
    calls = 0
    baseline = options.targets[0]
    for number, round_ in enumerate(schedule.rounds, 1):
        cases = _next_cases(rest, round_.cases)
        title = f"Round {number} of {len(schedule.rounds)}: {len(names)} variants, {plural(len(cases), 'case')}"
        run, errors = _evaluate(series, number, options, (names, cases, title))
        for name, by_case in _means(run).items():
            scores.setdefault(name, {}).update(by_case)
        survivors = surviving({name: scores.get(name, {}) for name in names}, round_.survivors)
        means = {name: sum(scores[name].values()) / len(scores[name]) for name in names if scores.get(name)}
        stages.append(Stage(run=str(run), cases=len(cases), means=means, errors=errors, survivors=survivors))
        calls += _records(run)
        names = list(survivors)
    winner = names[0] if schedule.rounds else names[1]
    if winner == baseline:
        return Choice(baseline=baseline, winner=winner, stages=tuple(stages), confirmation=None, calls=calls)
    cases = _next_cases(rest, schedule.confirmation)
    title = f"Confirmation: {winner} against {baseline}, {plural(len(cases), 'case')}"
    run, _ = _evaluate(series, len(stages) + 1, options, ([baseline, winner], cases, title))
    calls += _records(run)
    return Choice(baseline=baseline, winner=winner, stages=tuple(stages), confirmation=run, calls=calls)


def _next_cases(units: Iterator[list[CaseName]], count: int) -> list[CaseName]:
    cases: list[CaseName] = []
    while len(cases) < count and (unit := next(units, None)) is not None:
        cases += unit
    return cases


def _evaluate(
    series: RunSeries, number: int, options: EvalOptions, stage: tuple[Sequence[str], list[CaseName], str]
) -> tuple[Path, dict[str, int]]:
    """Run some variants on some cases; return the folder, and the errors of each variant."""
    names, cases, title = stage
    folder = series.home / stage_name(number)
    case_list = series.home.resolve() / f"{stage_name(number)}.jsonl"
    series.home.mkdir(parents=True, exist_ok=True)
    before = case_list.read_bytes() if case_list.is_file() else None
    write_case_list(str(case_list), cases)
    if before is not None and before != case_list.read_bytes():
        case_list.write_bytes(before)
        hint = "Resume with the same datasets, variants and options, or start again in another folder"
        raise UsageError(f"Cannot resume: the cases of {folder} would be others", hint=hint)
    variants = tuple(each for each in options.variants if each.name in names)
    own = msgspec.structs.replace(
        options.for_all_cases(), cases_from=str(case_list), targets=tuple(names), variants=variants
    )
    series.evaluate(stage_name(number), own, title)
    errors: Counter[str] = Counter()
    for record in RunStore.open(folder).records(ScoreRecord):
        errors[record.target] += record.status == "error"
    return folder, errors


def stage_name(number: int) -> str:
    """Return the name of the folder of a run; the last one is the confirmation."""
    return f"stage-{number}"


def _records(run: Path) -> int:
    return sum(1 for _ in RunStore.open(run).records(ScoreRecord))


def _means(run: Path) -> dict[str, dict[CaseName, float]]:
    """Return the mean score of each case by variant; errors have none."""
    scores: dict[str, dict[CaseName, list[float]]] = {}
    for record in RunStore.open(run).records(ScoreRecord):
        if record.score is not None:
            case = record.dataset, record.eval_id
            scores.setdefault(record.target, {}).setdefault(case, []).append(record.score)
    return {
        target: {case: sum(values) / len(values) for case, values in cases.items()} for target, cases in scores.items()
    }
