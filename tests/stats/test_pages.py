"""The pages of claims: every rate is within its nominal rate and two standard errors of its simulation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cell_limits import at_least, at_most, coverage

DOCS = Path(__file__).parents[2] / "docs"
CLAIM_PAGES = Path(__file__).parents[1] / "claim_pages.py"
NOMINAL = re.compile(r"([≤≥]) ([\d.]+) %")


def rows_of(page):
    """Yield the cells of every row of the page's tables, by column."""
    names = []
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and cells[-1] == "simulations":
            names = cells
        elif cells and len(cells) == len(names) and cells[0] != "---":
            yield dict(zip(names, cells, strict=True))


def limits_of(sign, level, simulations):
    if sign == "≤":
        return at_most(level, simulations)
    return coverage(simulations) if level == 0.93 else at_least(level, simulations)


@pytest.mark.parametrize("page", ["claims.md", "draw-claims.md", "cluster-claims.md"])
def test_every_rate_on_the_page_is_within_its_limits(page):
    misses, checked = [], 0
    for row in rows_of(page):
        nominal = NOMINAL.match(row["nominal"])
        rate = float((row.get("now") or row["after"]).removesuffix(" %")) / 100
        if nominal is None:
            continue
        checked += 1
        low, high = limits_of(nominal[1], float(nominal[2]) / 100, int(row["simulations"].replace(",", "")))
        if not low - 5e-4 <= rate <= high + 5e-4:  # the page has one decimal
            misses.append(row)
    assert checked >= 15 and misses == []


def grid_rates(title):
    """Yield the rates of a table of docs/coverage.md with a column for each number of cases."""
    text = (DOCS / "coverage.md").read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    sizes, _, *rows = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|"))
    for name, *cells in rows:
        for size, cell in zip(sizes[-len(cells) :], cells, strict=True):
            yield name, int(size.removeprefix("n = ").replace(",", "")), float(cell.removesuffix(" %")) / 100


def test_every_rate_of_the_coverage_page_is_within_its_limits():
    false = [
        cell for cell in grid_rates("False verdicts") if cell[2] > at_most(0.05, 300 if cell[1] < 1_000 else 100)[1]
    ]
    narrow = [
        cell
        for title in ("Intervals of means", "Intervals of differences")
        for cell in grid_rates(title)
        if cell[2] < 0.93
    ]
    assert (false, narrow) == ([], [])


def test_the_program_that_writes_the_pages_starts_outside_of_pytest():
    output = subprocess.run([sys.executable, CLAIM_PAGES, "--list"], capture_output=True, text=True, check=True).stdout
    assert all((DOCS / f"{page}.md").is_file() for page in output.split())
