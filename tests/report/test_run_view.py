"""The view of a run: its first line, order, columns, keys, small screens, and fast scrolling."""

import pytest

import agentv
from agentv.report.formats import write_report
from agentv.runs.store import RunStore


@pytest.fixture
def page_of(tmp_path):
    """Write the page of a run."""

    def written(run="results.jsonl"):
        opened = RunStore.open(run)
        write_report("html", opened, opened.figures(), tmp_path / "page.html")
        return tmp_path / "page.html"

    return written


def ids(page):
    return page.locator(".window .row .id bdi").all_inner_texts()


def titles(page):
    return page.locator(".header .cell").all_inner_texts()


def test_the_first_line_counts_results_and_filters_them(folder, record, page_of, chromium):
    error = {
        "status": "error",
        "score": None,
        "verdict": None,
        "error": {"class": "timeout", "message": "late", "stage": "target"},
    }
    rows = [record("good", score=1.0, verdict="pass", execution_metrics={"cost_usd": 0.12}), record("bad")]
    rows += [record("slow", **error), record("low", score=0.1), record("nearly", score=0.7, verdict="borderline")]
    folder.write("results.jsonl", rows)
    with chromium(page_of()) as page:
        line = page.locator(".counts")
        assert line.inner_text().split("\n") == ["1 passed", "1 borderline", "2 failed", "1 error", "$0.12"]
        assert ids(page) == ["slow", "bad", "low", "nearly", "good"]
        assert page.get_by_label("Order of results").input_value() == "worst"
        line.get_by_role("button", name="2 failed").click()
        assert ids(page) == ["bad", "low"]
        line.get_by_role("button", name="1 error").click()
        assert ids(page) == ["slow", "bad", "low"]
        page.get_by_role("button", name="Show all").first.click()
        page.get_by_role("button", name="Error class").click()
        page.get_by_label("timeout: 1").check()
        assert ids(page) == ["slow"] and "0 of 2 failed" in line.inner_text()
        page.keyboard.press("Escape")
        page.get_by_label("Order of results").select_option("Run order")
        page.get_by_role("button", name="Show all").first.click()
        assert ids(page) == ["good", "bad", "slow", "low", "nearly"]


def test_only_columns_with_values_are_shown(folder, record, page_of, chromium):
    folder.write("results.jsonl", [record("a"), record("b")])
    with chromium(page_of()) as page:
        assert titles(page) == ["Verdict", "Case", "Score", "Reason"]
        assert page.locator("h1").inner_text() == "texts · model"
    several = [
        record("a", target="one", prompt="short", trial=2, execution_metrics={"duration_ms": 5, "cost_usd": 0.5}),
        record("a", target="two", prompt="long", dataset="more", dataset_path="more.jsonl"),
        record("b", target="three", prompt="long"),
    ]
    folder.write("results.jsonl", several)
    with chromium(page_of(), width=1900) as page:
        assert titles(page) == [
            *("Verdict", "Case", "Target", "Prompt", "Dataset", "Trial", "Score", "Reason", "Time", "Cost"),
        ]
        assert page.locator("h1").inner_text() == "texts and more · 3 targets · short and long"
        page.set_viewport_size({"width": 390, "height": 844})
        page.get_by_text("one, short, texts, trial 2").wait_for()
        assert titles(page) == ["Verdict", "Case", "Score"]


def test_the_keyboard_works_without_a_click(shop, page_of, chromium):
    with chromium(page_of("run")) as page:
        current = page.locator(".row.current .id bdi")
        moves = [("j", "breaks"), ("ArrowDown", "fails"), ("k", "breaks"), ("G", "unscored"), ("ArrowUp", "passes")]
        for key, expected in [*moves, ("g", "breaks"), ("End", "unscored"), ("Home", "breaks"), ("j", "fails")]:
            page.keyboard.press(key)
            assert current.inner_text() == expected, key
        page.keyboard.press("Enter")
        page.locator("#detail-title").get_by_text("fails").wait_for()
        page.keyboard.press("j")
        page.locator("#detail-title").get_by_text("nearly").wait_for()
        page.keyboard.press("Escape")
        assert page.locator(".detail").is_hidden() and current.inner_text() == "nearly"
        assert page.evaluate("document.activeElement.getAttribute('aria-activedescendant')") == "row-2"
        page.keyboard.press("/")
        page.keyboard.type("un?j")
        assert page.locator("input[type=search]").input_value() == "un?j"
        page.keyboard.press("Backspace")
        page.keyboard.press("Backspace")
        page.keyboard.press("Escape")
        assert page.locator("input[type=search]").input_value() == "un"
        page.keyboard.press("j")
        assert current.inner_text() == "unscored"


def test_a_question_mark_lists_the_keys(shop, page_of, chromium):
    with chromium(page_of("run")) as page:
        page.keyboard.press("?")
        text = page.get_by_role("dialog", name="Keyboard shortcuts").inner_text()
        assert "Next result" in text and "Search" in text
        page.keyboard.press("j")
        page.keyboard.press("Escape")
        assert page.get_by_role("dialog").count() == 0 and page.locator(".row.current").count() == 0


def test_both_back_buttons_close_a_result_on_a_phone(shop, page_of, chromium):
    with chromium(page_of("run"), width=390, height=844) as page:
        page.locator(".window .row").first.click()
        page.locator(".detail section").first.wait_for()
        assert page.locator(".detail").bounding_box() == {"x": 0, "y": 0, "width": 390, "height": 844}
        page.go_back()
        page.locator(".detail").wait_for(state="hidden")
        page.locator(".window .row").first.click()
        page.get_by_role("button", name="Back to the results").click()
        page.locator(".detail").wait_for(state="hidden")


