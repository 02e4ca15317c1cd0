"""BLEU and ROUGE: the overlap of words and phrases with a reference, by the libraries that papers use."""

from functools import cache
from typing import Any, Literal

from agentv.errors import import_extra
from agentv.evaluators.base import AgainstReference, Scalar, Scalars, Share, check_sizes, quoted, similarity_score
from agentv.extensions.text_overlap.word_overlap import bleu_of_words, gleu_of_words, rouge_of_words
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement

MOST_PAIRS = 4e6
"""Pairs of words in which the longest common sequence is found in a few seconds."""

MOST_CHARACTERS = 1_000_000
"""Characters whose n-grams are counted in about a second and 100 MB."""

INSTALL = "pip install 'agentv[text-metrics]'"


class Bleu(AgainstReference, frozen=True, kw_only=True, dict=True):
    """The BLEU score of the answer against one or several references, from 0 to 1; with `threshold`, 0 or 1.

    It is computed by sacrebleu for each sentence, with effective order and exponential smoothing. Needs
    `pip install 'agentv[text-metrics]'`. `method: words` is the BLEU score of promptfoo, which needs no library:
    lower-case words that white space separates, and nearly 0 if no four words in a row are shared. `method: gleu` is
    its GLEU score: the smaller of precision and recall of phrases of one to four words, against the closest reference.
    """

    value: Scalar | Scalars | None = None
    lowercase: bool = False
    method: Literal["sacrebleu", "words", "gleu"] = "sacrebleu"
    threshold: Share | None = None

    def score(self, judgement: Judgement) -> Score:
        """Compare n-grams with all references at once."""
        texts, answer = self.texts(judgement), judgement.candidate_answer.strip()
        longest = max(len(answer), *map(len, texts))
        check_sizes(longest, longest, MOST_CHARACTERS**2)
        if self.method == "gleu" and not answer:
            raise EvaluatorFailure("The answer is empty, so that it has no GLEU score")
        if self.method != "sacrebleu":
            bleu = min(1.0, (bleu_of_words if self.method == "words" else gleu_of_words)(answer, texts))
        else:
            bleu = min(1.0, max(0.0, _bleu(self.lowercase).sentence_score(answer, texts).score / 100))
        name = "GLEU" if self.method == "gleu" else "BLEU"
        return similarity_score(bleu, self.threshold, f"{name} {bleu:.3g} against {quoted(texts[0])}")


class Rouge(AgainstReference, frozen=True, kw_only=True, dict=True):
    """The ROUGE score of the answer against the closest reference, from 0 to 1; with `threshold`, 0 or 1.

    `variant` is `rouge1` (words), `rouge2` (pairs of words), `rougeL` (the longest common sequence) or `rougeLsum` (the
    same, line by line). `measure` is `f1`, `precision` or `recall`. It is computed by rouge-score. Needs
    `pip install 'agentv[text-metrics]'`. `words: treebank` splits words as promptfoo does, where punctuation is a word
    too, and needs no library; it only has the variant `rouge1`.
    """

    value: Scalar | Scalars | None = None
    variant: Literal["rouge1", "rouge2", "rougeL", "rougeLsum"] = "rougeL"
    measure: Literal["f1", "precision", "recall"] = "f1"
    words: Literal["alphanumeric", "treebank"] = "alphanumeric"
    stem: bool = False
    threshold: Share | None = None

    def complaints(self) -> list[str]:
        """A variant or stemming that `words: treebank` does not have."""
        if self.words == "treebank" and (self.variant != "rouge1" or self.stem):
            return ["'words: treebank' needs 'variant: rouge1', without 'stem'"]
        return []

    def score(self, judgement: Judgement) -> Score:
        """Compare words or sequences with each reference, and use the best."""
        answer, name = judgement.candidate_answer.strip(), "fmeasure" if self.measure == "f1" else self.measure
        if self.words == "treebank":
            value, text = max((rouge_of_words(answer, text, self.measure), text) for text in self.texts(judgement))
            return similarity_score(value, self.threshold, f"rouge1 {value:.3g} against {quoted(text)}")
        scorer = _rouge(self.variant, self.stem)
        if self.variant in ("rougeL", "rougeLsum"):
            longest = max(len(text.split()) for text in self.texts(judgement))
            check_sizes(len(answer.split()), longest, MOST_PAIRS, "words")
        pairs = [(getattr(scorer.score(text, answer)[self.variant], name), text) for text in self.texts(judgement)]
        value, text = max(pairs)
        return similarity_score(float(value), self.threshold, f"{self.variant} {value:.3g} against {quoted(text)}")


@cache
def _bleu(lowercase: bool) -> Any:
    return _library("sacrebleu.metrics").BLEU(effective_order=True, lowercase=lowercase)


@cache
def _rouge(variant: str, stem: bool) -> Any:
    return _library("rouge_score.rouge_scorer").RougeScorer([variant], use_stemmer=stem)


def _library(name: str) -> Any:
    message = f"{name.partition('.')[0]} is not installed. Install it with: {INSTALL}"
    return import_extra(name, EvaluatorFailure(message))  # late: slow to import
