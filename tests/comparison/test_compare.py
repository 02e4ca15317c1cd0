"""Compare runs case by case: matching, exclusions, conclusions and gates."""

import random

import msgspec
import numpy as np
import pytest
from compared_runs import judged, record, used, write_run, write_scores

import agentv
from agentv.comparison.run_comparison import CompareOptions, compare_many, compare_runs
from agentv.comparison.scores import RunScores
from agentv.errors import AgentvError, UsageError
from agentv.report.comparisons.comparison_text import outcomes, use_rows
from agentv.report.comparisons.verdict_text import method, notes, sentence
from agentv.runs.record import encode_record
from agentv.runs.store import RunStore
from agentv.runs.summary import SummaryBuilder
from agentv.stats.means import clustered_mean
from agentv.stats.paired_comparison import compare_paired, mcnemar_mid_p, share_difference, sign_flip_test
from agentv.stats.power import holm


@pytest.fixture
def compare(tmp_path):
    def compared(before, after, **options):
        first = write_run(tmp_path / "a.jsonl", *before)
        second = write_run(tmp_path / "b.jsonl", *after)
        return compare_runs(RunScores(first, "a"), RunScores(second, "b"), CompareOptions(**options))

    return compared


def scored(*scores, **known):
    return [record(number, score, **known) for number, score in enumerate(scores)]


