"""Comparisons in the served page: the same figures as `agentv compare`, and runs chosen from the list."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

IDS = """async () => {
    const { runs } = await (await fetch("/api/runs")).json();
    return Object.fromEntries(runs.map((run) => [run.name, run.id]));
}"""


@pytest.fixture
def two_runs(folder):
    """Two runs of eight cases, `before` and `after`: seven cases get worse."""
    import agentv

    folder.write(".agentv/config.yaml", {})
    cases = [{"id": f"case-{n}", "input": f"number {n}", "expected_outcome": "Says yes"} for n in range(8)]
    checks = {"evaluators": [{"type": "contains", "value": "yes"}]}
    folder.write("evals/shop.jsonl", cases)
    folder.write("evals/shop.yaml", checks)
    agentv.evaluate("evals/shop.jsonl", lambda prompt: f"yes, {prompt}", out="before")
    agentv.evaluate("evals/shop.jsonl", lambda prompt: "yes" if "7" in prompt else f"no, {prompt}", out="after")
    return folder


def ids_of(server):
    return {run["name"]: run["id"] for run in server.get("/api/runs")["runs"]}


def test_the_server_returns_the_figures_of_the_command(command, server, two_runs):
    expected = json.loads(command("compare", "before", "after", "--json", "--changes", "0").stdout)
    with server("before", "after") as view:
        ids = ids_of(view.login())
        head = view.get(f"/api/compare?runs={ids['before']},{ids['after']}")
        del expected["matched"], expected["changes"]
        assert head["data"]["summary"] == expected["summary"]
        assert head["data"] == expected
        block = view.get(f"/api/compare/rows?key={head['key']}&first=0")
        assert (block["n"], block["change"].count(-1.0)) == (8, 7)
        pair = view.get(f"/api/compare/case?key={head['key']}&row=0")
        assert [side["record"]["candidate_answer"] for side in pair["sides"]] == ["yes, number 0", "no, number 0"]


def test_a_case_of_a_run_that_was_replaced_or_deleted_is_an_error(server, two_runs):
    with server("before", "after") as view:
        ids = ids_of(view.login())
        key = view.get(f"/api/compare?runs={ids['before']},{ids['after']}")["key"]
        results = two_runs.path / "after/results.jsonl"
        results.write_bytes(b"".join(reversed(results.read_bytes().splitlines(keepends=True))))
        for _ in range(2):
            error = view.get(f"/api/compare/case?key={key}&row=0")["error"]
            assert (error["message"], error["hint"]) == ("A run has changed since it was compared", "Reload the page")
            results.unlink(missing_ok=True)


def test_a_comparison_counts_what_it_read_and_stops_when_the_page_is_gone(two_runs, monkeypatch):
    from agentv.comparison.run_comparison import CompareOptions, NamedRun
    from agentv.extensions.view.analysis import comparison_data

    async def compared(asks=True):
        found = comparison_data._Comparison(runs, CompareOptions(changes=0))
        is_early = asks and await found.head_soon() is None
        await asyncio.wait([found._head])
        return is_early, found

    runs = [NamedRun(two_runs.path / name, name) for name in ("before", "after")]
    monkeypatch.setattr(comparison_data, "_PROGRESS_S", 0)
    with ThreadPoolExecutor(1) as thread:  # a browser may have a loop in this one
        is_early, found = thread.submit(asyncio.run, compared()).result()
    assert is_early and found.read == 16 and len(found.compared.pairs) == 8
    monkeypatch.setattr(comparison_data, "_LEFT_S", -1)
    with ThreadPoolExecutor(1) as thread:
        _, found = thread.submit(asyncio.run, compared(asks=False)).result()
    assert found.has_failed and found.read == 8, "the second run is not read"
    assert "page was closed" in str(found._head.exception())


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("runs={0}", "compare needs two runs, or one run with several targets or prompts"),
        ("", "Choose up to 20 runs to compare"),
        ("runs={0},../../etc", "This run is not in the list"),
        ("runs={0}:nobody,{1}", "No results for target 'nobody' in "),
    ],
)
def test_refused_comparisons_say_why(server, two_runs, query, message):
    with server("before", "after") as view:
        found = view.login().get(f"/api/compare?{query.format(*view.run_ids())}")
        assert found["error"]["message"].startswith(message)


def test_runs_are_chosen_swapped_and_opened_in_full(served, two_runs):
    with served("before", "after", fragment="#view=compare") as page:
        page.wait_for_selector(".verdict.worse")
        assert "before → after" in page.title()
        chosen = page.locator(".chooser option:checked").all_text_contents()
        assert [text.split(" · ")[:2] for text in chosen] == [["before", "shop"], ["after", "shop"]]
        ids = page.evaluate(IDS)
        assert page.evaluate("new URLSearchParams(location.hash).getAll('runs')") == [ids["before"], ids["after"]]
        progress = [{"kind": "progress", "read": 1_234_567, "key": ""}]
        reply = lambda route: route.fulfill(json=progress[0]) if progress else route.continue_()  # noqa: E731
        page.route("**/api/compare?*", reply)
        page.click("[aria-label='Swap A and B']")
        page.get_by_text("Reading cases: 1,234,567").wait_for()
        progress.clear()
        page.wait_for_selector(".verdict.better")
        assert page.evaluate("new URLSearchParams(location.hash).getAll('runs')") == [ids["after"], ids["before"]]
        page.wait_for_selector(".window .pair-row")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_selector(".case-panel .answers")
        assert page.evaluate("document.activeElement.id") == "case-title"
        page.keyboard.press("j")
        page.locator("#case-title").get_by_text("case-1").wait_for()
        page.keyboard.press("k")
        assert page.evaluate("document.activeElement.id") == "case-title"
        entries = page.evaluate("history.length")
        page.keyboard.press("Escape")
        assert page.evaluate("[history.length, document.activeElement.className]") == [entries, "scroller"]
        page.keyboard.press("Enter")
        page.wait_for_selector(".case-panel .answers")
        assert "number 0" in page.inner_text(".case-body")
        page.click("text=Full result in A")
        page.locator(".detail").get_by_text("no, number 0").first.wait_for()


def test_answers_are_never_shown_under_the_title_of_another_case(served, two_runs):
    slow = """() => {
        const [fetched, opened] = [fetch, new Promise((resolve) => (window.answer = resolve))];
        window.fetch = (...request) => opened.then(() => fetched(...request));
    }"""
    with served("before", "after", fragment="#view=compare&case=0") as page:
        page.locator(".case-body").get_by_text("yes, number 0").wait_for()
        page.keyboard.press("j")
        page.locator(".case-body").get_by_text("yes, number 1").wait_for()
        page.evaluate(slow)
        page.keyboard.press("k")
        page.locator(".case-panel .place").get_by_text("1 of 8").wait_for()
        assert page.inner_text("#case-title") == "case-1", "as long as its answers are shown"
        page.keyboard.press("Escape")
        page.keyboard.press("Enter")
        assert (page.inner_text("#case-title"), page.inner_text(".case-body")) == ("case-0", "")
        page.evaluate("answer()")
        page.locator(".case-body").get_by_text("yes, number 0").wait_for()


@pytest.fixture
def repeated_runs(two_runs):
    """Three runs of one target, and one of another, which is better."""
    import agentv

    targets = [{"name": name, "provider": "mock", "response": text} for name, text in (("a", "no"), ("b", "yes"))]
    two_runs.write(".agentv/targets.yaml", {"targets": targets})
    for name, target in (("one", "a"), ("two", "a"), ("three", "a"), ("other", "b")):
        agentv.evaluate("evals/shop.jsonl", targets=[target], out=name)
    return two_runs


def test_equal_runs_are_pooled_with_the_first(served, repeated_runs):
    with served("one", "two", "three", "other", fragment="#view=compare") as page:
        ids = page.evaluate(IDS)
        page.goto(f"{page.url.split('#')[0]}#view=compare&runs={ids['three']}&runs={ids['other']}")
        page.get_by_label("Pool A with its equal runs").check()
        page.get_by_text("three (3 runs)").first.wait_for()
        note = "The baseline is 3 runs of the same target, cases and measure: one, two, three"
        page.get_by_text(note).wait_for()
        page.get_by_label("Pool A with its equal runs").uncheck()
        page.get_by_text(note).wait_for(state="detached")
        assert page.get_by_text("three (3 runs)").count() == 0


def test_a_case_of_a_pooled_baseline_has_the_trials_of_all_its_runs(server, repeated_runs):
    with server("one", "two", "three", "other") as view:
        ids = ids_of(view.login())
        pooled = "&".join(f"pooled={ids[name]}" for name in ("one", "two", "other"))
        head = view.get(f"/api/compare?runs={ids['three']}&runs={ids['other']}&{pooled}")
        assert head["data"]["runs"][0]["runs"] == ["one", "two", "three"]
        assert any(
            note.startswith("Not part of the baseline: other, because its target is b") for note in head["notes"]
        )
        pair = view.get(f"/api/compare/case?key={head['key']}&row=0")
        assert [len(side["trials"]) for side in pair["sides"]] == [3, 1]
