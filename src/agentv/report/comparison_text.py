"""A comparison as people read it: one sentence first, then everything it stands on. Lines for a terminal or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from string import ascii_uppercase

from agentv.comparison.comparison import Change, Comparison, Matrix, PartComparison, Side, UsageChange
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
    p_value,
    signed,
    signed_interval,
    usd,
)
from agentv.report.figures import lines as text_lines
from agentv.report.terminal import Line
from agentv.stats.paired_comparison import Paired

_LONGEST_NAME = 40
_ANSWER_LINES, _ANSWER_WIDTH = 4, 100
_PARTS = 20


def letter(index: int) -> str:
    """What a run is called in a comparison: A, B, …, and numbers past Z."""
    return ascii_uppercase[index] if index < len(ascii_uppercase) else f"#{index + 1}"


def sentence(paired: Paired | None, before: str = "A", after: str = "B") -> str:
    """The answer: which is better, by how much, how sure that is, and what this set could have shown."""
    if paired is None:
        return f"Nothing to tell: no case was scored in both {before} and {after}"
    cases = f"{paired.n:,} paired case{'s' if paired.n != 1 else ''}"
    if paired.clusters < paired.n:
        cases += f" in {_counted(paired)}"
    able = _able(paired.minimum_detectable_difference)
    delta, p = paired.mean_delta, p_value(paired.p_value)
    chance = f"p {p}" if p.startswith("<") else f"p = {p}"
    if paired.answer == "too little to tell":
        return f"Too little to tell: {after} − {before} = {signed(delta)} ({cases})"
    assert paired.ci95 is not None
    if paired.answer == "no difference shown":
        within = f"95 % {signed_interval(paired.ci95)}, {chance}, {cases}"
        return f"No difference shown: {after} − {before} = {signed(delta)} ({within}){able}"
    low, high = paired.ci95 if paired.answer == "better" else (-paired.ci95[1], -paired.ci95[0])
    within = f"95 % {interval((low, high))}, {chance}, {cases}"
    return f"{after} is {paired.answer} by {number(abs(delta))} ({within}){able}"


def _counted(paired: Paired | Matrix) -> str:
    """How many cases there are that do not depend on each other, or clusters of them: conversations, mostly."""
    what = "cluster" if paired.clusters < paired.n else "case"
    return f"{paired.clusters:,} {what}{'' if paired.clusters == 1 else 's'}"


def _able(could: float | None) -> str:
    if could is None:
        return "; what this set could have shown cannot be told, as the differences do not vary"
    if number(could) == number(1.0):
        return "; so few cases would not surely have shown even a difference of 1"
    return f"; this set could have shown {number(could)}"


def margin_sentence(comparison: Comparison) -> str | None:
    """What was asked with a margin, and the answer."""
    asked = comparison.non_inferiority
    if asked is None:
        return None
    said = {
        "shown": f"B is shown not to be worse than A by {asked.margin:g} or more",
        "refuted": f"B is shown to be worse than A by more than {asked.margin:g}",
        "inconclusive": f"It is not shown whether B is worse than A by more than {asked.margin:g}",
    }[asked.outcome]
    p = p_value(asked.p_value)
    return said if asked.p_value is None else f"{said} (one-sided p {p if p.startswith('<') else f'= {p}'})"


def method(paired: Paired) -> str:
    """How the interval and the p-value were found."""
    if paired.test == "exact McNemar":
        return "score interval of the difference of shares (Tango), exact McNemar test"
    if paired.test == "e-value":
        by_betting = "interval and p-value by betting on the cases in the order of their draw"
        return f"{by_betting}, because a run was stopped early"
    over = _counted(paired)
    found = f"t interval over {over}"
    if paired.standard_error == 0:
        found = f"cautious interval of {over} that differ alike"
    if paired.test == "none" or paired.resamples is None:
        return found
    ways = f"all {paired.resamples:,} ways" if paired.resamples > 1 else "no case differs"
    how = ways if paired.exact else f"{paired.resamples:,} draws, seed {paired.seed}"
    return f"{found}, permutation test by sign flips ({how})"


def notes(comparison: Comparison) -> Iterator[str]:
    """What a reader must know before trusting the figures."""
    paired = comparison.paired
    yield from comparison.notes
    yield from _stopped_early(comparison.sides, paired)
    if paired is None or paired.p_value is None or paired.ci95 is None:
        return
    if (paired.p_value < 0.05) == (paired.answer != "no difference shown"):
        return
    if paired.test == "sign flips" and 2.0 ** (1 - paired.clusters) >= 0.05:
        yield f"No test can show anything with {_counted(paired)}: the interval holds if differences are near normal"
    else:
        yield "The interval and the test disagree: this is on the border, and more cases would tell"


def matrix_notes(matrix: Matrix) -> Iterator[str]:
    """The same, of many runs."""
    yield from matrix.notes
    yield from _stopped_early(matrix.sides, None)


def _stopped_early(sides: Sequence[Side], paired: Paired | None) -> Iterator[str]:
    for index, side in enumerate(sides):
        if side.stopped_early:
            caution = "intervals made afterwards, as these are, promise a little too much"
            if paired is not None and paired.test == "e-value":
                caution = "the interval above holds at whatever moment it stopped, those of the tables do not quite"
            yield f"{letter(index)} was stopped early, when it knew enough: {caution}"


def comparison_lines(comparison: Comparison) -> list[Line]:
    """All of it, line by line."""
    paired = comparison.paired
    style = {"better": "bold green", "worse": "bold red"}.get(paired.answer if paired else "", "bold")
    lines: list[Line] = [(sentence(paired), style)]
    said = margin_sentence(comparison)
    if said is not None:
        lines.append((said, "bold"))
    lines += [(f"Note: {one_line(note, 500)}", "yellow") for note in notes(comparison)]
    lines += [("", ""), *_table(side_rows(comparison.sides))]
    lines += [("", ""), (outcomes(comparison), "")]
    lines += [(text, "") for text in left_out(comparison)]
    if paired is not None:
        lines.append((f"How: {method(paired)}", "dim"))
    for title, parts in (("Evaluators", comparison.evaluators), ("Tags", comparison.tags)):
        if parts:
            lines += [("", ""), (title, "bold"), *_table(part_rows(parts[:_PARTS]))]
            if len(parts) > _PARTS:
                lines.append((f"and {len(parts) - _PARTS} more; --json has all", "dim"))
    uses = list(use_rows(comparison))
    if uses:
        lines += [("", ""), ("Cost and time of a case", "bold"), *_table([USE_HEAD, *uses])]
    if comparison.changes:
        lines += [("", ""), ("Biggest changes", "bold")]
        for change in comparison.changes:
            lines += _change(change)
    return lines


def outcomes(comparison: Comparison) -> str:
    """Wins, losses and ties."""
    total = comparison.wins + comparison.losses + comparison.ties
    tie = f"a change of less than {comparison.threshold:g} is a tie" if comparison.threshold else "any change counts"
    return f"B wins {comparison.wins:,}, loses {comparison.losses:,}, ties {comparison.ties:,} of {total:,} ({tie})"


def left_out(comparison: Comparison) -> Iterator[str]:
    """Cases that are not in the figures, and why."""
    for index, (count, ids) in enumerate(zip(comparison.unmatched, comparison.unmatched_ids, strict=True)):
        if count:
            named = ", ".join(one_line(id, _LONGEST_NAME) for id in ids[:5]) + (", …" if count > 5 else "")
            yield f"Only in {letter(index)}: {count:,} case{'s' if count > 1 else ''} ({named})"
    for index, side in enumerate(comparison.sides):
        if side.errors:
            classes = counted(side.error_classes)
            yield f"Errors in {letter(index)}: {side.errors:,} of {side.records:,} results ({classes})"
    for index, count in enumerate(comparison.unscored):
        if count:
            yield f"In both, without a score in {letter(index)}: {count:,}"


def part_rows(parts: Iterable[PartComparison]) -> list[list[str]]:
    """A table of evaluators or tags, a head first."""
    rows = [["", "A", "B", "difference", "95 % interval", "cases", "p, adjusted"]]
    for part in parts:
        found = part.paired
        name, means = one_line(part.name, _LONGEST_NAME), (number(found.mean_before), number(found.mean_after))
        difference = (signed(found.mean_delta), signed_interval(found.ci95))
        rows.append([name, *means, *difference, f"{found.n:,}", p_value(part.p_adjusted)])
    return rows


_FEW_MS = 20

USE_HEAD = ["", "A", "B", "difference", "95 % interval", "cases"]


def use_rows(comparison: Comparison) -> Iterator[list[str]]:
    """Cost and time, where both sides know them."""
    if comparison.cost is not None:
        yield _use_row("cost", comparison.cost, usd)
    if (time := comparison.duration) is not None:
        # A few milliseconds are told to the tenth: as whole ones, two of them and their difference need not add up.
        is_little = max(time.before, time.after) < _FEW_MS
        yield _use_row("time", time, _tenths if is_little else duration)


def _tenths(milliseconds: float) -> str:
    return f"{milliseconds:.1f} ms"


def _use_row(name: str, use: UsageChange, unsigned: Callable[[float], str]) -> list[str]:
    def shown(value: float) -> str:
        text = unsigned(abs(value))
        return f"−{text}" if value < 0 and any(digit in text for digit in "123456789") else text

    bounds = use.difference.ci95
    between = "-" if bounds is None else f"{shown(bounds[0])} to {shown(bounds[1])}"
    return [name, shown(use.before), shown(use.after), shown(use.difference.value), between, f"{use.n:,}"]


def side_rows(sides: Sequence[Side]) -> list[list[str]]:
    """The runs that are compared, a head first."""
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
        shown = ["(no answer kept)"] if answer is None else text_lines(answer, _ANSWER_LINES, _ANSWER_WIDTH)
        yield f"      {label}: {shown[0]}", ""
        yield from ((f"         {line}", "") for line in shown[1:])
    if change.reason:
        yield f"      why: {one_line(change.reason, _ANSWER_WIDTH)}", "dim"


def matrix_lines(matrix: Matrix) -> list[Line]:
    """Many runs: who leads, every pair, and the ranking."""
    lines: list[Line] = [(matrix_sentence(matrix), "bold")]
    lines += [(f"Note: {one_line(note, 500)}", "yellow") for note in matrix_notes(matrix)]
    lines += [("", ""), *_table(side_rows(matrix.sides))]
    lines += [("", ""), (matrix_basis(matrix), "")]
    lines += [("", ""), ("Differences: column − row (* p < 0.05, Holm's, over all pairs)", "bold")]
    lines += _table(matrix_rows(matrix))
    lines += [("", ""), ("Ranking (Bradley-Terry, from who scores higher on each case)", "bold")]
    return lines + _table(ranking_rows(matrix))


def matrix_sentence(matrix: Matrix) -> str:
    """Who is first, and whether that is shown."""
    best = max(range(len(matrix.means)), key=lambda index: matrix.means[index].value)
    unsure = [index for index in range(len(matrix.means)) if index != best and not _shown(matrix, best, index)]
    lead = f"{letter(best)} has the highest mean, {number(matrix.means[best].value)}, of {len(matrix.means)} runs"
    if not unsure:
        return f"{lead}, and is shown to be better than every other"
    return f"{lead}; no difference is shown from {', '.join(map(letter, unsure))}"


def matrix_basis(matrix: Matrix) -> str:
    """What all figures of a matrix stand on."""
    cases = f"{matrix.n:,} cases that all runs scored"
    if matrix.clusters < matrix.n:
        cases += f", in {_counted(matrix)}"
    missing = ", ".join(f"{letter(i)} {count:,}" for i, count in enumerate(matrix.left_out) if count)
    return cases + (f"; left out: {missing}" if missing else "")


def matrix_rows(matrix: Matrix) -> list[list[str]]:
    """Every pair of runs, a head first."""
    names = [letter(index) for index in range(len(matrix.sides))]
    rows = [[name, *(_difference(matrix, i, j) for j in range(len(names)))] for i, name in enumerate(names)]
    return [["", *names], *rows]


def _difference(matrix: Matrix, i: int, j: int) -> str:
    paired = matrix.differences[min(i, j)][max(i, j)]
    if paired is None:
        return ""
    return signed(paired.mean_delta if i < j else -paired.mean_delta) + ("*" if _shown(matrix, i, j) else "")


def ranking_rows(matrix: Matrix) -> list[list[str]]:
    """The order of strength, a head first."""
    rows = [["", "", "run", "strength", "95 % interval", "wins against an average one"]]
    for place, ranked in enumerate(matrix.ranking, 1):
        name = one_line(matrix.sides[ranked.side].label, _LONGEST_NAME)
        strength = (signed(ranked.value), signed_interval(ranked.ci95), f"{100 * ranked.share:.0f} %")
        rows.append([str(place), letter(ranked.side), name, *strength])
    return rows


def _shown(matrix: Matrix, i: int, j: int) -> bool:
    adjusted = matrix.p_adjusted[min(i, j)][max(i, j)]
    return adjusted is not None and adjusted < 0.05


def _table(rows: list[list[str]]) -> list[Line]:
    head, *body = aligned(rows)
    return [(head, "dim"), *((row, "") for row in body)]


_NAME = 60
_ANSWER = 1_500


def comparison_markdown(comparison: Comparison) -> str:
    """The whole comparison."""
    return "\n".join(_comparison(comparison)).rstrip() + "\n"


def matrix_markdown(matrix: Matrix) -> str:
    """Many runs."""
    return "\n".join(_matrix(matrix)).rstrip() + "\n"


def _comparison(comparison: Comparison) -> Iterator[str]:
    paired = comparison.paired
    yield from (f"### {sentence(paired)}", "")
    said = margin_sentence(comparison)
    if said is not None:
        yield from (f"**{said}**", "")
    for note in notes(comparison):
        yield from (f"> {markdown(note, 500)}", "")
    yield from _sides(comparison.sides)
    yield from ("", outcomes(comparison), "")
    for text in left_out(comparison):
        yield f"- {markdown(text, 500)}"
    if paired is not None:
        yield from ("", f"<sub>{method(paired)}</sub>", "")
    for title, parts in (("Evaluators", comparison.evaluators), ("Tags", comparison.tags)):
        if parts:
            yield from (f"#### {title}", "", *_markdown_table(part_rows(parts[:_PARTS])), "")
    uses = list(use_rows(comparison))
    if uses:
        yield from ("#### Cost and time of a case", "", *_markdown_table([USE_HEAD, *uses]), "")
    if comparison.changes:
        yield from ("#### Biggest changes", "")
        for change in comparison.changes:
            yield from _markdown_change(change)


def _matrix(matrix: Matrix) -> Iterator[str]:
    yield from (f"### {matrix_sentence(matrix)}", "")
    for note in matrix_notes(matrix):
        yield from (f"> {markdown(note, 500)}", "")
    yield from (*_sides(matrix.sides), "", matrix_basis(matrix), "")
    yield from ("#### Differences", "", "Column − row; * p < 0.05, adjusted (Holm) over all pairs.", "")
    yield from (*_markdown_table(matrix_rows(matrix)), "")
    yield from ("#### Ranking", "", "Bradley-Terry, from who scores higher on each case.", "")
    yield from _markdown_table(ranking_rows(matrix), named=2)


def _sides(sides: Sequence[Side]) -> Iterator[str]:
    named = [(cell(side.label, _NAME), cell(", ".join(side.targets), _NAME)) for side in sides]
    head, *rows = side_rows(sides)
    yield from _markdown_table(
        [head, *([row[0], *names, *row[3:]] for row, names in zip(rows, named, strict=True))], named=None
    )


def _markdown_change(change: Change) -> Iterator[str]:
    pair = change.pair
    name = " · ".join(code(part, _NAME) for part in (pair.dataset, pair.eval_id, pair.target, pair.prompt) if part)
    yield "<details>"
    yield f"<summary>{signed(pair.delta)} ({number(pair.score1)} → {number(pair.score2)})</summary>"
    yield from ("", name, "")
    for label, answer in (("A", change.answer1), ("B", change.answer2)):
        yield from (f"{label}:", "", "(no answer kept)" if answer is None else fenced(answer, _ANSWER), "")
    if change.reason:
        yield from (f"Why: {markdown(change.reason, 300)}", "")
    yield from ("</details>", "")


def _markdown_table(rows: Sequence[Sequence[str]], named: int | None = 0) -> Iterator[str]:
    """A table; the cells of column `named` are names of users."""
    head, *body = rows
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in body:
        cells = [cell(text, _NAME) if place == named else text for place, text in enumerate(row)]
        yield f"| {' | '.join(cells)} |"
