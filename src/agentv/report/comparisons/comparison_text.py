"""A comparison as text: the conclusion first, then the figures. Lines for a terminal, or Markdown."""

from collections.abc import Callable, Iterator, Sequence

from agentv.comparison.comparison import Change, Comparison, Matrix, Side
from agentv.comparison.part_comparison import PartComparison, UsageChange
from agentv.errors import plural
from agentv.report.comparisons.behaviour_text import (
    behaviour_lines,
    behaviour_markdown,
    regression_lines,
    regression_markdown,
)
from agentv.report.comparisons.change_text import change_lines, change_markdown, no_verdict_lines, no_verdict_markdown
from agentv.report.comparisons.frontier_text import TITLE, frontier_rows, frontier_sentence
from agentv.report.comparisons.verdict_text import (
    SCORED,
    is_judged_only,
    margin_sentence,
    matrix_notes,
    method,
    notes,
    units,
    verdict,
)
from agentv.report.figures import (
    NONE,
    bounds_text,
    cell,
    code,
    counted,
    duration,
    fenced,
    interval,
    letter,
    markdown,
    markdown_table,
    number,
    one_line,
    p_value,
    percent,
    signed,
    signed_interval,
    usd,
)
from agentv.report.figures import lines as text_lines
from agentv.report.terminal import Line, note_lines, table_lines

_LONGEST_NAME = 40
_ANSWER_LINES, _ANSWER_WIDTH = 4, 100
_PARTS = 20
_ALONE = " (exploratory: the interval is for its row alone"


def comparison_lines(comparison: Comparison) -> list[Line]:
    """Return the comparison as lines for a terminal."""
    paired = comparison.paired
    style = {"better": "bold green", "worse": "bold red"}.get(comparison.answer, "bold")
    lines = no_verdict_lines(comparison) or [(verdict(comparison), style)]
    if (margin := margin_sentence(comparison)) is not None:
        lines.append((margin, "bold"))
    lines += note_lines(notes(comparison))
    lines += [("", ""), *table_lines(side_rows(comparison.sides))]
    lines += [("", ""), (outcomes(comparison), "")]
    lines += [(text, "") for text in left_out(comparison)]
    if paired is not None:
        lines.append((f"Method: {method(paired)}", "dim"))
    lines += [("", ""), *change_lines(comparison)]
    for title, (head, *rows) in tables(comparison):
        lines += [("", ""), (title, "bold"), *table_lines([head, *rows[:_PARTS]])]
        if len(rows) > _PARTS:
            lines.append((f"and {len(rows) - _PARTS} more; use --json for all", "dim"))
    if comparison.regressions is not None:
        lines += [("", ""), *regression_lines(comparison.regressions)]
    if comparison.changes:
        lines += [("", ""), ("Largest changes", "bold")]
        for change in comparison.changes:
            lines += _change(change)
    return lines


