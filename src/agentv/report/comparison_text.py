"""A comparison as text: the conclusion first, then the figures. Lines for a terminal, or Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

from agentv.comparison.comparison import Change, Comparison, Matrix, PartComparison, Side, UsageChange
from agentv.errors import plural
from agentv.report.change_text import (
    change_lines,
    change_markdown,
    letter,
    no_verdict_lines,
    no_verdict_markdown,
    run_notes,
)
from agentv.report.figures import (
    aligned,
    cell,
    code,
    counted,
    duration,
    fenced,
    interval,
    markdown,
    number,
    one_line,
    p_equals,
    p_value,
    percent,
    signed,
    signed_interval,
    usd,
)
from agentv.report.figures import lines as text_lines
from agentv.report.terminal import Line
from agentv.stats.paired_comparison import Paired
from agentv.stats.power import ALPHA, FEWEST_CHANGES

_LONGEST_NAME = 40
_ANSWER_LINES, _ANSWER_WIDTH = 4, 100
_PARTS = 20


def sentence(paired: Paired | None, before: str = "A", after: str = "B") -> str:
    """State which run is better, by how much and with which certainty, or that the cases cannot tell."""
    if paired is None:
        return f"Can't tell: no case was scored in both {before} and {after}."
    cases = plural(paired.n, "shared case")
    if paired.clusters < paired.n:
        cases += f" in {_units(paired)}"
    by, certainty = number(abs(paired.mean_delta)), f"{p_equals(paired.p_value)}, {cases}"
    if paired.answer != "cannot tell" and paired.ci95 is not None:
        low, high = paired.ci95 if paired.answer == "better" else (-paired.ci95[1], -paired.ci95[0])
        return f"{after} is {paired.answer} by {by} (95 % {interval((low, high))}, {certainty})."
    scored = "the same" if not float(by) else f"{by} higher" if paired.mean_delta > 0 else f"{by} lower"
    certainty = "" if paired.ci95 is None else f" (95 % {signed_interval(paired.ci95)}, {p_equals(paired.p_value)})"
    return f"Can't tell yet. {after} scored {scored} on {cases}{certainty}; {_power(paired)}."


def _units(paired: Paired | Matrix) -> str:
    """Return the number of independent cases, or of clusters of cases such as conversations."""
    return plural(paired.clusters, "cluster" if paired.clusters < paired.n else "case")


def _power(paired: Paired) -> str:
    """Describe the differences that this number of cases can show."""
    detectable = paired.minimum_detectable_difference
    if detectable is None or detectable > 0.995:
        verb = "is" if paired.clusters == 1 else "are"
        return f"{_units(paired)} {verb} too few to show any difference reliably"
    return f"with {_units(paired)}, only differences above about {detectable:.2g} show reliably"


def plan_hint(comparison: Comparison) -> str:
    """Return the command that estimates how many cases would show a difference; empty if there is a verdict."""
    paired = comparison.paired
    if paired is None or paired.answer != "cannot tell":
        return ""
    runs = " ".join(shlex.quote(side.label) for side in comparison.sides)
    return f" Run `agentv plan {runs}` to see how many you need."


def margin_sentence(comparison: Comparison) -> str | None:
    """State the result of the non-inferiority test; None if there is no margin."""
    tested = comparison.non_inferiority
    if tested is None or not comparison.is_comparable:
        return None
    result = {
        "shown": f"B is less than {tested.margin:g} worse than A, or better",
        "refuted": f"B is more than {tested.margin:g} worse than A",
        "inconclusive": f"Inconclusive whether B is more than {tested.margin:g} worse than A",
    }[tested.outcome]
    return result if tested.p_value is None else f"{result} (one-sided {p_equals(tested.p_value)})"


def method(paired: Paired) -> str:
    """Describe how the interval and the p-value were computed."""
    if paired.test == "mid-p McNemar":
        return "score interval of the difference of proportions (Tango), McNemar's mid-p test"
    if paired.test == "e-value":
        return "interval and p-value by betting on the cases in random order, because a run was stopped early"
    found = f"t interval over {_units(paired)}, widened for rare changes that {_units(paired)} may not show"
    if paired.test == "none" or paired.resamples is None:
        return found
    ways = f"all {paired.resamples:,} permutations" if paired.resamples > 1 else "no case differs"
    how = ways if paired.exact else f"{paired.resamples:,} random permutations, seed {paired.seed}"
    return f"{found}, permutation test by sign flips ({how})"


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield caveats of the figures."""
    paired = comparison.paired
    yield from run_notes(comparison)
    yield from comparison.notes
    yield from _stopped_early(comparison.sides, paired)
    if paired is None or paired.p_value is None or paired.ci95 is None:
        return
    is_split = (paired.p_value < ALPHA) != (paired.ci95[0] > 0 or paired.ci95[1] < 0)
    if paired.differing < FEWEST_CHANGES and (paired.p_value < ALPHA or is_split):
        yield f"Only {plural(paired.differing, 'case')} changed; a verdict needs at least {FEWEST_CHANGES}"
    elif is_split and paired.p_value < ALPHA and paired.test != "mid-p McNemar":
        kind = "failures" if paired.mean_delta > 0 else "gains"
        limit = f"Rare {kind} in up to {percent(paired.unseen_losses)} of cases could be missed with {_units(paired)}"
        yield f"{limit}, and could outweigh this difference"
    elif is_split:
        yield "The interval and the test disagree: the result is borderline, and more cases are needed"
    elif paired.answer == "better" and paired.test == "sign flips":
        yield f"Rare failures in up to {percent(paired.unseen_losses)} of cases could be missed with {_units(paired)}"


