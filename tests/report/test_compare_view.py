"""The page of a comparison: the figures of `agentv compare`, the cases by change, and one case side by side."""

import json
from pathlib import Path

import pytest
from test_page import blocks_of

from agentv.runs.record import encode_record
from made_results import failed, judged, made


def write_run(path, *records):
    path.write_bytes(b"".join(map(encode_record, records)))
    return path


def answered(id, score, *tools, text="", **known):
    """A result whose answer called these tools; `tool=x` has an argument."""
    calls = [{"tool": tool, "input": {"q": given}} for tool, _, given in (each.partition("=") for each in tools)]
    verdict = "pass" if score >= 0.8 else "fail"
    found = judged("contains", score, verdict=verdict, misses=() if score else ("no refund",))
    messages = ({"role": "assistant", "tool_calls": calls, "content": text},)
    known = {"output_messages": messages, "candidate_answer": text, "evaluator_results": (found,), **known}
    return made(eval_id=id, score=score, verdict=verdict, fingerprint=f"of {id}", **known)


APPROVED, REFUSED = "Your refund was approved today.", "Your refund was refused today."
NAMES = ("dataset", "id", "target", "prompt", "kind", "before", "after", "change", "errors")


@pytest.fixture
def runs(folder):
    """Twelve cases: eight losses, a gain, a tie, and one that errors in B; and one case in each run alone."""
    lost = [f"lost-{n}" for n in range(8)]
    before = [answered(id, 1.0, "search=a", "refund=b", text=APPROVED) for id in lost]
    before += [answered("won", 0.0), answered("same", 1.0), answered("breaks", 1.0), answered("old", 1.0)]
    after = [answered(id, 0.0, "search=a", "escalate=b", text=REFUSED) for id in lost]
    after += [
        answered("won", 0.5),
        answered("same", 1.0),
        failed(eval_id="breaks", fingerprint="of breaks"),
        answered("new", 1.0),
    ]
    return [str(write_run(Path(name), *each)) for name, each in (("a.jsonl", before), ("b.jsonl", after))]


@pytest.fixture
def page(command, runs):
    ended = command("compare", *runs, "--html", "page.html")
    assert "Wrote page.html" in ended.stderr
    return Path("page.html").resolve()


def columns_of(block):
    return {name: block[name] if isinstance(block[name], list) else [block[name]] * block["n"] for name in NAMES}


def cases_of(page):
    """The listed cases: id, kind, both scores, the change, and where it errored."""
    found = blocks_of(page)
    kinds = found["head"][0]["kinds"]
    rows = [columns_of(block) for block in found["rows"]]
    return [
        (columns["id"][n], kinds[columns["kind"][n]], columns["before"][n], columns["after"][n], columns["errors"][n])
        for columns in rows
        for n in range(len(columns["id"]))
    ]


def test_the_page_has_the_figures_of_the_command(command, runs, page):
    expected = json.loads(command("compare", *runs, "--json").stdout)
    text = command("compare", *runs).stdout
    head = blocks_of(page)["head"][0]
    matched, _ = expected.pop("matched"), expected.pop("changes")
    assert head["data"] == expected
    assert head["verdict"]["text"] == text.splitlines()[0]
    for line in (head["outcomes"], *head["left_out"], *head["method"], head["regressions"]["title"]):
        assert line in text
    listed = {id: (before, after) for id, _, before, after, _ in cases_of(page)}
    assert {pair["eval_id"]: (pair["score1"], pair["score2"]) for pair in matched}.items() <= listed.items()


def test_all_cases_are_listed_the_largest_changes_first(page):
    found = cases_of(page)
    assert found[0] == ("lost-0", "loss", 1.0, 0.0, 0)
    assert found[8:] == [
        ("won", "gain", 0.0, 0.5, 0),
        ("breaks", "unscored", 1.0, None, 2),
        ("old", "only in A", 1.0, None, 0),
        ("new", "only in B", None, 1.0, 0),
        ("same", "tie", 1.0, 1.0, 0),
    ]


def test_a_large_file_states_what_it_leaves_out(monkeypatch, command, runs):
    monkeypatch.setattr("agentv.report.comparisons.comparison_page.MOST_LISTED", 9)
    monkeypatch.setattr("agentv.report.comparisons.comparison_page.MOST_OPENED", 2)
    command("compare", *runs, "--html", "page.html")
    found = blocks_of(Path("page.html"))
    assert sum(block["n"] for block in found["rows"]) == 9 and len(found["pairs"][0]) == 2
    assert found["head"][0]["limits"] == [
        "9 of 13 cases are listed: the largest of 12 changes",
        "The answers of 2 of 9 listed cases are in this file, the largest changes first; `agentv view` shows all",
    ]


def test_the_trials_that_show_the_change_are_opened(command, folder):
    before = [answered("c", 1.0, text=f"before {trial}", trial=trial) for trial in (1, 2)]
    after = [answered("c", score, text=f"after {trial}", trial=trial) for trial, score in ((1, 1.0), (2, 0.0))]
    write_run(Path("a.jsonl"), *before)
    write_run(Path("b.jsonl"), *after)
    command("compare", "a.jsonl", "b.jsonl", "--html", "page.html")
    (pair,) = blocks_of(Path("page.html"))["pairs"][0]
    assert [side["record"]["candidate_answer"] for side in pair["sides"]] == ["before 1", "after 2"]
    assert [each["score"] for each in pair["sides"][1]["trials"]] == [1.0, 0.0]
    assert pair["sides"][1]["row"] == 1


