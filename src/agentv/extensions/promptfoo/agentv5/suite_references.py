"""What a suite of AgentV (TypeScript) 5 refers to: its repository, a default test, and tests in tables and folders."""

from __future__ import annotations

import os
import re
from typing import Any

from agentv.extensions.promptfoo.promptfoo_cells import TABLES, test_of_row
from agentv.settings.frozen_settings import parse_settings_file
from agentv.settings.project import project_root
from agentv.support.patterns import upward
from agentv.support.yaml.yaml_parser import Map

FOLDER = "*/case.y*ml"
"""The tests of a folder: each has a folder of its own."""

_REFERENCE = "ref://"
_ROOT = r"\{\{-?\s*env\.AGENTV_REPO_ROOT\s*-?\}\}"
_IN_ROOT = re.compile(rf"^file://{_ROOT}")
_CONFIG = os.path.join(".agentv", "config.yaml")
_COLUMNS = {"__provider_output": "__providerOutput"}
_VARS = "vars."
_LIMITED = ("latency", "cost")


def with_root(text: str, folder: str) -> str:
    """Return a text with the root of the repository instead of its variable. `file:///x` is below the root."""
    if "AGENTV_REPO_ROOT" not in text:
        return text
    root = os.path.abspath(project_root(folder))
    return re.sub(_ROOT, lambda _: root, _IN_ROOT.sub("file://", text))


def default_test_of(value: Any, folder: str) -> Any:
    """Return the default test of a suite, or the file of one that the configuration names. Raises ValueError."""
    if not isinstance(value, str) or not value.startswith(_REFERENCE):
        return value
    places = (os.path.join(place, _CONFIG) for place in upward(folder, project_root(folder)))
    path = next(filter(os.path.isfile, places), None)
    name = value.removeprefix(_REFERENCE).strip()
    reference = None if path is None else _named_files(path).get(name)
    if not isinstance(reference, str):
        raise ValueError(f"'{value}' is not defined. Add `refs.{name}` to {path or _CONFIG}")
    return with_root(reference, folder)


def _named_files(path: str) -> dict[str, Any]:
    """Return the files that a configuration gives names to."""
    config = parse_settings_file(path)
    names = config.get("refs") if isinstance(config, dict) else None
    if isinstance(names, str):
        names = parse_settings_file(os.path.join(os.path.dirname(path), names.removeprefix("file://")))
    return names if isinstance(names, dict) else {}


def test_in_file(path: str, data: Any, folder: str) -> Any:
    """Return the test in a row of a table, or in a folder of its own with a workspace; other data as they are."""
    if not isinstance(data, dict):
        return data
    if path.lower().endswith(TABLES):
        return _test_of_row(data)
    if os.path.basename(path) not in ("case.yaml", "case.yml"):
        return data
    own = os.path.dirname(path)
    test = {"id": os.path.basename(own), **data}
    if "workspace" not in test and os.path.isdir(os.path.join(own, "workspace")):
        test["workspace"] = {"template": os.path.join(os.path.relpath(own, folder), "workspace")}
    return data.with_values(test) if isinstance(data, Map) else test


def _test_of_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the test in a row: that of promptfoo, with the id, input and nested variables of its columns."""
    test = test_of_row({_COLUMNS.get(key, key): value for key, value in row.items()})
    options, values = test.pop("options", {}), test.pop("vars", {})
    id, text = values.pop("id", None), values.pop("input", None)
    variables = _nested(values)
    if text is not None:
        variables["input"] = f"{options.get('prefix', '')}{text}{options.get('suffix', '')}"
    assertions = test.pop("assert", [])
    parts = {"criteria": test.pop("description", None), "expected_output": test.pop("providerOutput", None)}
    checks = [_assertion(check, index if len(assertions) > 1 else 0) for index, check in enumerate(assertions, 1)]
    return {**test, **parts, "id": id, "vars": variables, "assert": checks}


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """Return the variables in columns: `vars.user.name` is the `name` of the object `user`. Raises ValueError."""
    variables: dict[str, Any] = {}
    for column, value in values.items():
        path = column.removeprefix(_VARS)
        *parents, last = map(str.strip, path.split(".")) if path != column else [column]
        place = variables
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                break
        if not isinstance(place, dict) or last in place:
            raise ValueError(f"The column '{column}' is a variable that another column defines: remove one of them")
        place[last] = value
    return variables


def _assertion(check: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the assertion of a cell: Python is a script. Minimal scores matter only if required, which none can be."""
    is_limited = check["type"].removeprefix("not-") in _LIMITED
    check = {key: value for key, value in check.items() if key != "threshold" or is_limited}
    if check["type"] == "python":
        name = check.pop("value").removeprefix("file://")
        check |= {"type": "script", "command": ["uv", "run", "python", name]}
    if isinstance(check.get("value"), str):
        check["value"] = check["value"].strip()
    if number and "metric" in check:
        check["metric"] = f"{check['metric']}-{number}"
    return check
