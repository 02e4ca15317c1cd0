"""The text of the comment: what it states, that text of models is only text there, and that it fits."""

import html
import os
import re

import pytest
from markdown_it import MarkdownIt

from agentv.runs.record import encode_record
from kept_runs import KEPT, keep
from made_results import failed, scored

HOSTILE = [
    "@mona and @my-org/team",
    "![x](https://evil.test/x.png) <img src=https://evil.test/x.png>",
    "[link](https://evil.test) https://evil.test www.evil.test mona@evil.test",
    "--> <!-- agentv comment: evals -->",
    "</details></summary><script>alert(1)</script>",
    "```\n@mona\n````\n![x](https://evil.test)\n~~~",
    "| a | b |\n|---|---|\n# title\n- [x] item #12 GH-1\n\n    code",
    "GH-12 gh-3 in my-org/my-app",
    "&lt;b&gt; &#64;mona \\@mona \x1b[2J \u202e \ud800",
]
OWN_TAGS = {"--", "h3", "p", "table", "thead", "tbody", "tr", "th", "td", "strong", "details", "summary", "ul", "li"}


def stored(day, answers, score, **names):
    """Store a run whose cases have these answers and the same score."""
    run = keep(day, passed=[], **({"git_branch": "main"} if score == 0 else {}))
    records = (
        scored(score, eval_id=names.get("id", "case-{}").format(n), dataset="support", target="gpt",
               candidate_answer=answer, hits=(answer,))
        for n, answer in enumerate(answers)
    )  # fmt: skip
    (KEPT / run / "results.jsonl").write_bytes(b"".join(map(encode_record, records)))
    return run


@pytest.fixture
def text(folder, command):
    def run(candidate, *options):
        ended = command("comment", candidate, "--dry-run", *(options or ("--baseline", "@main")))
        assert ended.code == 0, ended
        return ended.stdout

    return run


def rendered(text):
    """Return the page that the comment becomes, without what is in code."""
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    return re.sub(r"<(pre|code)\b.*?</\1>", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("answer", HOSTILE)
def test_text_of_a_model_is_only_text(text, answer):
    answer = answer.encode(errors="replace").decode()
    stored(2, ["no"] * 8, 0.0, id=answer[:40] + "{}")
    shown = text(stored(9, [answer] * 8, 1.0, id=answer[:40] + "{}"), "--baseline", "@main", "--suite", answer)
    page, body = rendered(shown), shown.partition("\n")[2]
    tags = set(re.findall(r"<[/!]*([\w-]+)", page))
    assert tags <= OWN_TAGS, tags
    assert page.count("<details>") == page.count("</details>") == 8 and page.count("<!--") == 1
    assert not re.search(r"(?i)@\w|#\d|\bgh-\d", html.unescape(page)), "a mention or a reference"
    assert not re.search(r"https?:|www\.", re.sub(r"```.*?\n`{3,}\n", "", body, flags=re.DOTALL)), "a link"
    assert "\x1b" not in shown and "\u202e" not in shown


def test_the_comment_has_the_verdict_the_figures_and_the_flipped_cases(text):
    keep(1, passed=[], git_branch="main", dataset="support", finished=False)
    stored(2, ["wrong"] * 12, 0.0)
    shown = text(stored(9, ["right"] * 12, 1.0))
    lines = shown.splitlines()
    assert lines[:2] == [
        "<!-- agentv comment: evals -->",
        "### evals: This pull request is better by 1.000 (95 % 0.515 to 1.000, p &#60; 0.001, 12 shared cases).",
    ]
    assert "|  | before (A) | after (B) | difference | 95 % interval |" in lines
    assert "| mean score | 0.000 | 1.000 | +1.000 | +0.515 to +1.000 |" in lines
    assert "| errors (not scored) | 0 of 12 | 0 of 12 | - | - |" in lines
    assert "**Flipped: 0 cases now failing, 12 now passing.**" in lines
    assert "<details><summary>Now passes: support · case-0 (0.000 → 1.000)</summary>" in lines
    assert shown.count("```text\nwrong\n```") == shown.count("```text\nright\n```") == 12
    assert "Not part of the baseline&#58; 20261101-120000-0001, because it is not finished" in shown


def test_a_comparison_that_cannot_tell_states_how_many_cases_it_needs(text):
    keep(2, passed=[n % 2 for n in range(40)], git_branch="main")
    shown = text(keep(9, passed=[n % 3 > 0 for n in range(40)]))
    assert "### evals: Can't tell yet. This pull request scored 0.150 higher on 40 shared cases" in shown
    cases = r"about \d+ cases \(\d+ to \d+\) to show a difference of 0\.\d+"
    assert re.search(rf"To decide, a comparison like this needs {cases}, or {cases}\. It has 40\.", shown)


def test_a_changed_measure_gives_no_verdict_and_no_difference(project, text):
    for run, word in (("before", "yes"), ("after", "no")):
        project.dataset(*["yes"] * 9, evaluators=[{"type": "contains", "value": word, "name": "word"}])
        assert project.eval("--out", run).code == 0
    shown = text("after", "--baseline", "before")
    assert "### evals: The measure changed&#58; evaluator 'word' differs. No verdict." in shown
    assert "| mean score | 1.000 | 0.000 | - | - |" in shown
    assert "- evaluator word&#58; value yes → no" in shown


def test_of_a_base_branch_whose_level_changed_only_the_runs_since_are_the_baseline(text):
    for day in range(1, 7):
        keep(day, passed=[(n * 7 + day) % 10 < (8 if day < 4 else 2) for n in range(100)], git_branch="main")
    shown = text(keep(9, passed=[n % 10 < 2 for n in range(100)]))
    assert "Baseline: &#64;\u2060main (3 runs)" in shown
    assert re.search(r"Not part of the baseline&#58; (\S+-000\d(, )?){3}, because the level changed at 20261104", shown)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--baseline", "@main"), "No run has the tag, experiment, branch or commit 'main'"),
        (("--baseline", "nothing"), "No such run or experiment&#58; nothing"),
    ],
)
def test_without_a_baseline_the_comment_has_the_figures_of_the_run(text, options, reason):
    shown = text(keep(9, passed=[1, 0]), *options)
    assert f"### evals: No comparison. {reason}." in shown
    assert "| mean score | - | 0.500 | - | - |" in shown


