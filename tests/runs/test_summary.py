"""The summary of a run: what is counted, what is excluded, and the denominators."""

import random
import statistics
import tracemalloc

import msgspec
import pytest

from agentv.model.result import ExecutionMetrics
from agentv.runs.summary import Snapshot, SummaryBuilder
from agentv.runs.target_summary import SHOWN
from agentv.stats.intervals import proportion_interval
from made_results import failed, scored, unscored
from made_results import judged as judged_by


def judged(name, score, cost_usd=None, **known):
    return judged_by(name, score, type="llm_judge", cost_usd=cost_usd, **known)


def built(*results, **options):
    return SummaryBuilder("r", **options).add_all(results)


def test_errors_and_unscored_cases_are_counted_and_excluded_from_means():
    builder = built(scored(1.0), scored(0.0), failed(), failed("server"), unscored())
    target = builder.build({"t": 8}).targets["t"]
    assert (target.cases, target.scored, target.errors, target.unscored, target.skipped) == (8, 2, 2, 1, 3)
    assert (target.mean, target.pass_rate, target.ci95) == (0.5, 0.5, proportion_interval(0.5, 2))
    details = builder.details()["t"]
    assert (details.passed, target.pass_rate_ci95) == (1, proportion_interval(0.5, 2))
    assert details.error_classes == {"server": 1, "timeout": 1}
    assert details.errors["timeout"].reason == "no answer"


def test_cases_are_counted_once_and_everything_else_per_job():
    results = [scored(1.0, eval_id=id, trial=trial) for id in "ab" for trial in (1, 2, 3)]
    target = built(*results, failed(eval_id="c"), jobs_per_case=3).build({"t": 12}, {"t": 4}).targets["t"]
    assert (target.cases, target.jobs) == (4, 12)
    assert (target.scored, target.errors, target.unscored, target.skipped) == (6, 1, 0, 5)
    alone = built(*results, failed(eval_id="c"), jobs_per_case=3).build().targets["t"]
    assert (alone.cases, alone.jobs, alone.skipped) == (3, 7, 0)


@pytest.mark.parametrize("talk", [None, "talk"])
def test_the_mean_by_case_is_set_if_failed_trials_make_it_differ(talk):
    whole = [scored(score, eval_id=id, trial=trial) for id, score in (("a", 1.0), ("b", 0.0)) for trial in (1, 2, 3)]
    lost = [failed(eval_id="b", trial=trial, conversation_id=talk) for trial in (2, 3)]
    some = [scored(1.0, eval_id="a", trial=trial, conversation_id=talk) for trial in (1, 2, 3)]
    some += [scored(0.0, eval_id="b", conversation_id=talk), *lost]
    found = [built(*results, jobs_per_case=3) for results in (whole, some)]
    assert [builder.build().targets["t"].mean for builder in found] == [0.5, 0.75]
    assert [builder.details()["t"].case_mean for builder in found] == [None, 0.5]


def test_targets_are_separate_and_include_those_without_results():
    summary = built(scored(1.0), scored(0.0, target="u")).build({"t": 1, "u": 1, "v": 2})
    assert summary.run_id == "r"
    assert [(name, target.mean, target.skipped) for name, target in summary.targets.items()] == [
        ("t", 1.0, 0),
        ("u", 0.0, 0),
        ("v", None, 2),
    ]
    assert summary.targets["v"].ci95 is summary.targets["v"].pass_rate is summary.targets["v"].cost_usd is None


def test_evaluators_have_their_own_means_and_counts():
    target = (
        built(
            scored(0.5, evaluator_results=(judged("x", 1.0), judged("y", 0.0))),
            scored(1.0, evaluator_results=(judged("x", 0.0),)),
            unscored(evaluator_results=(judged("y", 0.5),)),
            failed("evaluator", evaluator_results=(judged("x", 1.0), judged("y", None))),
        )
        .build()
        .targets["t"]
    )
    assert {name: (found.n, found.mean) for name, found in target.evaluators.items()} == {"x": (2, 0.5), "y": (2, 0.25)}
    assert target.evaluators["x"].ci95 == proportion_interval(0.5, 2)


