"""`agentv noise`: flip rate, noise floor, judge noise, and the same number as `agentv plan`."""

import json
import math
import random
import statistics

import pytest

from agentv.extensions.noise.noise_estimate import NoiseTally
from made_results import judged, scored

TARGETS = """
import collections, json, random

calls = collections.Counter()

def alternating(prompt):
    "Answer yes and no in turn for prompts that say so; yes for all others."
    calls[prompt] += 1
    return "no" if prompt.startswith("flip") and calls[prompt] % 2 == 0 else "yes"

def moody_judge(prompt):
    score = random.choice([0.0, 0.5, 1.0])
    return json.dumps({"score": score, "hits": [], "misses": [], "reasoning": "so"})

def broken(prompt):
    calls["all"] += 1
    if calls["all"] == 3:
        raise RuntimeError("no answer")
    return "yes"
"""


def python_target(name, **known):
    return {"name": name, "provider": "python", "function": f"made.py:{name}", **known}


@pytest.fixture
def noisy(project):
    """A project whose targets answer at random, or in turn."""
    project.write("made.py", TARGETS)
    mock = {"name": "default", "provider": "mock", "response": "yes"}
    project.targets(mock, *map(python_target, ("alternating", "moody_judge", "broken")))
    return project


def measured(project, *arguments, code=0):
    ended = project.command("noise", "d.yaml", "--out", "noise", "--json", *arguments)
    assert ended.code == code, ended.stderr
    return json.loads(ended.stdout)


def simulated(chances, trials, generator):
    """Two runs of cases that pass with these chances: the tally, and the difference of the means."""
    tally, means = NoiseTally(), []
    for run in (0, 1):
        scores = []
        for case, chance in enumerate(chances):
            for trial in range(1, trials + 1):
                score = float(generator.random() < chance)
                tally.add(run, scored(score, eval_id=str(case), trial=trial))
                scores.append(score)
        means.append(statistics.fmean(scores))
    return tally, means[1] - means[0]