def test_errors_are_counted_and_never_scores(text):
    stored(2, ["x"] * 12, 0.0)
    candidate = keep(9, passed=[])
    records = [failed(eval_id=f"case-{n}", dataset="support", target="gpt") for n in range(12)]
    (KEPT / candidate / "results.jsonl").write_bytes(b"".join(map(encode_record, records)))
    shown = text(candidate)
    assert "### evals: Can't tell&#58; no case was scored in both the baseline and this pull request." in shown
    assert "| errors (not scored) | 0 of 12 | 12 of 12 |" in shown


@pytest.mark.parametrize("answer", ["x" * 5_000, "日本語" * 2_000, "`" * 4_000, "<&@" * 1_600])
def test_a_long_comment_is_cut_and_states_what_is_missing(text, answer):
    stored(2, [answer] * 300, 0.0)
    shown = text(stored(9, [answer[::-1]] * 300, 1.0))
    assert len(shown.encode()) < 65_536
    cut = re.search(r"Not shown here: (\d+) flipped cases\. `agentv compare` lists everything\.", shown)
    assert int(cut[1]) + shown.count("<summary>Now passes") == 300
    assert rendered(shown).count("<details>") == rendered(shown).count("</details>")


def test_a_run_with_symbolic_links_is_refused(folder, command):
    run = keep(9, passed=[1])
    os.symlink("/etc/passwd", KEPT / run / "summary.json.link")
    ended = command("comment", run, "--dry-run", "--baseline", "@main")
    assert ended.code == 2 and "has symbolic links, which are not followed" in ended.stderr


def test_a_link_to_the_report_cannot_add_markup(text):
    shown = text(keep(9, passed=[1]), "--baseline", "@main", "--report-url", "https://x.test/a b>)![](y)\n# x")
    assert "[Report](<https://x.test/a%20b%3E%29![]%28y%29%0A#%20x>)" in shown


def test_without_a_baseline_and_an_event_a_dry_run_is_an_error(folder, command):
    ended = command("comment", keep(9, passed=[1]), "--dry-run")
    assert ended.code == 2 and "Pass --baseline RUN" in ended.stderr
