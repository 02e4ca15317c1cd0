"""The tests of promptfoo in rows of tables: assertions in cells, and columns with a special name."""

from __future__ import annotations

import math
import re
from typing import Any

from agentv.datasets.foreign.values import is_blank, text_of
from agentv.extensions.promptfoo.assertion_entries import COMPARED, KNOWN_TYPES, REFUSED
from agentv.extensions.promptfoo.text_assertions import list_items

TABLES = (".csv", ".tsv", ".xlsx", ".xls")
"""The endings of files whose rows are tests."""

_CODE_CELL = re.compile(r"^(?:javascript|fn|eval):(?P<code>[\s\S]*)$")
_NOT_IN_CELLS = {
    "assert-set",
    "human",
    "max-score",
    "select-best",
    "similar:cosine",
    "similar:dot",
    "similar:euclidean",
}
"""Types that promptfoo does not find in a cell: `similar:dot:x` compares with the text `dot:x`."""

_TYPES = frozenset({*REFUSED, *COMPARED, *KNOWN_TYPES}) - _NOT_IN_CELLS
_CELL = re.compile(
    rf"^(?P<type>(?:not-)?(?:{'|'.join(sorted(_TYPES, key=len, reverse=True))}))"
    r"(?:\((?P<threshold>\d+(?:\.\d+)?)\))?(?::(?P<value>[\s\S]*))?$"
)
_SCORED = (
    *("answer-relevance", "context-faithfulness", "context-recall", "context-relevance", "cost", "latency"),
    *("levenshtein", "rouge-n", "starts-with", "classifier", "perplexity", "perplexity-score"),
)
_SCRIPT_FILE = re.compile(r"file://.+\.[cm]?[jt]s$")
_CONFIG = re.compile(r"__config:__expected([1-9]\d*)?:threshold")


def test_of_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the test in a row of a table: columns with two underscores are special, others are variables."""
    test: dict[str, Any] = {"vars": {}, "assert": [], "options": {}, "metadata": {}}
    metric = ""
    limits: dict[int, dict[str, float]] = {}
    for key, value in row.items():
        name, text = str(key).strip(), text_of(value)
        if name.startswith("__expected"):
            if text.strip():
                test["assert"].append(assertion_of_cell(text))
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
            limits |= _limit_of_column(name, text)
        elif name == "__metadata":
            continue
        else:
            test["vars"][name] = value if isinstance(value, str) or is_blank(value) else text
    more = {"metric": metric} if metric.strip() else {}
    test["assert"] = [{**each, **more, **limits.get(index, {})} for index, each in enumerate(test["assert"])]
    test["threshold"] = _number(test.get("threshold"))
    return {key: value for key, value in test.items() if not is_blank(value)}


def _limit_of_column(name: str, text: str) -> dict[int, dict[str, float]]:
    """Return the threshold in a column such as `__config:__expected2:threshold`, by the index of the assertion.

    As in promptfoo, assertions are counted in the row, without empty cells. Raises ValueError.
    """
    match = _CONFIG.fullmatch(name)
    limit = _number(text)
    if match is None or limit is None:
        raise ValueError(f"The column '{name}' must be '__config:__expectedN:threshold' with a number, got '{text}'")
    return {int(match[1] or 1) - 1: {"threshold": limit}}


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
    # As in promptfoo, the name of a Python file is run as code, which fails: `python: file://check.py` works.
    if text.startswith("python:") or (text.startswith("file://") and (text.endswith(".py") or ".py:" in text)):
        return {"type": "python", "value": text[7:].strip()}
    if _SCRIPT_FILE.match(text):
        return {"type": "javascript", "value": text.strip()}
    match = _CELL.match(text)
    bare = match["type"].removeprefix("not-") if match else ""
    if match is None:
        return {"type": "equals", "value": text}
    value: Any = match["value"]
    if bare.endswith(("-any", "-all")):
        value = list_items(value or "")
    elif value is not None and bare not in ("is-json", "contains-json"):
        value = value.strip()
    assertion: dict[str, Any] = {"type": match["type"], "value": value}
    if bare == "similar" or bare in _SCORED:
        limit = _number(match["threshold"])
        assertion["threshold"] = (0.8 if bare == "similar" else 0.75) if limit is None else limit
    return assertion
