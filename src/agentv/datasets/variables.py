"""Variables in the texts of a dataset: `${{ NAME }}` from the environment, and `{{ name }}` from a case's `vars`.

Inserted values are not expanded again. Copies keep the positions of the YAML nodes they replace.
"""

import re
from collections.abc import Callable
from typing import Any

from agentv.errors import DatasetWarning, InvalidDatasetError, LossWarning
from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import KeyPath, Problems, did_you_mean, field_name
from agentv.model.environment import Environment
from agentv.model.values import to_json
from agentv.settings.environment import REFERENCE, plain_value, references
from agentv.settings.project import project_root
from agentv.support.yaml.yaml_parser import Map, Mark, Seq, locate
from agentv.trust.env_file import load_environment
from agentv.trust.roots import is_trusted, note_variables

MARK = b"${{"
"""How a reference to a variable of the environment begins."""

Replace = Callable[[str, KeyPath], Any]

_NAME = lazy_regex(r"\{\{\s*(?P<name>[A-Za-z_][A-Za-z0-9_.]*)\s*\}\}")
_TEMPLATE_KEYS = ("criteria", "expected_outcome", "input", "input_files", "expected_output")
_OF_VARIABLES = ("input", "expected_output")
_DATA_KEYS = frozenset(("vars", "metadata", "value", *_OF_VARIABLES))
_MISSING = object()
_NOT_SET, _EMPTY = "is not set", "is empty"
_READ_AS_EMPTY = ": it is read as an empty text, as AgentV (TypeScript) does"


def replace_texts(value: Any, replace: Replace, path: KeyPath = ()) -> Any:
    """Return a structure with every text replaced; the value itself if nothing changes."""
    if isinstance(value, str):
        return replace(value, path)
    if isinstance(value, dict):
        items = {key: replace_texts(item, replace, (*path, key)) for key, item in value.items()}
        return value if all(items[key] is value[key] for key in items) else copied(value, items)
    if isinstance(value, list):
        entries = [replace_texts(item, replace, (*path, index)) for index, item in enumerate(value)]
        return value if all(new is old for new, old in zip(entries, value, strict=True)) else copied(value, entries)
    return value


def insert_environment(
    data: Any, path: str, folder: str, line: int = 1, losses: list[DatasetWarning] | None = None
) -> Any:
    """Insert variables of the environment into the data of a file. Raises InvalidDatasetError with the position.

    A file that is not trusted gets none: its texts stay as they are. `losses` receives a warning about each variable
    that is unset or empty, and is inserted as an empty text. Without `losses`, that is an error.
    """
    note_variables(path, (ref.variable for ref in references(data)))
    if not is_trusted(path):
        return data
    problems = Problems()
    new = with_environment(data, load_environment(folder or ".", project_root(folder or ".")), (), problems)
    for problem in problems:
        mark = locate(data, problem.path) or Mark(line, 0)
        place: Any = {"path": path, "line": mark.line, "column": mark.column or None, "field": problem.field}
        if losses is None or problem.severity == "error":
            headline = f"Invalid dataset at line {mark.line} in {path}"
            raise InvalidDatasetError(headline, problem.message, problem.hint, **place)
        losses.append(LossWarning(problem.message + _READ_AS_EMPTY, problem.hint, **place))
    return new


def with_environment(value: Any, environment: Environment, path: KeyPath, problems: Problems) -> Any:
    """Insert variables of the environment. One that is secret is an error, and one that is unset or empty a warning.

    A text that is nothing but a reference becomes a number or boolean if the variable's value is one.
    """
    variables = environment.variables

    def replace(text: str, place: KeyPath) -> Any:
        if "${{" not in text:
            return text
        if (whole := REFERENCE.fullmatch(text.strip())) is not None:
            return plain_value(value_of(whole, place))
        return REFERENCE.sub(lambda match: value_of(match, place), text)

    def value_of(match: re.Match[str], place: KeyPath) -> str:
        name = match["variable"]
        problem, hint = _why_unusable(name, environment, variables)
        if problem in (_NOT_SET, _EMPTY) and place[-1:] in (("description",), ("use_target",)):
            return match[0]  # a comment, or a target, which is an error only if a run uses it
        if problem and _is_of_target(place):
            return match[0]  # the target inserts it when it is opened
        if problem:
            add = problems.warning if problem in (_NOT_SET, _EMPTY) else problems.error
            add(place, f"Field '{field_name(place)}' uses ${{{{ {name} }}}}, which {problem}", hint)
            return ""
        return variables[name]

    return replace_texts(value, replace, path)


