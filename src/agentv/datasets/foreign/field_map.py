"""Map the fields of any record to a case: `input=question,expected_output=answers[0],contains_all=must_contain`."""

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from json.encoder import encode_basestring_ascii
from typing import Any

import msgspec

from agentv.datasets.case.shorthand import ItemIds
from agentv.datasets.foreign.foreign_format import PlainMapper
from agentv.datasets.foreign.values import filled, is_blank, messages_of, parsed, text_of, texts_of, with_outcome
from agentv.datasets.formats.dataset_format import PlainRow
from agentv.errors import UsageError
from agentv.model.diagnostics import did_you_mean

_TEXTS = ("id", "input", "expected_output", "expected_outcome", "conversation_id", "cluster", "description")
_LISTS = ("tags", "context", "rubrics")
_CHECKS = {
    **dict.fromkeys(("contains", "icontains", "equals", "regex", "starts_with", "ends_with"), False),
    **dict.fromkeys(("contains_all", "contains_any", "icontains_all", "icontains_any"), True),
}
"""Evaluators that a field can hold the value of, and whether the value is a list."""

_PLAIN = ("id", "input", "expected_output", "expected_outcome")
_NOT_PLAIN = ("", "{", "[")
"""First characters of an input that is blank or JSON."""

_METADATA = "metadata."
_NOT = "not_"
KEYS = (*_TEXTS, *_LISTS, *_CHECKS, *(f"{_NOT}{name}" for name in _CHECKS), f"{_METADATA}NAME")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]")
_PAIR = re.compile(r"\s*([\w.*-]+)\s*=\s*([^,]+?)\s*(?:,|$)")
UNSURE = 0.5
"""A guess below this confidence is not proposed."""

EXAMPLE = "--map 'id=qid,input=question,expected_output=answers[0]'"


