"""Validate a parsed targets file against the providers' settings, without the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.registry import TARGETS
from agentv.settings.diagnostics import KeyPath, Problem, Problems, did_you_mean, field_name, type_word
from agentv.settings.environment import REFERENCE, is_secret_field
from agentv.settings.settings_reader import declares, read_settings
from agentv.targets.target import Target

_OTHER_VARIABLE = re.compile(r"\$[A-Z_][A-Z0-9_]*|\$\{\s*\w+\s*\}|\{\{\s*(?:env\.\w+|[A-Z_][A-Z0-9_]*)\s*\}\}")
"""Variables in the syntax of shells and other tools, which would be sent as the key itself."""


class TargetsFile(msgspec.Struct, frozen=True, kw_only=True, rename={"schema": "$schema"}):
    """A targets file. Its entries are checked against their providers' settings."""

    schema: str | None = None
    version: str | int | float | None = None
    description: str | None = None
    targets: list[Any]


def check_targets(data: Any) -> Problems:
    """Return all problems in a parsed targets file; their paths start with ("targets", index, key)."""
    problems = Problems()
    if not isinstance(data, dict):
        problems.error((), f"A targets file must be an object with a list 'targets', got {type_word(data)}")
        return problems
    read_settings(TargetsFile, data, (), problems)
    entries = data.get("targets")
    if entries == []:
        problems.warning(("targets",), "Field 'targets' has no entries")
    if isinstance(entries, list):
        for index, entry in enumerate(entries):
            _check_entry(entry, ("targets", index), problems)
        _check_names(entries, problems)
    return problems


def target_names(data: Any) -> list[str]:
    """Return the target names in a targets file, in order; malformed entries are skipped."""
    entries = data.get("targets") if isinstance(data, dict) else None
    return [name for _, name in _names(entries if isinstance(entries, list) else [])]


def _check_entry(entry: Any, path: KeyPath, problems: Problems) -> None:
    if not isinstance(entry, dict):
        problems.wrong_type(path, "an object", entry)
        return
    for place, text in iter_texts(entry, path):
        if "${{" in REFERENCE.sub("", text) or (is_secret_field(place) and _OTHER_VARIABLE.fullmatch(text.strip())):
            name = field_name(place)
            problems.error(place, f"Field '{name}' has a malformed variable", "Write variables as ${{ NAME }}")
    blank = [key for key in ("name", "provider") if not _is_text(entry, key, path, problems)]
    if "provider" not in blank:
        _check_settings(entry, path, problems)


def _is_text(entry: dict[str, Any], key: str, path: KeyPath, problems: Problems) -> bool:
    value = entry.get(key)
    if value is None:
        problems.missing((*path, key))
    elif not isinstance(value, str):
        problems.wrong_type((*path, key), "a string", value)
    elif not value.strip():
        problems.error((*path, key), f"Field '{field_name((*path, key))}' is blank")
    else:
        return True
    return False


def _check_settings(entry: dict[str, Any], path: KeyPath, problems: Problems) -> None:
    """Check an entry against its provider's class, except for the types of variables, which are not known yet."""
    kind = None if _is_variable(entry["provider"]) else find_provider(entry["provider"], path, problems)
    if kind is None:
        return

    def is_unknown(problem: Problem) -> bool:
        place = problem.path[len(path) :]
        return declares(kind, place) and _is_variable(_at(entry, place))

    data = {**entry, "name": "-"}
    found = Problems()
    settings = read_settings(kind, data, path, found, strict=True)
    unknown = {problem.path[len(path)] for problem in found if is_unknown(problem)}
    problems.extend(problem for problem in found if not is_unknown(problem))
    if unknown:
        known = {key: value for key, value in data.items() if key not in unknown}
        settings = read_settings(kind, known, path, Problems(), strict=True)
    for complaint in settings.complaints() if settings is not None else ():
        problems.error(path, f"Target '{entry.get('name')}': {complaint}")


def find_provider(provider: str, path: KeyPath, problems: Problems) -> type[Target] | None:
    """Return a provider's class; None if it is in a file, or after noting an error."""
    canonical = TARGETS.canonical(provider)
    if canonical is None:
        problems.error((*path, "provider"), f"Unknown provider '{provider}'", TARGETS.suggestion(provider))
        return None
    kind: type[Target] | None = None if ".py:" in canonical else TARGETS.find(canonical)
    return kind


def _is_variable(value: Any) -> bool:
    return isinstance(value, str) and REFERENCE.search(value) is not None


def _at(value: Any, steps: KeyPath) -> Any:
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _check_names(entries: list[Any], problems: Problems) -> None:
    first: dict[str, int] = {}
    for index, name in _names(entries):
        if name in first:
            message = f"Target name '{name}' is used twice: at targets[{first[name]}] and targets[{index}]"
            problems.error(("targets", index, "name"), message)
        first.setdefault(name, index)
    for index, entry in enumerate(entries):
        for key in ("judge_target", "grader_target"):
            place, judge = ("targets", index, key), entry.get(key) if isinstance(entry, dict) else None
            if isinstance(judge, str) and judge not in first and not _is_variable(judge):
                message = f"Field '{field_name(place)}' refers to target '{judge}', which is not in this file"
                problems.error(
                    place, message, did_you_mean(judge, first) or f"Targets in this file: {', '.join(first)}"
                )


def _names(entries: list[Any]) -> Iterator[tuple[int, str]]:
    for index, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and name.strip():
            yield index, name


def iter_texts(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield every string in a setting, with its path."""
    if isinstance(value, str):
        yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from iter_texts(item, (*path, key))
