"""Claims about clusters and judges: a few simulations by default, all of them with `-m slow`."""

import numpy as np
import pytest
from cluster_rows import LAYOUTS, command_rows, document_rows, dominated_rows, margin_rows, some_documents_break
from judge_rows import BIASED, answers, judge_rows

from agentv.stats.paired_comparison import compare_paired

FEW = {name: LAYOUTS[name] for name in ("1 of 71 holds 30 %", "1 of 21 holds 80 %")}


def test_intervals_hold_or_are_too_few_if_a_cluster_dominates():
    rows = list(dominated_rows(60, FEW))
    assert [row for row in rows if row.after < 0.88] == []
    assert {row.too_few for row in rows if "80 %" in row.claim} == {1.0}


def test_a_document_that_breaks_as_a_whole_is_not_outweighed_by_small_gains():
    random, documents = np.random.default_rng(0), np.repeat(np.arange(20), 5)
    answers = [compare_paired(*some_documents_break(random, documents), documents).answer for _ in range(40)]
    assert answers.count("cannot tell") >= 38


def test_labels_of_both_runs_correct_a_biased_judge():
    random = np.random.default_rng(0)
    found = [answers(random, 1_000, 200, 0.0, BIASED) for _ in range(40)]
    assert sum(judged == "better" for judged, *_ in found) > 25 > 5 > sum(each[2] == "better" for each in found)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("rows", [dominated_rows, margin_rows, document_rows, command_rows, judge_rows])
def test_every_claim_is_within_its_limits(rows):
    assert [row for row in rows() if not row.is_within_limits] == []
