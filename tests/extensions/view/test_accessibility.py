"""Every view in both themes, and on a phone: axe-core finds no problem, and nothing scrolls sideways."""

import pytest

# The address of each view, and an element that is there when it is drawn.
VIEWS = {
    "runs": ("#view=runs&tick={0}&tick={1}", ".compare-bar .primary"),
    "trend": ("#view=trend", "a.point"),
    "run": ("#view=run&run={0}", ".window .row"),
    "compare": ("#view=compare&runs={0}&runs={1}", ".pair-row"),
    "case": ("#view=run&run={0}&open=1", ".detail .message.answer"),
    "grid": ("#view=grid&run={0}", ".grid-cell"),
    "compared case": ("#view=compare&runs={1}&runs={0}&case=0", ".case-panel .answers"),
}
OPEN = "() => document.querySelectorAll('.view details').forEach((each) => { each.open = true })"
FIND = """async () => (await axe.run({ resultTypes: ["violations"] })).violations
    .map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`)"""
SCREENS = [("light", 1280), ("dark", 1280), ("light", 390)]
LABELS = ("--label", "labels.jsonl")


@pytest.mark.parametrize(("options", "views"), [((), tuple(VIEWS)), (LABELS, ("run", "case"))])
def test_no_view_has_an_accessibility_problem(evaluated, served, axe, options, views):
    evaluated("abcdefgh", out="runs/first")
    evaluated("abcdefgA", out="runs/second")
    with served("runs/first", "runs/second", *options) as page:
        ids = page.evaluate("async () => (await (await fetch('/api/runs')).json()).runs.map((run) => run.id)")
        page.evaluate(axe)
        problems = {}
        for name in views:
            address, drawn = VIEWS[name]
            page.evaluate("(hash) => { location.hash = hash }", address.format(*ids))
            page.locator(drawn).first.wait_for()
            for _ in range(2):  # details may contain details
                page.evaluate(OPEN)
            for scheme, width in SCREENS:
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                page.set_viewport_size({"width": width, "height": 844})
                found = page.evaluate(FIND)
                if page.evaluate("document.documentElement.scrollWidth") > width:
                    found.append("scrolls sideways")
                problems |= {f"{name}, {scheme}, {width}": found} if found else {}
        assert problems == {}
