"""A comparison with the number of cases that `agentv plan` recommends has about the promised power."""

import pytest
from plan_rows import MARGINS, SETTINGS, plan_rows

FAST = ("pass or fail, pilot runs equal", "pass or fail, 10 % change anyway", "any score", "five levels, 3 trials")


def test_the_planned_number_of_cases_has_the_promised_power():
    rows = plan_rows(100, [setting for setting in SETTINGS if setting.name in FAST], MARGINS[:2])
    assert [row for row in rows if not row.is_within_limits] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_every_planned_number_of_cases_has_the_promised_power():
    assert [row for row in plan_rows() if not row.is_within_limits] == []
