"""Coverage of intervals: a few hundred simulated runs by default, ten thousand with `-m slow`."""

import pytest
from coverage_rows import PAGE, page, rows
from verdict_rows import POPULATIONS, difference_rows, mean_rows, power_rows, verdict_rows

pytestmark = pytest.mark.ci

ROWS = list(rows())
FEW = 300


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name} {row.setting}")
def test_the_coverage_of_an_interval_is_about_nominal(row):
    low, high = row.limits
    assert low - 0.04 <= row.coverage(FEW) <= high + 0.03


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_ten_thousand_simulated_runs_match_the_table():
    found = [(row, row.coverage()) for row in ROWS]
    assert [(row.name, row.setting, share) for row, share in found if not row.limits[0] <= share <= row.limits[1]] == []
    printed = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for computed, line in zip(page(found).splitlines()[2:], printed, strict=True):
        # Another processor may round one case in ten thousand differently.
        assert parts(computed)[:-1] == parts(line)[:-1]
        assert parts(computed)[-1] == pytest.approx(parts(line)[-1], abs=0.1)


@pytest.mark.parametrize("population", POPULATIONS, ids=lambda population: population.name)
def test_equal_runs_rarely_get_a_verdict(population):
    rows = verdict_rows(40, (20,), (population,))
    assert [row for row in rows if not row.is_within_limits] == []


@pytest.mark.parametrize("rows", [mean_rows, difference_rows])
def test_intervals_of_small_samples_cover_the_true_value(rows):
    assert [row for row in rows(150, (5, 20)) if not row.is_within_limits] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("rows", [verdict_rows, mean_rows, difference_rows])
def test_every_cell_of_the_tables_is_within_its_limits(rows):
    assert [row for row in rows() if not row.is_within_limits] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_power_is_close_to_that_of_a_test_that_knows_the_variance():
    assert [row for row, _ in power_rows() if not row.is_within_limits] == []


def test_the_table_has_a_row_for_each_simulation_and_all_are_within_limits():
    printed = [parts(line) for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert [each[:-1] for each in printed] == [[row.name, row.kind, row.setting] for row in ROWS]
    for row, each in zip(ROWS, printed, strict=True):
        assert 100 * row.limits[0] <= each[-1] <= 100 * row.limits[1]


def parts(line):
    """Split a row of the table into cells, with its coverage as a number; return other lines unchanged."""
    if not line.startswith("| `"):
        return [line, 0.0]
    *cells, share = line.strip("| ").split(" | ")
    return [*cells, float(share.removesuffix(" %"))]