def test_cost_and_time_are_sums_of_known_values_including_errors():
    builder = built(
        scored(execution_metrics=ExecutionMetrics(cost_usd=0.5, duration_ms=100)),
        scored(execution_metrics=ExecutionMetrics(duration_ms=300)),
        failed(execution_metrics=ExecutionMetrics(cost_usd=0.25)),
        scored(evaluator_results=(judged("x", 1.0, 0.125), judged("y", 1.0, 0.125))),
        # A composite's own cost includes its members; without one, theirs are added up.
        scored(evaluator_results=(judged("z", 1.0, 1.0, evaluator_results=(judged("in", 1.0, 0.9),)),)),
        scored(evaluator_results=(judged("z", 1.0, None, evaluator_results=(judged("in", 1.0, 2.0),)),)),
    )
    target, details = builder.build().targets["t"], builder.details()["t"]
    assert (target.cost_usd, target.judge_cost_usd, target.duration_ms) == (0.75, 3.25, 400)
    assert (details.priced, details.judge_priced, details.timed) == (2, 3, 2)


def test_scores_are_counted_by_tenths_both_ends_included():
    details = built(*map(scored, [0.0, 0.05, 0.1, 0.95, 1.0])).details()["t"]
    assert details.bins == (2, 1, 0, 0, 0, 0, 0, 0, 0, 2)


def test_the_worst_and_the_slowest_are_shown_in_order():
    chance = random.Random(3)
    results = [
        scored(
            round(chance.random(), 3),
            eval_id=str(number),
            misses=(f"miss {number}",),
            execution_metrics=ExecutionMetrics(duration_ms=chance.randrange(10_000)),
        )
        for number in range(500)
    ]
    details = built(*results).details()["t"]
    by_score = sorted(results, key=lambda found: found.score)[:SHOWN]
    by_time = sorted(results, key=lambda found: -found.execution_metrics.duration_ms)[:SHOWN]
    assert [(note.eval_id, note.score) for note in details.worst] == [
        (found.eval_id, found.score) for found in by_score
    ]
    assert [note.reason for note in details.worst] == [found.misses[0] for found in by_score]
    assert [note.duration_ms for note in details.slowest] == [found.execution_metrics.duration_ms for found in by_time]


def test_the_worst_results_exclude_passes_and_break_ties_by_order():
    results = [scored(0.0, eval_id=str(number)) for number in range(9)] + [scored(1.0, eval_id="fine")]
    assert [note.eval_id for note in built(*results).details()["t"].worst] == ["0", "1", "2", "3", "4"]
    assert built(scored(1.0)).details()["t"].worst == ()


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"misses": ("first", "second"), "reasoning": "because"}, "first"),
        ({"reasoning": "because"}, "because"),
        ({"evaluator_results": (judged("x", 0.0, misses=("missed",)),), "reasoning": "because"}, "because"),
        ({}, ""),
    ],
)
def test_the_reason_is_the_first_miss_or_else_the_reasoning(known, reason):
    assert built(scored(0.1, **known)).details()["t"].worst[0].reason == reason


def test_the_reason_comes_from_a_failed_evaluator_if_the_case_has_none():
    low = msgspec.structs.replace(judged("x", 0.0, misses=("missed",)), verdict="fail")
    assert built(scored(0.1, evaluator_results=(low,))).details()["t"].worst[0].reason == "missed"


def test_pass_at_k_is_averaged_over_cases_with_at_least_k_trials():
    passes = {"a": (1, 1, 1), "b": (1, 0, 0), "c": (0, 1, None), "d": (0, None, None), "e": (0, 0, 0)}
    results = [
        failed(eval_id=id, trial=trial) if passed is None else scored(float(passed), eval_id=id, trial=trial)
        for id, trials in passes.items()
        for trial, passed in enumerate(trials, 1)
    ]
    found = built(*results, jobs_per_case=3).build().targets["t"].trials
    assert [(each.k, each.n) for each in found] == [(1, 5), (2, 4), (3, 3)]
    once, twice, thrice = found
    assert (once.pass_at_k, once.pass_hat_k) == (pytest.approx((1 + 1 / 3 + 1 / 2) / 5),) * 2
    assert twice.pass_at_k == pytest.approx((1 + 2 / 3 + 1 + 0) / 4)
    assert twice.pass_hat_k == pytest.approx((1 + 0 + 0 + 0) / 4)
    assert (thrice.pass_at_k, thrice.pass_hat_k) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert (thrice.pass_at_k_ci95, thrice.pass_hat_k_ci95) == (
        proportion_interval(2 / 3, 3),
        proportion_interval(1 / 3, 3),
    )