def matrix_notes(matrix: Matrix) -> Iterator[str]:
    """Yield caveats of the figures of several runs."""
    yield from run_notes(matrix)
    yield from matrix.notes
    yield from _stopped_early(matrix.sides, None)


def _stopped_early(sides: Sequence[Side], paired: Paired | None) -> Iterator[str]:
    for index, side in enumerate(sides):
        if side.stopped_early:
            caution = "these intervals are slightly too narrow"
            if paired is not None and paired.test == "e-value":
                caution = "the interval above accounts for that; those in the tables are slightly too narrow"
            yield f"{letter(index)} was stopped early, so its mean is biased: {caution}"


def comparison_lines(comparison: Comparison) -> list[Line]:
    """Return the comparison as lines for a terminal."""
    paired = comparison.paired
    style = {"better": "bold green", "worse": "bold red"}.get(paired.answer if paired else "", "bold")
    lines = no_verdict_lines(comparison) or [(sentence(paired) + plan_hint(comparison), style)]
    margin = margin_sentence(comparison)
    if margin is not None:
        lines.append((margin, "bold"))
    lines += [(f"Note: {one_line(note, 500)}", "yellow") for note in notes(comparison)]
    lines += [("", ""), *_table(side_rows(comparison.sides))]
    lines += [("", ""), (outcomes(comparison), "")]
    lines += [(text, "") for text in left_out(comparison)]
    if paired is not None:
        lines.append((f"Method: {method(paired)}", "dim"))
    lines += [("", ""), *change_lines(comparison)]
    for title, parts in (("Evaluators", comparison.evaluators), ("Tags", comparison.tags)):
        if parts:
            lines += [("", ""), (title, "bold"), *_table(part_rows(parts[:_PARTS]))]
            if len(parts) > _PARTS:
                lines.append((f"and {len(parts) - _PARTS} more; use --json for all", "dim"))
    uses = list(use_rows(comparison))
    if uses:
        lines += [("", ""), ("Cost and time per case", "bold"), *_table([USE_HEAD, *uses])]
    if comparison.changes:
        lines += [("", ""), ("Largest changes", "bold")]
        for change in comparison.changes:
            lines += _change(change)
    return lines


def outcomes(comparison: Comparison) -> str:
    """Return the counts of wins, losses and ties."""
    total = comparison.wins + comparison.losses + comparison.ties
    tie = f"changes below {comparison.threshold:g} are ties" if comparison.threshold else "any change counts"
    return f"B wins {comparison.wins:,}, loses {comparison.losses:,}, ties {comparison.ties:,} of {total:,} ({tie})"


def left_out(comparison: Comparison) -> Iterator[str]:
    """Yield the cases that are not in the figures, and why."""
    for index, (count, ids) in enumerate(zip(comparison.unmatched, comparison.unmatched_ids, strict=True)):
        if count:
            named = ", ".join(one_line(id, _LONGEST_NAME) for id in ids[:5]) + (", …" if count > 5 else "")
            yield f"Only in {letter(index)}: {plural(count, 'case')} ({named})"
    for index, side in enumerate(comparison.sides):
        if side.errors:
            errors = f"{side.errors:,} of {plural(side.records, 'result')} ({counted(side.error_classes)})"
            yield f"Errors in {letter(index)} (not scored): {errors}"
    for index, count in enumerate(comparison.unscored):
        if count:
            yield f"In both runs but not scored in {letter(index)}: {plural(count, 'case')}"


def part_rows(parts: Iterable[PartComparison]) -> list[list[str]]:
    """Return a table of evaluators or tags, header first."""
    rows = [["", "A", "B", "difference", "95 % interval", "cases", "adjusted p"]]
    for part in parts:
        found = part.paired
        name, means = one_line(part.name, _LONGEST_NAME), (number(found.mean_before), number(found.mean_after))
        difference = (signed(found.mean_delta), signed_interval(found.ci95))
        rows.append([name, *means, *difference, f"{found.n:,}", p_value(part.p_adjusted)])
    return rows


