"""Every view in both themes and at two widths: axe-core finds no serious or critical problem."""

import pytest

from agentv.report.formats import write_report
from agentv.runs.store import RunStore

VIEWS = {"run": "", "case": "#open=2"}
FIND = """async () => (await axe.run({ resultTypes: ["violations"] })).violations
    .filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`)"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_no_serious_accessibility_problem(shop, chromium, axe, view, width):
    run = RunStore.open("run")
    write_report("html", run, run.figures(), "page.html")
    for scheme in ("light", "dark"):
        with chromium(shop.path / "page.html", VIEWS[view], width=width, scheme=scheme) as page:
            page.evaluate(axe)
            assert page.evaluate(FIND) == []
