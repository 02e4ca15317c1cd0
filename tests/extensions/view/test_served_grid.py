"""The grid and the case of a served run: cells are fetched for visible rows, and the case has the target's settings."""


def test_the_grid_of_a_served_run_shows_answers_and_opens_a_case(folder, command, served):
    targets = [{"name": name, "provider": "mock", "response": f"{name} says A"} for name in ("one", "two")]
    folder.write(".agentv/targets.yaml", {"targets": targets})
    checks = [{"type": "contains", "value": "one"}]
    cases = [{"id": each, "input": each, "expected_outcome": "Says one", "evaluators": checks} for each in "abc"]
    folder.write("evals/letters.yaml", {"evalcases": cases})
    options = ("--target", "one", "--target", "two", "--trials", "2", "--out", "run", "--quiet")
    assert command("eval", "evals/letters.yaml", *options).code == 0
    results = folder.path / "run/results.jsonl"
    results.write_text("".join(reversed(results.read_text().splitlines(keepends=True))))  # the second target was first
    with served("run") as page:
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.get_by_role("link", name="Grid").click()
        page.get_by_text("two says A").first.wait_for()
        assert page.locator(".grid-head strong").all_text_contents() == ["one", "one", "two", "two"]
        assert len([url for url in asked if "/results?" in url]) <= 1  # one request for all visible cells
        page.get_by_label("Show").select_option("Answers differ")
        page.get_by_text("3 cases", exact=True).wait_for()
        page.locator(".grid-cell.fail").first.click()
        page.locator(".reasons.fail").wait_for()
        assert "mock" in page.locator("section.settings").text_content()
    with served("run", "--label", "labels.jsonl") as page:  # the grid would reveal the hidden verdicts
        page.locator(".window .row").first.wait_for()
        assert page.get_by_role("link", name="Grid").count() == 0
