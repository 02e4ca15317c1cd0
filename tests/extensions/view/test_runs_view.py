"""The list of runs and their trend in the served page: figures, filters, keys, narrow pages, many runs."""

import re

import pytest

from agentv.runs.catalogue import RunJournal
from agentv.runs.folder import RunFolder
from agentv.runs.summary import RunSummary
from kept_runs import KEPT, keep, summary_of


@pytest.fixture
def project(folder):
    """Six runs: three of one series, one with two targets, one that is unfinished, and one that is unreadable."""
    folder.write(".git/HEAD", "")
    for day, mean in enumerate((0.5, 0.7, 0.9), 1):
        keep(day, mean, passed=[True, False], options={"experiment": "prompts" if day < 3 else "models"})
    two = keep(4, name="claude", dataset="other")
    figures = {"claude": summary_of(0.6), "gpt": summary_of(0.4, errors=5)}
    RunFolder(KEPT / two).write_summary(RunSummary(run_id=two, targets=figures))
    keep(5, finished=False, passed=[True] * 3)
    folder.write(f"{KEPT}/20261031-damaged/run.json", "{")
    RunJournal(".").tag("good", KEPT / "20261103-120000-0003")
    return folder


def runs_in(page):
    """The text of each run of the list."""
    return [" ".join(text.split()) for text in page.locator("tbody.run").all_inner_texts()]


def titles_in(page):
    return page.locator("tbody.run .col-title a").all_inner_texts()


def test_runs_are_shown_with_figures_and_filtered_searched_and_sorted(project, served):
    with served() as page:
        page.locator("tbody.run").first.wait_for()
        unfinished, two, third, second, first, damaged = runs_in(page)
        assert titles_in(page)[:3] == ["support · gpt", "other · claude, gpt", "support · gpt"]
        assert "unfinished 3 of 400 done" in unfinished and "2026-11-05 12:00" in unfinished
        assert "claude 0.600" in two and "gpt 0.400" in two and "5 of 405" in two
        assert "models good finished 0.900 0.871 to 0.929" in third and "90.0 % of 400 scored" in third
        assert "unreadable" in damaged and "run.json" in damaged and "01234567" in first
        drawn = page.locator("tbody.run").nth(2).locator(".sparkline")
        assert drawn.get_attribute("aria-label") == "Mean 0.900; the 2 earlier runs, oldest first: 0.500, 0.700"
        assert "0.700" in second and page.locator("tbody.run").nth(4).locator(".sparkline").count() == 0

        page.get_by_label("Experiment", exact=True).select_option("prompts")
        assert "2 of 6 runs" in page.locator(".count-line").inner_text()
        page.get_by_label("Tag", exact=True).select_option("good")
        assert "No matching runs" in page.locator(".no-runs").inner_text()
        page.get_by_role("button", name="Show all").click()
        page.get_by_label("State", exact=True).select_option("unreadable")
        assert len(runs_in(page)) == 1
        page.get_by_role("button", name="Show all").click()
        page.get_by_label("Search runs").fill("OTHER claude")
        page.locator(".count-line", has_text="1 of 6 runs").wait_for()
        page.get_by_label("Search runs").fill("support")
        page.locator(".count-line", has_text="4 of 6 runs").wait_for()
        page.get_by_role("button", name="Mean").click()
        assert [run.split("finished ")[1][:5] for run in runs_in(page)[:3]] == ["0.900", "0.700", "0.500"]
        page.get_by_role("button", name="Mean").click()
        assert "0.500" in runs_in(page)[0] and "unfinished" in runs_in(page)[3]
        page.reload()
        page.locator(".count-line", has_text="4 of 6 runs").wait_for()
        assert "0.500" in runs_in(page)[0]
        page.evaluate("location.hash = 'view=runs&sort=__proto__'")  # not a column
        page.locator(".count-line", has_text=re.compile("^6 runs")).wait_for()
        assert len(runs_in(page)) == 6


