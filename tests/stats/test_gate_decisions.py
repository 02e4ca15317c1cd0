"""Decisions of gates by interval and of early stopping, in simulated runs."""

import pytest
from gate_rows import GATED, gate_rows, stop_rows


def test_decisions_at_the_limit_are_rarely_wrong():
    rows = [*gate_rows(40, GATED[1:6:2]), *stop_rows(40, (60,))]
    assert [row for row in rows if not row.is_within_limits] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_decisions_at_the_limit_are_rarely_wrong_in_every_shape():
    assert [row for row in (*gate_rows(), *stop_rows()) if not row.is_within_limits] == []
