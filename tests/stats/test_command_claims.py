"""`agentv compare` gives the verdicts of the simulated functions, as often as the table of claims has them."""

import pytest
from cell_limits import at_most
from command_rows import DRAWS, PAGE, cells

CELLS = list(cells())


@pytest.mark.parametrize("cell", (CELLS[1], CELLS[-6], CELLS[-4]), ids=lambda cell: f"{cell.group} {cell.setting}")
def test_the_command_agrees_with_the_simulated_functions(cell):
    assert cell.measure(2)[1:] == (2, 0)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_command_agrees_in_every_draw_and_cell():
    measured = [(cell, cell.measure()) for cell in CELLS]
    assert len(measured) >= 20
    assert [(cell[:2], found) for cell, found in measured if found.agreed + found.refused < DRAWS] == []
    assert all(found.refused / DRAWS <= at_most(0.05, DRAWS)[1] for _, found in measured)
    assert max(abs(cell.distance(found.rate)) for cell, found in measured) <= 2, "standard errors"


def test_the_page_has_a_row_for_each_cell():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if " of " in line and "cases" in line]
    assert [line.split(" | ")[:2] for line in lines if line.startswith("| ")] == [
        [f"| {cell.group}", cell.setting] for cell in CELLS
    ]
