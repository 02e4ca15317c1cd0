"""The tests of a promptfoo configuration: inline, in files, tables and scenarios, multiplied by list variables."""

from __future__ import annotations

import base64
import itertools
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.records import Record, items_of
from agentv.datasets.foreign.values import is_blank, object_at, text_of
from agentv.extensions.interop.datasets.promptfoo.assertion_entries import REFUSED
from agentv.extensions.interop.datasets.promptfoo.suite_files import SuiteFiles

MOST_COMBINATIONS = 100_000
MOST_CHARACTERS = 1_000_000
_PROGRAMS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".py")
_IMAGES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".svg")
_TABLES = (".csv", ".tsv", ".xlsx", ".xls")
_REMOTE = ("http://", "https://", "huggingface://", "az://", "s3://", "sharepoint://")
_CODE_CELL = re.compile(r"^(?:javascript|fn|eval):(?P<code>[\s\S]*)$")
_TYPES = frozenset(
    {
        *REFUSED,
        *("equals", "contains", "icontains", "contains-any", "contains-all", "icontains-any", "icontains-all", "regex"),
        *("starts-with", "is-json", "contains-json", "similar", "levenshtein", "rouge-n", "bleu", "llm-rubric", "cost"),
        *("factuality", "model-graded-factuality", "model-graded-closedqa", "answer-relevance", "context-recall"),
        *("context-faithfulness", "context-relevance", "latency", "g-eval", "is-refusal", "word-count", "skill-used"),
    }
)
_CELL = re.compile(
    rf"^(?P<type>(?:not-)?(?:{'|'.join(sorted(_TYPES, key=len, reverse=True))}))"
    r"(?:\((?P<threshold>\d+(?:\.\d+)?)\))?(?::(?P<value>[\s\S]*))?$"
)
_SCORED = (
    *("answer-relevance", "context-faithfulness", "context-recall", "context-relevance", "cost", "latency"),
    *("levenshtein", "rouge-n", "starts-with", "classifier", "perplexity", "perplexity-score"),
)
_VALUE = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.|"")*)"\s*(?=,|$)|(?P<plain>[^,]+))')
_ESCAPED = re.compile(r'\\(["\\])|"(")')
_VARIABLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def read_tests(value: Any, files: SuiteFiles, lose: Lose) -> Iterator[Record]:
    """Yield the tests in a list, a file, a folder or a pattern. Tests that a program would make are lost, by name."""
    if isinstance(value, dict) and isinstance(value.get("path"), str):
        value = value["path"]
    if isinstance(value, list):
        for record in items_of(value):
            if isinstance(record.data, str):
                yield from _in_files(record.data, files, lose)
            else:
                yield record
    elif isinstance(value, str):
        yield from _in_files(value, files, lose)


def _in_files(name: str, files: SuiteFiles, lose: Lose) -> Iterator[Record]:
    bare = name.removeprefix("file://")
    if name.startswith(_REMOTE):
        lose(f"tests at {name.partition('?')[0]}: download them, and name the file")
        return
    if re.search(r"\.(?:py|[cm]?[jt]s)(?::\w+)?$", bare):
        lose(f"the test generator '{bare}': write its tests to a file")
        return
    bare, _, sheet = bare.partition("#")
    pattern = os.path.join(bare, "*") if os.path.isdir(os.path.join(files.folder, bare)) else bare
    paths = files.matching(pattern)
    if not paths:
        raise ValueError(f"The tests '{name}' were not found in {files.folder}")
    if sheet:
        lose(f"the sheet '{sheet}' of {bare}: the first sheet is read")
    for path in paths:
        yield from _in_file(path, files)


def _in_file(path: str, files: SuiteFiles) -> Iterator[Record]:
    for record in files.records(path):
        if path.lower().endswith(_TABLES) and isinstance(record.data, dict):
            yield Record(record.line, test_of_row(record.data))
        elif isinstance(record.data, dict) and isinstance(record.data.get("tests"), list):
            yield from items_of(record.data["tests"])
        elif isinstance(record.data, list):
            yield from items_of(record.data)
        else:
            yield record