def tables(comparison: Comparison) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the title and the rows of each table of parts, and of that of cost and time, header first."""
    passes, paired = comparison.pass_rate, comparison.paired
    parts = {"Datasets": comparison.datasets, "Evaluators": comparison.evaluators, "Tags": comparison.tags}
    # With scores of 0 and 1 the pass rate is the mean.
    if passes and paired and (passes.ci95, passes.mean_delta) != (paired.ci95, paired.mean_delta):
        parts = {"Pass rate": (PartComparison(name="pass rate", paired=passes, p_adjusted=None),), **parts}
    for title, members in parts.items():
        hint = "; p is adjusted for the number of rows)" if len(members) > 1 else ")"
        if members:
            yield f"{title}{_ALONE}{hint}", _part_rows(members)
    if uses := list(use_rows(comparison)):
        yield "Cost and time per case", [USE_HEAD, *uses]


def outcomes(comparison: Comparison) -> str:
    """Return the counts of wins, losses and ties."""
    total = comparison.wins + comparison.losses + comparison.ties
    tie = f"changes below {comparison.threshold:g} are ties" if comparison.threshold else "any change counts"
    return f"B wins {comparison.wins:,}, loses {comparison.losses:,}, ties {comparison.ties:,} of {total:,} ({tie})"


def left_out(comparison: Comparison) -> Iterator[str]:
    """Yield the cases that are not in the figures, and why."""
    for index, (count, ids) in enumerate(zip(comparison.unmatched, comparison.unmatched_ids, strict=True)):
        if count:
            names = ", ".join(one_line(id, _LONGEST_NAME) for id in ids[:5]) + (", …" if count > 5 else "")
            yield f"Only in {letter(index)}: {plural(count, 'case')} ({names})"
    for index, side in enumerate(comparison.sides):
        if side.errors:
            errors = f"{side.errors:,} of {plural(side.records, 'result')} ({counted(side.error_classes)})"
            yield f"Errors in {letter(index)} (not scored): {errors}"
    if comparison.errors is not None:
        rates = comparison.errors.rates
        change = f"{percent(rates.mean_before)} in A, {percent(rates.mean_after)} in B"
        yield f"Error rate: {change} (difference {signed(rates.mean_delta)}, 95 % {signed_interval(rates.ci95)})"
    yield from weighted_text(comparison)
    for index, count in enumerate(comparison.unscored):
        if count:
            yield f"In both runs but not scored in {letter(index)}: {plural(count, 'case')}"


def weighted_text(comparison: Comparison) -> Iterator[str]:
    """Yield the difference with the datasets weighted, if they have different weights."""
    if (difference := comparison.weighted) is not None:
        weights = ", ".join(f"{name} {weight:g}" for name, weight in difference.weights.items())
        interval = f"95 % {signed_interval(difference.ci95)}"
        yield f"Datasets weighted ({weights}): difference {signed(difference.mean_delta)} ({interval})"


def _part_rows(parts: Sequence[PartComparison]) -> list[list[str]]:
    """Return a table of datasets, evaluators or tags, header first."""
    is_pooled = any(part.pooled is not None for part in parts)
    tested = "adjusted p" if len(parts) > 1 else "p"
    rows = [["", "A", "B", "difference", "95 % interval", "cases", tested, *(["pooled"] if is_pooled else [])]]
    for part in parts:
        paired = part.paired
        name, means = one_line(part.name, _LONGEST_NAME), (number(paired.mean_before), number(paired.mean_after))
        difference = (signed(paired.mean_delta), signed_interval(paired.ci95))
        rows.append(
            [name, *means, *difference, f"{paired.n:,}", p_value(part.p_adjusted if len(parts) > 1 else paired.p_value)]
        )
        if is_pooled:
            rows[-1].append(signed(part.pooled))
    return rows


_FEW_MS = 20

USE_HEAD = ["", "A", "B", "difference", "95 % interval", "cases"]


def use_rows(comparison: Comparison) -> Iterator[list[str]]:
    """Yield rows for cost and time, if both runs have them: means, percentiles and the median ratio."""
    if comparison.cost is not None:
        yield from _use_rows("cost", comparison.cost, usd)
    if (time := comparison.duration) is not None:
        # Short times get a decimal, so that they and their difference add up.
        is_short = max(time.before, time.after) < _FEW_MS
        yield from _use_rows("time", time, (lambda value: f"{value:.1f} ms") if is_short else duration)


def _use_rows(name: str, use: UsageChange, unsigned: Callable[[float], str]) -> Iterator[list[str]]:
    def shown(value: float) -> str:
        text = unsigned(abs(value))
        return f"−{text}" if value < 0 and any(digit in text for digit in "123456789") else text

    means = (shown(use.before), shown(use.after), shown(use.difference.value))
    yield [f"{name}, mean", *means, bounds_text(use.difference.ci95, shown), f"{use.n:,}"]
    for first, second in use.percentiles:
        values = (shown(first.value), shown(second.value), shown(second.value - first.value))
        bounds = NONE if second.ci95 is None else f"B {bounds_text(second.ci95, shown)}"
        yield [f"{name}, p{100 * first.share:.0f}", *values, bounds, f"{use.n:,}"]
    if use.ratio is not None:
        ratio = f"× {use.ratio.value:.2f}"
        yield [f"{name}, median ratio", "", "", ratio, bounds_text(use.ratio.ci95, "{:.2f}".format), f"{use.n:,}"]


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
        excerpt = ["(no stored answer)"] if answer is None else text_lines(answer, _ANSWER_LINES, _ANSWER_WIDTH)
        yield f"      {label}: {excerpt[0]}", ""
        yield from ((f"         {line}", "") for line in excerpt[1:])
    if change.behaviour is not None:
        yield from behaviour_lines(change.behaviour)
    if change.reason:
        yield f"      why: {one_line(change.reason, _ANSWER_WIDTH)}", "dim"


def matrix_lines(matrix: Matrix) -> list[Line]:
    """Return the comparison of several runs as lines for a terminal."""
    lines = no_verdict_lines(matrix) or [(matrix_sentence(matrix), "bold")]
    lines += note_lines(matrix_notes(matrix))
    lines += [("", ""), *table_lines(side_rows(matrix.sides))]
    lines += [("", ""), (matrix_basis(matrix), "")]
    for title, rows in matrix_tables(matrix):
        lines += [("", ""), (title, "bold"), *table_lines(rows)]
    if matrix.frontier:
        lines += [("", ""), (TITLE, "bold"), *table_lines(frontier_rows(matrix.frontier))]
        lines.append((frontier_sentence(matrix.frontier), ""))
    return [*lines, ("", ""), *change_lines(matrix)]


def matrix_tables(matrix: Matrix) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the title and the rows of the differences, with the adjustment of p-values, and of the ranking."""
    which = "all pairs" if matrix.all_pairs else "the comparisons with A; --all-pairs tests the others"
    yield f"Differences: column − row (* p < 0.05, Holm-adjusted over {which})", _matrix_rows(matrix)
    if matrix.ranking:
        yield "Ranking by mean", _ranking_rows(matrix)