class TestMatching:
    def test_cases_are_matched_by_dataset_and_id_in_any_order(self, compare):
        before = [record("x", 0.0), record("y", 1.0), record("x", 0.5, dataset="e")]
        after = [record("x", 1.0, dataset="e"), record("y", 0.75), record("x", 1.0)]
        found = compare(before, after)
        assert [(pair.dataset, pair.eval_id, pair.score1, pair.score2) for pair in found.pairs] == [
            ("d", "x", 0.0, 1.0),
            ("d", "y", 1.0, 0.75),
            ("e", "x", 0.5, 1.0),
        ]

    def test_trials_are_averaged_first(self, compare):
        before = [record("x", score, trial=trial) for trial, score in enumerate([0.0, 1.0, 0.5], 1)]
        found = compare(before, [record("x", 1.0)])
        assert (found.pairs[0].score1, found.paired.n) == (0.5, 1)

    def test_errors_and_unscored_results_do_not_count_as_scores(self, compare):
        unscored = record("z", 0.0, status="unscored", verdict=None)
        unscored = msgspec.structs.replace(unscored, score=None)
        before = [record("x", 1.0), record("y", None), unscored, record("w", 1.0, trial=1), record("w", None, trial=2)]
        after = [record("x", 0.5), record("y", 1.0), record("z", 1.0), record("w", 1.0)]
        found = compare(before, after)
        assert [pair.eval_id for pair in found.pairs] == ["x", "w"]
        assert (found.unscored, found.unmatched) == ((2, 0), (0, 0))
        assert [(side.errors, side.unscored, side.records) for side in found.sides] == [(2, 1, 5), (0, 0, 4)]

    def test_cases_in_only_one_run_are_counted_and_named(self, compare):
        found = compare([record("x", 1.0), record("y", 1.0)], [record("x", 1.0), record("u", 0), record("v", 0)])
        assert (found.unmatched, found.unmatched_ids) == ((1, 2), (("y",), ("u", "v")))

    def test_targets_are_matched_only_if_both_runs_have_several(self, compare):
        two = [record("x", score, target=target) for target, score in [("t", 1.0), ("u", 0.5)]]
        assert [(pair.target, pair.score1) for pair in compare(two, two).pairs] == [("t", 1.0), ("u", 0.5)]
        found = compare(two, [record("x", 1.0, target="v")])
        assert [(pair.target, pair.score1) for pair in found.pairs] == [(None, 0.75)]
        assert found.notes == ("a has 2 targets (t, u); scores are averaged per case; to compare one, use a:t",)
        assert (found.sides[0].cases, found.sides[0].mean.value) == (1, 0.75)
        assert compare([record("x", 1.0)], [record("x", 1.0, target="v")]).notes == ()

    def test_runs_without_a_common_target_or_prompt_are_averaged_with_a_note(self, compare):
        def side(*names):
            return [record(n, 0.5, target=name, prompt=f"p{name}") for n in range(2) for name in names]

        found = compare(side("t", "u"), side("v", "w"))
        assert [(pair.dataset, pair.eval_id, pair.target) for pair in found.pairs] == [("d", n, None) for n in "01"]
        assert found.notes == (
            "a has 2 targets (t, u); scores are averaged per case; to compare one, use a:t",
            "b has 2 targets (v, w); scores are averaged per case; to compare one, use b:v",
            "a has 2 prompts (pt, pu); scores are averaged per case",
            "b has 2 prompts (pv, pw); scores are averaged per case",
        )

    def test_prompts_are_matched_like_targets(self, compare):
        two = [record("x", score, prompt=prompt) for prompt, score in [("short", 1.0), ("long", 0.5)]]
        assert [(pair.prompt, pair.score1) for pair in compare(two, two).pairs] == [("short", 1.0), ("long", 0.5)]

    def test_a_target_can_be_picked(self, tmp_path):
        path = write_run(tmp_path / "a.jsonl", record("x", 1.0), record("x", 0.0, target="u"))
        assert RunScores(path, "a", "u").targets == ["u"]
        with pytest.raises(UsageError, match="No results for target 'uu'"):
            RunScores(path, "a", "uu")

    def test_renamed_datasets_are_matched_by_id_with_a_note(self, compare):
        found = compare([record("x", 1.0)], [record("x", 0.5, dataset="other")])
        assert found.paired.n == 1
        assert found.notes == ("The runs have no dataset in common; cases are matched by id only",)

    def test_nothing_in_common_is_an_error(self, compare):
        with pytest.raises(UsageError, match="no case in common"):
            compare([record("x", 1.0)], [record("y", 1.0)])
        # Ids that are not unique cannot be matched.
        with pytest.raises(UsageError, match="no case in common"):
            compare([record("x", 1.0), record("x", 1.0, dataset="e")], [record("x", 1.0, dataset="f")])

    def test_rows_of_agentv_typescript_and_yaml_are_read_too(self, tmp_path):
        ours = write_run(tmp_path / "a.jsonl", record("x", 1.0, dataset="set", candidate_answer="old"))
        theirs = tmp_path / "b.jsonl"
        theirs.write_text('{"test_id": "x", "suite": "set", "score": 0.5, "target": "t", "answer": "new"}\n')
        found = compare_runs(RunScores(ours, "a"), RunScores(theirs, "b"))
        assert (found.pairs[0].delta, found.changes[0].answer2) == (-0.5, "new")
        yaml = tmp_path / "c.yaml"
        yaml.write_text("---\neval_id: x\ndataset: set\nscore: 0.25\ncandidate_answer: third\n")
        found = compare_runs(RunScores(ours, "a"), RunScores(yaml, "c"))
        assert (found.pairs[0].score2, found.changes[0].answer2) == (0.25, "third")

    def test_invalid_results_are_refused_with_their_line(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text('{"eval_id": "x", "score": 1}\n{"eval_id": "x", "score": 7}\n')
        with pytest.raises(AgentvError, match="line 2"):
            RunScores(path, "a")

    @pytest.mark.parametrize(
        "wrong",
        [record("y", 5.0), record("y", -0.1), record("y", 1.0, evaluator_results=judged(x=1.5))],
        ids=["above", "below", "an evaluator's"],
    )
    def test_scores_outside_0_and_1_are_refused_with_their_line(self, tmp_path, wrong):
        path = write_run(tmp_path / "a.jsonl", record("x", 1.0), wrong)
        with pytest.raises(AgentvError, match="line 2"):
            RunScores(path, "a")
        with pytest.raises(AgentvError, match="line 2"):
            list(RunStore.open(path).records())

    def test_a_job_with_two_records_is_refused_by_name(self, tmp_path):
        trials = [record("x", 1.0, trial=trial) for trial in (1, 2, 3)]
        elsewhere = record("x", 0.0, dataset_path="other/d.jsonl")
        path = write_run(tmp_path / "a.jsonl", *trials, elsewhere)
        assert RunScores(path, "a").records == 4
        for again in (*trials, elsewhere):
            write_run(path, *trials, elsewhere, again)
            with pytest.raises(AgentvError, match="Duplicate record") as error:
                RunScores(path, "a")
            assert f"x in {again.dataset_path}, target t, trial {again.trial}" in str(error.value)

    def test_an_incomplete_record_is_refused_with_its_line_when_its_answer_is_shown(self, tmp_path):
        line = encode_record(record("y", 0.0, evaluator_results=judged(x=0.0))).replace(b',"verdict":null', b"")
        path = write_run(tmp_path / "a.jsonl", record("x", 1.0), record("y", 1.0))
        other = tmp_path / "b.jsonl"
        other.write_bytes(encode_record(record("x", 1.0)) + line)
        with pytest.raises(AgentvError, match=f"Invalid record at line 2 in {other}"):
            compare_runs(RunScores(path, "a"), RunScores(other, "b"))


class TestOutcomes:
    def test_wins_losses_and_ties_by_the_threshold(self, compare):
        found = compare(scored(0.8, 0.9, 0.5, 0.5, 0.3), scored(0.9, 0.8, 0.5, 0.55, 0.31), threshold=0.1)
        assert [pair.outcome for pair in found.pairs] == ["win", "loss", "tie", "tie", "tie"]
        assert (found.wins, found.losses, found.ties) == (1, 1, 3)
        every = compare(scored(0.5, 0.5), scored(0.5, 0.50001), threshold=0)
        assert (every.wins, every.ties) == (1, 1)
        assert outcomes(every) == "B wins 1, loses 0, ties 1 of 2 (any change counts)"

    def test_binary_scores_get_mcnemars_mid_p_test(self, compare):
        before, after = [1] * 20 + [0] * 20, [1] * 18 + [0] * 9 + [1] * 13
        found = compare(scored(*map(float, before)), scored(*map(float, after))).paired
        assert (found.test, found.p_value) == ("mid-p McNemar", mcnemar_mid_p(13, 2))
        assert found.ci95 == share_difference(13, 2, 40)
        assert (found.answer, found.mean_delta) == ("better", pytest.approx(11 / 40))

    def test_other_scores_get_the_permutation_test(self, compare):
        chance = random.Random(1)
        before = [chance.random() for _ in range(50)]
        after = [min(1, score + 0.1 * chance.random()) for score in before]
        found = compare(scored(*before), scored(*after), seed=5).paired
        deltas = np.array(after) - np.array(before)
        assert (found.test, found.p_value) == ("sign flips", sign_flip_test(deltas, seed=5).p_value)
        low, high = clustered_mean(deltas).ci95
        assert found.ci95[0] < low
        assert found.ci95[1] >= high

    def test_conversations_are_clusters(self, compare):
        before = [record(number, 0.0, conversation_id=f"c{number // 5}") for number in range(40)]
        after = [record(number, float(number // 5 % 2), conversation_id=f"c{number // 5}") for number in range(40)]
        found = compare(before, after).paired
        assert (found.n, found.clusters, found.test) == (40, 8, "sign flips")
        assert found.p_value == sign_flip_test([5.0 * (cluster % 2) for cluster in range(8)]).p_value

    def test_the_same_conversation_id_in_two_datasets_is_two_clusters(self, compare):
        def run(gain):
            turns = [(dataset, turn) for dataset in ("support", "sales") for turn in range(8)]
            return [
                record(f"{dataset}-{turn}", gain * turn / 10, dataset=dataset, conversation_id=f"c{turn // 2}")
                for dataset, turn in turns
            ]

        assert compare(run(0.5), run(1.0)).paired.clusters == 8

    @pytest.mark.parametrize("silent", [0, 1])
    def test_conversations_named_in_only_one_run_are_clusters_too(self, compare, silent):
        def run(side):
            talks = [None if side == silent else f"c{number // 2}" for number in range(8)]
            return [record(number, 0.1 * number * side, conversation_id=talk) for number, talk in enumerate(talks)]

        assert compare(run(0), run(1)).paired.clusters == 4

    @pytest.mark.parametrize("axis", ["target", "prompt"])
    def test_a_case_with_several_targets_or_prompts_is_one_cluster(self, compare, tmp_path, axis):
        def run(gain):
            return [record(n, gain * n / 10, **{axis: name}) for n in range(8) for name in ("x", "y", "z")]

        found = compare(run(0.5), run(1.0)).paired
        assert (found.n, found.clusters) == (24, 8)
        once = compare(*([record(n, gain * n / 10) for n in range(8)] for gain in (0.5, 1.0))).paired
        assert found.ci95 == pytest.approx(once.ci95)
        assert found.p_value == once.p_value
        paths = [write_run(tmp_path / f"{gain}.jsonl", *run(gain)) for gain in (0.5, 0.7, 1.0)]
        matrix = compare_many([RunScores(path, path.stem) for path in paths])
        assert (matrix.n, matrix.clusters) == (24, 8)

    def test_identical_runs_show_no_difference(self, compare):
        same = scored(*[0.0, 1.0] * 20)
        found = compare(same, same)
        assert (found.paired.answer, found.paired.p_value, found.changes) == ("cannot tell", 1.0, ())
        assert found.paired.ci95[1] > 0
        assert 0.1 < found.paired.minimum_detectable_difference < 0.3

    def test_one_case_is_not_enough(self, compare):
        found = compare(scored(0.5), scored(0.75))
        assert found.sides[0].mean.ci95 is None
        text = (
            "Can't tell yet. B scored 0.250 higher on 1 shared case; 1 case is too few to show any difference reliably."
        )
        assert sentence(found.paired) == text

    @pytest.mark.parametrize(
        ("change", "start"),
        [
            (0.1, "B is better by 0.100 (95 % 0.0"),
            (-0.1, "B is worse by 0.100 (95 % 0.0"),
            (0.0, "Can't tell yet. B scored the same on 60 shared cases (95 % −0.0"),
        ],
    )
    def test_the_first_sentence_states_the_conclusion(self, compare, change, start):
        noise = [(-1) ** number * 0.15 for number in range(60)]
        found = compare(scored(*[0.5] * 60), scored(*(0.5 + change + each for each in noise)))
        text = sentence(found.paired)
        assert text.startswith(start)
        assert "60 shared cases" in text
        assert ("only differences above about 0.05" in text) == (change == 0)

    def test_two_equal_losses_are_inconclusive_and_fail_no_gate(self, compare):
        found = compare(*(scored(score, score, evaluator_results=judged(x=score)) for score in (0.7, 0.5)), margin=0.1)
        assert sentence(found.paired) == (
            "Can't tell yet. B scored 0.200 lower on 2 shared cases (95 % −0.700 to +0.550, p = 0.50); "
            "2 cases are too few to show any difference reliably."
        )
        assert (found.evaluators[0].p_adjusted, found.non_inferiority.outcome) == (0.5, "inconclusive")
        assert method(found.paired).startswith("t interval over 2 cases, widened for rare changes")
        assert found.exit_code("regression") == 0

    @pytest.mark.parametrize("cases", [2, 10])
    def test_negligible_variation_has_no_effect(self, compare, cases):
        equal, near = (
            compare(scored(*[0.5] * cases), scored(*(0.7 + off * (number % 2) for number in range(cases)))).paired
            for off in (0.0, 1e-4)
        )
        assert near.ci95 == pytest.approx(equal.ci95, abs=1e-3)
        assert near.answer == equal.answer

    @pytest.mark.parametrize(
        ("scores", "words"),
        [
            ([0.55] * 20, "Rare failures in up to 14.9 % of cases could be missed with 20 cases, and could outweigh"),
            ([0.45] * 20, "Rare gains in up to 14.9 % of cases could be missed with 20 cases, and could outweigh"),
            ([0.8, 0.85] * 30, "Rare failures in up to 5.2 % of cases could be missed with 60 cases"),
        ],
    )
    def test_a_note_says_what_limits_the_verdict(self, compare, scores, words):
        found = compare(scored(*[0.5] * len(scores)), scored(*scores))
        assert found.paired.answer == ("better" if len(scores) == 60 else "cannot tell")
        assert [words in note for note in notes(found)] == [True]

    def test_a_note_says_that_too_few_cases_changed(self, compare):
        found = compare(scored(*[0.0] * 400), scored(*[1.0] * 5, *[0.0] * 395))
        assert found.paired.answer == "cannot tell"
        assert list(notes(found)) == ["Only 5 cases changed; a verdict needs at least 6"]

    def test_too_few_cases_to_detect_any_difference_are_reported(self, compare):
        text = sentence(compare(scored(0.0, 1.0, 0.5), scored(1.0, 0.0, 0.5)).paired)
        assert text.endswith("; 3 cases are too few to show any difference reliably.")

    def test_means_are_over_the_cases_of_the_difference(self, compare):
        before = [record("x", 1.0, trial=trial) for trial in (1, 2, 3)] + [record("y", 0.0), record("only", 1.0)]
        after = [record("x", 1.0), *(record("y", score, trial=n) for n, score in enumerate([0.0, 0.0, None], 1))]
        found = compare(before, after)
        assert [side.mean.value for side in found.sides] == [0.5, 0.5]
        assert (found.paired.mean_delta, [side.mean.n for side in found.sides]) == (0.0, [2, 2])

    @pytest.mark.parametrize("trials", [1, 3])
    @pytest.mark.parametrize("talk", [None, "c{}"])
    def test_the_mean_of_a_run_matches_its_summary(self, compare, trials, talk):
        records = [
            record(n, float(n * trial % 3 > 0), trial=trial, conversation_id=talk and talk.format(n // 4))
            for n in range(40)
            for trial in range(1, trials + 1)
        ]
        summary = SummaryBuilder("r", trials).add_all(records).build().targets["t"]
        side = compare(records, records).sides[0]
        assert side.mean.value == pytest.approx(summary.mean)
        assert side.mean.ci95 == pytest.approx(summary.ci95)

    def test_with_failed_trials_the_mean_matches_the_mean_by_case_of_the_summary(self, compare):
        pairs = [(n, trial) for n in range(20) for trial in (1, 2, 3)]
        records = [record(n, None if trial > 1 and n < 8 else n / 20, trial=trial) for n, trial in pairs]
        builder = SummaryBuilder("r", 3).add_all(records)
        by_case = builder.details()["t"].case_mean
        assert by_case != pytest.approx(builder.build().targets["t"].mean)
        assert compare(records, records).sides[0].mean.value == pytest.approx(by_case)


class TestParts:
    def test_evaluators_are_compared_by_name_with_adjusted_p_values(self, compare):
        before = [record(n, 0.5, evaluator_results=judged(x=0.2, y=n % 3 / 2, old=1.0)) for n in range(12)]
        after = [record(n, 0.5, evaluator_results=judged(x=0.4 + n / 100, y=n % 3 / 2, new=1.0)) for n in range(12)]
        found = compare(before, after)
        assert [part.name for part in found.evaluators] == ["x", "y"]
        assert [part.p_adjusted for part in found.evaluators] == holm(
            [part.paired.p_value for part in found.evaluators]
        )

    def test_tags_of_either_run_are_compared(self, compare):
        before = [record(n, 0.5, tags=("even",) if n % 2 == 0 else ()) for n in range(10)]
        after = [record(n, 0.5 + n / 100, tags=("late",) if n > 6 else ()) for n in range(10)]
        found = {part.name: part.paired for part in compare(before, after).tags}
        assert {name: paired.n for name, paired in found.items()} == {"even": 5, "late": 3}
        assert found["late"].mean_delta == pytest.approx(0.08)

    def test_tags_with_few_cases_are_only_counted(self, compare):
        records = [record(n, 0.5, tags=(f"only-{n}", "all")) for n in range(3_000)]
        found = compare(records, records)
        assert [part.name for part in found.tags] == ["all"]
        assert found.notes == ("Not compared separately: 3,000 tags with fewer than 3 cases",)

    def test_cost_and_time_are_compared_if_both_are_known(self, compare):
        before = [record(n, 0.5, execution_metrics=used(0.01, 100.0)) for n in range(4)]
        after = [record(n, 0.5, execution_metrics=used(0.02 if n else None, 90.0 - n)) for n in range(4)]
        found = compare(before, after)
        assert (found.cost.n, found.cost.difference.value) == (3, pytest.approx(0.01))
        assert (found.duration.n, found.duration.after) == (4, pytest.approx(88.5))
        cached = [msgspec.structs.replace(each, cached=True) for each in after]
        assert compare(before, cached).duration is None

    def test_differences_of_a_few_milliseconds_are_shown_consistently(self, compare):
        before = [record(n, 0.5, execution_metrics=used(None, 2.4)) for n in range(4)]
        after = [record(n, 0.5, execution_metrics=used(None, 0.6)) for n in range(4)]
        mean, *_, ratio = use_rows(compare(before, after))
        assert mean[:4] == ["time, mean", "2.4 ms", "0.6 ms", "−1.8 ms"]
        assert ratio[:4] == ["time, median ratio", "", "", "× 0.25"]

    def test_the_reason_of_a_change_comes_from_the_evaluator_that_changed(self, compare):
        def case(score, **parts):
            results = [
                msgspec.structs.replace(each, misses=(f"{each.name} missed",), hits=(f"{each.name} hit",))
                for each in judged(**parts)
            ]
            known = {
                "misses": tuple(miss for each in results for miss in each.misses),
                "reasoning": "always: reasoning",
            }
            return record("x", score, evaluator_results=tuple(results), **known)

        low, high = case(0.4, always=0.5, moved=0.3, other=0.4), case(0.7, always=0.5, moved=1.0, other=0.2)
        assert compare([high], [low]).changes[0].reason == "moved missed"
        assert compare([low], [high]).changes[0].reason == "moved hit"
        assert compare([record("x", 1.0)], [low]).changes[0].reason == "always missed"

    def test_the_largest_changes_have_both_answers(self, compare):
        before = [record(n, 0.5, candidate_answer=f"old {n}") for n in range(6)]
        changes = [0, 0.2, -0.4, 0.4, 0.1, 0]
        after = [record(n, 0.5 + change, candidate_answer=f"new {n}") for n, change in enumerate(changes)]
        found = compare(before, after, changes=3)
        assert [(each.pair.eval_id, each.answer1, each.answer2) for each in found.changes] == [
            ("2", "old 2", "new 2"),
            ("3", "old 3", "new 3"),
            ("1", "old 1", "new 1"),
        ]

    def test_answers_come_from_a_scored_trial(self, compare):
        before = [record("x", None, trial=1), record("x", 0.0, trial=2, candidate_answer="second")]
        assert compare(before, [record("x", 1.0)]).changes[0].answer1 == "second"


class TestGates:
    @pytest.mark.parametrize(
        ("delta", "spread", "failing"),
        [
            (-0.2, 0.1, {"regression", "worse", "any-loss", "inconclusive"}),
            (-0.01, 0.5, {"worse", "any-loss", "inconclusive"}),
            (0.01, 0.5, {"any-loss", "inconclusive"}),
            (0.2, 0.05, set()),
        ],
    )
    def test_gates_without_a_margin(self, compare, delta, spread, failing):
        after = [0.5 + delta + (spread / 2 if n % 2 else -spread / 2) for n in range(20)]
        found = compare(scored(*[0.5] * 20), scored(*after))
        gates = ["regression", "worse", "any-loss", "inconclusive", "never"]
        assert {gate for gate in gates if found.exit_code(gate)} == failing

    @pytest.mark.parametrize(
        ("delta", "spread", "outcome", "failing"),
        [
            (-0.01, 0.02, "shown", set()),
            (-0.1, 0.02, "refuted", {"regression", "inconclusive"}),
            (-0.03, 0.5, "inconclusive", {"inconclusive"}),
        ],
    )
    def test_gates_with_a_margin(self, compare, delta, spread, outcome, failing):
        after = [0.5 + delta + (spread / 2 if n % 2 else -spread / 2) for n in range(100)]
        found = compare(scored(*[0.5] * 100), scored(*after), margin=0.05)
        assert found.non_inferiority.outcome == outcome
        assert {gate for gate in ("regression", "inconclusive", "never") if found.exit_code(gate)} == failing


class TestMany:
    def test_every_pair_is_compared_over_the_cases_that_all_scored(self, tmp_path):
        chance = random.Random(4)
        paths = [
            write_scores(tmp_path / f"{name}.jsonl", [float(chance.random() < share) for _ in range(200)])
            for name, share in [("a", 0.4), ("b", 0.8), ("c", 0.6)]
        ]
        write_run(tmp_path / "c.jsonl", *(record(f"case-{n}", 0.5 if n else None) for n in range(150)))
        runs = [RunScores(path, path.stem) for path in paths]
        found = compare_many(runs, all_pairs=True)
        assert (found.n, found.left_out) == (149, (51, 51, 1))
        assert [ranked.side for ranked in found.ranking] == [1, 2, 0]
        assert found.differences[0][1].answer == "better"
        assert found.differences[1][0] is found.differences[0][0] is None
        p_values = [found.differences[i][j].p_value for i, j in [(0, 1), (0, 2), (1, 2)]]
        assert [found.p_adjusted[i][j] for i, j in [(0, 1), (0, 2), (1, 2)]] == holm(p_values)
        with_baseline = compare_many(runs).p_adjusted
        assert [with_baseline[i][j] for i, j in [(0, 1), (0, 2), (1, 2)]] == [*holm(p_values[:2]), None]

    def test_no_case_scored_in_all_runs_is_an_error(self, tmp_path):
        paths = [write_run(tmp_path / f"{name}.jsonl", record(name, 1.0)) for name in "abc"]
        with pytest.raises(UsageError, match="scored in all"):
            compare_many([RunScores(path, path.stem) for path in paths])


class TestSimulated:
    """Conclusions about simulated runs whose true difference is known. Draws are seeded."""

    def answers(self, rounds, cases, shift, binary=True):
        draw = np.random.default_rng(11)
        for _ in range(rounds):
            easy = draw.beta(2, 1, cases)
            after = np.clip(easy + shift, 0, 1)
            if binary:
                yield compare_paired(draw.random(cases) < easy, draw.random(cases) < after).answer
            else:
                sides = (np.clip(draw.normal(mean, 0.3), 0, 1) for mean in (easy, after))
                yield compare_paired(*sides, test=False).answer

    @pytest.mark.parametrize("binary", [True, False], ids=["0 and 1", "any score"])
    def test_noise_is_not_reported_as_a_difference(self, binary):
        found = list(self.answers(1_000, 400, 0.0, binary))
        assert found.count("cannot tell") >= 945

    def test_five_points_on_two_thousand_cases_are_detected(self):
        draw = np.random.default_rng(12)
        found = []
        for _ in range(300):
            easy = draw.beta(2, 1, 2_000)
            worth = np.clip(easy, 0, 0.95) + 0.05
            found.append(compare_paired(draw.random(2_000) < np.clip(easy, 0, 0.95), draw.random(2_000) < worth).answer)
        assert found.count("better") >= 240
        assert found.count("worse") == 0


def test_the_python_api_compares_runs(tmp_path):
    paths = [write_scores(tmp_path / f"{name}.jsonl", [score] * 20) for name, score in [("a", 0.0), ("b", 1.0)]]
    assert agentv.compare(*paths).paired.answer == "better"
    assert agentv.compare(f"{paths[0]}:t", paths[1], threshold=0.5).wins == 20
