"""BLEU and ROUGE agree with the libraries that compute them, and an uninstalled one is an error with the command."""

import sys

import pytest

REFERENCE = "The cat is on the mat."
# (answer, references)
TEXTS = [
    (REFERENCE, [REFERENCE]),
    ("A cat sat on the mat", [REFERENCE, "There is a cat on the mat."]),
    ("Completely different", [REFERENCE]),
    ("", [REFERENCE]),
]


@pytest.mark.parametrize(("answer", "references"), TEXTS)
def test_bleu_is_that_of_sacrebleu(scoring, answer, references):
    sacrebleu = pytest.importorskip("sacrebleu")
    expected = sacrebleu.sentence_bleu(answer, references).score / 100
    assert scoring.score("bleu", {"value": references}, answer).score == pytest.approx(expected)


@pytest.mark.parametrize("variant", ["rouge1", "rouge2", "rougeL", "rougeLsum"])
@pytest.mark.parametrize(("answer", "references"), TEXTS)
def test_rouge_is_that_of_rouge_score_with_the_closest_reference(scoring, answer, references, variant):
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
    scorer = rouge_scorer.RougeScorer([variant])
    expected = max(scorer.score(text, answer)[variant].recall for text in references)
    entry = {"value": references, "variant": variant, "measure": "recall"}
    assert scoring.score("rouge", entry, answer).score == pytest.approx(expected)


def test_a_threshold_makes_the_score_0_or_1(scoring):
    pytest.importorskip("rouge_score")
    entry = {"value": REFERENCE, "variant": "rouge1", "threshold": 0.9}
    assert scoring.score("rouge", entry, REFERENCE.lower()).score == 1
    assert scoring.score("rouge", entry, "A cat.").score == 0


@pytest.mark.parametrize(("type_", "library"), [("bleu", "sacrebleu.metrics"), ("rouge", "rouge_score.rouge_scorer")])
def test_a_missing_library_is_an_error_with_the_command_to_install_it(scoring, monkeypatch, type_, library):
    from agentv.extensions.text_overlap import text_overlap  # late: its caches are emptied

    text_overlap._bleu.cache_clear()
    text_overlap._rouge.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    assert "pip install 'agentv[text-metrics]'" in scoring.failure(type_, {"value": "x"}, "x")
