"""Map the fields of any record to a case: `input=question,expected_output=answers[0],contains_all=must_contain`."""

import re
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii
from typing import Any

import msgspec

from agentv.datasets.case.shorthand import ItemIds
from agentv.datasets.foreign.foreign_format import PlainMapper
from agentv.datasets.foreign.values import (
    call_of,
    expected_calls,
    filled,
    first_of,
    is_blank,
    messages_of,
    parsed,
    text_of,
    texts_of,
    with_outcome,
)
from agentv.datasets.formats.dataset_format import PlainRow
from agentv.errors import UsageError
from agentv.model.diagnostics import did_you_mean

_TEXTS = ("id", "input", "expected_output", "expected_outcome", "conversation_id", "cluster", "description")
LISTS = ("tags", "context", "rubrics")
CHECKS = {
    **dict.fromkeys(("contains", "icontains", "equals", "regex", "starts_with", "ends_with"), False),
    **dict.fromkeys(("contains_all", "contains_any", "icontains_all", "icontains_any", "tools"), True),
}
"""Evaluators that a field can hold the value of, and tools that are called; and whether the value is a list."""

_PLAIN = ("id", "input", "expected_output", "expected_outcome")
_NOT_PLAIN = ("", "{", "[")
"""First characters of an input that is blank or JSON."""

METADATA = "metadata."
NOT = "not_"
KEYS = (*_TEXTS, *LISTS, *CHECKS, *(f"{NOT}{name}" for name in CHECKS), f"{METADATA}NAME")
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
        has_answer = "expected_output" in row or "expected_outcome" in row
        if row.get("assertions") and has_answer and "rubrics" not in row:  # which would replace the judge
            row["assertions"] = [{"type": "llm_judge"}, *row["assertions"]]
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
        if key == f"{METADATA}*":
            row["metadata"] |= self._left(value)
        elif key.startswith(METADATA):
            row["metadata"][key.removeprefix(METADATA)] = value
        elif key == "input":
            row["input"] = input_of(value)
        elif key == "expected_output":
            row[key] = value
        elif key in _TEXTS:
            row[key] = text_of(value)
        elif key == "rubrics":
            items = parsed(value)
            row[key] = [_rubric(item) for item in items] if isinstance(items, list) else listed(value)
        elif key in LISTS:
            row[key] = listed(value)
        else:
            name = key.removeprefix(NOT)
            if name == "tools":
                row["assertions"] += _tool_checks(tool_calls(value), is_forbidden=key != name)
                return
            entries = _checks(name, value) if CHECKS[name] else [{"type": name, "value": value}]
            row["assertions"] += [{**entry, "negate": True} if key.startswith(NOT) else entry for entry in entries]

    def _left(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return what no path names; of an object with a path to a part of it, the other parts."""
        paths = [own for path in self.paths.values() for own in ([path] if path in data else path.split("+"))]
        parts = [re.split(r"[.\[]", path, maxsplit=1) for path in paths if path not in data]
        whole = {*paths, *(part[0] for part in parts if not isinstance(data.get(part[0]), dict))}
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
    others = [name for name in names if name not in used] if f"{METADATA}*" in paths else []
    columns = {key: path for key, path in paths.items() if path != "*"}
    simple = all(key in _PLAIN or key.startswith(METADATA) for key in columns) and set(columns.values()) <= set(names)
    if not simple or len(set(names)) < len(names) or "" in names or "input" not in columns:
        return None
    extra = [(key.removeprefix(METADATA), names.index(path)) for key, path in columns.items() if key not in _PLAIN]
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
        if key not in KEYS and not key.startswith(METADATA):
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
        missing = [name for part in value.split("+") if (name := re.split(r"[.\[]", part)[0]) not in names]
        first = next(iter(missing), "")
        if names and value != "*" and missing and value not in names:
            hint = did_you_mean(first, names) or f"Its fields: {', '.join(names)}"
            raise UsageError(f"--map: {path} has no field '{first}', mapped to '{key}'", hint=hint)


def value_at(data: Any, path: str) -> Any:
    """Return the value at a path such as `a.b[0]`; None if there is none. A field named like the path wins.

    `a+b` is the texts at several paths, as paragraphs.
    """
    if isinstance(data, dict) and path in data:
        return data[path]
    if "+" in path:
        values = [value for part in path.split("+") if not is_blank(value := value_at(data, part))]
        return "\n\n".join(map(text_of, values)) or None
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


def _rubric(item: Any) -> Any:
    """Return a criterion: a text, or the text and points of an object. Raises ValueError if there is none."""
    if not isinstance(item, dict):
        return text_of(item)
    text = first_of(item, "criterion", "criteria", "expected_outcome", "text", "description", "requirement", "rubric")
    weight = first_of(item, "points", "weight", "max_points")
    if not isinstance(text, str):
        raise ValueError("A rubric is an object without a text such as 'criterion'")
    if not isinstance(weight, int | float):
        return text
    if weight < 0:
        raise ValueError(f"The rubric '{text[:60]}' takes points away, which has no counterpart here")
    return {"expected_outcome": text, "weight": weight}


def tool_calls(value: Any) -> list[dict[str, Any]]:
    """Return the calls in a field: names of tools, or objects with a name and arguments. Raises ValueError."""
    items = parsed(value)
    items = items if isinstance(items, list) else [items] if isinstance(items, dict) else listed(items)
    calls = [call_of(item if isinstance(item, dict) else {"name": text_of(item)}) for item in items]
    if any(not isinstance(call["input"], dict) for call in calls):
        raise ValueError("The arguments of a tool must be an object")
    return calls


def _tool_checks(calls: list[dict[str, Any]], *, is_forbidden: bool) -> list[dict[str, Any]]:
    """Return the evaluators for tools that are called in any order, or that are not."""
    if not is_forbidden:
        return [expected_calls(calls)] if calls else []
    if any(call["input"] for call in calls):
        raise ValueError("'not_tools' needs names of tools, and the record has arguments")
    forbidden = {"type": "tool_trajectory", "mode": "any_order", "negate": True}
    return [{**forbidden, "minimums": {call["tool"]: 1}} for call in calls]


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


def input_of(value: Any) -> Any:
    """Return an input: messages, a text, or an object of variables."""
    value = parsed(value)
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return messages_of(value, lambda _: None)
    return value if isinstance(value, str | dict) else text_of(value)