_FEW_MS = 20

USE_HEAD = ["", "A", "B", "difference", "95 % interval", "cases"]


def use_rows(comparison: Comparison) -> Iterator[list[str]]:
    """Yield rows for cost and time, if both runs have them."""
    if comparison.cost is not None:
        yield _use_row("cost", comparison.cost, usd)
    if (time := comparison.duration) is not None:
        # Short times get a decimal, so that they and their difference add up.
        is_short = max(time.before, time.after) < _FEW_MS
        yield _use_row("time", time, (lambda value: f"{value:.1f} ms") if is_short else duration)


def _use_row(name: str, use: UsageChange, unsigned: Callable[[float], str]) -> list[str]:
    def shown(value: float) -> str:
        text = unsigned(abs(value))
        return f"−{text}" if value < 0 and any(digit in text for digit in "123456789") else text

    bounds = use.difference.ci95
    between = "-" if bounds is None else f"{shown(bounds[0])} to {shown(bounds[1])}"
    return [name, shown(use.before), shown(use.after), shown(use.difference.value), between, f"{use.n:,}"]


def side_rows(sides: Sequence[Side]) -> list[list[str]]:
    """Return a table of the compared runs, header first."""
    rows = [["", "run", "target", "mean", "95 % interval", "cases", "results", "errors", "unscored"]]
    for index, side in enumerate(sides):
        n = side.mean.n if side.mean else 0
        names = (letter(index), one_line(side.label, _LONGEST_NAME), one_line(", ".join(side.targets), _LONGEST_NAME))
        mean = (number(side.mean.value if side.mean else None), interval(side.mean.ci95 if side.mean else None))
        cases = f"{n:,}" if n == side.cases else f"{n:,} of {side.cases:,}"
        rows.append([*names, *mean, cases, f"{side.records:,}", f"{side.errors:,}", f"{side.unscored:,}"])
    return rows


def _change(change: Change) -> Iterator[Line]:
    pair = change.pair
    name = " · ".join(one_line(part, 80) for part in (pair.dataset, pair.eval_id, pair.target, pair.prompt) if part)
    style = "green" if pair.delta > 0 else "red"
    yield f"  {signed(pair.delta)}  {name}  ({number(pair.score1)} → {number(pair.score2)})", style
    for label, answer in (("A", change.answer1), ("B", change.answer2)):
        shown = ["(no stored answer)"] if answer is None else text_lines(answer, _ANSWER_LINES, _ANSWER_WIDTH)
        yield f"      {label}: {shown[0]}", ""
        yield from ((f"         {line}", "") for line in shown[1:])
    if change.reason:
        yield f"      why: {one_line(change.reason, _ANSWER_WIDTH)}", "dim"


def matrix_lines(matrix: Matrix) -> list[Line]:
    """Return the comparison of several runs as lines for a terminal."""
    lines = no_verdict_lines(matrix) or [(matrix_sentence(matrix), "bold")]
    lines += [(f"Note: {one_line(note, 500)}", "yellow") for note in matrix_notes(matrix)]
    lines += [("", ""), *_table(side_rows(matrix.sides))]
    lines += [("", ""), (matrix_basis(matrix), "")]
    lines += [("", ""), ("Differences: column − row (* p < 0.05, Holm-adjusted over all pairs)", "bold")]
    lines += _table(matrix_rows(matrix))
    if matrix.ranking:
        lines += [("", ""), ("Ranking by mean", "bold"), *_table(ranking_rows(matrix))]
    return [*lines, ("", ""), *change_lines(matrix)]


def matrix_sentence(matrix: Matrix) -> str:
    """State which run has the highest mean, and whether it is significantly better."""
    best = max(range(len(matrix.means)), key=lambda index: matrix.means[index].value)
    unsure = [index for index in range(len(matrix.means)) if index != best and not _shown(matrix, best, index)]
    lead = f"{letter(best)} has the highest mean of {len(matrix.means)} runs, {number(matrix.means[best].value)}"
    if not unsure:
        return f"{lead}, and is significantly better than every other run"
    return f"{lead}; can't tell it from {', '.join(map(letter, unsure))}"


def matrix_basis(matrix: Matrix) -> str:
    """Describe the cases of the matrix."""
    cases = f"{plural(matrix.n, 'case')} scored in all runs"
    if matrix.clusters < matrix.n:
        cases += f", in {_units(matrix)}"
    missing = ", ".join(f"{letter(i)} {count:,}" for i, count in enumerate(matrix.left_out) if count)
    return cases + (f"; not included: {missing}" if missing else "")