def test_of_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the test in a row of a table: columns with two underscores are special, others are variables."""
    test: dict[str, Any] = {"vars": {}, "assert": [], "options": {}, "metadata": {}}
    metric, thresholds = "", {}
    for key, value in row.items():
        name, text = str(key).strip(), text_of(value)
        if name.startswith("__expected"):
            if text.strip():
                test["assert"].append((name, assertion_of_cell(text)))
        elif name in ("__prefix", "__suffix"):
            test["options"][name[2:]] = text
        elif name in ("__description", "__providerOutput", "__threshold"):
            test[name[2:]] = text
        elif name == "__metric":
            metric = text
        elif name.startswith("__metadata:"):
            key = name.removeprefix("__metadata:")
            test["metadata"][key.removesuffix("[]")] = _listed(text) if key.endswith("[]") else text
        elif name.startswith("__config:"):
            _, column, setting = f"{name}::".split(":")[:3]
            thresholds[column] = text if setting == "threshold" else ""
        elif name.startswith("__"):
            continue
        else:
            test["vars"][name] = value if isinstance(value, str) or is_blank(value) else text
    test["assert"] = [_with_column(column, each, metric, thresholds) for column, each in test["assert"]]
    test["threshold"] = _number(test.get("threshold"))
    return {key: value for key, value in test.items() if not is_blank(value)}


def _with_column(column: str, assertion: dict[str, Any], metric: str, thresholds: dict[str, str]) -> dict[str, Any]:
    limit = _number(thresholds.get(column, thresholds.get(f"{column}1" if column == "__expected" else column)))
    more = {"metric": metric} if metric.strip() else {}
    return {**assertion, **more, **({} if limit is None else {"threshold": limit})}


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _listed(text: str) -> list[str]:
    return [item.strip().replace("\\,", ",") for item in re.split(r"(?<!\\),", text) if item.strip()]


def assertion_of_cell(text: str) -> dict[str, Any]:
    """Return the assertion in a cell: `type(threshold):value`, code, a criterion for a judge, or the expected text."""
    text = text.strip()
    code = _CODE_CELL.match(text)
    if code is not None:
        return {"type": "javascript", "value": code["code"].strip()}
    for prefix in ("grade:", "llm-rubric:"):
        if text.startswith(prefix):
            return {"type": "llm-rubric", "value": text.removeprefix(prefix)}
    if text.startswith("python:"):
        return {"type": "python", "value": text.removeprefix("python:").strip()}
    if text.startswith("file://"):
        return {"type": "python" if ".py" in text else "javascript", "value": text.strip()}
    found = _CELL.match(text)
    bare = found["type"].removeprefix("not-") if found else ""
    if found is None:
        return {"type": "equals", "value": text}
    value: Any = found["value"]
    if bare.endswith(("-any", "-all")):
        value = _values(value or "")
    elif value is not None and bare not in ("is-json", "contains-json"):
        value = value.strip()
    assertion: dict[str, Any] = {"type": found["type"], "value": value}
    if bare == "similar" or bare in _SCORED:
        assertion["threshold"] = _number(found["threshold"]) or (0.8 if bare == "similar" else 0.75)
    return assertion


def _values(text: str) -> list[str]:
    """Return the texts between commas; those in quotes may contain commas. Empty ones are left out."""
    values: list[str] = []
    for match in _VALUE.finditer(text):
        if match["quoted"] is not None:
            values.append(_ESCAPED.sub(r"\1\2", match["quoted"]))
        elif match["plain"].lstrip().startswith('"'):
            raise ValueError(f"A quoted value in a cell is not closed, or not followed by a comma: {text[:80]}")
        elif match["plain"].strip():
            values.append(match["plain"].strip())
    return values


def scenario_tests(value: Any, files: SuiteFiles, lose: Lose) -> Iterator[Record]:
    """Yield each test of each scenario with each of its configurations."""
    for record in items_of(value if isinstance(value, list) else [value]):
        scenarios = [record.data]
        if isinstance(record.data, str):
            scenarios = [each for path in files.matching(record.data) for each in _list(files.data(path))]
        for scenario in scenarios:
            configs = _list(_loaded(scenario.get("config"), files)) if isinstance(scenario, dict) else []
            tests = list(read_tests(scenario.get("tests"), files, lose)) if isinstance(scenario, dict) else []
            for config, test in itertools.product(configs or [{}], tests or [Record(record.line, {})]):
                if not isinstance(config, dict) or not isinstance(test.data, dict):
                    raise ValueError("A scenario needs `config` and `tests`, which are lists of objects")
                merged = {**config, **test.data, "vars": {**object_at(config, "vars"), **object_at(test.data, "vars")}}
                yield Record(record.line, merged)


def _loaded(value: Any, files: SuiteFiles) -> Any:
    is_file = isinstance(value, str) and value.startswith("file://")
    return [item for path in files.matching(value) for item in _list(files.data(path))] if is_file else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def with_variable_files(test: dict[str, Any], files: SuiteFiles) -> dict[str, Any]:
    """Return a test whose variables are in files with those variables. Raises ValueError."""
    value = test.get("vars")
    if value is None or isinstance(value, dict):
        return test
    names = value if isinstance(value, list) else [value]
    paths = [path for name in names if isinstance(name, str) for path in files.matching(name)]
    found = [files.data(path) for path in paths if path.lower().endswith((".yaml", ".yml", ".json"))]
    if not found or not all(isinstance(each, dict) for each in found):
        raise ValueError(f"'vars' must be an object, or name a YAML or JSON file with one, got {text_of(value)[:80]}")
    return {**test, "vars": {key: each[key] for each in found for key in each}}


def merged_test(default: dict[str, Any], test: dict[str, Any]) -> dict[str, Any]:
    """Return a test with the defaults; their assertions come first, unless the test turns them off."""
    options = {**object_at(default, "options"), **object_at(test, "options")}
    first = [] if options.get("disableDefaultAsserts") else _list(default.get("assert"))
    return {
        **{key: value for key, value in default.items() if key != "description"},
        **test,
        "vars": {**_variables(default), **_variables(test)},
        "assert": [*first, *_list(test.get("assert"))],
        "options": options,
        "metadata": {**object_at(default, "metadata"), **object_at(test, "metadata")},
    }


def _variables(test: dict[str, Any]) -> dict[str, Any]:
    found = test.get("vars")
    return dict(found) if isinstance(found, dict) else {}


def combinations(variables: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the variables for each combination of list items, and a text that tells the combinations apart.

    A list is one value, unless its first item is a text.
    """
    lists = {name: value for name, value in variables.items() if isinstance(value, list) and _is_expanded(value)}
    if not lists:
        yield variables, ""
        return
    if math.prod(map(len, lists.values())) > MOST_COMBINATIONS:
        raise ValueError(f"The lists in 'vars' make more than {MOST_COMBINATIONS:,} tests; set `disableVarExpansion`")
    for values in itertools.product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        yield {**variables, **chosen}, ", ".join(text_of(value)[:30] for value in chosen.values())


