"""Embeddings whose numbers overflow are errors, so no answer passes because of them."""

import pytest

from agentv.extensions.promptfoo.evaluators.embedded_texts import EmbeddingSimilarity
from agentv.model.evaluator import EvaluatorFailure


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("measure", ["cosine", "dot", "euclidean"])
def test_numbers_that_overflow_are_an_error(measure, inverse):
    check = EmbeddingSimilarity(value=["a"], measure=measure, inverse=inverse)
    with pytest.raises(EvaluatorFailure, match="too large"):
        check._result([1e200], [-1e200])
