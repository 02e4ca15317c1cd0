"""BLEU, GLEU and ROUGE-1 of lower-case words, as promptfoo computes them: without a library, and by its own rules."""

import math
import re
from collections import Counter
from collections.abc import Sequence

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