def matrix_sentence(matrix: Matrix) -> str:
    """State which runs differ from the baseline or, if all pairs are tested, whether the best run is the best."""
    return _best_sentence(matrix) if matrix.all_pairs else _baseline_sentence(matrix)


def _baseline_sentence(matrix: Matrix) -> str:
    """State which runs are better or worse than the first one."""
    answers: dict[str, list[str]] = {"better": [], "worse": [], "cannot tell": []}
    for place in range(1, len(matrix.sides)):
        answers[matrix.conclusion(0, place)].append(letter(place))
    judged_only = is_judged_only(matrix)
    claims = [
        f"The judge scores {' and '.join(names)} {SCORED[answer]} than A"
        if judged_only
        else f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} {answer} than A"
        for answer, names in answers.items()
        if names and answer != "cannot tell"
    ]
    unsure = answers["cannot tell"]
    tail = [f"{'can' if claims else 'Can'}'t tell {', '.join(unsure)} from A"] if unsure else []
    return "; ".join([*claims, *tail])


def _best_sentence(matrix: Matrix) -> str:
    """State which run has the highest mean, and whether it is significantly better."""
    best = max(range(len(matrix.means)), key=lambda index: matrix.means[index].value)
    unsure = [index for index in range(len(matrix.means)) if index != best and not _shown(matrix, best, index)]
    tied = [index for index, mean in enumerate(matrix.means) if number(mean.value) == number(matrix.means[best].value)]
    who = f"{letter(best)} has" if len(tied) == 1 else f"{' and '.join(map(letter, tied))} have"
    lead = f"{who} the highest mean of {len(matrix.means)} runs, {number(matrix.means[best].value)}"
    if not unsure:
        rest = "the judge scores it significantly higher" if is_judged_only(matrix) else "is significantly better"
        return f"{lead}, and {rest} than every other run"
    return f"{lead}; can't tell it from {', '.join(map(letter, unsure))}"


def matrix_basis(matrix: Matrix) -> str:
    """Describe the cases of the matrix."""
    cases = f"{plural(matrix.n, 'case')} scored in all runs"
    if matrix.clusters < matrix.n:
        cases += f", in {units(matrix)}"
    missing = ", ".join(f"{letter(i)} {count:,}" for i, count in enumerate(matrix.left_out) if count)
    return cases + (f"; not included: {missing}" if missing else "")


def _matrix_rows(matrix: Matrix) -> list[list[str]]:
    """Return a table of the differences between all pairs of runs, header first."""
    names = [letter(index) for index in range(len(matrix.sides))]
    rows = [[name, *(_difference(matrix, i, j) for j in range(len(names)))] for i, name in enumerate(names)]
    return [["", *names], *rows]


