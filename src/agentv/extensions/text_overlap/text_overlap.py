"""BLEU and ROUGE: the overlap of words and phrases with a reference, by libraries and as in promptfoo."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from agentv.errors import import_extra
from agentv.evaluators.base import AgainstReference, Scalar, Scalars, Share, check_sizes, quoted, similarity_score
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


_MOST_WORDS = 4
_SMALLEST_PRECISION = 1e-7
_QUOTE = re.compile(r"``|''|\"")
_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\.{3}", " ... "),
        (r"[:,](?!\d)", r" \g<0> "),
        (r"[;@#$%&]", r" \g<0> "),
        (r"([^.])(?<!\b[A-Za-z]\.[A-Za-z])(\.)([\])}>'\s]*)\Z", r"\1 \2\3 "),
        (r"[?!]", r" \g<0> "),
        (r"[\]\[(){}<>]", r" \g<0> "),
        (r"--", " -- "),
    )
]
"""Punctuation is a word of its own; commas and colons between digits, and the dots of abbreviations, are not."""

_CONTRACTIONS = [
    (re.compile(pattern, flags), replacement)
    for pattern, replacement, flags in (
        (r"([^'])' ", r"\1 ' ", 0),
        (r"'([sSmMdD]) ", r" '\1 ", 0),
        (r"('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r" \1 ", 0),
        (r"\b(can)(not)\b", r" \1 \2 ", re.IGNORECASE),
        (r"(?<!\w)(d)('ye)\b", r" \1 \2 ", re.IGNORECASE),
        (r"\b(gim|lem)(me)\b", r" \1 \2 ", re.IGNORECASE),
        (r"\b(gon)(na)\b", r" \1 \2 ", re.IGNORECASE),
        (r"\b(got)(ta)\b", r" \1 \2 ", re.IGNORECASE),
        (r"\b(more)('n)\b", r" \1 \2 ", re.IGNORECASE),
        (r"\b(wan)(na)(?= )", r" \1 \2 ", re.IGNORECASE),
        (r"(?<!\w)('t)(is|was)\b", r" \1 \2 ", re.IGNORECASE),
    )
]


def bleu_of_words(answer: str, references: Sequence[str]) -> float:
    """Return the BLEU score of words that white space separates, without smoothing beyond a tiny precision."""
    if not answer.strip():
        return 0.0
    words, texts = answer.lower().split(), [text.lower().split() for text in references]
    length = min((len(text) for text in texts), key=lambda size: (abs(size - len(words)), size))
    logarithms = []
    for size in range(1, min(_MOST_WORDS, len(words)) + 1):
        own = _phrases(words, size)
        shared = max((own & _phrases(text, size)).total() for text in texts)
        logarithms.append(math.log(shared / own.total() or _SMALLEST_PRECISION))
    brevity = 1.0 if len(words) > length else math.exp(1 - length / len(words))
    return brevity * math.exp(math.fsum(logarithms) / len(logarithms))


def gleu_of_words(answer: str, references: Sequence[str]) -> float:
    """Return the GLEU score: the smaller of precision and recall of phrases of one to four words."""
    own = _plain_words(answer)
    return max(_gleu(own, _plain_words(text)) for text in references)


def _plain_words(text: str) -> list[str]:
    """Return lower-case words without dots at their ends."""
    return [word.rstrip(".") for word in text.lower().split()]


def _gleu(words: Sequence[str], others: Sequence[str]) -> float:
    if words == others:
        return 1.0
    pairs = [(_phrases(words, size), _phrases(others, size)) for size in range(1, _MOST_WORDS + 1)]
    shared = sum((own & other).total() for own, other in pairs)
    longest = max(sum(own.total() for own, _ in pairs), sum(other.total() for _, other in pairs))
    return shared / longest if longest else 0.0


def _phrases(words: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + size]) for start in range(len(words) - size + 1))


def rouge_of_words(answer: str, reference: str, measure: str = "f1") -> float:
    """Return ROUGE-1 of words that are split by the rules of the Penn Treebank."""
    own, other = (Counter(treebank_words(text.lower())) for text in (answer, reference))
    if not (shared := (own & other).total()):
        return 0.0
    precision, recall = shared / own.total(), shared / other.total()
    return {"precision": precision, "recall": recall}.get(measure, 2 * precision * recall / (precision + recall))


def treebank_words(text: str) -> list[str]:
    """Split a sentence into words and punctuation by the rules of the Penn Treebank."""
    text = " ".join(text.split())
    is_open = False

    def quote(match: re.Match[str]) -> str:
        nonlocal is_open
        is_open = not is_open and match[0] != "''" and (not match.start() or not text[match.start() - 1].isalnum())
        return " `` " if is_open else " '' "

    text = _QUOTE.sub(quote, text)
    for rule, replacement in _RULES:
        text = rule.sub(replacement, text)
    text = f" {text} "
    for rule, replacement in _CONTRACTIONS:
        text = rule.sub(replacement, text)
    return text.split()
