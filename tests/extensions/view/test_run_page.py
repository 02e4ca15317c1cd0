"""The view of a run on the served page: blocks of rows, hostile texts, and rows that arrive while it is open."""

import json
from pathlib import Path

BAD = '</script><script>window.pwned = 1</script><img src=x onerror="window.pwned = 1"> \x1b[31m \u202e javascript:x'
TOTAL = 40_000
RUNS = "async () => (await (await fetch('/api/runs')).json()).runs"


def record(number, **values):
    known = {"schema_version": 1, "timestamp": "2026-11-15T10:00:00.000Z", "run_id": "r", "eval_id": f"case-{number}"}
    known |= {"dataset": "texts", "dataset_path": "texts.jsonl", "target": f"model-{number % 3}", "trial": 1}
    return {
        **known,
        "status": "ok",
        "score": number % 5 / 4,
        "verdict": "pass" if number % 5 == 4 else "fail",
        **values,
    }


def write(path, rows):
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_many_rows_are_read_block_by_block_and_filtered(folder, served):
    write("results.jsonl", (record(number, misses=[f"reason {number}"]) for number in range(TOTAL)))
    with served("results.jsonl") as page:
        page.locator(".count-line").get_by_text(f"{TOTAL:,} results", exact=True).wait_for()
        assert page.locator(".counts").inner_text().split("\n") == ["8,000 passed", "32,000 failed"]
        page.locator("h1").get_by_text("texts · 3 targets").wait_for()
        assert page.title() == "texts · 3 targets · agentv"
        page.get_by_role("link", name="Grid").wait_for()  # it is offered when the targets are known
        page.locator(".window .row").first.get_by_text("reason 0", exact=True).wait_for()
        page.get_by_role("button", name="Filter by Target").click()
        page.get_by_label("model-2: 13,333").check()
        page.keyboard.press("Escape")
        page.keyboard.press("G")
        page.locator(".row.current").get_by_text("case-39989", exact=True).wait_for()
        page.keyboard.press("/")
        page.keyboard.type("CASE-3999")
        page.locator(".count-line").get_by_text("3 of 40,000 results").wait_for()


def test_hostile_texts_of_a_served_run_are_shown_as_text(folder, served):
    message = {"role": "assistant", "content": BAD, "tool_calls": [{"tool": BAD, "input": {BAD: BAD}}]}
    long = {"candidate_answer": "x" * 1_000_000, "misses": ["y" * 1_000_000]}
    rows = [
        record(0, eval_id=BAD, target=BAD, tags=[BAD], misses=[BAD], candidate_answer=BAD, output_messages=[message])
    ]
    write("results.jsonl", [*rows, record(1, **long)])
    with served("results.jsonl") as page:
        for number in range(2):
            page.locator(".window .row").nth(number).click()
            page.locator(".detail .place").get_by_text(f"{number + 1} of 2").wait_for()
            page.locator(".detail section").first.wait_for()
        assert page.evaluate("window.pwned") is None
        assert page.locator("#app script, #app img").count() == 0
        page.locator(".window .row").first.get_by_text("</script><script>").first.wait_for()


def test_a_result_that_cannot_be_read_says_so_and_is_read_again(folder, served):
    write("results.jsonl", [record(0, candidate_answer="the answer"), record(1)])
    with served("results.jsonl") as page:
        page.route("**/case?row=0", lambda route: route.fulfill(body="not JSON"))
        page.locator(".window .row").first.click()
        page.get_by_role("alert").get_by_text("This result cannot be read").wait_for()
        page.unroute("**/case?row=0")
        page.keyboard.press("j")
        page.keyboard.press("k")
        page.locator(".detail .message.answer").get_by_text("the answer").wait_for()
        assert page.get_by_role("alert").count() == 0


def test_a_run_that_is_replaced_while_it_is_open_is_read_again(evaluated, folder, served):
    """The file is overwritten in place, and keeps its number. Then the run is renamed, and found again."""
    evaluated("abc")
    evaluated("xyz", out="other")
    with served("run", fragment="#view=run") as page:
        page.locator(".window .row").get_by_text("b", exact=True).click()
        page.locator(".detail").get_by_text("does not contain 'A'").first.wait_for()
        grid = page.context.new_page()
        grid.goto(f"{page.server.origin}/#view=grid")
        grid.get_by_text("B", exact=True).wait_for()
        for name in ("results.jsonl", "cases.jsonl", "run.json", "summary.json"):
            (folder.path / "run" / name).write_bytes((folder.path / "other" / name).read_bytes())
        page.locator(".window .row").get_by_text("y", exact=True).click()
        page.locator(".detail .message.answer").get_by_text("Y").wait_for()
        grid.get_by_text("B", exact=True).click()
        grid.get_by_role("rowheader", name="y").wait_for()
        (folder.path / "run").rename(folder.path / "renamed")
        page.locator(".reading").get_by_text("This run is not in the list").wait_for()
        page.locator(".window .row").get_by_text("z", exact=True).click()
        page.locator(".detail .failed").get_by_text("This run is not in the list").wait_for()
        page.locator(".reading").get_by_role("link", name="Go back to the list of runs").wait_for()
        (folder.path / "renamed").rename(folder.path / "run")
        page.locator(".detail .message.answer").get_by_text("Z").wait_for()
        page.locator(".reading:empty").wait_for(state="attached")
        assert page.locator(".window .row").all_inner_texts() and not page.get_by_text("This run is not").count()


def test_runs_that_cannot_be_shown_say_why_without_an_error_on_the_console(evaluated, folder, served):
    evaluated("ab", out="first")
    evaluated("cd", out="second")
    (evaluated("ab", out="damaged") / "results.jsonl").write_bytes(b'{"schema_version":1,"eval_id":\n{}\n')
    folder.write("inspect.eval", b"PK\x03\x04 not an archive")
    cut = evaluated("abc", out="cut") / "results.jsonl"
    cut.write_bytes(b"".join(cut.read_bytes().splitlines(keepends=True)[:1]))
    runs = ("first", "second", "damaged", "inspect.eval", "cut")
    with served(*runs, fragment="#view=run&run=nope") as page:
        ids = {Path(run["path"]).name: run["id"] for run in page.evaluate(RUNS)}
        failed = page.locator(".failed")
        for fragment, texts in {
            "view=run&run=..%2F..%2Fetc": ["This run is not in the list"],
            "view=trend&run=nope": [],
            f"view=run&run={ids['damaged']}": ["results.jsonl", "line 1", "agentv runs repair"],
            f"view=run&run={ids['inspect.eval']}": ["inspect.eval"],
            f"view=compare&runs={ids['first']}&runs={ids['second']}": ["no case in common"],
            f"view=compare&runs={ids['first']}&runs={ids['damaged']}": ["agentv runs repair"],
            f"view=compare&runs={ids['first']}&runs=nope": ["This run is not in the list"],
        }.items():
            page.evaluate("fragment => { location.hash = fragment }", fragment)
            for text in texts:
                failed.get_by_text(text).first.wait_for()
        failed.get_by_role("link", name="Go back to the list of runs").click()
        page.locator("tbody.run").nth(4).wait_for()
        page.evaluate("id => { location.hash = `view=run&run=${id}` }", ids["cut"])
        page.get_by_text("damaged: 2 of 3 records are missing").wait_for()
        assert page.get_by_text("not run").count() == 0
