"""The grid in a real Chromium: answers of targets, prompts and trials side by side, and cases that disagree."""

from pathlib import Path

import pytest

from agentv.report.formats import write_report
from agentv.runs.store import RunStore


def page_of(path, file="report.html"):
    run = RunStore.open(path)
    write_report("html", run, run.figures(), file)
    return Path(file).resolve()


@pytest.fixture
def results(folder, record):
    """Results of three cases by two targets, two prompts and two trials; one combination was not run."""
    rows = []
    for case in ("alpha", "beta", "gamma"):
        for target in ("small", "large"):
            for prompt in ("short", "long"):
                for trial in (1, 2):
                    if (case, target, prompt, trial) == ("gamma", "large", "long", 2):
                        continue
                    differs = case == "beta" and target == "large"
                    score = 0.0 if differs else 1.0
                    verdict = "fail" if differs else "pass"
                    answer = f"{case} {target}" if case == "gamma" else f"{case} <b>answer</b>"
                    said = {"score": score, "verdict": verdict, "candidate_answer": answer}
                    rows.append(record(case, target=target, prompt=prompt, trial=trial, **said))
    error = {"class": "timeout", "message": "no answer in 5 s", "stage": "target"}
    failed = {"status": "error", "score": None, "verdict": None, "error": error}
    rows.append(record("gamma", target="large", prompt="other", **failed))
    folder.write("results.jsonl", rows)
    return folder


def ids(page):
    return page.locator(".window .grid-case bdi").all_text_contents()


def test_answers_are_side_by_side_under_target_prompt_and_trial(results, chromium):
    with chromium(page_of("results.jsonl"), width=2600) as page:
        page.get_by_role("link", name="Grid").click()
        page.get_by_role("columnheader", name="small short trial 1").wait_for()
        heads = page.locator(".grid-head .grid-cell").all_inner_texts()
        assert [" ".join(head.split()) for head in heads] == [
            "small short trial 1 mean 1.000, n = 3",
            "small short trial 2 mean 1.000, n = 3",
            "small long trial 1 mean 1.000, n = 3",
            "small long trial 2 mean 1.000, n = 3",
            "large short trial 1 mean 0.667, n = 3",
            "large short trial 2 mean 0.667, n = 3",
            "large long trial 1 mean 0.667, n = 3",
            "large long trial 2 mean 0.500, n = 2",
            "large other trial 1 not scored 1 error",
        ]
        assert ids(page) == ["alpha", "beta", "gamma"]
        line = page.locator(".window .grid-line").nth(2).locator(".grid-cell")
        line.get_by_text("no answer in 5 s").wait_for()
        assert [cell.split("\n")[0] for cell in line.all_inner_texts()] == ["pass"] * 7 + ["not run", "error"]
        assert line.nth(0).locator(".grid-answer").inner_text() == "gamma small"
        assert page.locator(".grid-answer", has_text="alpha <b>answer</b>").count() == 8


def test_cases_that_disagree_are_found_by_verdict_and_by_answer(results, chromium):
    with chromium(page_of("results.jsonl"), "#view=grid") as page:
        page.get_by_label("Show").select_option("Verdicts differ")
        page.get_by_text("2 of 3 cases").wait_for()
        assert ids(page) == ["beta", "gamma"]
        page.get_by_label("Show").select_option("Answers differ")
        page.get_by_text("1 of 3 cases").wait_for()
        assert ids(page) == ["gamma"]
        page.get_by_label("Show").select_option("All cases")
        page.get_by_label("Order").select_option("Most disagreement first")
        assert ids(page) == ["beta", "gamma", "alpha"]
        page.keyboard.press("Escape")
        page.get_by_label("Search case ids").fill("ALPH")
        page.get_by_text("1 of 3 cases").wait_for()
        assert ids(page) == ["alpha"] and "search=ALPH" in page.url


def test_keys_move_between_cells_and_open_a_result(results, chromium):
    with chromium(page_of("results.jsonl"), "#view=grid") as page:
        for key in ("j", "j", "ArrowRight", "k", "ArrowRight"):
            page.keyboard.press(key)
        current = page.locator(".grid-cell.current")
        assert current.get_attribute("data-place") == "0 2"
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.locator("#detail-title").get_by_text("beta").wait_for()
        assert page.evaluate("document.activeElement.id") == "detail-title"
        page.get_by_label("Next result").click()
        page.locator("#detail-title").get_by_text("gamma").wait_for()
        page.keyboard.press("Escape")
        assert page.locator(".detail").is_hidden() and page.locator(".scroller").evaluate(
            "e => e === document.activeElement"
        )
        page.keyboard.press("End")
        for _ in range(9):
            page.keyboard.press("ArrowRight")
        assert current.get_attribute("data-place") == "2 8"
        assert current.get_by_text("timeout").is_visible()
        page.keyboard.press("/")
        page.keyboard.type("beta")
        page.keyboard.press("Escape")
        page.get_by_text("1 of 3 cases").wait_for()
        page.locator(".grid-cell.fail").first.click()
        page.locator(".reasons.fail").wait_for()


def test_a_grid_of_many_cases_renders_only_what_is_visible(folder, record, chromium):
    rows = [
        record(f"case-{n}", target=target, candidate_answer=f"{target} {n}") for n in range(5_000) for target in "ab"
    ]
    folder.write("results.jsonl", rows)
    with chromium(page_of("results.jsonl"), "#view=grid", width=390, height=800) as page:
        page.get_by_text("5,000 cases", exact=True).wait_for()
        assert page.locator(".grid-cell").count() < 60
        page.keyboard.press("j")
        page.keyboard.press("End")
        page.get_by_text("a 4999", exact=True).wait_for()
        assert page.locator(".grid-cell").count() < 60
        page.keyboard.press("ArrowRight")
        page.get_by_text("b 4999", exact=True).wait_for()
        first = page.locator(".window .grid-case").last.bounding_box()
        assert first["x"] == page.locator(".scroller").bounding_box()["x"]  # the column of cases stays in sight
        assert page.locator(".grid-head").bounding_box()["y"] == pytest.approx(
            page.locator(".scroller").bounding_box()["y"], abs=2
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_search_that_was_not_applied_yet_is_not_one_of_the_next_view(results, chromium):
    with chromium(page_of("results.jsonl")) as page:
        page.clock.install()
        page.get_by_role("searchbox").press_sequentially("alpha")
        page.get_by_role("link", name="Grid").click()
        page.locator(".grid-cell").first.wait_for()
        page.clock.fast_forward(1_000)
        assert "search=" not in page.url
        page.close()  # it keeps its clock


def test_the_grid_is_not_offered_for_one_result_per_case(shop, chromium):
    with chromium(page_of("run")) as page:
        assert page.get_by_role("link", name="Grid").count() == 0


def test_hostile_texts_in_the_grid_are_shown_as_text(hostile, chromium):
    with chromium(page_of(hostile, hostile / "page.html"), "#view=grid", width=2600, height=3000) as page:
        page.locator(".grid-answer", has_text="</script><script>window.pwned").first.wait_for()
        page.locator(".grid-answer", has_text="\\x1b[31mred").first.wait_for()
        assert page.evaluate("window.pwned") is None
        assert page.locator("#app script, #app img, #app a[href^=javascript]").count() == 0
        longest = "Math.max(...[...document.querySelectorAll('.grid-cell')].map((cell) => cell.textContent.length))"
        assert page.evaluate(longest) < 1000