def _is_of_target(place: KeyPath) -> bool:
    """Whether a place is in the settings of a `provider`, and not in data of a case with that name."""
    return "provider" in place[:-1] and _DATA_KEYS.isdisjoint(place[: place.index("provider")])


def _why_unusable(name: str, environment: Environment, variables: dict[str, str]) -> tuple[str, str]:
    value = variables.get(name)
    if environment.is_secret(name) or (value and value in environment.secrets):
        return "is a secret", "Cases are stored with every run. Use secrets only in the targets file"
    if value:
        return "", ""
    hint = f"Set {name} in the environment or in .env"
    return (_EMPTY, hint) if value == "" else (_NOT_SET, did_you_mean(name, variables) or hint)


def with_vars(row: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """Insert the `vars` of a case into its texts. A name that `vars` lacks is left as it is, with a warning.

    `input` and `expected_output` are those of the variables if the case itself has no input, as in AgentV 5.
    """
    variables = row["vars"]
    if not isinstance(variables, dict):
        problems.wrong_type(("vars",), "an object", variables)
        return row
    if row.get("input") is None and variables.get("input") is not None:
        own = {key: value for key, value in row.items() if value is not None}
        row = copied(row, {**{key: variables[key] for key in _OF_VARIABLES if key in variables}, **own})
    insert = inserter(variables, problems)
    new = {key: replace_texts(row[key], insert, (key,)) for key in _TEMPLATE_KEYS if row.get(key) is not None}
    turns = row.get("turns")
    if isinstance(turns, list):
        new["turns"] = copied(turns, [_turn_with_vars(turn, insert, index) for index, turn in enumerate(turns)])
    return copied(row, {**row, **new})  # type: ignore[no-any-return]


def inserter(variables: dict[str, Any], problems: Problems) -> Replace:
    """Return a function that inserts variables into a text; a text that is one name becomes the value itself."""

    def insert(text: str, path: KeyPath) -> Any:
        if "{{" not in text:
            return text
        whole = _NAME.fullmatch(text)
        value = _MISSING if whole is None else _value(variables, whole["name"])
        return value if value is not _MISSING else _NAME.sub(lambda match: inserted(match, path), text)

    def inserted(match: re.Match[str], path: KeyPath) -> str:
        if (value := _value(variables, match["name"])) is _MISSING:
            message = f"'{match[0]}' is not in 'vars' and is left as it is"
            problems.warning(path, message, did_you_mean(match["name"], variables))
            return match[0]
        return value if isinstance(value, str) else to_json(value).decode()

    return insert


def _turn_with_vars(turn: Any, insert: Replace, index: int) -> Any:
    if not isinstance(turn, dict):
        return turn
    keys = [key for key in ("input", "expected_output") if key in turn]
    return copied(turn, {**turn, **{key: replace_texts(turn[key], insert, ("turns", index, key)) for key in keys}})


def _value(variables: dict[str, Any], name: str) -> Any:
    value: Any = variables
    for step in name.split("."):
        if not isinstance(value, dict) or step not in value:
            return _MISSING
        value = value[step]
    return value


def copied(node: Any, values: Any) -> Any:
    """Return values as a node of the same type, at the same position."""
    if isinstance(node, Map):
        return node.with_values(values)
    if isinstance(node, Seq):
        values = Seq(values)
        values.start, values.marks = node.start, node.marks
    return values
