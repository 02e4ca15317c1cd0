"""Claims about pooled baselines, errors, variants and sentences hold in simulations."""

import pytest
from claim_rows import error_claims, pool_claims, sentence_claims, variant_claims

FAST = (("U-shaped", 100, 5), "one of 5", "20 cases, scores", "8 tags")


def misses(chosen, simulations=None):
    """Return the claims whose rate is outside its limits."""
    rates = [(claim, claim.rates(simulations)[1]) for claim in chosen]
    return [(claim[:2], rate) for claim, rate in rates if not claim.is_within(rate, simulations)]


def test_claims_hold_in_a_few_simulations():
    every = (*pool_claims({FAST[0]: 0.79}), *variant_claims(), *sentence_claims())
    names = ("{}, {} cases, {} runs".format(*FAST[0]), *FAST[1:])
    chosen = [claim for claim in every if any(name in claim.setting for name in names)]
    assert len(chosen) == 8 and misses(chosen, 25) == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("rows", [pool_claims, error_claims, variant_claims, sentence_claims])
def test_every_claim_of_the_table_holds(rows):
    assert misses(rows()) == []
