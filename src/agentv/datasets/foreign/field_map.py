"""Map the fields of any record to a case: `input=question,expected_output=answers[0],contains_all=must_contain`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from json.encoder import encode_basestring_ascii
from typing import Any

import msgspec

from agentv.datasets.case.shorthand import ItemIds
from agentv.datasets.foreign.foreign_format import PlainMapper
from agentv.datasets.foreign.values import filled, is_blank, messages_of, parsed, text_of, texts_of, with_outcome
from agentv.datasets.formats.dataset_format import PlainRow
from agentv.errors import UsageError
from agentv.model.diagnostics import did_you_mean

_TEXTS = ("id", "input", "expected_output", "expected_outcome", "conversation_id", "description")
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
        left: dict[str, Any] = {}
        for name, value in data.items():
            used = {part[1] for part in parts if part[0] == name and len(part) > 1}
            rest = {key: each for key, each in value.items() if key not in used} if isinstance(value, dict) else value
            if name not in whole and not is_blank(rest):
                left[name] = rest
        return left


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
        found = _PAIR.match(text, place)
        if found is None:
            raise UsageError(f"--map: cannot read '{text[place:]}'", hint=f"For example: {EXAMPLE}")
        paths[found[1]] = found[2]
        place = found.end()
    return checked_map(paths, needs_input=needs_input)


def checked_map(paths: dict[str, str], *, needs_input: bool = True) -> FieldMap:
    """Return the map after checking its keys. Raises UsageError."""
    known = {"criteria": "expected_outcome", "outcome": "expected_outcome"}
    paths = {known.get(key, key.replace("-", "_")): path for key, path in paths.items()}
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
    for found in _STEP.finditer(path):
        data = parsed(data)
        if found[2] is not None:
            index = int(found[2])
            data = data[index] if isinstance(data, list) and -len(data) <= index < len(data) else None
        else:
            data = data.get(found[1]) if isinstance(data, dict) else None
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
        *(
            "input",
            "question",
            "query",
            "prompt",
            "user_input",
            "instruction",
            "user_message",
            "usermessage",
            "message",
        ),
        *(
            "text",
            "user_prompt",
            "user_query",
            "body",
            "scenario",
            "payload",
            "ticket",
            "email",
            "request",
            "problem",
            "problem_statement",
            "inputs",
            "utterance",
            "task",
        ),
    ),
    "expected_output": (
        *("expected_output", "expected", "answer", "answers", "reference", "reference_answer", "ideal", "ground_truth"),
        *("target", "output", "outputs", "expected_answer", "gold", "gold_answer", "solution", "label", "completion"),
        *("expected_response", "expected_result", "reference_output", "golden_answer", "correct_answer"),
        *("ground_truth_answer",),
    ),
    "expected_outcome": (
        "expected_outcome",
        "criteria",
        "outcome",
        "expected_behavior",
        "success_criteria",
        "rubric",
        "check",
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
    ),
    "rubrics": ("rubrics", "expected_facts", "facts", "key_points", "expectations", "checklist"),
    "context": ("context", "contexts", "passages", "documents", "retrieved_contexts"),
    "tags": ("tags", "tag", "labels", "category", "categories"),
}


class Guess(msgspec.Struct, frozen=True):
    """A proposed mapping of one key, with the reason and a confidence from 0 to 1."""

    key: str
    path: str
    confidence: float
    reason: str


def guess_map(records: Collection[dict[str, Any]]) -> list[Guess]:
    """Propose a mapping from the names and values of some records; empty without an input."""
    names = dict.fromkeys(str(name) for record in records for name in record)
    nested = [
        f"{name}.{key}"
        for record in records
        for name, value in record.items()
        if isinstance(value, dict)
        for key in value
    ]
    guesses: list[Guess] = []
    taken: set[str] = set()
    for key, synonyms in _SYNONYMS.items():
        found = _by_name(key, synonyms, names, records, taken)
        if found is None and key not in ("id", "tags", "context"):
            found = _by_name(key, synonyms, dict.fromkeys(nested), records, taken)
        if found is not None:
            guesses.append(found)
            taken.add(found.path.split("[")[0])
    if not any(guess.key == "input" for guess in guesses):
        longest = _longest_text(records, taken)
        if longest is None:
            return []
        taken.add(longest)
        guesses.insert(0, Guess("input", longest, 0.4, "the field with the longest texts"))
    if any(name not in taken for name in names):
        guesses.append(Guess(f"{_METADATA}*", "*", 1.0, "all other fields"))
    return guesses


def map_text(guesses: Iterable[Guess]) -> str:
    """Return the guesses as the value of `--map`."""
    return ",".join(f"{guess.key}={guess.path}" for guess in guesses)


def _by_name(
    key: str, synonyms: tuple[str, ...], names: Iterable[str], records: Collection[dict[str, Any]], taken: set[str]
) -> Guess | None:
    free = [name for name in names if name not in taken]
    plain = {re.sub(r"[\s-]+", "_", name.rpartition(".")[2].strip()).lower(): name for name in reversed(free)}
    for position, synonym in enumerate(synonyms):
        if synonym not in plain:
            continue
        name = plain[synonym]
        values = [value for record in records if not is_blank(value := value_at(record, name))]
        if not values or not _suits(key, values):
            continue
        is_list = key == "expected_output" and all(isinstance(parsed(value), list) for value in values)
        confidence = (0.98 if position == 0 else 0.9 if position < 6 else 0.7) * len(values) / len(records)
        confidence = max(confidence, 0.5) if key not in ("id", "input") else confidence
        return Guess(key, f"{name}[0]" if is_list else name, round(confidence, 2), f"the name '{name}'")
    return None


def _suits(key: str, values: list[Any]) -> bool:
    """Whether the values can be those of a key: ids are unique, tags are short."""
    texts = [text_of(value) for value in values]
    if key == "id":
        return len(set(texts)) == len(texts) and max(map(len, texts)) <= 200
    if key == "tags":
        return max(map(len, texts)) <= 100
    return True


def _longest_text(records: Collection[dict[str, Any]], taken: set[str]) -> str | None:
    lengths: dict[str, int] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, str) and name not in taken:
                lengths[name] = lengths.get(name, 0) + len(value)
    return max(lengths, key=lambda name: lengths[name]) if lengths else None