class FieldMap(msgspec.Struct, frozen=True):
    """The path of the value of each key of a case."""

    paths: dict[str, str]

    def row(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the row for a record. Raises ValueError if it has no input."""
        row = self.values(data)
        if "input" not in row:
            raise ValueError(f"The record has no '{self.paths['input']}', which is mapped to the input")
        return with_outcome(row)

    def values(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the keys of the row that the record has values for."""
        row: dict[str, Any] = {"metadata": {}, "assertions": []}
        for key, path in self.paths.items():
            value = data if path == "*" else value_at(data, path)
            if not is_blank(value):
                self._add(row, key, value)
        return filled(row)

    def _add(self, row: dict[str, Any], key: str, value: Any) -> None:
        if key == f"{_METADATA}*":
            row["metadata"] |= self._left(value)
        elif key.startswith(_METADATA):
            row["metadata"][key.removeprefix(_METADATA)] = value
        elif key == "input":
            row["input"] = _input(value)
        elif key == "expected_output":
            row[key] = value
        elif key in _TEXTS:
            row[key] = text_of(value)
        elif key in _LISTS:
            row[key] = listed(value)
        else:
            name = key.removeprefix(_NOT)
            entries = _checks(name, value) if _CHECKS[name] else [{"type": name, "value": value}]
            row["assertions"] += [{**entry, "negate": True} if key.startswith(_NOT) else entry for entry in entries]

    def _left(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return what no path names; of an object with a path to a part of it, the other parts."""
        parts = [re.split(r"[.\[]", path, maxsplit=1) for path in self.paths.values() if path not in data]
        whole = {*self.paths.values(), *(part[0] for part in parts if not isinstance(data.get(part[0]), dict))}
        leftovers: dict[str, Any] = {}
        for name, value in data.items():
            used = {part[1] for part in parts if part[0] == name and len(part) > 1}
            rest = {key: item for key, item in value.items() if key not in used} if isinstance(value, dict) else value
            if name not in whole and not is_blank(rest):
                leftovers[name] = rest
        return leftovers


def plain_mapper(fields: FieldMap, names: list[str], ids: ItemIds) -> PlainMapper | None:
    """Return a function that does what `FieldMap.row` does, for a table with a few columns of text."""
    paths = fields.paths
    used = {re.split(r"[.\[]", path)[0] for path in paths.values()}
    others = [name for name in names if name not in used] if f"{_METADATA}*" in paths else []
    columns = {key: path for key, path in paths.items() if path != "*"}
    simple = all(key in _PLAIN or key.startswith(_METADATA) for key in columns) and set(columns.values()) <= set(names)
    if not simple or len(set(names)) < len(names) or "" in names or "input" not in columns:
        return None
    extra = [(key.removeprefix(_METADATA), names.index(path)) for key, path in columns.items() if key not in _PLAIN]
    return _plain_columns(columns, names, [*extra, *((name, names.index(name)) for name in others)], ids.id_for_json)


def _plain_columns(
    columns: dict[str, str], names: list[str], extra: list[tuple[str, int]], id_for: Callable[[str], str]
) -> PlainMapper:
    width, missing = len(names), len(names)
    places = [names.index(columns[key]) if key in columns else missing for key in _PLAIN]
    id_at, input_at, reference_at, outcome_at = places

    def plain(cells: list[str]) -> PlainRow | None:
        if len(cells) != width:
            return None
        cells.append("")  # where columns that are missing are found
        id, question, reference, outcome = cells[id_at], cells[input_at], cells[reference_at], cells[outcome_at]
        has_reference = bool(reference) and not reference.isspace()
        has_outcome = bool(outcome) and not outcome.isspace()
        if not (has_reference or has_outcome) or question.lstrip()[:1] in _NOT_PLAIN:
            del cells[width]
            return None
        if not id or id.isspace():
            text = f'"input":{encode_basestring_ascii(question)}}}'
            id = id_for(
                f'{{"expected_outcome":{encode_basestring_ascii(outcome)},{text}' if has_outcome else "{" + text
            )
        metadata = {name: cells[at] for name, at in extra if cells[at] and not cells[at].isspace()}
        reference_text = reference if has_reference else None
        return PlainRow(id, outcome if has_outcome else "", question, reference_text, None, metadata or None)

    return plain


def parse_map(text: str, *, needs_input: bool = True) -> FieldMap:
    """Parse `key=path,key=path`. Raises UsageError."""
    paths: dict[str, str] = {}
    place = 0
    while place < len(text):
        if (match := _PAIR.match(text, place)) is None:
            raise UsageError(f"--map: cannot read '{text[place:]}'", hint=f"For example: {EXAMPLE}")
        paths[match[1]] = match[2]
        place = match.end()
    return checked_map(paths, needs_input=needs_input)


def checked_map(paths: dict[str, str], *, needs_input: bool = True) -> FieldMap:
    """Return the map after checking its keys. Raises UsageError."""
    aliases = {"criteria": "expected_outcome", "outcome": "expected_outcome"}
    paths = {aliases.get(key, key.replace("-", "_")): path for key, path in paths.items()}
    for key in paths:
        if key not in KEYS and not key.startswith(_METADATA):
            hint = did_you_mean(key, KEYS) or f"Keys: {', '.join(KEYS)}"
            raise UsageError(f"--map: unknown key '{key}'", hint=hint)
    if needs_input and "input" not in paths:
        raise UsageError("--map: no field is mapped to 'input'", hint=f"For example: {EXAMPLE}")
    return FieldMap(paths)


def check_fields(fields: FieldMap, records: Iterable[dict[str, Any]], path: str) -> None:
    """Raise UsageError if none of the records has a field that the map names."""
    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(map(str, record)))
    for key, value in fields.paths.items():
        first = re.split(r"[.\[]", value)[0]
        if names and value != "*" and first not in names and value not in names:
            hint = did_you_mean(first, names) or f"Its fields: {', '.join(names)}"
            raise UsageError(f"--map: {path} has no field '{first}', mapped to '{key}'", hint=hint)


def value_at(data: Any, path: str) -> Any:
    """Return the value at a path such as `a.b[0]`; None if there is none. A field named like the path wins."""
    if isinstance(data, dict) and path in data:
        return data[path]
    for step in _STEP.finditer(path):
        data = parsed(data)
        if step[2] is not None:
            index = int(step[2])
            data = data[index] if isinstance(data, list) and -len(data) <= index < len(data) else None
        else:
            data = data.get(step[1]) if isinstance(data, dict) else None
        if data is None:
            return None
    return data


def listed(value: Any) -> list[str]:
    """Return a list of texts; a cell may have several, separated by `|` or `;`, or as JSON."""
    value = parsed(value)
    if isinstance(value, str) and ("|" in value or ";" in value):
        return [part.strip() for part in re.split(r"[|;]", value) if part.strip()]
    return texts_of(value)


def _checks(name: str, value: Any) -> list[dict[str, Any]]:
    """Return the evaluators for a list of texts. In a list of lists, one text of each inner list is enough."""
    value = parsed(value)
    groups = [item for item in value if isinstance(item, list)] if isinstance(value, list) else []
    if not groups:
        return [{"type": name, "value": listed(value)}]
    if not name.endswith("_all"):
        raise ValueError(f"'{name}' needs a list of texts, and the record has a list of lists")
    texts = [item for item in value if not isinstance(item, list)]
    plain = [{"type": name, "value": listed(texts)}] if texts else []
    return plain + [
        {"type": name.replace("_all", "_any"), "name": f"{name}_{number}", "value": listed(group)}
        for number, group in enumerate(groups, 1)
    ]


def _input(value: Any) -> Any:
    value = parsed(value)
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return messages_of(value, lambda _: None)
    return value if isinstance(value, str | dict) else text_of(value)


_SYNONYMS: dict[str, tuple[str, ...]] = {
    "id": ("id", "qid", "case_id", "test_id", "eval_id", "example_id", "question_id", "name", "key", "uuid"),
    "input": (
        *("input", "question", "query", "prompt", "user_input", "instruction", "user_message", "usermessage"),
        *("message",),
        *("text", "user_prompt", "user_query", "body", "scenario", "payload", "ticket", "email", "request", "problem"),
        *("problem_statement", "inputs", "utterance", "task", "input_text", "sentence", "article", "dialogue"),
        *("conversation", "messages", "review", "goal", "user", "q"),
    ),
    "expected_output": (
        *("expected_output", "expected", "answer", "answers", "reference", "reference_answer", "ideal", "ground_truth"),
        *("target", "output", "outputs", "expected_answer", "gold", "gold_answer", "solution", "label", "completion"),
        *("expected_response", "expected_result", "reference_output", "golden_answer", "correct_answer"),
        *("ground_truth_answer", "targets", "output_text", "gold_label", "class", "sentiment", "intent", "summary"),
        *("ideal_answer", "ideal_response", "golden_output", "reference_response", "expected_text", "highlights"),
        *("translation", "sql", "assistant", "response"),
    ),
    "expected_outcome": (
        *("expected_outcome", "criteria", "outcome", "expected_behavior", "success_criteria", "rubric", "check"),
    ),
    "contains_all": (
        *("must_contain", "expected_contains", "should_contain", "required_keywords", "keywords", "must_include"),
        *("expected_phrases", "expected_keywords", "contains", "includes", "must_mention", "answer_contains"),
        *("output_contains", "response_contains", "expected_substrings", "required_facts", "must_include_facts"),
        *("must_include_all", "must_contain_all", "contains_all"),
    ),
    "contains_any": ("must_include_any", "must_contain_any", "must_mention_any", "expected_any", "contains_any"),
    "not_contains_any": (
        *("must_not_contain", "should_not_contain", "forbidden", "forbids", "must_avoid", "mustavoid", "excludes"),
        *("forbidden_phrases", "not_contains", "must_not_include", "must_not_mention", "must_not_say"),
        *("answer_not_contains", "output_not_contains", "forbidden_facts", "forbidden_keywords", "should_not_include"),
        *("expected_not_contains", "must_not_contain_any", "expected_absent"),
    ),
    "rubrics": (
        *("rubrics", "expected_facts", "facts", "key_points", "expectations", "checklist", "pass_criteria"),
        *("criteria", "success_criteria", "acceptance_criteria"),
    ),
    "context": ("context", "contexts", "passages", "documents", "retrieved_contexts"),
    "tags": ("tags", "tag", "labels", "category", "categories"),
}


_WORDS = {
    "input": {
        *("input", "question", "query", "prompt", "instruction", "message", "text", "ticket", "utterance"),
        "request",
    },
    "expected_output": {"answer", "expected", "reference", "ideal", "gold", "truth", "solution"},
}
"""Words in the name of a field, for fields without a name from the list."""

_RECORDED = frozenset({"score", "scores", "rating", "grade", "reward", "passed", "model", "model_name"})
"""Names of fields next to a response that a model wrote."""

_RATED = ("completion", "label")
"""A completion, and whether it is a good one."""

_OPTIONS = frozenset({"choices", "options", "endings", "option_a", "choice_a", "option1", "choice1", "history"})
"""Names of fields with the choices of a question, or with what came before it: without them, it is not the input."""

_NO_ANSWERS = re.compile(
    r"system|tools?|calls?|files?|skills?|sources?|docs?|type|status|not|no|contains?|min|max|count"
)
"""Words in the names of fields that are expected, but are not an answer."""

CHECK_KEYS = frozenset(
    ("expected_output", "expected_outcome", "rubrics", *_CHECKS, *(f"{_NOT}{key}" for key in _CHECKS))
)
"""Keys that decide how an answer is checked."""


class Guess(msgspec.Struct, frozen=True):
    """A proposed mapping of one key, with the reason and a confidence from 0 to 1."""

    key: str
    path: str
    confidence: float
    reason: str


def guess_map(records: Collection[dict[str, Any]]) -> list[Guess]:
    """Propose a mapping from the names and values of some records. A key without a clear field is left out."""
    names = dict.fromkeys(str(name) for record in records for name in record)
    nested = [
        f"{name}.{key}"
        for record in records
        for name, value in record.items()
        if isinstance(value, dict)
        for key in value
    ]
    guesses: list[Guess] = []
    used_names: set[str] = set()
    for key, synonyms in _SYNONYMS.items():
        candidate = _by_name(key, synonyms, names, records, used_names)
        if candidate is None and key not in ("id", "tags", "context"):
            candidate = _by_name(key, synonyms, dict.fromkeys(nested), records, used_names)
        if candidate is not None:
            guesses.append(candidate)
            used_names.add(candidate.path.split("[")[0])
    for key in _WORDS:
        if all(guess.key != key for guess in guesses) and (name := _by_word(key, names, used_names)) is not None:
            guesses.append(Guess(key, name, 0.6, f"a word in the name '{name}'"))
            used_names.add(name)
    if not any(guess.key in CHECK_KEYS for guess in guesses):
        # A label is the answer of a classifier, unless something else is checked.
        guesses = [
            Guess("expected_output", guess.path, 0.6, f"the name '{guess.path}', and no other answer")
            if guess.key == "tags" and guess.path.lower() == "labels"
            else guess
            for guess in guesses
        ]
    parts = tuple(guess.path for guess in guesses if "." in guess.path)  # an object of checks is not an answer
    guesses = [guess for guess in guesses if not any(path.startswith(f"{guess.path}.") for path in parts)]
    if not _OPTIONS.isdisjoint(re.sub(r"^(?:chat|conversation)_", "", name.lower()) for name in names):
        guesses = [guess for guess in guesses if guess.key != "input"]
    if guesses and any(name not in used_names for name in names):
        guesses.append(Guess(f"{_METADATA}*", "*", 1.0, "all other fields"))
    return guesses


def map_text(guesses: Iterable[Guess]) -> str:
    """Return the guesses as the value of `--map`."""
    return ",".join(f"{guess.key}={guess.path}" for guess in guesses)


def missing_keys(guesses: Collection[Guess]) -> list[str]:
    """Return the keys for which no field was recognized: the input, and the answer that is expected."""
    is_known = any(guess.key == "input" and guess.confidence >= UNSURE for guess in guesses)
    missing = [] if is_known else ["input"]
    return [*missing, *(() if any(guess.key in CHECK_KEYS for guess in guesses) else ("expected_output",))]


def _by_word(key: str, names: Iterable[str], taken: set[str]) -> str | None:
    """Return the only free field with a word of a key in its name."""
    words = {name: set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower())) for name in names}
    words = {name: own for name, own in words.items() if not any(map(_NO_ANSWERS.fullmatch, own))}
    matches = [name for name, own in words.items() if name not in taken and own & _WORDS[key]]
    return matches[0] if len(matches) == 1 else None


def _by_name(
    key: str, synonyms: tuple[str, ...], names: Iterable[str], records: Collection[dict[str, Any]], used_names: set[str]
) -> Guess | None:
    free = [name for name in names if name not in used_names]
    own_names = {name: name.rpartition(".")[2].strip() for name in reversed(free)}
    plain = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", own).lower(): name for name, own in own_names.items()}
    plain |= {re.sub(r"[\s-]+", "_", own).lower(): name for name, own in own_names.items()}
    for position, synonym in enumerate(synonyms):
        if synonym not in plain:
            continue
        name = plain[synonym]
        values = [value for record in records if not is_blank(value := value_at(record, name))]
        is_recorded = synonym == "response" and not _RECORDED.isdisjoint(own.lower() for own in names)
        is_recorded |= synonym in _RATED and {*_RATED} <= plain.keys()
        if not values or is_recorded or not _suits(key, values):
            continue
        for part, kind in (("text", list), ("value", str)) if key == "expected_output" else ():  # as SQuAD and TriviaQA
            if all(isinstance(value_at(value, part), kind) for value in map(parsed, values)):
                name, values = f"{name}.{part}", [value_at(record, f"{name}.{part}") for record in records]
        is_list = key == "expected_output" and all(isinstance(parsed(value), list) for value in values)
        confidence = (0.98 if position == 0 else 0.9 if position < 6 else 0.7) * len(values) / len(records)
        confidence = max(confidence, 0.5) if key not in ("id", "input") else confidence
        return Guess(key, f"{name}[0]" if is_list else name, round(confidence, 2), f"the name '{name}'")
    return None


def _suits(key: str, values: list[Any]) -> bool:
    """Whether the values can be those of a key: ids are unique, tags short, and an outcome is a sentence."""
    texts = [text_of(value) for value in values]
    if key == "id":
        return len(set(texts)) == len(texts) and max(map(len, texts)) <= 200
    if key in _LISTS and any(isinstance(parsed(value), dict) for value in values):
        return False
    if key == "input":
        with suppress(ValueError):
            return all(isinstance(_input(value), str | list) for value in values)
        return False  # objects, or a list of them that are not messages
    if key == "expected_outcome":  # a sentence; one word is the name of a check or of a class
        return any(" " in text for text in texts) and not any(isinstance(parsed(value), list) for value in values)
    return key != "tags" or max(map(len, texts)) <= 100