def test_pass_at_k_stops_at_the_number_of_trials_that_most_cases_have():
    trials = {"a": 5, "b": 3, "c": 3, "d": 2}
    results = [scored(eval_id=id, trial=trial) for id, count in trials.items() for trial in range(1, count + 1)]
    found = built(*results, jobs_per_case=5).build().targets["t"].trials
    assert [(each.k, each.n) for each in found] == [(1, 4), (2, 4), (3, 3)]


def votes(*scores, **known):
    return judged("x", sum(scores) / len(scores), details={"votes": [{"score": score} for score in scores]}, **known)


def test_variance_is_split_into_cases_trials_and_judge_calls():
    results = [
        scored(score, eval_id=id, trial=trial, evaluator_results=(votes(score, score, max(0.0, score - 0.3)),))
        for id, scores in {"a": (1.0, 0.9), "b": (0.5, 0.6), "c": (0.1, 0.1)}.items()
        for trial, score in enumerate(scores, 1)
    ]
    found = built(*results, jobs_per_case=2).build().targets["t"].variance
    assert found.trial == pytest.approx((0.005 + 0.005 + 0) / 3)
    means = (0.95, 0.55, 0.1)
    assert found.case == pytest.approx(statistics.variance(means) - found.trial / 2)
    assert found.judge == pytest.approx((4 * 0.03 + 2 * 0.01 / 3) / 6)
    assert (found.cases, found.trials, found.answers, found.votes) == (3, 2, 6, 3)


def test_the_judge_variance_needs_votes_and_counts_by_weight():
    assert built(scored(1.0), scored(0.0, eval_id="b")).build().targets["t"].variance is None
    other = judged("y", 1.0, weight=3.0)
    found = built(scored(1.0, evaluator_results=(votes(1.0, 0.0, weight=1.0), other))).build().targets["t"].variance
    assert (found.judge, found.case, found.trial, found.votes) == (0.5 / 16, None, None, 2)


@pytest.mark.parametrize("details", ["text", {"votes": "many"}, {"votes": [1, {"score": "high"}, {"score": 7}]}, [1]])
def test_details_of_other_evaluators_are_not_votes(details):
    assert built(scored(evaluator_results=(judged("x", 1.0, details=details),))).build().targets["t"].variance is None


