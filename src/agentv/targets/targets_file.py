"""Validate a parsed targets file against the providers' settings, without the environment."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from agentv.errors import DatasetError, UsageError
from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import KeyPath, Problem, Problems, did_you_mean, field_name, type_word
from agentv.model.environment import address_secrets
from agentv.registry import TARGETS, optional_service
from agentv.settings.environment import REFERENCE, interpolate, is_secret_field, references
from agentv.settings.project import CONFIG_FILE
from agentv.settings.settings_reader import declares, field_of, read_settings
from agentv.support.hashes import short
from agentv.support.yaml.yaml_file import read_yaml_file
from agentv.support.yaml.yaml_parser import Map
from agentv.targets.target import Target

_OTHER_VARIABLE = lazy_regex(r"\$[A-Z_][A-Z0-9_]*|\$\{\s*\w+\s*\}|\{\{\s*(?:env\.\w+|[A-Z_][A-Z0-9_]*)\s*\}\}")
"""Variables in the syntax of shells and other tools, which would be sent as the key itself."""

_VARIABLE_NAME = lazy_regex(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_ADDRESSES = ("endpoint", "base_url")

FILE_NAMES = (
    *(".agentv/targets.yaml", ".agentv/targets.yml", "targets.yaml", "targets.yml"),
    *(CONFIG_FILE, ".agentv/providers.yaml"),
)
_PROVIDERS = lazy_regex(rb"""(?m)^\{?["']?(?:providers|targets)["']?\s*:""")
TARGET_REFERENCES = ("judge_target", "fallback_targets")
"""Settings that name other targets of the file, apart from `use_target`."""

Entry = tuple[int, dict[str, Any]]
"""The position of a target in the file, and its settings as written."""


class TargetsFile(msgspec.Struct, frozen=True, kw_only=True, rename={"schema": "$schema"}):
    """A targets file. Its entries are checked against their providers' settings."""

    schema: str | None = None
    version: str | int | float | None = None
    description: str | None = None
    targets: list[Any]


def as_targets_file(data: Any, path: str) -> Any:
    """Return the parsed data of a file as that of a targets file. An extension may read files of another tool."""
    for entry in entries_of(data):
        _move_settings(entry)
    if isinstance(data, dict) and "providers" not in data and not any(map(_is_of_agentv, entries_of(data))):
        return data
    read = optional_service("providers-files")
    return read(data, path) if read else data


def _move_settings(entry: Any) -> None:
    """Move the `settings` of an entry, where early versions of AgentV (TypeScript) have them, into the entry itself."""
    settings = entry.get("settings") if isinstance(entry, dict) else None
    provider = TARGETS.canonical(entry["provider"]) if settings and isinstance(entry.get("provider"), str) else None
    if isinstance(settings, dict) and provider and field_of(TARGETS.find(provider), "settings") is None:
        del entry["settings"]
        entry |= {key: value for key, value in settings.items() if key not in entry}
        if isinstance(entry, Map) and isinstance(settings, Map):
            entry.marks = settings.marks | entry.marks


def file_in(folder: str) -> str | None:
    """Return the targets file of a folder. A configuration is one if it lists providers, as in AgentV (TypeScript)."""
    paths = ((name, os.path.join(folder, name)) for name in FILE_NAMES)
    files = (path for name, path in paths if os.path.isfile(path) and (name != CONFIG_FILE or _has_providers(path)))
    return next(map(short, files), None)


def _has_providers(path: str) -> bool:
    with suppress(DatasetError):
        return _PROVIDERS.search(read_yaml_file(path)) is not None
    return False


def _is_of_agentv(entry: Any) -> bool:
    """Whether a target has an id as its name, or a command and a provider of the project's own, as in AgentV."""
    if not isinstance(entry, dict) or not isinstance(provider := entry.get("provider"), str):
        return False
    return ("id" in entry and "name" not in entry) or ("command" in entry and TARGETS.canonical(provider) is None)


def check_targets(data: Any) -> Problems:
    """Return all problems in a parsed targets file; their paths start with ("targets", index, key)."""
    problems = check_shape(data)
    entries = named_entries(data)
    for index, entry in enumerate(entries_of(data)):
        if isinstance(entry, dict):
            check_entry((index, entry), entries, problems)
    problems += repeated_names(data).values()
    return problems


def check_shape(data: Any) -> Problems:
    """Return the problems that affect the whole file: no list of targets, or an entry that is not a named object."""
    problems = Problems()
    if not isinstance(data, dict):
        problems.error((), f"A targets file must be an object with a list 'targets', got {type_word(data)}")
        return problems
    if isinstance(data.get("targets"), dict):
        problems.wrong_type(("targets",), "an array", data["targets"], "Write a list: '- name: NAME' for each target")
        return problems
    read_settings(TargetsFile, data, (), problems)
    if data.get("targets") == []:
        problems.warning(("targets",), "Field 'targets' has no entries")
    for index, entry in enumerate(entries_of(data)):
        if isinstance(entry, dict):
            _is_text(entry, "name", ("targets", index), problems)
        else:
            problems.wrong_type(("targets", index), "an object", entry)
    return problems


def entries_of(data: Any) -> list[Any]:
    """Return the entries of a targets file; empty if it has no list of them."""
    entries = data.get("targets") if isinstance(data, dict) else None
    return entries if isinstance(entries, list) else []


def named_entries(data: Any) -> dict[str, Entry]:
    """Return the targets of a file by name: the first of each name, without malformed entries."""
    entries: dict[str, Entry] = {}
    for index, name in _names(entries_of(data)):
        entries.setdefault(name, (index, data["targets"][index]))
    return entries


def repeated_names(data: Any) -> dict[str, Problem]:
    """Return a problem for each name that several targets have."""
    first: dict[str, int] = {}
    repeated: dict[str, Problem] = {}
    for index, name in _names(entries_of(data)):
        if first.setdefault(name, index) != index and name not in repeated:
            message = f"Target name '{name}' is used twice: at targets[{first[name]}] and targets[{index}]"
            repeated[name] = Problem(("targets", index, "name"), message)
    return repeated


def model_entries(names: Iterable[str], entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return entries for names that are not in a file: `TARGET:MODEL`, or `PROVIDER:MODEL` without other settings."""
    new_entries: dict[str, Entry] = {}
    for name in names:
        base, _, model = name.partition(":")
        provider = None if ".py" in base else TARGETS.canonical(base)
        if not model or name in entries:
            continue
        if base in entries:
            new_entries[name] = len(entries) + len(new_entries), {"name": name, "use_target": base, "model": model}
        elif provider is not None and field_of(TARGETS.find(provider), "model") is not None:
            new_entries[name] = len(entries) + len(new_entries), {"name": name, "provider": provider, "model": model}
    return new_entries


def check_entry(entry: Entry, entries: Mapping[str, Entry], problems: Problems) -> None:
    """Check one entry, except for its name, without the values of variables. `entries` are those of the file."""
    index, own = entry
    path: KeyPath = ("targets", index)
    for place, text in iter_texts(own, path):
        if "${{" in REFERENCE.sub("", text) or (is_secret_field(place) and _OTHER_VARIABLE.fullmatch(text.strip())):
            name = field_name(place)
            problems.error(place, f"Field '{name}' has a malformed variable", "Write variables as ${{ NAME }}")
        if place[-1] in _ADDRESSES and _VARIABLE_NAME.fullmatch(text):
            message = f"Field '{field_name(place)}' has the name of a variable: '{text}'"
            problems.error(place, message, f"Write ${{{{ {text} }}}}")
    for place, name in _other_targets(own, path):
        if not _is_variable(name):
            field = field_of(Target, str(place[len(path)]))
            is_judge = field is not None and field.name == "judge_target"
            check_reference(place, name, entries, problems, is_needed=not is_judge)
    before = len(problems.errors)
    final_entry = follow(entry, entries, None, problems)
    if final_entry is None or len(problems.errors) > before:
        return
    used, settings = final_entry
    checked = Problems()
    if _is_text(settings, "provider", path, checked):
        _check_settings(settings, path, checked)
    # Problems in the settings of another target are reported there.
    problems += (problem for problem in checked if used == index or problem.path[2:3] == () or problem.path[2] in own)


def targets_used(names: Iterable[str], entries: Mapping[str, Entry]) -> set[str]:
    """Return the named targets and those that answer in their place: `use_target` and `fallback_targets`."""
    used: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in used or name not in entries:
            continue
        used.add(name)
        for key, value in entries[name][1].items():
            field = field_of(Target, key)
            if field is not None and field.name in ("use_target", "fallback_targets"):
                waiting += (text for _, text in iter_texts(value))
    return used


def placed(problems: Iterable[Problem], index: int) -> list[Problem]:
    """Return problems of one entry as problems of the file."""
    return [msgspec.structs.replace(problem, path=("targets", index, *problem.path)) for problem in problems]


def check_reference(
    place: KeyPath, name: str, names: Iterable[str], problems: Problems, *, is_needed: bool = True
) -> None:
    """Add an error if a setting refers to a target that is not in the file; a warning if it may not be needed."""
    if name not in (targets := list(names)):
        message = f"Field '{field_name(place)}' refers to target '{name}', which is not in this file"
        hint = did_you_mean(name, targets) or f"Targets in this file: {', '.join(targets)}"
        (problems.error if is_needed else problems.warning)(place, message, hint)


def follow(
    entry: Entry, entries: Mapping[str, Entry], variables: Mapping[str, str] | None, problems: Problems
) -> Entry | None:
    """Return the entry that `use_target` leads to, with the settings next to `use_target` in place of its own.

    Returns None after noting an error. Without `variables`, a variable in `use_target` also gives None.
    """
    index, data = entry
    trail = [index]
    own: dict[str, Any] = {}
    while (key := _use_target(data)) is not None:
        place: KeyPath = ("targets", index, key)
        own = {other: value for other, value in data.items() if other not in ("name", "provider", key)} | own
        name = data[key]
        if variables is not None:
            name_problems = Problems()
            name = interpolate(name, variables, (key,), name_problems, f"Target '{data.get('name')}'")
            problems += placed(name_problems, index)
        if not _is_text(data, key, ("targets", index), problems) or not name or _is_variable(name):
            return None
        if name not in entries:
            check_reference(place, name, entries, problems)
            return None
        index, data = entries[name]
        if index in trail:
            names = {at: other for other, (at, _) in entries.items()}
            chain = " → ".join((*(names.get(at, f"targets[{at}]") for at in trail), name))
            problems.error(place, f"'use_target' leads back to the same target: {chain}")
            return None
        trail.append(index)
    return index, _merged(data, own) if own else data


def _use_target(entry: dict[str, Any]) -> str | None:
    """Return the key of `use_target` as it is written; None if the entry has its own provider."""
    fields = ((key, field_of(Target, key)) for key, value in entry.items() if value is not None)
    return next((key for key, field in fields if field is not None and field.name == "use_target"), None)


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a target with others in their place, whatever aliases they are written with."""
    provider = base.get("provider")
    canonical = TARGETS.canonical(provider) if isinstance(provider, str) else None
    kind = Target if canonical is None or ".py:" in canonical else TARGETS.find(canonical)
    replaced = {field.name for key in own if (field := field_of(kind, key)) is not None}
    rest = {
        key: value
        for key, value in base.items()
        if (field := field_of(kind, key)) is None or field.name not in replaced
    }
    return {**rest, **own}


def _other_targets(entry: dict[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield the names of other targets in an entry, with their paths."""
    for key, value in entry.items():
        field = field_of(Target, key)
        if field is not None and field.name in TARGET_REFERENCES:
            yield from iter_texts(value, (*path, key))


def _is_text(entry: dict[str, Any], key: str, path: KeyPath, problems: Problems) -> bool:
    if (value := entry.get(key)) is None:
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
    all_problems = Problems()
    settings = read_settings(kind, data, path, all_problems, strict=True)
    unknown = {problem.path[len(path)] for problem in all_problems if is_unknown(problem)}
    problems.extend(problem for problem in all_problems if not is_unknown(problem))
    if unknown:
        literals = {key: value for key, value in data.items() if key not in unknown}
        settings = read_settings(kind, literals, path, Problems(), strict=True)
    for complaint in settings.complaints() if settings is not None else ():
        problems.error(path, f"Target '{entry.get('name')}': {complaint}")


def find_provider(provider: str, path: KeyPath, problems: Problems) -> type[Target] | None:
    """Return a provider's class; None if it is in a file, or after noting an error."""
    if (canonical := TARGETS.canonical(provider)) is None:
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


def written_secrets(entry: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the secrets that an entry contains literally, with their paths."""
    return ((path, text) for path, text in iter_texts(entry) if is_secret_field(path) and not any(references(text)))


_MARKED = lazy_regex(r"<(\w+)>")


def variables_in_addresses(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the variables that are passwords or keys in addresses: `?key=${{ X }}`."""
    for _, text in iter_texts(entry):
        if "://" in text:
            marked = REFERENCE.sub(r"<\g<variable>>", text)
            for secret in address_secrets(marked):
                yield from (name[1] for name in _MARKED.finditer(secret))


def unset_judge(entry: dict[str, Any], kind: type[Target], values: Mapping[str, str]) -> dict[str, Any]:
    """Return the judge of a target as written if its variable is not set: that is an error once a judge is needed."""
    unset = (ref for ref in references(entry) if len(ref.path) == 1 and not values.get(ref.variable))
    keys = (str(ref.path[0]) for ref in unset)
    return {key: entry[key] for key in keys if (field := field_of(kind, key)) and field.name == "judge_target"}


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A target of the file under another name, with some other settings."""

    name: str
    base: str
    settings: dict[str, Any] = {}


def variant_entries(variants: Iterable[Variant], entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return entries of a targets file for variants, numbered after the known ones. Raises UsageError."""
    new_entries: dict[str, Entry] = {}
    for number, variant in enumerate(variants, len(entries)):
        if variant.name in entries or variant.name in new_entries:
            raise UsageError(f"This command needs the target name '{variant.name}'", hint="Rename your own target")
        new_entries[variant.name] = number, {"name": variant.name, "use_target": variant.base, **variant.settings}
    return new_entries
