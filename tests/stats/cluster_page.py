"""Claims about clusters and judges."""

from pathlib import Path

import numpy as np
from cluster_rows import SEED, command_rows, document_rows, dominated_rows, margin_rows
from judge_rows import judge_rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cluster-claims.md"

HEAD = f"""# Claims about clusters and judges

Simulated runs whose truth is known. `python tests/claim_pages.py cluster-claims` repeats them with seed {SEED} and
rewrites this page; `pytest -m slow tests/stats/test_cluster_claims.py` checks it. The rates before are from the same
simulated runs. False claims may exceed their nominal rate by two standard errors of the simulation. See also
[Claims](claims.md) and [Coverage](coverage.md).
"""

SECTIONS = {
    "Clusters": (
        "Intervals, margins and verdicts if one or two clusters dominate, and if cases share a document. Before: the "
        "cluster-robust t interval; for documents, cases that are not declared as clusters.",
        (dominated_rows, margin_rows, document_rows, command_rows),
    ),
    "Judges and labels": (
        "Verdicts of runs that a judge scored, with labels of some cases in both runs. Before: the judge's scores.",
        (judge_rows,),
    ),
}


def before_and_after(rows) -> str:
    """Return claims with their rates before and after; "too few" counts as an interval that holds."""

    def rate(value):
        return "" if np.isnan(value) else f"{100 * value:.1f} %"

    lines = [
        f"| claim (seed {SEED}) | nominal | before | after | of these too few | simulations |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row.claim} | {row.nominal} | {rate(row.before)} | {rate(row.after)} | {rate(row.too_few)} "
        f"| {row.simulations:,} |"
        for row in rows
    ]
    return "\n".join(lines)


def page() -> str:
    """Run every simulation and return the page."""
    parts = [
        f"## {title}\n\n{text}\n\n{before_and_after(row for rows in simulations for row in rows())}\n"
        for title, (text, simulations) in SECTIONS.items()
    ]
    return "\n".join([HEAD, *parts])


def write():
    """Run every simulation and write the page."""
    PAGE.write_text(page(), encoding="utf-8")
