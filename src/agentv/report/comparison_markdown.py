"""A comparison as Markdown that fits a pull request: names and answers are shown as code, and nothing in them acts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentv.comparison.comparison import Change, Comparison, Matrix, Side
from agentv.report.comparison_text import (
    USE_HEAD,
    left_out,
    margin_sentence,
    matrix_basis,
    matrix_notes,
    matrix_rows,
    matrix_sentence,
    method,
    notes,
    outcomes,
    part_rows,
    ranking_rows,
    sentence,
    side_rows,
    use_rows,
)
from agentv.report.figures import cell, code, fenced, markdown, number, signed

_NAME = 60
_ANSWER = 1_500
_PARTS = 20


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
            yield from (f"#### {title}", "", *_table(part_rows(parts[:_PARTS])), "")
    uses = list(use_rows(comparison))
    if uses:
        yield from ("#### Cost and time of a case", "", *_table([USE_HEAD, *uses]), "")
    if comparison.changes:
        yield from ("#### Biggest changes", "")
        for change in comparison.changes:
            yield from _change(change)


def _matrix(matrix: Matrix) -> Iterator[str]:
    yield from (f"### {matrix_sentence(matrix)}", "")
    for note in matrix_notes(matrix):
        yield from (f"> {markdown(note, 500)}", "")
    yield from (*_sides(matrix.sides), "", matrix_basis(matrix), "")
    yield from ("#### Differences", "", "Column − row; * p < 0.05, adjusted (Holm) over all pairs.", "")
    yield from (*_table(matrix_rows(matrix)), "")
    yield from ("#### Ranking", "", "Bradley-Terry, from who scores higher on each case.", "")
    yield from _table(ranking_rows(matrix), named=2)


def _sides(sides: Sequence[Side]) -> Iterator[str]:
    named = [(cell(side.label, _NAME), cell(", ".join(side.targets), _NAME)) for side in sides]
    head, *rows = side_rows(sides)
    yield from _table([head, *([row[0], *names, *row[3:]] for row, names in zip(rows, named, strict=True))], named=None)


def _change(change: Change) -> Iterator[str]:
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


def _table(rows: Sequence[Sequence[str]], named: int | None = 0) -> Iterator[str]:
    """A table; the cells of column `named` are names of users."""
    head, *body = rows
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in body:
        cells = [cell(text, _NAME) if place == named else text for place, text in enumerate(row)]
        yield f"| {' | '.join(cells)} |"
