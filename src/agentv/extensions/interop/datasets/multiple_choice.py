"""Multiple-choice questions, asked as the solver `multiple_choice` of Inspect and scored as its scorer `choice`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import permutations
from string import ascii_uppercase
from typing import Any

from agentv.datasets.foreign.foreign_format import (
    ForeignFormat,
    Mapper,
    all_have,
    listed_records,
    record_file,
    rows_of,
)
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import filled, first_of, is_blank, metadata_of, text_of, texts_of
from agentv.datasets.formats.dataset_format import Document
from agentv.extensions.interop.datasets.dataset_values import cell_value

_MOST_LETTERS = 4
"""More correct choices than these have too many orders."""

_ONE = "where LETTER is one of"
_SEVERAL = "where LETTERS is one or more of"
_QUESTIONS = ("question", "question_text", "question_stem", "ctx", "query", "prompt", "sentence")
_CHOICES = ("choices", "options", "endings")
_ANSWERS = (
    *("answer_idx", "answer", "answerKey", "answer_key", "correct_option", "label", "correct_answer", "answer_index"),
    *("correct_options", "correct_answers"),
)
_IDS = ("id", "question_id", "qid")
_OPTION = re.compile(r"(?:(?:option|choice|opt)[_ ]?)?([A-J]|(?<=[a-z _])[a-j1-9])", re.IGNORECASE)
_LETTERED = re.compile(r"([A-J])[.):]\s+")
_USED = (*_IDS, *_QUESTIONS, *_CHOICES, *_ANSWERS)


class _MultipleChoice(ForeignFormat):
    title = "multiple-choice questions"
    strength = 0.61
    fields = "question and choices → input, answer → a check of its letter"

    def fits(self, file: RecordFile) -> bool:
        rows = [_with_options(row) for row in rows_of(file)]
        keys = [(a, b, c) for a in _QUESTIONS for b in _CHOICES for c in _ANSWERS if all_have(rows, a, b, c)]
        return bool(keys) and all(_texts(row[keys[0][1]]) for row in rows) and not all_have(rows, "input")

    def items(self, file: RecordFile) -> Iterator[Record]:
        return listed_records(file)

    def mapper(self, document: Document) -> Mapper:
        """Map questions. Whether the answer `2` to `8, 4, 2` is a text or a number from 0, the other questions show."""
        records = map(_parts, map(_with_options, rows_of(record_file(document.source.files[0]))))
        answers = [(answer, texts, labels) for texts, labels, several in records for answer in several]
        are_texts = all(_place(answer, texts, labels, is_text=True) is not None for answer, texts, labels in answers)
        are_codes = all(_place(answer, texts, labels, is_text=False) is not None for answer, texts, labels in answers)
        is_text = are_texts if are_texts != are_codes else None
        return lambda record, _: self._row(record, is_text)

    def _row(self, record: Record, is_text: bool | None) -> Iterable[dict[str, Any]]:
        data = _with_options(record.data)
        texts, labels, answers = _parts(data)
        letters = [_letter(answer, texts, labels, is_text) for answer in answers]
        row = {
            "id": first_of(data, *_IDS),
            **choice_parts(text_of(first_of(data, *_QUESTIONS)), texts, letters),
            "metadata": {**metadata_of(data, _USED), "choices": texts},
        }
        return [filled(row)]


MULTIPLE_CHOICE = _MultipleChoice()


def _with_options(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose choices are one value: some tables have a column for each, such as A, B, C or option_a."""
    data = {key: cell_value(value) for key, value in record.items()}
    if isinstance(stem := data.get("question"), dict) and "stem" in stem:  # as CommonsenseQA has them
        data |= {"question": stem["stem"], "choices": stem.get("choices")}
    matches = {name: match for name in data if (match := _OPTION.fullmatch(str(name)))}
    if len(matches) < 2 or any(name in data for name in _CHOICES):
        return data
    texts = {match[1].upper(): text_of(data[name]) for name, match in matches.items() if not is_blank(data[name])}
    return {**{name: value for name, value in data.items() if name not in matches}, "choices": texts}


def choice_parts(question: Any, choices: list[str], targets: list[str]) -> dict[str, Any]:
    """Return the input and the check of a multiple-choice question. Raises ValueError for a target without a choice."""
    allowed = _characters(len(choices))
    letters = [letter for target in targets for letter in _target_letters(target)]
    for letter in letters:
        if letter not in allowed:
            raise ValueError(f"The target '{letter}' is not the letter of one of the {len(choices)} choices")
    if not letters or len(letters) > _MOST_LETTERS:
        raise ValueError(f"A multiple-choice question needs 1 to {_MOST_LETTERS} correct choices")
    several = " where multiple answers may be correct" if len(letters) > 1 else ""
    form = f"'ANSWER: ${'LETTERS' if several else 'LETTER'}' (without quotes) {_SEVERAL if several else _ONE}"
    intro = (
        f"Answer the following multiple choice question{several}. The entire content of your response should be of the "
        f"following format: {form} {','.join(allowed)}."
    )
    options = "\n".join(f"{letter}) {text}" for letter, text in zip(allowed, choices, strict=True))
    return {
        "input": _asked(question, intro, options),
        "expected_output": ", ".join(letters),
        "assertions": [{"type": "regex", "name": "choice", "value": _pattern(letters)}],
    }


