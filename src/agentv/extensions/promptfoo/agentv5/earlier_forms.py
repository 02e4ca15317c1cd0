"""Forms that earlier versions of AgentV (TypeScript) 5 have, as the ones of now."""

from __future__ import annotations

from typing import Any

from agentv.datasets.foreign.values import first_of, is_blank, object_at, text_of
from agentv.extensions.promptfoo.agentv5.positions import placed_row

_OPTIONS = {"workers": "max_concurrency", "repeat": "repeat", "budget_usd": "budget_usd"}
"""Settings of an experiment or a suite, and the options of the evaluation that they are."""

RUN_KEYS = frozenset({"repeat", "budget_usd", "runs", "early_exit"})
"""Keys of a suite that became options of the evaluation."""

ASSERTIONS = ("assert", "assertions")
"""The key of assertions, and what it was called before."""

_SHARED = ("threshold", "timeout_seconds")
_OWN = ("name", "target", "targets")
_REFERENCE = frozenset({"name", "extends", "use_target", "hooks"})


def listed(value: Any) -> list[Any]:
    """Return a list as it is, nothing as an empty list, and any other value as its only item."""
    return value if isinstance(value, list) else [] if is_blank(value) else [value]


def assertions_in(data: dict[str, Any]) -> list[Any]:
    """Return the assertions of a suite, test or turn. Raises ValueError if it has them under both names."""
    lists = [data[key] for key in ASSERTIONS if not is_blank(data.get(key))]
    if len(lists) > 1:
        raise ValueError(f"Assertions are listed twice: {' and '.join(map(repr, ASSERTIONS))}. Keep one of the lists")
    return listed(lists[0]) if lists else []


def with_current_forms(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without an `experiment` block or an object as `target`. Raises ValueError."""
    for key in ("experiment", "execution"):
        if isinstance(block := document.get(key), dict):
            document = _without_block(document, key, _with_repeat(block))
    if RUN_KEYS & document.keys():
        own = _with_repeat(document)
        options: dict[str, Any] = {key: own[key] for key in ("repeat", "budget_usd") if key in own}
        options = {**options, **object_at(document, "evaluate_options")}
        document = {**{key: own[key] for key in own.keys() - RUN_KEYS}, "evaluate_options": options}
    target = document.get("target")
    if not isinstance(target, dict):
        return document
    base = first_of(target, "extends", "use_target")
    name = text_of(first_of(target, "name") or base or "default")
    for key in () if is_blank(base) else sorted(target.keys() - _REFERENCE):
        raise ValueError(f"'target.{key}' next to 'extends' is not supported: define the target, and name it")
    if target.keys() <= _REFERENCE:
        entry = {"name": name, "use_target": None if base == name else base, "hooks": target.get("hooks")}
        entry = {key: value for key, value in entry.items() if not is_blank(value)}
        return {**document, "target": None, "execution": {"targets": [entry]}}
    settings = {key: value for key, value in target.items() if key not in ("name", "provider")}
    provider = {"id": target.get("provider"), "label": name, "config": settings}
    return {**document, "target": None, "providers": [placed_row(provider, target, {})]}


def _with_repeat(data: dict[str, Any]) -> dict[str, Any]:
    """Return settings with `runs`, and whether they stop at the first pass, as a repeat policy."""
    rest = {key: value for key, value in data.items() if key not in ("runs", "early_exit")}
    stops = {"early_exit": data["early_exit"]} if "early_exit" in data else {}
    if isinstance(rest.get("repeat"), dict):
        return {**rest, "repeat": {**stops, **rest["repeat"]}}
    return {"repeat": {"count": data["runs"], "early_exit": False, **stops}, **rest} if "runs" in data else rest


def _without_block(document: dict[str, Any], key: str, block: dict[str, Any]) -> dict[str, Any]:
    for name in block.keys() - {*_OPTIONS, *_SHARED, *_OWN}:
        raise ValueError(f"'{key}.{name}' is not supported")
    options = {new: block[old] for old, new in _OPTIONS.items() if old in block}
    targets = first_of(block, "targets", "target")
    return {
        **({} if is_blank(targets) else {"providers": targets}),
        **{name: block[name] for name in _SHARED if name in block},
        **document,
        **({"evaluate_options": {**options, **object_at(document, "evaluate_options")}} if options else {}),
        key: block.get("name"),
    }


def imported_tests(document: dict[str, Any]) -> list[str]:
    """Return the files of tests that a suite imports. Raises ValueError for what cannot be kept."""
    imports = document.get("imports")
    if imports is None:
        return []
    if not isinstance(imports, dict) or imports.keys() - {"tests"}:
        raise ValueError("'imports' of suites is not supported. Give both files on the command line")
    tests = imports.get("tests")
    return [path_of(entry) for entry in (tests if isinstance(tests, list) else [tests])]


def path_of(entry: Any) -> str:
    """Return the file of an entry of `imports.tests`, or of a test with `include`. Raises ValueError."""
    if isinstance(entry, dict) and entry.get("type", "tests") != "tests":
        raise ValueError("'include' of another suite is not supported. Give both files on the command line")
    for key in sorted(entry.keys() - {"path", "include", "type"}) if isinstance(entry, dict) else ():
        raise ValueError(f"'{key}' of imported tests is not supported. Use `agentv eval --filter` or `--tag`")
    path = first_of(entry, "path", "include") if isinstance(entry, dict) else entry
    if not isinstance(path, str):
        raise ValueError(f"An import must name a file, got {text_of(entry)[:80]}")
    return path
