"""Every statistic, checked against closed forms, scipy and statsmodels."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from agentv.stats.distributions import (
    beta_quantile,
    binomial_cdf,
    binomial_pmf,
    incomplete_beta,
    normal_cdf,
    normal_quantile,
    t_p_value,
)
from agentv.stats.intervals import clopper_pearson, pass_at_k, pass_hat_k, proportion_interval, rare_limit, wilson
from agentv.stats.means import Estimate, clustered_mean, paired_difference, t_test
from agentv.stats.paired_comparison import (
    compare_paired,
    mcnemar_exact,
    mcnemar_mid_p,
    share_difference,
    sign_flip_test,
)
from agentv.stats.power import (
    Noise,
    cases_for_gate,
    cases_for_margin,
    cases_needed,
    detectable_difference,
    holm,
    non_inferiority,
    variance_between_runs,
    variance_of_difference,
)
from agentv.stats.ranking import rank
from late import Late

pytestmark = pytest.mark.ci

optimize, stats, models = Late("scipy.optimize"), Late("scipy.stats"), Late("statsmodels.api")
tables = Late("statsmodels.stats.contingency_tables")
proportion, power = Late("statsmodels.stats.proportion"), Late("statsmodels.stats.power")
multitest = Late("statsmodels.stats.multitest")

NEAR = {"rel": 1e-9, "abs": 1e-9}
chance = np.random.default_rng(7)


class TestDistributions:
    @pytest.mark.parametrize("z", [-8.0, -1.96, -0.1, 0.0, 0.7, 3.0])
    def test_normal(self, z):
        assert normal_cdf(z) == pytest.approx(stats.norm.cdf(z), rel=1e-12)
        assert normal_quantile(normal_cdf(z)) == pytest.approx(z, abs=1e-9)

    @pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (1, 3), (2.5, 40), (300, 7), (4000, 4100), (1, 1e5)])
    @pytest.mark.parametrize("x", [1e-6, 0.01, 0.3, 0.5, 0.77, 0.999])
    def test_beta(self, a, b, x):
        assert incomplete_beta(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), **NEAR)
        assert beta_quantile(x, a, b) == pytest.approx(stats.beta.ppf(x, a, b), **NEAR)

    @pytest.mark.parametrize(("hits", "n", "share"), [(0, 1, 0.5), (3, 10, 0.2), (50, 100, 0.5), (4900, 10_000, 0.5)])
    def test_binomial(self, hits, n, share):
        assert binomial_cdf(hits, n, share) == pytest.approx(stats.binom.cdf(hits, n, share), **NEAR)
        assert binomial_pmf(hits, n, share) == pytest.approx(stats.binom.pmf(hits, n, share), **NEAR)

    @pytest.mark.parametrize("t", [0.0, 0.3, 2.1, -5.0])
    def test_students_two_sided_p_value(self, t):
        assert t_p_value(t, 17) == pytest.approx(2 * stats.t.sf(abs(t), 17), **NEAR)


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (1, 1), (0, 20), (3, 10), (81, 263), (500, 1000), (9_999, 10_000)])
def test_intervals_of_proportions(hits, n):
    assert clopper_pearson(hits, n) == pytest.approx(proportion.proportion_confint(hits, n, method="beta"), **NEAR)
    known = stats.binomtest(hits, n).proportion_ci(0.9, method="exact")
    assert clopper_pearson(hits, n, 0.9) == pytest.approx((known.low, known.high), **NEAR)
    assert wilson(hits / n, n) == pytest.approx(proportion.proportion_confint(hits, n, method="wilson"), **NEAR)


def test_no_hits_match_the_closed_form_and_the_rule_of_three():
    assert clopper_pearson(0, 100) == pytest.approx((0.0, 1 - 0.025 ** (1 / 100)))
    assert clopper_pearson(0, 100, 0.9)[1] == pytest.approx(3 / 100, rel=0.02)


class TestMeans:
    scores = chance.random(60)
    others = np.clip(scores + 0.1 * chance.standard_normal(60), 0, 1)
    clusters = chance.integers(0, 13, 60)

    def test_the_plain_mean_matches_students_test(self):
        found = clustered_mean(self.scores)
        known = stats.ttest_1samp(self.scores, 0.45)
        assert found.ci95 == pytest.approx(known.confidence_interval(), **NEAR)
        assert found.standard_error == pytest.approx(stats.sem(self.scores), **NEAR)
        assert t_test(found, 0.45) == pytest.approx(known.pvalue, **NEAR)

    def test_the_clustered_mean_matches_a_regression_on_a_constant(self):
        found = clustered_mean(self.scores, self.clusters)
        fit = models.OLS(self.scores, np.ones(60)).fit(
            cov_type="cluster", cov_kwds={"groups": self.clusters}, use_t=True
        )
        assert found.value == pytest.approx(fit.params[0], **NEAR)
        assert found.standard_error == pytest.approx(fit.bse[0], **NEAR)
        assert found.ci95 == pytest.approx(tuple(fit.conf_int()[0]), **NEAR)
        assert t_test(found) == pytest.approx(fit.pvalues[0], **NEAR)
        assert (found.n, found.clusters, found.degrees) == (60, 13, 12)

    def test_cluster_names_may_be_text(self):
        names = [f"c{number}" for number in self.clusters]
        assert clustered_mean(self.scores, names).ci95 == pytest.approx(clustered_mean(self.scores, self.clusters).ci95)

    def test_the_paired_difference_matches_the_paired_test(self):
        found = paired_difference(self.scores, self.others)
        known = stats.ttest_rel(self.others, self.scores)
        assert found.p_value == pytest.approx(known.pvalue, **NEAR)
        assert found.estimate.ci95 == pytest.approx(known.confidence_interval(), **NEAR)
        assert found.correlation == pytest.approx(stats.pearsonr(self.scores, self.others).statistic, **NEAR)

    def test_the_clustered_difference_matches_a_regression(self):
        found = paired_difference(self.scores, self.others, self.clusters)
        fit = models.OLS(self.others - self.scores, np.ones(60)).fit(
            cov_type="cluster", cov_kwds={"groups": self.clusters}, use_t=True
        )
        assert found.p_value == pytest.approx(fit.pvalues[0], **NEAR)
        assert found.estimate.ci95 == pytest.approx(tuple(fit.conf_int()[0]), **NEAR)

    def test_pairing_removes_variance_common_to_both_sides(self):
        alone = [clustered_mean(side).standard_error for side in (self.scores, self.others)]
        found = paired_difference(self.scores, self.others)
        expected = alone[0] ** 2 + alone[1] ** 2 - 2 * found.correlation * alone[0] * alone[1]
        assert found.estimate.standard_error**2 == pytest.approx(expected)

    def test_one_cluster_or_no_variance_has_no_interval(self):
        assert clustered_mean([0.2, 0.4], [1, 1]).ci95 is None
        assert paired_difference([0.5] * 3, [0.5] * 3) == (Estimate(0.0, 0.0, None, 3, 3), 1.0, None)
        assert paired_difference([0.5] * 3, [0.75] * 3).p_value == sign_flip_test([0.25] * 3).p_value

    def test_sides_of_different_length_are_rejected(self):
        with pytest.raises(ValueError, match="2 and 1"):
            paired_difference([1, 2], [1])
        with pytest.raises(ValueError, match="1 and 2"):
            clustered_mean([1, 2], [1])
        with pytest.raises(ValueError, match="no scores"):
            clustered_mean([])


class TestPairs:
    @pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (5, 0), (3, 9), (8, 8), (40, 61), (4_000, 4_200)])
    def test_mcnemar(self, wins, losses):
        known = tables.mcnemar([[5, wins], [losses, 7]], exact=True).pvalue
        assert mcnemar_exact(wins, losses) == pytest.approx(min(1.0, known), **NEAR)
        least = min(wins, losses)
        mid = 2 * (stats.binom.cdf(least - 1, wins + losses, 0.5) + stats.binom.pmf(least, wins + losses, 0.5) / 2)
        assert mcnemar_mid_p(wins, losses) == pytest.approx(min(1.0, mid), **NEAR)

    def test_mcnemar_matches_exact_fractions(self):
        exact = 2 * sum(Fraction(math.comb(12, k), 2**12) for k in range(4))
        assert mcnemar_exact(3, 9) == pytest.approx(float(exact), rel=1e-12)
        assert mcnemar_mid_p(3, 9) == pytest.approx(float(exact - Fraction(math.comb(12, 3), 2**12)), rel=1e-12)

    @pytest.mark.parametrize(("wins", "losses", "n"), [(0, 0, 12), (3, 0, 10), (9, 3, 40), (16, 4, 32), (80, 61, 1000)])
    def test_the_score_interval_ends_where_the_score_test_becomes_significant(self, wins, losses, n):
        """At a bound, the maximum-likelihood proportion of losses, found numerically, gives a score of z."""
        for bound in share_difference(wins, losses, n):
            if abs(bound) == 1:
                continue

            def unlikely(q, bound=bound):
                cells = [(wins, q + bound), (losses, q), (n - wins - losses, 1 - 2 * q - bound)]
                return -sum(count * math.log(max(p, 1e-300)) for count, p in cells if count)

            low, high = max(0.0, -bound), (1 - bound) / 2
            q = optimize.minimize_scalar(
                unlikely, (low, high), (low, high), method="bounded", options={"xatol": 1e-12}
            ).x
            score = (wins - losses - n * bound) / math.sqrt(n * (2 * q + bound * (1 - bound)))
            assert abs(score) == pytest.approx(stats.norm.ppf(0.975), rel=1e-3)

    def test_ties_only_still_have_an_interval(self):
        low, high = share_difference(0, 0, 20)
        assert low == pytest.approx(-high)
        assert high == pytest.approx(1.959963984540054**2 / (20 + 1.959963984540054**2))

    def test_few_sign_flips_are_enumerated(self):
        differences = [0.3, -0.1, 0.4, 0.0, 0.25, 0.1, 0.2, -0.05]
        known = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf)
        found = sign_flip_test(differences)
        assert found.exact
        assert found.p_value == pytest.approx(known.pvalue, **NEAR)

    def test_clusters_are_flipped_as_a_unit(self):
        differences, clusters = [0.3, 0.1, 0.4, -0.2, 0.25, 0.1], [0, 0, 1, 1, 2, 2]
        assert sign_flip_test(differences, clusters).p_value == sign_flip_test([0.4, 0.2, 0.35]).p_value == 2 / 8

    @pytest.mark.parametrize("different", [True, False], ids=["all different", "few values"])
    def test_many_sign_flips_agree_with_students_test(self, different):
        values = np.random.default_rng(5).normal(0.05, 0.5, 3_000)
        values = values if different else np.round(values, 1)
        found = sign_flip_test(values, seed=3)
        assert (found.exact, found.resamples) == (False, 9_999)
        assert found.p_value == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.01)
        assert found == sign_flip_test(values, seed=3)

    def test_a_p_value_is_never_0_and_no_difference_is_1(self):
        assert sign_flip_test([0.5] * 40).p_value == 1 / 10_000
        assert sign_flip_test([0.0] * 40).p_value == 1.0


class TestTrials:
    @pytest.mark.parametrize(("trials", "passed", "k"), [(5, 2, 1), (5, 2, 3), (10, 0, 4), (10, 10, 4), (200, 13, 100)])
    def test_they_match_hypergeometric_probabilities(self, trials, passed, k):
        known = stats.hypergeom(trials, passed, k)
        assert pass_at_k(trials, passed, k) == pytest.approx(1 - known.pmf(0), **NEAR)
        assert pass_hat_k(trials, passed, k) == pytest.approx(known.pmf(k), **NEAR)

    def test_they_are_unbiased(self):
        n, k, share = 6, 3, 0.3
        chances = [stats.binom.pmf(passed, n, share) for passed in range(n + 1)]
        assert sum(p * pass_at_k(n, c, k) for c, p in enumerate(chances)) == pytest.approx(1 - (1 - share) ** k)
        assert sum(p * pass_hat_k(n, c, k) for c, p in enumerate(chances)) == pytest.approx(share**k)

    @pytest.mark.parametrize(("trials", "passed", "k"), [(3, 4, 1), (3, -1, 1), (3, 2, 4), (3, 2, 0)])
    def test_invalid_arguments_are_rejected(self, trials, passed, k):
        for function in (pass_at_k, pass_hat_k):
            with pytest.raises(ValueError, match="trials"):
                function(trials, passed, k)


class TestPower:
    def test_sample_sizes_match_statsmodels(self):
        for difference in (0.05, 0.02, 0.1):
            needed = power.normal_sample_size_one_tail(difference, 0.8, 0.025, std_null=0.4)
            # Student's quantiles add about two cases.
            assert math.ceil(needed) <= cases_needed(difference, Noise(0.16)) <= needed + 4

    @pytest.mark.parametrize("noise", [Noise(0.0004), Noise(0.02, step=1), Noise(0.3, 1, 0.1, 2.5, 4.0)])
    @pytest.mark.parametrize("difference", [0.02, 0.05, 0.1, 0.5])
    def test_the_needed_number_of_cases_can_detect_the_difference(self, difference, noise):
        n = cases_needed(difference, noise)
        assert detectable_difference(noise, n) <= difference
        fewer = detectable_difference(noise, n - 1)
        assert fewer is None or fewer > difference

    @pytest.mark.parametrize("difference", [0.02, 0.1])
    def test_a_difference_of_pass_rates_varies_even_if_earlier_runs_were_equal(self, difference):
        assert Noise(0.0, step=1).variance_at(difference) == pytest.approx(difference * (1 - difference))
        # Eight changed cases on average, so that six or more change in 80 % of comparisons.
        assert cases_needed(difference, Noise(0.0, step=1)) == pytest.approx(7.9 / difference, rel=0.05)

    def test_the_correlation_decides_whether_changes_come_on_top_of_others(self):
        for correlation, expected in ((0.0, 0.2), (0.2, 0.25), (0.5, 0.29), (1.0, 0.29)):
            assert Noise(0.2, step=1, correlation=correlation).variance_at(0.1) == pytest.approx(expected)
        assert Noise(0.2).variance_at(0.1) == 0.2
        # The difference of the runs in which the variance was measured is part of it.
        assert Noise(0.2, 1, 0.1).variance_at(0.1) == pytest.approx(0.2)

    def test_five_cases_detect_nothing(self):
        assert detectable_difference(Noise(0.01), 5) is None
        assert detectable_difference(Noise(0.01, cluster_size=4.0), 20) is None
        assert detectable_difference(Noise(0.01), 6) < 0.2

    def test_a_run_and_a_second_one_like_it(self):
        assert variance_between_runs(0.2) == pytest.approx(0.2)
        assert variance_between_runs(0.1, 0.1, 4, correlation=0.2) == pytest.approx(2 * (0.1 - 0.04) + 0.05)
        # Trials are independent, so the correlation of single trials cannot exceed 0.1 / 0.2.
        assert variance_between_runs(0.1, 0.1, 1, correlation=0.9) == pytest.approx(0.2)

    @pytest.mark.parametrize(("value", "limit"), [(0.95, 0.9), (0.8, 0.9), (1.0, 0.9), (0.5, 0.4), (0.6, 0.9)])
    def test_a_gate_is_decided_with_the_promised_power(self, value, limit):
        n = cases_for_gate(value, limit)
        passed = np.arange(n + 1)
        bounds = np.array([proportion_interval(k / n, n) for k in passed])
        decided = bounds[:, 0] > limit if value > limit else bounds[:, 1] < limit
        assert 0.75 <= stats.binom.pmf(passed, n, value)[decided].sum() <= 1.0 - 0.12 * (value < 1)
        assert cases_for_gate(limit, limit) is None

    def test_a_gate_of_other_scores_excludes_unseen_failures(self):
        # Even without variance, 1 - 0.04^(1/n) of the cases may fail without having been seen.
        n = cases_for_gate(1.0, 0.9, variance=0.0)
        assert rare_limit(0, n) < 0.1 < rare_limit(0, n - 4)
        assert cases_for_gate(0.6, 0.5, variance=0.04) == cases_needed(0.1, Noise(0.04, loss=0.6))

    def test_a_margin_needs_as_many_cases_as_a_difference_of_that_size(self):
        assert cases_for_margin(0.05, Noise(0.16)) == cases_needed(0.05, Noise(0.16))
        assert cases_for_margin(0.05, Noise(0.16), difference=-0.02) > cases_for_margin(0.05, Noise(0.16))
        assert cases_for_margin(0.05, Noise(0.16), difference=-0.05) is None
        # Without any change, the interval still has a width.
        n = cases_for_margin(0.02, Noise(0.0, step=1))
        assert share_difference(0, 0, n)[0] > -0.02 > share_difference(0, 0, n - 6)[0]

    def test_more_trials_reduce_only_variance_between_trials(self):
        assert variance_of_difference(0.04, 0.1, 0.2) == pytest.approx(0.34)
        assert variance_of_difference(0.04, 0.1, 0.2, trials=3) == pytest.approx(0.14)

    def test_a_difference_of_zero_is_an_error(self):
        with pytest.raises(ValueError, match="difference of 0"):
            cases_needed(0, Noise(1))

    @pytest.mark.parametrize(
        ("n", "margin", "changed"), [(200, 0.02, 0.03), (100, 0.1, 0.1), (50, 0.2, 0.23), (30, 0.3, 0.33)]
    )
    def test_claims_at_the_margin_are_rarely_false(self, n, margin, changed):
        """All numbers of wins and losses with their probabilities. The nominal rate of 2.5 % is approximate."""
        false = dict.fromkeys(("shown", "refuted", "inconclusive"), 0.0)
        outcomes = stats.multinomial(n, ((changed - margin) / 2, (changed + margin) / 2, 1 - changed))
        for wins, losses in product(range(n + 1), range(n + 1)):
            probability = outcomes.pmf((wins, losses, n - wins - losses)) if wins + losses <= n else 0
            if probability > 1e-6:
                before, after = [0] * wins + [1] * (n - wins), [1] * wins + [0] * losses + [1] * (n - wins - losses)
                estimate = compare_paired(before, after, test=False).estimate
                false[non_inferiority(estimate, margin).outcome] += probability
        assert max(false["shown"], false["refuted"]) < 0.03

    @pytest.mark.parametrize(("clusters", "outcome"), [(20, "inconclusive"), (60, "shown")])
    def test_a_margin_is_shown_only_if_failures_of_whole_clusters_would_show(self, clusters, outcome):
        scores = 0.9 + np.random.default_rng(3).uniform(-0.01, 0.01, (2, 5 * clusters))
        paired = compare_paired(*scores, np.repeat(np.arange(clusters), 5), test=False)
        assert non_inferiority(paired.estimate, 0.1).outcome == outcome

    @pytest.mark.parametrize(("margin", "outcome"), [(0.2, "shown"), (0.05, "inconclusive"), (0.0, "inconclusive")])
    def test_non_inferiority_outcomes(self, margin, outcome):
        differences = np.random.default_rng(3).normal(-0.02, 0.3, 100)
        found = non_inferiority(clustered_mean(differences), margin)
        known = stats.ttest_1samp(differences, -margin, alternative="greater")
        assert (found.outcome, found.p_value) == (outcome, pytest.approx(known.pvalue, **NEAR))

    def test_a_difference_beyond_the_margin_is_refuted(self):
        assert non_inferiority(clustered_mean([-0.5, -0.4, -0.45]), 0.1).outcome == "refuted"
        assert non_inferiority(clustered_mean([0.1]), 0.1).outcome == "inconclusive"
        with pytest.raises(ValueError, match="margin"):
            non_inferiority(clustered_mean([0.1, 0.2]), -0.1)


@pytest.mark.parametrize("p_values", [[0.01, 0.04, 0.03, 0.005], [0.5], [0.2, 0.2, 0.9, 0.0], []])
def test_holm_matches_statsmodels(p_values):
    known = multitest.multipletests(p_values, method="holm")[1].tolist() if p_values else []
    assert holm(p_values) == pytest.approx(known, **NEAR)


class TestRanking:
    SHOWN = {(0, 2), (1, 2), (3, 2)}

    def test_sides_are_ordered_by_mean_with_the_places_that_stay_open(self):
        found = rank([0.6, 0.7, 0.2, 0.65], lambda i, j: (i, j) in self.SHOWN)
        assert [(each.side, each.places) for each in found] == [(1, (1, 3)), (3, (1, 3)), (0, (1, 3)), (2, (4, 4))]

    def test_without_any_conclusion_every_place_is_open(self):
        assert [each.places for each in rank([0.1, 0.2, 0.3], lambda i, j: False)] == [(1, 3)] * 3

    def test_equal_means_keep_their_order(self):
        assert [each.side for each in rank([0.5, 0.9, 0.5], lambda i, j: False)] == [1, 0, 2]
