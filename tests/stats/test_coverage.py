"""Intervals hold the truth as often as they say. A few hundred simulated runs always; ten thousand with `-m slow`."""

import pytest
from coverage_rows import PAGE, page, rows

ROWS = list(rows())
FEW = 300


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name} {row.setting}")
def test_an_interval_holds_the_truth_about_as_often_as_it_says(row):
    low, high = row.limits
    assert low - 0.04 <= row.coverage(FEW) <= high + 0.03


@pytest.mark.slow
def test_ten_thousand_simulated_runs_are_as_the_table_says():
    found = [(row, row.coverage()) for row in ROWS]
    assert [(row.name, row.setting, share) for row, share in found if not row.limits[0] <= share <= row.limits[1]] == []
    for computed, printed in zip(page(found).splitlines(), PAGE.read_text(encoding="utf-8").splitlines(), strict=True):
        # Another processor may round a case in ten thousand to the other side.
        assert parts(computed)[:-1] == parts(printed)[:-1]
        assert parts(computed)[-1] == pytest.approx(parts(printed)[-1], abs=0.1)


def test_the_table_has_a_row_for_each_simulation_and_all_are_within_limits():
    printed = [parts(line) for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert [each[:-1] for each in printed] == [[row.name, row.kind, row.setting] for row in ROWS]
    for row, each in zip(ROWS, printed, strict=True):
        assert 100 * row.limits[0] <= each[-1] <= 100 * row.limits[1]


def parts(line):
    """The cells of a row of the table, its share as a number; of any other line, itself."""
    if not line.startswith("| `"):
        return [line, 0.0]
    *cells, share = line.strip("| ").split(" | ")
    return [*cells, float(share.removesuffix(" %"))]