def _is_expanded(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], str)


def with_files(variables: dict[str, Any], files: SuiteFiles) -> dict[str, Any]:
    """Return variables with the content of the files that they name; a pattern becomes a list. Raises ValueError."""
    return {name: _file_value(name, value, files) for name, value in variables.items()}


def _file_value(name: str, value: Any, files: SuiteFiles) -> Any:
    if isinstance(value, list):
        return [_file_value(name, item, files) for item in value]
    if not isinstance(value, str) or not value.startswith("file://"):
        return value
    if value.rpartition(".")[2].split(":")[0].lower() in {each[1:] for each in _PROGRAMS}:
        raise ValueError(f"The variable '{name}' is made by a program, {value}. Write its value")
    paths = files.matching(value)
    if not paths:
        raise ValueError(f"The file of the variable '{name}' was not found: {value}")
    contents = [_content(path, files) for path in paths]
    return contents[0] if len(contents) == 1 and "*" not in value else contents


def _content(path: str, files: SuiteFiles) -> str:
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _IMAGES:
        return base64.b64encode(Path(path).read_bytes()).decode()
    if suffix == ".pdf":
        raise ValueError(f"{path} is a PDF. Convert it to text")
    if suffix in (".yaml", ".yml"):
        return text_of(files.data(path))
    return files.text(path).strip()


def resolved(variables: dict[str, Any]) -> dict[str, Any]:
    """Return variables without a line end after each, and with others where a text names them, five levels deep."""
    variables = {
        name: value.removesuffix("\n") if isinstance(value, str) else value for name, value in variables.items()
    }
    for _ in range(5):
        found = {name: _inserted(name, value, variables) for name, value in variables.items()}
        if found == variables:
            break
        variables = found
    return variables


def _inserted(own: str, value: Any, variables: dict[str, Any]) -> Any:
    if not isinstance(value, str) or "{{" not in value:
        return value
    texts = {name: text_of(variables[name]) for name in set(_VARIABLE.findall(value)) & variables.keys() - {own}}
    if len(value) + sum(len(texts.get(name, "")) for name in _VARIABLE.findall(value)) > MOST_CHARACTERS:
        raise ValueError(f"The variable '{own}' is longer than {MOST_CHARACTERS:,} characters with others inserted")
    return _VARIABLE.sub(lambda found: texts.get(found[1], found[0]), value)