def test_keys_move_tick_compare_search_and_open(project, served):
    with served() as page:
        page.locator("tbody.run").first.wait_for()
        focused = page.locator("tbody.run:focus-within .name")
        for key in ("j", "ArrowDown", "j", "k"):
            page.keyboard.press(key)
        assert focused.inner_text() == "20261104-120000-0004"
        for key in ("x", "j", "x"):
            page.keyboard.press(key)
        bar = page.locator(".compare-bar")
        assert "Baseline: support · gpt (20261103-120000-0003)" in bar.inner_text()
        page.keyboard.press("j")
        page.keyboard.press("x")
        assert page.locator("tbody.ticked").count() == 2 and "20261104" not in bar.inner_text()
        page.keyboard.press("c")
        page.wait_for_url(re.compile(r"#view=compare&runs=\w+&runs=\w+$"))
        page.locator("tbody.ticked").first.wait_for(state="detached")
        page.go_back()
        page.locator("tbody.ticked").first.wait_for()
        page.keyboard.press("Escape")
        assert bar.inner_text() == "" and page.locator("tbody.ticked").count() == 0
        page.keyboard.press("/")
        page.keyboard.type("0002")
        page.locator(".count-line", has_text="1 of 6 runs").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("#view=run&run="))


def test_many_runs_are_shown_in_pages_and_fit_a_phone(folder, served):
    folder.write(".git/HEAD", "")
    for number in range(205):
        manifest = {
            "schema_version": 1,
            "run_id": f"run-{number:03}",
            "started_at": f"2026-11-01T10:{number // 60:02}:{number % 60:02}Z",
        }
        folder.write(f"{KEPT}/run-{number:03}/run.json", manifest)
    with served(width=390, height=844) as page:
        page.get_by_text("1 to 100 of 205").wait_for()
        assert page.locator("tbody.run").count() == 100
        page.get_by_role("button", name="Next").click()
        page.get_by_role("button", name="Next").click()
        assert titles_in(page) == [f"run-{number:03}" for number in (4, 3, 2, 1, 0)]
        page.keyboard.press("j")
        page.keyboard.press("k")
        assert page.locator("tbody.run:focus-within .name").inner_text() == "run-005"
        page.get_by_text("101 to 200 of 205").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_an_empty_project_says_how_to_make_a_run_and_one_run_opens_at_once(folder, served):
    folder.write(".git/HEAD", "")
    with served() as page:
        assert "agentv eval DATASET --target TARGET" in page.locator(".no-runs").inner_text()
    only = keep(1, passed=[True, False])
    keep(2)
    with served(KEPT / only) as page:
        page.wait_for_url(re.compile("#view=run&run="))
        page.get_by_role("link", name="Runs").click()
        page.locator("tbody.run").wait_for()
        assert titles_in(page) == ["support · gpt"]
        # Another run may start before a link is opened: its address names the run.
        page.get_by_role("link", name="Results").click()
        page.wait_for_url(re.compile("#view=run&run="))
        page.get_by_role("link", name="Results").and_(page.locator("[href*='run=']")).wait_for()


def test_the_trend_has_the_figures_of_the_command_and_names_changes(folder, served, command):
    folder.write(".git/HEAD", "")
    for day in range(1, 9):
        level = 17 if day < 5 else 14
        keep(day, level / 20, passed=[case % 20 < level for case in range(400)])
    keep(9, name="claude")
    with served(fragment="#view=trend") as page:
        points = page.locator("a.point")
        page.get_by_label("Dataset and target").select_option(label="support · gpt (8)")
        points.nth(7).wait_for()
        found = page.evaluate("fetch('/api/trend?dataset=support&target=gpt').then((answer) => answer.json())")[
            "series"
        ]
        for run in found["runs"]:
            assert run.pop("id") and (run.pop("is_unread"), run.pop("other_measures")) == (False, 0)
        assert found == command("runs", "trend", "--target", "gpt", "--json").printed[0]
        assert (
            "The level went down from 0.850 to 0.700 on 400 shared cases" in page.locator(".trend-notes").inner_text()
        )
        assert page.locator(".break").count() == 1 and page.locator(".trend-table tbody tr").count() == 8
        assert "Mean 0.850, 95 % interval 0.815 to 0.885, n = 400: 20261101" in points.first.get_attribute("aria-label")
        page.keyboard.press("k")
        page.keyboard.press("k")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("#view=run&run="))
