"""The picture of cost and quality: on the page of a comparison, and in reports of a run with several targets."""

from pathlib import Path

import pytest
from test_page import page_of

from agentv.model.result import ExecutionMetrics
from agentv.runs.record import encode_record
from made_results import made

TARGETS = {"cheap": (0.01, 60), "dear": (0.03, 90), "waste": (0.05, 60)}


def records(target):
    cost, passed = TARGETS[target]
    for number in range(100):
        score = float(number < passed)
        known = {"verdict": "pass" if score else "fail", "execution_metrics": ExecutionMetrics(cost_usd=cost)}
        yield made(eval_id=str(number), fingerprint=f"of {number}", target=target, score=score, **known)


def write_run(name, *targets):
    Path(name).write_bytes(b"".join(encode_record(each) for target in targets for each in records(target)))
    return name


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_of_three_runs_draws_cost_and_quality(folder, command, chromium, theme):
    runs = [write_run(f"{target}.jsonl", target) for target in TARGETS]
    command("compare", *runs, "--html", "page.html")
    with chromium(Path("page.html").resolve(), scheme=theme) as page:
        picture = page.locator("figure.frontier")
        assert picture.locator(".grid").count() == picture.locator("circle").count() == 3
        assert picture.locator(".dominated text").text_content() == "C"
        assert "C: mean 0.600" in picture.locator("svg").get_attribute("aria-label")
        assert (
            picture.locator("figcaption").inner_text()
            == "A, B are on the frontier of cost and quality; 1 is dominated."
        )


def test_reports_of_a_run_with_three_targets_have_the_frontier(folder, command, chromium):
    write_run("one.jsonl", *TARGETS)
    command("report", "one.jsonl", "report.md")
    assert "| dominated by `dear` |" in Path("report.md").read_text()
    assert "waste  0.600  $0.0500        $0.0833" in command("report", "one.jsonl").stdout
    with chromium(page_of("one.jsonl")) as page:
        assert page.locator("figure.frontier .dominated text").text_content() == "waste"
