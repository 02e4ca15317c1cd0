"""Claims about drawn cases and many variants."""

from pathlib import Path

from draw_rows import SEED, curse_rows, history_rows, select_rows, until_rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "draw-claims.md"

HEAD = f"""# Claims about drawn cases and many variants

Simulated runs whose truth is known. `python tests/claim_pages.py draw-claims` repeats them with seed {SEED} and
rewrites this page; `pytest -m slow tests/stats/test_drawn_cases.py` checks it. The rates before are from the same
simulated runs. A rate may miss its nominal value by two standard errors of its simulation; intervals have to cover
93 %. See also [Claims](claims.md) and [Coverage](coverage.md).
"""

SECTIONS = {
    "Drawn cases": (
        "`--cases-budget 50` of 400 cases with ten baseline runs. Before: 50 random cases and one baseline run. In the "
        "last two rows B breaks cases that always passed, and gains as much elsewhere.",
        (history_rows, until_rows),
    ),
    "Many variants": (
        "`agentv select` with 1,280 calls; before, a matrix with 4,000 calls and all pairs adjusted. The best of equal "
        "prompts, before and after its p-value is adjusted; 100 cases.",
        (select_rows, curse_rows),
    ),
}


def claims(rows) -> str:
    """Return claims with their nominal and simulated rates, before and now."""
    lines = ["| claim | nominal | before | now | simulations |", "|---|---|--:|--:|--:|"]
    for row in rows:
        before = "" if row.before is None else f"{100 * row.before:.1f} %"
        lines.append(f"| {row.claim} | {row.nominal} | {before} | {100 * row.rate:.1f} % | {row.runs:,} |")
    return "\n".join(lines)


def page() -> str:
    """Run every simulation and return the page."""
    parts = [
        f"## {title}\n\n{text}\n\n{claims(row for rows in simulations for row in rows())}\n"
        for title, (text, simulations) in SECTIONS.items()
    ]
    return "\n".join([HEAD, *parts])


def write():
    """Run every simulation and write the page."""
    PAGE.write_text(page(), encoding="utf-8")