@pytest.mark.parametrize("talks", [1, 4])
@pytest.mark.parametrize("values", [(0.0, 1.0), (0.0, 0.3, 1.0)])
def test_a_summary_by_case_and_one_by_job_have_the_same_figures(talks, values):
    chance = random.Random(9)
    results = [
        scored(chance.choice(values), eval_id=str(number), conversation_id=None if talks == 1 else str(number // talks))
        for number in range(60)
    ]
    results += [failed(eval_id="lost")]
    one, other = (built(*results, jobs_per_case=count).build().targets["t"] for count in (1, 2))
    for name in ("ci95", "ci95_with_errors", "pass_rate_ci95", "minimum_detectable_difference", "variance"):
        assert getattr(one, name) == pytest.approx(getattr(other, name)), name


def test_prompts_are_not_trials_and_many_trials_are_summarised():
    prompts = [scored(eval_id=id, prompt=prompt) for id in "ab" for prompt in "pq"]
    assert built(*prompts, jobs_per_case=2).build().targets["t"].trials == ()
    many = [scored(float(trial % 2), trial=trial, prompt=prompt) for trial in range(1, 8) for prompt in "pq"]
    found = built(*many, jobs_per_case=14).build().targets["t"].trials
    assert [(each.k, each.n) for each in found] == [(1, 2), (2, 2), (3, 2), (5, 2), (7, 2)]


def test_the_same_conversation_id_in_two_datasets_is_two_clusters():
    turns = [(path, turn) for path in ("support.yaml", "sales.yaml") for turn in range(8)]
    shared = built(*(scored(0.1 * n, dataset_path=path, conversation_id=f"c{n // 2}") for path, n in turns))
    unique = built(*(scored(0.1 * n, dataset_path=path, conversation_id=f"{path} {n // 2}") for path, n in turns))
    assert shared.build().targets["t"].ci95 == unique.build().targets["t"].ci95


def test_conversations_and_repeated_cases_are_clusters():
    alone = built(*(scored(0.2 * (n % 5), eval_id=str(n)) for n in range(20)))
    talks = built(*(scored(0.2 * (n % 5), conversation_id=str(n % 5)) for n in range(20)))
    trials = built(*(scored(0.2 * (n % 5), eval_id=str(n % 5), trial=1 + n // 5) for n in range(20)), jobs_per_case=4)

    def width(builder):
        low, high = builder.build().targets["t"].ci95
        return high - low

    assert width(talks) == pytest.approx(width(trials))
    assert width(talks) > 1.5 * width(alone)


def test_a_snapshot_shows_the_progress_of_the_run():
    builder = SummaryBuilder("r")
    assert builder.snapshot() == Snapshot(done=0)
    builder.add_all(
        [
            scored(execution_metrics=ExecutionMetrics(cost_usd=0.5)),
            scored(0.0, target="u", evaluator_results=(judged("x", 0.0, 0.25),)),
            failed(),
            failed(target="u"),
        ]
    )
    assert builder.snapshot() == Snapshot(done=4, scored=2, passed=1, errors={"timeout": 2}, cost_usd=0.75)


def test_memory_does_not_grow_with_results():
    builder = SummaryBuilder("r")

    def add(count):
        for number in range(count):
            builder.add(scored(number % 11 / 10, eval_id=str(number), evaluator_results=(judged("x", 0.5),)))

    add(1000)
    tracemalloc.start()
    add(20_000)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 50_000


def test_a_summary_has_all_its_fields():
    data = msgspec.to_builtins(built(scored(1.0)).build())
    assert set(data["targets"]["t"]) == {
        *("cases", "jobs", "scored", "errors", "unscored", "skipped", "truncated", "fallbacks"),
        *("suspicious", "suspicious_cases"),
        *("mean", "ci95", "ci95_with_errors", "pass_rate", "pass_rate_ci95", "pass_rate_ci95_with_errors"),
        *(
            "cost_usd",
            "estimated_cost_usd",
            "judge_cost_usd",
            "duration_ms",
            "evaluators",
            "prompts",
            "trials",
            "early_stop",
        ),
        *("variance", "minimum_detectable_difference"),
    }


def test_the_interval_of_the_pass_rate_accounts_for_clusters():
    turns = [scored(float(turn % 2), eval_id=f"a{turn}", conversation_id=f"c{turn // 4}") for turn in range(40)]
    same = [scored(float(turn // 4 % 2), eval_id=f"a{turn}", conversation_id=f"c{turn // 4}") for turn in range(40)]
    together, apart = (built(*results).build().targets["t"].pass_rate_ci95 for results in (same, turns))
    assert together == built(*same).build().targets["t"].ci95 == pytest.approx(proportion_interval(0.5, 10))
    assert apart[1] - apart[0] < together[1] - together[0]


@pytest.mark.parametrize("trials", [1, 3])
def test_an_interval_with_errors_covers_the_worst_and_the_best_case(trials):
    def result(number, trial, score):
        known = {"eval_id": str(number), "trial": trial + 1}
        return failed(**known) if score is None else scored(score, **known)

    jobs = [(number, trial) for number in range(20) for trial in range(trials)]
    scores = [None if (number + trial) % 5 == 0 else float(number % 3 > 0) for number, trial in jobs]
    found = {}
    for lost in (None, 0.0, 1.0):
        results = (result(*job, lost if score is None else score) for job, score in zip(jobs, scores, strict=True))
        found[lost] = built(*results, jobs_per_case=trials).build().targets["t"]
    expected = (found[0.0].ci95[0], found[1.0].ci95[1])
    assert found[None].ci95_with_errors == found[None].pass_rate_ci95_with_errors == pytest.approx(expected)
    assert found[0.0].ci95_with_errors is None
    assert expected[0] < found[None].ci95[0] < found[None].ci95[1] < expected[1]


def test_prompts_are_summarised_separately():
    results = [scored(score, eval_id=id, prompt=prompt) for prompt, score in (("p", 1.0), ("q", 0.0)) for id in "abc"]
    found = built(*results, failed(prompt="q"), jobs_per_case=2).build().targets["t"]
    assert {name: (part.n, part.mean, part.ci95) for name, part in found.prompts.items()} == {
        "p": (3, 1.0, proportion_interval(1.0, 3)),
        "q": (3, 0.0, proportion_interval(0.0, 3)),
    }
    assert built(scored(1.0)).build().targets["t"].prompts == {}