def _pattern(letters: list[str]) -> str:
    """Return the expression for an answer whose last `ANSWER:` line, or else last `ANSWER:`, has these letters."""
    orders = "|".join(_SEPARATOR.join(map(_wrapped, order)) for order in permutations(letters))
    own = rf"ANSWER\s*:\s*(?:{orders})[ ,]*(?:\*\*|\$)?"
    any_line, any_text = rf"^ANSWER\s*:\s*{_ANY}\s*(?:$|\.)", rf"ANSWER\s*:\s*{_ANY}"
    strict = rf"^{own}\s*(?:$|\.)(?![\s\S]*{any_line})"
    twice = r"ANSWER\s*:\s*[A-Za-z\d ,]+ANSWER\s*:"  # of two in a row, Inspect does not see the second
    loose = rf"\A(?![\s\S]*{any_line})(?![\s\S]*{twice})[\s\S]*{own}(?![\w])(?![\s\S]*{any_text})"
    return f"(?im)(?:{strict})|(?:{loose})"


_SEPARATOR = r"(?:\s*,\s*(?:and\s+)?|\s+and\s+|\s*)"
_ANY = r"(?:\*\*|\$|\()?\s*[A-Za-z\d][A-Za-z\d ,]*"


def _wrapped(letter: str) -> str:
    return rf"(?:\*\*|\$|\()?\s*{re.escape(letter)}\s*(?:\*\*|\$|\))?"


def _characters(count: int) -> list[str]:
    return [*ascii_uppercase, *map(str, range(1, count))][:count]


def _target_letters(target: str) -> list[str]:
    return [letter for word in target.replace(",", " ").split() for letter in ([word] if word.isnumeric() else word)]


def _asked(question: Any, intro: str, options: str) -> Any:
    """Return the question between the introduction and its choices; of messages, the last one of the user."""
    if isinstance(question, str):
        return f"{intro}\n\n{question}\n\n{options}"
    places = [place for place, message in enumerate(question) if message["role"] == "user"]
    if not places or not isinstance(question[places[-1]].get("content"), str):
        raise ValueError("A multiple-choice question needs a message of the user with text")
    last = question[places[-1]]
    changed = {**last, "content": f"{intro}\n\n{last['content']}\n\n{options}"}
    return [*question[: places[-1]], changed, *question[places[-1] + 1 :]]


def _texts(options: Any) -> list[str]:
    """Return the texts of choices: a list, or an object of texts by letter, or with `text` and `label`."""
    if isinstance(options, dict):
        return texts_of(options["text"]) if isinstance(options.get("text"), list) else texts_of(list(options.values()))
    items = options if isinstance(options, list) else []
    texts = [text_of(item.get("text") if isinstance(item, dict) else item) for item in items]
    letters = [match[1] for text in texts if (match := _LETTERED.match(text))]
    return [_LETTERED.sub("", text) for text in texts] if letters == list(ascii_uppercase[: len(texts)]) else texts


def _labels(options: Any) -> list[str]:
    if isinstance(options, dict):
        return texts_of(options["label"]) if isinstance(options.get("label"), list) else list(map(str, options))
    return [text_of(item.get("label")) for item in options if isinstance(item, dict)]


def _parts(data: dict[str, Any]) -> tuple[list[str], list[str], list[Any]]:
    """Return the texts and labels of the choices of a question, and its answers."""
    options, answer = first_of(data, *_CHOICES), first_of(data, *_ANSWERS)
    return _texts(options), _labels(options), answer if isinstance(answer, list) else [answer]


def _place(answer: Any, texts: list[str], labels: list[str], *, is_text: bool) -> int | None:
    """Return the place of an answer among the choices: of a text, or of a label, a number from 0 or a letter."""
    text, letters = text_of(answer).strip(), _characters(len(texts))
    if is_text:
        lettered = _LETTERED.match(text)
        if lettered and text[lettered.end() :] in texts[ord(lettered[1]) - ord("A") :][:1]:
            return ord(lettered[1]) - ord("A")
        return texts.index(text) if texts.count(text) == 1 else None
    if text in labels:
        return labels.index(text)
    if text.isdigit() and not labels:
        return next((place for place in range(len(texts)) if str(place) == text), None)
    return letters.index(text.upper()) if len(text) == 1 and text.upper() in letters else None


def _letter(answer: Any, texts: list[str], labels: list[str], is_text: bool | None) -> str:
    """Return the letter of an answer. Raises ValueError if it is not a choice, or two of them."""
    code, text = (_place(answer, texts, labels, is_text=kind) for kind in (False, True))
    place = text if code is None or (is_text and text is not None) else code
    if place is None:
        raise ValueError(f"The answer '{text_of(answer)[:80]}' is not one of the {len(texts)} choices")
    if is_text is None and None not in (code, text) and code != text and not isinstance(answer, int):
        raise ValueError(f"The answer '{text_of(answer)}' is the text of one choice and the place of another")
    return _characters(len(texts))[place]