def test_results_come_first_on_a_phone_and_the_summary_follows_them(shop, page_of, chromium):
    with chromium(page_of("run"), width=390, height=844) as page:
        top = page.locator(".window .row").first.bounding_box()["y"]
        last = page.locator(".window .row").last.bounding_box()
        assert top < 400 and 0 < page.locator(".card").bounding_box()["y"] - last["y"] - last["height"] < 100
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_evaluators_have_a_bar_from_five_results_on_and_their_errors(folder, record, page_of, chromium):
    failed = {"class": "evaluator", "message": "no reply", "stage": "evaluator"}
    error = {"status": "error", "score": None, "verdict": None, "error": failed}

    def found(name, **values):
        return {"name": name, "type": "contains", "score": 0.0, "weight": 1.0, "verdict": "fail", **values}

    rows = [record(f"case-{n}", evaluator_results=[found("often"), *[found("seldom")][n:]]) for n in range(5)]
    rows[0]["execution_metrics"] = {"duration_ms": 40, "stop_reason": "length"}
    broken = found("often", score=None, verdict=None, error=failed)
    folder.write("results.jsonl", [*rows, record("broken", **error, evaluator_results=[broken])])
    with chromium(page_of()) as page:
        often, seldom = page.locator(".parts tr").filter(has_text="often"), page.locator(".parts tr").nth(1)
        assert often.locator(".track").count() == 1 and "n = 5, 1 error" in often.inner_text()
        assert seldom.locator(".track").count() == 0 and seldom.locator(".n").inner_text() == "n = 1"
        card = page.locator(".card").inner_text()
        assert "truncated: 1 of 6 answers ended at a token or turn limit" in card
        assert "40 ms per job (1 of 6 jobs)" in card


def test_a_run_that_stopped_early_says_so_and_that_its_mean_is_biased(folder, page_of, chromium):
    cases = [{"id": f"{n}", "input": "Hi", "expected_outcome": "Greets"} for n in range(60)]
    agentv.evaluate(
        cases, lambda prompt: "Hi", [{"type": "contains", "value": "Hi"}], out="run", stop_when="0.5", seed=1
    )
    with chromium(page_of("run")) as page:
        assert "not needed" in page.locator(".counts").inner_text()
        card = page.locator(".card").inner_text()
        assert "biased: the run stopped early" in card and "not run" not in card


SCROLL_AND_LOOK = """async () => {
    const scroller = document.querySelector(".scroller");
    const box = document.querySelector(".window").getBoundingClientRect();
    const empty = [];
    const look = (where) => {
        for (let y = box.top + 5; y < box.bottom - 5; y += 30) {
            const row = document.elementFromPoint(box.left + 200, y)?.closest(".window .row");
            if (!row || !row.textContent.includes("case-")) empty.push(`${where} ${y}`);
        }
    };
    const most = scroller.scrollHeight;
    const places = [0, 900, 5_000, 100_000, most / 2, most / 2 + 3_333, most, most - 700, 0];
    for (const place of places) {
        scroller.scrollTop = place;
        look(`at once ${place}`);  // even before the event of the scroll, old rows are seen, and no empty place
        await new Promise((drawn) => requestAnimationFrame(drawn));
        look(`drawn ${place}`);
    }
    return empty;
}"""


def test_no_row_is_blank_while_scrolling(folder, record, page_of, chromium):
    folder.write("results.jsonl", [record(f"case-{n}", misses=[f"reason {n}"]) for n in range(20_000)])
    with chromium(page_of(), "#sort=order") as page:
        page.locator(".count-line").get_by_text("20,000 results", exact=True).wait_for()
        assert page.evaluate(SCROLL_AND_LOOK) == []
        page.keyboard.press("End")
        page.get_by_text("case-19999", exact=True).wait_for()
        page.get_by_text("reason 19999", exact=True).wait_for()


PROPERTIES = ["constructor", "__proto__", "toString", "hasOwnProperty"]


def test_names_of_object_properties_are_ordinary_names(folder, record, page_of, chromium):
    result = {"type": "contains", "score": 0.0, "weight": 1.0, "verdict": "fail", "misses": ["no"]}
    rows = [
        record(name, target=name, prompt=name, dataset=name, tags=[name], evaluator_results=[{"name": name, **result}])
        for name in PROPERTIES
    ]
    folder.write("results.jsonl", rows)
    with chromium(page_of(), "#sort=constructor&open=1") as page:
        assert sorted(ids(page)) == sorted(PROPERTIES)
        assert page.get_by_label("Order of results").input_value() == "constructor"
        assert page.locator(".card > :first-child bdi").all_inner_texts() == PROPERTIES
        assert "The settings of the target are not stored" in page.locator(".settings").inner_text()
        for title in ("Target", "Prompt", "Dataset", "Failed evaluator", "Tag"):
            page.get_by_role("button", name=f"Filter by {title}").click()
            page.locator(".facet:popover-open").get_by_label("__proto__: 1").check()
            page.keyboard.press("Escape")
            assert ids(page) == ["__proto__"], title
            page.get_by_role("button", name="Show all").first.click()


def test_a_run_with_hundreds_of_targets_shows_the_first_ones(folder, record, page_of, chromium):
    folder.write("results.jsonl", [record("case", target=f"target {number}") for number in range(500)])
    with chromium(page_of()) as page:
        assert page.locator(".card").count() == 50
        rest = page.get_by_role("button", name="Show all 500 targets")
        rest.click()
        rest.wait_for(state="detached")
        assert page.locator(".card").count() == 500
