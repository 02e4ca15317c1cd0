"""`agentv select`: successive halving, and a confirmation on cases that took no part in the choice."""

import json

import pytest

from agentv.extensions.select.rounds import plan_rounds, surviving

TARGETS = """
def number(prompt):
    return int(prompt.split()[-1])

def same(prompt):
    return "yes" if number(prompt) % 2 else "no"

def good(prompt):
    return "yes" if number(prompt) % 8 else "no"

def bad(prompt):
    return "no"

def broken(prompt):
    raise OSError("away")
"""


@pytest.fixture
def variants(project):
    """Targets of which one is better than the baseline `v0`, and 200 questions."""
    project.write("made.py", TARGETS)
    kinds = ["same", "bad", "same", "good", "bad", "broken", "same", "bad"]
    entries = [{"name": f"v{n}", "provider": "python", "function": f"made.py:{kind}"} for n, kind in enumerate(kinds)]
    project.targets(*entries)
    project.dataset(*(f"question {number}" for number in range(200)))
    return project


def targets(*names):
    return [word for name in names for word in ("--target", name)]


def select(project, *options, count=8):
    names = targets(*(f"v{n}" for n in range(count)))
    return project.command("select", "d.yaml", *names, "--out", "chosen", *options)


def test_the_best_variant_is_chosen_and_confirmed_on_other_cases(variants):
    ended = select(variants, "--json", "--quiet")
    assert ended.code == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["winner"], found["baseline"], found["answer"]) == ("v3", "v0", "better")
    assert found["lead"]["value"] == pytest.approx(0.375, abs=0.1)
    assert found["calls"] < found["calls_of_matrix"] / 2
    stages = [{record["eval_id"] for record in variants.records(f"chosen/stage-{n}")} for n in (1, 2, 3)]
    assert not stages[2] & (stages[0] | stages[1])
    assert sum(map(len, stages)) == 200
    assert {record["target"] for record in variants.records("chosen/stage-3")} == {"v0", "v3"}


def test_the_text_says_why_only_the_confirmation_counts(variants):
    text = select(variants, "--quiet").stdout
    assert text.startswith("Choose v3: v3 is better by 0.3")
    assert "errors (not scored): v5" in text
    assert "took no part in the choice" in text


def test_a_finished_selection_is_resumed_without_calls(variants):
    first = select(variants, "--json", "--quiet").stdout
    (variants.path / "made.py").write_text(TARGETS.replace("return", "raise OSError() or"))
    assert select(variants, "--json", "--quiet", "--resume").stdout == first


def test_an_interrupted_selection_continues(variants):
    stopped = select(variants, "--deadline", "0.001")
    assert stopped.code == 130
    assert "Resume with: agentv select d.yaml --target v0" in stopped.stderr
    ended = select(variants, "--json", "--quiet", "--resume", "--deadline", "600")
    assert json.loads(ended.stdout)["winner"] == "v3"


def test_other_options_cannot_be_resumed(variants):
    select(variants, "--quiet", "--calls", "300")
    ended = select(variants, "--resume", "--calls", "500")
    assert ended.code == 2
    assert "Cannot resume" in ended.stderr


def test_calls_are_limited(variants):
    ended = select(variants, "--json", "--quiet", "--calls", "200", count=4)
    assert json.loads(ended.stdout)["calls"] <= 200
    few = select(variants, "--calls", "20", "--out", "few").stderr
    assert "Too few cases to choose a variant and confirm it on other cases: " in few and "within --calls" in few


def test_a_baseline_that_wins_is_kept(variants):
    ended = variants.command("select", "d.yaml", *targets("v3", "v0", "v1"), "--out", "kept", "--json", "-q")
    found = json.loads(ended.stdout)
    assert (ended.code, found["answer"], found["winner"], found["confirmation"]) == (0, "keep", "v3", None)


def test_equal_variants_are_not_claimed_to_be_better(variants):
    ended = variants.command("select", "d.yaml", *targets("v0", "v2", "v6"), "--out", "same", "--json", "-q")
    assert json.loads(ended.stdout)["answer"] in ("keep", "cannot tell")


def test_the_plan_is_printed_without_calls(variants):
    text = select(variants, "--dry-run").stdout
    assert "8 variants; the baseline is v0" in text
    assert "nothing was called" in text
    assert not (variants.path / "chosen").exists()


def test_prompts_are_variants_of_each_target(project):
    project.targets({"name": "m", "provider": "mock"})
    project.dataset("yes", "no")
    project.write("a.md", "be kind")
    ended = project.command("select", "d.yaml", "--target", "m", "--prompt", "a.md", "--prompt", "a.md")
    assert ended.code == 2
    ended = project.command("select", "d.yaml", "--target", "m")
    assert "at least two variants" in ended.stderr


@pytest.mark.parametrize(
    ("variants", "cases", "rounds"),
    [(20, 275, [(20, 16, 10), (10, 31, 5), (5, 63, 1)]), (5, 100, [(5, 40, 1)]), (2, 50, [])],
)
def test_each_round_has_about_the_same_number_of_calls(variants, cases, rounds):
    schedule = plan_rounds(variants, cases)
    assert [(each.variants, each.cases, each.survivors) for each in schedule.rounds] == rounds
    assert schedule.cases == cases


def test_variants_are_ranked_on_the_cases_that_all_scored():
    scores = {"a": {"x": 1.0, "y": 0.0}, "b": {"x": 0.5}, "c": {}}
    assert surviving(scores, 1) == ("a",)
    assert surviving(scores, 2) == ("a", "b")