def test_several_targets_of_one_run_are_opened_separately(command, folder):
    records = [answered("c", score, text=target, target=target) for target, score in (("old", 1.0), ("new", 0.0))]
    write_run(Path("both.jsonl"), *records)
    command("compare", "both.jsonl", "--html", "page.html")
    (pair,) = blocks_of(Path("page.html"))["pairs"][0]
    assert [(side["record"]["candidate_answer"], side["row"]) for side in pair["sides"]] == [("old", 0), ("new", 1)]


def test_runs_with_another_measure_have_no_verdict_but_the_remedy(command, folder):
    folder.write("evals/e.jsonl", [{"id": "c", "input": "hi", "expected_outcome": "Greets"}])
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "t", "provider": "mock", "response": "hello"}]})
    for name, wanted in (("a", "hello"), ("b", "bye")):
        folder.write("evals/e.yaml", {"evaluators": [{"type": "contains", "value": wanted}]})
        assert command("eval", "evals/e.jsonl", "--target", "t", "--out", name).code == 0
    command("compare", "a", "b", "--html", "page.html")
    head = blocks_of(Path("page.html"))["head"][0]
    assert head["verdict"]["text"] == "The measure changed: evaluator 'contains' differs. No verdict."
    assert head["verdict"]["answer"] is None
    assert [command.split()[1] for command in head["verdict"]["commands"]] == ["rescore", "compare"]
    assert head["what_changed"][0]["changes"][0] == {
        "text": "evaluator contains: value hello → bye (1 of 1 case, for example c)", "diff": "", "is_measure": True
    }  # fmt: skip


def test_three_runs_give_a_matrix(command, runs, chromium):
    command("compare", *runs, runs[0], "--html", "page.html")
    with chromium(Path("page.html").resolve()) as page:
        page.wait_for_selector(".matrix table")
        runs, differences, ranking = page.locator(".matrix h2").all_inner_texts()[:3]
        assert (runs, ranking) == ("Runs", "Ranking by mean")
        assert differences.startswith(
            "Differences: column − row (* p < 0.05, Holm-adjusted over the comparisons with A"
        )


def test_a_case_opens_side_by_side_with_its_first_divergence(page, chromium):
    with chromium(page) as shown:
        shown.wait_for_selector(".pair-row.loss")
        assert shown.inner_text("h1").startswith("B is worse by")
        # Keys work on a freshly opened page.
        shown.keyboard.press("j")
        shown.keyboard.press("Enter")
        shown.wait_for_selector(".case-panel .answers")
        assert shown.inner_text(".case-panel h2") == "lost-0"
        assert shown.locator(".answer-side del").all_inner_texts() == ["approved"]
        assert shown.locator(".answer-side ins").all_inner_texts() == ["refused"]
        assert "A calls refund, B calls escalate" in shown.inner_text(".divergence")
        assert "refund" in shown.inner_text(".step.first")
        assert "1.000 → 0.000" in shown.inner_text(".evaluator .line")
        shown.keyboard.press("j")
        shown.wait_for_function("document.querySelector('.case-panel h2').textContent === 'lost-1'")
        shown.keyboard.press("Escape")
        assert shown.is_hidden(".case-panel")


def test_cases_are_filtered_searched_and_ordered(page, chromium):
    def shown_ids(shown):
        return shown.locator(".spacer .name").all_inner_texts()

    with chromium(page, "#show=unpaired") as shown:
        shown.wait_for_selector(".spacer .pair-row")
        assert shown_ids(shown) == ["old", "new"]
        shown.click("text=Errors 1")
        assert shown_ids(shown) == ["breaks"]
        shown.keyboard.press("j")
        shown.keyboard.press("Enter")
        shown.wait_for_selector(".case-panel .message.error")
        shown.keyboard.press("Escape")
        shown.click("text=All 13")
        shown.keyboard.press("/")
        shown.keyboard.type("lost-3")
        assert shown_ids(shown) == ["lost-3"]
        shown.keyboard.press("Escape")
        shown.keyboard.press("j")
        shown.keyboard.press("Enter")
        shown.wait_for_selector(".case-panel .answers")
        assert "find=lost-3" in shown.url and "case=" in shown.url
    with chromium(page, "#order=gain") as shown:
        shown.wait_for_selector(".spacer .pair-row")
        assert shown_ids(shown)[0] == "won"


def test_an_example_of_a_failure_group_opens_its_case(page, chromium):
    with chromium(page, width=390, height=844) as shown:
        shown.wait_for_selector(".groups")
        notes = shown.locator(".compare-figures .side .note").all_inner_texts()
        assert notes == ["10 of 12 cases", "10 of 12 cases; 1 of 12 results errored (not scored)"]
        assert "8 contains, wording like" in shown.inner_text(".groups li")
        shown.click(".groups .example >> nth=1")
        shown.wait_for_selector(".case-panel .answers")
        assert shown.inner_text(".case-panel h2") == "lost-1"
        assert shown.evaluate("document.documentElement.scrollWidth") == 390


def test_hostile_texts_are_shown_as_text(command, folder, chromium):
    text = '</script><script>window.pwned = 1</script><img src=x onerror="window.pwned = 1">\x1b[31m\u202e'
    texts = {"text": text, "tags": (text,), "dataset": text, "target": text}
    write_run(Path("a.jsonl"), answered(text, 1.0, f"{text}={text}", **texts))
    write_run(Path("b.jsonl"), answered(text, 0.0, f"x={text}", **texts | {"text": f"{text} more"}))
    command("compare", "a.jsonl", "b.jsonl", "--html", "page.html")
    with chromium(Path("page.html").resolve(), "#case=0") as page:
        page.wait_for_selector(".case-panel .answers")
        assert "<script>window.pwned = 1</script>" in page.inner_text(".answer-side .text >> nth=0")
        assert page.evaluate("[window.pwned, document.images.length]") == [None, 0]
