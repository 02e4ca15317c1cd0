"""The result of `agentv select` as lines and as JSON."""

from collections.abc import Sequence
from typing import Any

import msgspec

from agentv.comparison.comparison import Comparison
from agentv.comparison.comparison_json import comparison_data
from agentv.errors import plural
from agentv.extensions.select.rounds import Schedule
from agentv.extensions.select.stages import Choice, Stage
from agentv.report.comparisons.verdict_text import method, named_verdict
from agentv.report.figures import number, one_line
from agentv.report.terminal import Line
from agentv.runs.folder import short_path

_LONGEST_NAME = 40
_MOST_VARIANTS = 5


def schedule_lines(variants: Sequence[str], schedule: Schedule, per_case: int) -> list[Line]:
    """Return the plan of the rounds."""
    lines: list[Line] = [(f"{plural(len(variants), 'variant')}; the baseline is {_name(variants[0])}", "bold")]
    for place, each in enumerate(schedule.rounds, 1):
        calls = f"{each.calls * per_case:,} calls"
        cases = plural(each.cases, "case")
        lines.append(
            (f"  round {place}       {each.variants} variants on {cases}, {calls}; {each.survivors} go on", "")
        )
    calls = f"{2 * schedule.confirmation * per_case:,} calls"
    lines.append((f"  confirmation  2 variants on {plural(schedule.confirmation, 'other case')}, {calls}", ""))
    lines.append((f"At most {schedule.calls * per_case:,} calls, nothing was called", ""))
    return lines


def selection_lines(choice: Choice, found: Comparison | None, matrix: int) -> list[Line]:
    """Return the verdict first, then the confirmation and the rounds."""
    lines: list[Line] = [(_verdict(choice, found), "bold"), ("", "")]
    if found is not None and found.paired is not None and choice.stages:
        chosen_at = choice.stages[-1].means[choice.winner]
        lines.append(
            (f"{_name(choice.winner)} scored {number(chosen_at)} in the rounds, and was chosen for it: only the", "")
        )
        lines.append(
            ("confirmation, on cases that took no part in the choice, is an unbiased estimate of its lead.", "")
        )
        lines.append((f"Method: {method(found.paired)}", "dim"))
        lines.append(("", ""))
    for place, stage in enumerate(choice.stages, 1):
        lines += _stage_lines(place, stage)
    if choice.confirmation is not None:
        lines.append((f"Confirmation: {short_path(choice.confirmation)}", ""))
    lines.append((f"{choice.calls:,} calls; all variants on all cases would be {matrix:,}", ""))
    return lines


def _verdict(choice: Choice, found: Comparison | None) -> str:
    if found is None:
        return f"Keep {_name(choice.baseline)}: the baseline won the rounds, and there is nothing to confirm"
    names = _name(choice.baseline), _name(choice.winner)
    text = named_verdict(found, names)
    return f"Choose {names[1]}: {text}" if found.answer == "better" else f"{names[1]} won the rounds. {text}"


def _stage_lines(place: int, stage: Stage) -> list[Line]:
    ranking = sorted(stage.means, key=lambda name: -stage.means[name])
    best = ", ".join(f"{_name(name)} {number(stage.means[name])}" for name in ranking[:_MOST_VARIANTS])
    more = f" and {len(ranking) - _MOST_VARIANTS} more" if len(ranking) > _MOST_VARIANTS else ""
    head = f"Round {place}: {len(stage.errors)} variants, {plural(stage.cases, 'case')}; {len(stage.survivors)} went on"
    lines: list[Line] = [(head, ""), (f"  {best}{more}", "dim")]
    if errors := {name: count for name, count in stage.errors.items() if count}:
        lines.append((f"  errors (not scored): {', '.join(f'{_name(n)} {count}' for n, count in errors.items())}", ""))
    return lines


def selection_data(choice: Choice, found: Comparison | None, matrix: int, exit_code: int) -> dict[str, Any]:
    """Return the result as JSON."""
    paired = None if found is None else found.paired
    lead = None if paired is None else {"value": paired.mean_delta, "ci95": paired.ci95, "p_value": paired.p_value}
    return {
        "winner": choice.winner,
        "baseline": choice.baseline,
        "answer": "keep" if found is None else found.answer,
        "lead": lead,
        "exit_code": exit_code,
        "calls": choice.calls,
        "calls_of_matrix": matrix,
        "rounds": msgspec.to_builtins(choice.stages),
        "confirmation": None if choice.confirmation is None else str(choice.confirmation),
        "comparison": None if found is None else comparison_data(found, exit_code),
    }


def _name(name: str) -> str:
    return one_line(name, _LONGEST_NAME)