def _difference(matrix: Matrix, i: int, j: int) -> str:
    if (paired := matrix.differences[min(i, j)][max(i, j)]) is None:
        return ""
    return signed(paired.mean_delta if i < j else -paired.mean_delta) + ("*" if _shown(matrix, i, j) else "")


def _ranking_rows(matrix: Matrix) -> list[list[str]]:
    """Return the ranking with the places that the differences leave open, header first."""
    rows = [["place", "", "run", "mean"]]
    for side, mean, (best, worst) in matrix.ranking:
        name = one_line(matrix.sides[side].label, _LONGEST_NAME)
        rows.append([str(best) if best == worst else f"{best} to {worst}", letter(side), name, number(mean)])
    return rows


def _shown(matrix: Matrix, i: int, j: int) -> bool:
    return matrix.conclusion(min(i, j), max(i, j)) != "cannot tell"


_NAME, _ANSWER = 60, 1_500


def comparison_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown."""
    return "\n".join(_comparison(comparison)).rstrip() + "\n"


def matrix_markdown(matrix: Matrix) -> str:
    """Return the comparison of several runs as Markdown."""
    return "\n".join(_matrix(matrix)).rstrip() + "\n"


def _comparison(comparison: Comparison) -> Iterator[str]:
    paired = comparison.paired
    yield from no_verdict_markdown(comparison) if not comparison.is_comparable else (f"### {verdict(comparison)}", "")
    if (margin := margin_sentence(comparison)) is not None:
        yield from (f"**{margin}**", "")
    for note in notes(comparison):
        yield from (f"> {markdown(note, 500)}", "")
    yield from _markdown_table(side_rows(comparison.sides), (1, 2))
    yield from ("", outcomes(comparison), "")
    for text in left_out(comparison):
        yield f"- {markdown(text, 500)}"
    if paired is not None:
        yield from ("", f"<sub>Method: {method(paired)}</sub>", "")
    yield from change_markdown(comparison)
    for title, rows in tables(comparison):
        yield from (f"#### {title}", "", *_markdown_table(rows[: _PARTS + 1]), "")
    if comparison.regressions is not None:
        yield from regression_markdown(comparison.regressions)
    if comparison.changes:
        yield from ("#### Largest changes", "")
        for change in comparison.changes:
            yield from _markdown_change(change)


def _matrix(matrix: Matrix) -> Iterator[str]:
    yield from no_verdict_markdown(matrix) if not matrix.is_comparable else (f"### {matrix_sentence(matrix)}", "")
    for note in matrix_notes(matrix):
        yield from (f"> {markdown(note, 500)}", "")
    yield from (*_markdown_table(side_rows(matrix.sides), (1, 2)), "", matrix_basis(matrix), "")
    for (title, rows), names in zip(matrix_tables(matrix), ((0,), (2,)), strict=False):
        yield from (f"#### {title}", "", *_markdown_table(rows, names), "")
    if matrix.frontier:
        yield from (f"#### {TITLE}", "", *_markdown_table(frontier_rows(matrix.frontier)), "")
        yield from (frontier_sentence(matrix.frontier), "")
    yield from change_markdown(matrix)


def _markdown_change(change: Change) -> Iterator[str]:
    pair = change.pair
    name = " · ".join(code(part, _NAME) for part in (pair.dataset, pair.eval_id, pair.target, pair.prompt) if part)
    yield "<details>"
    yield f"<summary>{signed(pair.delta)} ({number(pair.score1)} → {number(pair.score2)})</summary>"
    yield from ("", name, "")
    for label, answer in (("A", change.answer1), ("B", change.answer2)):
        yield from (f"{label}:", "", "(no stored answer)" if answer is None else fenced(answer, _ANSWER), "")
    if change.behaviour is not None:
        yield from behaviour_markdown(change.behaviour)
    if change.reason:
        yield from (f"Why: {markdown(change.reason, 300)}", "")
    yield from ("</details>", "")


def _markdown_table(rows: Sequence[Sequence[str]], names: tuple[int, ...] = (0,)) -> Iterator[str]:
    """Return a table. `names` are the columns with text from users."""
    head, *body = rows
    escaped = ([cell(text, _NAME) if place in names else text for place, text in enumerate(row)] for row in body)
    return markdown_table(head, escaped)