@pytest.mark.parametrize("trials", [1, 3])
def test_the_noise_floor_is_how_much_the_difference_of_two_runs_varies(trials):
    generator = random.Random(5)
    chances = [0.5, 0.9, 0.99, 1.0, 0.1] * 8
    runs = [simulated(chances, trials, generator) for _ in range(200 // trials)]
    true = math.sqrt(sum(2 * p * (1 - p) / trials for p in chances)) / len(chances)
    assert statistics.pstdev(difference for _, difference in runs) == pytest.approx(true, rel=0.2)
    estimated = math.sqrt(statistics.fmean(tally.floor() ** 2 for tally, _ in runs))
    assert estimated == pytest.approx(true, rel=0.05)
    flips = statistics.fmean(tally.flip_rate().mean for tally, _ in runs)
    assert flips == pytest.approx(statistics.fmean(2 * p * (1 - p) for p in chances), rel=0.05)


def test_the_interval_of_the_flip_rate_contains_the_true_rate():
    generator, chances = random.Random(3), [0.5, 0.8, 0.95] * 15
    true = statistics.fmean(2 * p * (1 - p) for p in chances)
    intervals = [simulated(chances, 1, generator)[0].flip_rate().ci95 for _ in range(200)]
    assert sum(low <= true <= high for low, high in intervals) >= 190


@pytest.mark.parametrize(("target_sd", "judge_sd"), [(0.0, 0.1), (0.1, 0.0), (0.06, 0.08)])
def test_the_noise_of_the_judge_is_told_from_that_of_the_target(target_sd, judge_sd):
    generator, tally = random.Random(1), NoiseTally()
    request = {"calls": [{"target": "judge"}]}

    def result(case, quality):
        score = min(1.0, max(0.0, generator.gauss(quality, judge_sd)))
        found = judged("llm_judge", score, evaluator_provider_request=request)
        return scored(score, eval_id=str(case), evaluator_results=(found,))

    for case in range(2_000):
        for run in (0, 1):
            quality = generator.gauss(0.5, target_sd)
            tally.add(run, result(case, quality))
            if run == 0:
                tally.add_second_scoring(result(case, quality))
    noise = tally.noise("llm_judge")
    assert noise.judge == pytest.approx(judge_sd, abs=0.005)
    assert noise.target == pytest.approx(target_sd, abs=0.01 if target_sd else 0.03)
    assert noise.total == pytest.approx(math.hypot(target_sd, judge_sd), abs=0.005)


def test_cases_whose_verdict_differs_are_counted_and_listed(noisy):
    noisy.dataset(*(f"{'flip' if number < 3 else 'stay'} {number}" for number in range(20)))
    found = measured(noisy, "--target", "alternating")
    assert (found["flipped"], found["cases"], found["flip_rate"]) == (3, 20, 0.15)
    assert found["flip_rate_ci95"] == pytest.approx([0.0321, 0.3789], abs=0.001)
    assert [case["eval_id"] for case in found["flaky"]] == ["c0", "c1", "c2"]
    assert found["noise_floor"] == pytest.approx(math.sqrt(3) / 20)
    assert found["evaluators"][0]["flipped"] == 3
    assert len(noisy.records("noise/first")) == len(noisy.records("noise/second")) == 20


def test_the_smallest_detectable_change_is_the_one_that_plan_gives(noisy):
    noisy.dataset(*(f"{'flip' if number % 4 == 0 else 'stay'} {number}" for number in range(40)))
    found = measured(noisy, "--target", "alternating")
    planned = noisy.command("plan", "noise/first", "noise/second", "--json").printed[0]
    assert found["smallest_detectable_difference"] == planned["could_show"]["1"]


def test_the_judge_scores_the_answers_of_the_first_run_again(noisy):
    noisy.dataset(*map(str, range(12)), evaluators=[{"type": "llm_judge", "target": "moody_judge"}])
    found = measured(noisy)
    assert found["score"]["judged"] == 12
    assert found["score"]["judge"] > 0
    assert [each["candidate_answer"] for each in noisy.records("noise/rescored")] == ["yes"] * 12
    assert found["identical_answers"] == 12
    assert any("answers are identical in both runs" in note for note in found["notes"])


def test_a_target_that_varies_only_between_trials_is_not_called_constant(noisy):
    noisy.dataset("flip 0", "flip 1", "stay")
    found = measured(noisy, "--target", "alternating", "--trials", "2", "--workers", "1")
    assert found["identical_answers"] == found["answers"] == 6
    assert not any("does not seem to vary" in note for note in found["notes"])


def test_an_error_is_not_a_flip(noisy):
    noisy.dataset("0", "1", "2", "3")
    found = measured(noisy, "--target", "broken", "--max-retries", "0", "--workers", "1")
    assert (found["flipped"], found["cases"], found["shared_cases"]) == (0, 3, 3)
    assert found["errors"] == [1, 0]
    assert "1 error in the first run (not scored)" in found["notes"]


def test_too_many_flips_fail_the_command(noisy):
    noisy.dataset("flip 0", "stay 1", "stay 2", "stay 3")
    found = measured(noisy, "--target", "alternating", "--max-flip-rate", "0.1", code=1)
    assert (found["flip_rate"], found["exit_code"]) == (0.25, 1)


def test_the_text_says_what_the_numbers_mean(noisy):
    noisy.dataset("flip 0", *map(str, range(24)))
    text = noisy.command("noise", "d.yaml", "--target", "alternating", "--quiet").stdout
    assert text.startswith("1 of 25 cases changed its verdict although nothing changed: flip rate 4.0 %")
    for part in ("Noise floor: the mean of 25 cases moves by 0.040 (SD)", "Smallest detectable change:", "pass → fail"):
        assert part in text


def test_fewer_than_20_cases_have_no_noise_floor(noisy):
    noisy.dataset("flip 0", *map(str, range(9)))
    text = noisy.command("noise", "d.yaml", "--target", "alternating", "--quiet").stdout
    assert "Noise floor: too few to tell (10 cases; at least 20 are needed)." in text
    assert measured(noisy, "--target", "alternating")["noise_floor"] is None


def test_the_budget_is_for_both_runs_and_resuming_continues_the_second(noisy):
    priced = {"token_usage": {"input": 1_000_000, "output": 0}, "prices": {"input": 1, "output": 1}}
    noisy.targets({"name": "default", "provider": "mock", "response": "yes", **priced})
    noisy.dataset(*map(str, range(4)))
    ended = noisy.command("noise", "d.yaml", "--out", "noise", "--budget-usd", "6", "--workers", "1", "--quiet")
    assert ended.code == 4, ended.stderr
    assert "Resume with: agentv noise --resume --out noise --budget-usd USD" in ended.stderr
    assert [len(noisy.records(f"noise/{name}")) for name in ("first", "second")] == [4, 2]
    assert noisy.command("noise", "--resume", "--out", "noise", "--budget-usd", "7", "--quiet").code == 4
    ended = noisy.command("noise", "--resume", "--out", "noise", "--budget-usd", "20", "--json")
    found = json.loads(ended.stdout)
    assert (ended.code, found["cases"], found["cost_usd"]) == (0, 4, 8.0)
    assert [len(noisy.records(f"noise/{name}")) for name in ("first", "second")] == [4, 4]


def test_a_run_without_a_score_stops_the_command(noisy):
    noisy.targets({"name": "default", "provider": "mock", "fault_rate": 1})
    noisy.dataset("0", "1")
    ended = noisy.command("noise", "d.yaml", "--out", "noise", "--max-retries", "0", "--quiet")
    assert ended.code == 3
    assert not (noisy.path / "noise" / "second").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "Missing argument 'PATHS...'"),
        (("d.yaml", "--target", "nobody"), "Unknown target 'nobody'"),
        (("--resume",), "No `agentv noise` to resume"),
        (("--resume", "--out", "nowhere"), "Nothing to resume in nowhere"),
        (("d.yaml", "--out", "."), ". already exists"),
    ],
)
def test_mistakes_are_explained(noisy, arguments, problem):
    noisy.dataset("a")
    ended = noisy.command("noise", *arguments)
    assert ended.code == 2
    assert problem in ended.stderr