def matrix_rows(matrix: Matrix) -> list[list[str]]:
    """Return a table of the differences between all pairs of runs, header first."""
    names = [letter(index) for index in range(len(matrix.sides))]
    rows = [[name, *(_difference(matrix, i, j) for j in range(len(names)))] for i, name in enumerate(names)]
    return [["", *names], *rows]


def _difference(matrix: Matrix, i: int, j: int) -> str:
    paired = matrix.differences[min(i, j)][max(i, j)]
    if paired is None:
        return ""
    return signed(paired.mean_delta if i < j else -paired.mean_delta) + ("*" if _shown(matrix, i, j) else "")


def ranking_rows(matrix: Matrix) -> list[list[str]]:
    """Return the ranking with the places that the differences leave open, header first."""
    rows = [["place", "", "run", "mean"]]
    for side, mean, (best, worst) in matrix.ranking:
        name = one_line(matrix.sides[side].label, _LONGEST_NAME)
        rows.append([str(best) if best == worst else f"{best} to {worst}", letter(side), name, number(mean)])
    return rows


def _shown(matrix: Matrix, i: int, j: int) -> bool:
    return matrix.conclusion(min(i, j), max(i, j)) != "cannot tell"


def _table(rows: list[list[str]]) -> list[Line]:
    head, *body = aligned(rows)
    return [(head, "dim"), *((row, "") for row in body)]


_NAME, _ANSWER = 60, 1_500


def comparison_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown."""
    return "\n".join(_comparison(comparison)).rstrip() + "\n"


def matrix_markdown(matrix: Matrix) -> str:
    """Return the comparison of several runs as Markdown."""
    return "\n".join(_matrix(matrix)).rstrip() + "\n"


def _comparison(comparison: Comparison) -> Iterator[str]:
    paired = comparison.paired
    verdict = (f"### {sentence(paired)}{plan_hint(comparison)}", "")
    yield from no_verdict_markdown(comparison) if not comparison.is_comparable else verdict
    margin = margin_sentence(comparison)
    if margin is not None:
        yield from (f"**{margin}**", "")
    for note in notes(comparison):
        yield from (f"> {markdown(note, 500)}", "")
    yield from _markdown_table(side_rows(comparison.sides), (1, 2))
    yield from ("", outcomes(comparison), "")
    for text in left_out(comparison):
        yield f"- {markdown(text, 500)}"
    if paired is not None:
        yield from ("", f"<sub>{method(paired)}</sub>", "")
    yield from change_markdown(comparison)
    for title, parts in (("Evaluators", comparison.evaluators), ("Tags", comparison.tags)):
        if parts:
            yield from (f"#### {title}", "", *_markdown_table(part_rows(parts[:_PARTS])), "")
    uses = list(use_rows(comparison))
    if uses:
        yield from ("#### Cost and time per case", "", *_markdown_table([USE_HEAD, *uses]), "")
    if comparison.changes:
        yield from ("#### Largest changes", "")
        for change in comparison.changes:
            yield from _markdown_change(change)


def _matrix(matrix: Matrix) -> Iterator[str]:
    yield from no_verdict_markdown(matrix) if not matrix.is_comparable else (f"### {matrix_sentence(matrix)}", "")
    for note in matrix_notes(matrix):
        yield from (f"> {markdown(note, 500)}", "")
    yield from (*_markdown_table(side_rows(matrix.sides), (1, 2)), "", matrix_basis(matrix), "")
    yield from ("#### Differences", "", "Column − row; * p < 0.05, Holm-adjusted over all pairs.", "")
    yield from (*_markdown_table(matrix_rows(matrix)), "")
    if matrix.ranking:
        yield from ("#### Ranking by mean", "", *_markdown_table(ranking_rows(matrix), (2,)), "")
    yield from change_markdown(matrix)


def _markdown_change(change: Change) -> Iterator[str]:
    pair = change.pair
    name = " · ".join(code(part, _NAME) for part in (pair.dataset, pair.eval_id, pair.target, pair.prompt) if part)
    yield "<details>"
    yield f"<summary>{signed(pair.delta)} ({number(pair.score1)} → {number(pair.score2)})</summary>"
    yield from ("", name, "")
    for label, answer in (("A", change.answer1), ("B", change.answer2)):
        yield from (f"{label}:", "", "(no stored answer)" if answer is None else fenced(answer, _ANSWER), "")
    if change.reason:
        yield from (f"Why: {markdown(change.reason, 300)}", "")
    yield from ("</details>", "")


def _markdown_table(rows: Sequence[Sequence[str]], names: tuple[int, ...] = (0,)) -> Iterator[str]:
    """Yield a table. `names` are the columns with text from users."""
    head, *body = rows
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in body:
        cells = [cell(text, _NAME) if place in names else text for place, text in enumerate(row)]
        yield f"| {' | '.join(cells)} |"
