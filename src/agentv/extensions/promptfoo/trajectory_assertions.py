"""Translate the assertions of promptfoo about the tool calls of an answer."""

from __future__ import annotations

from typing import Any

from agentv.model.values import to_json

_PATTERN = frozenset("*?")


def trajectory_entry(type_: str, value: Any) -> dict[str, Any] | None:
    """Return the evaluator for an assertion; None if it has settings without a counterpart."""
    data = value if isinstance(value, dict) else {"name": value}
    if not _PATTERN.isdisjoint(to_json({key: item for key, item in data.items() if "arg" not in key}).decode()):
        return None  # names are not patterns here
    if type_ == "trajectory:tool-used":
        names = value if isinstance(value, list) else [data.get("name", data.get("pattern"))]
        least = data.get("min", 1) if isinstance(value, dict) else 1
        if not all(isinstance(name, str) for name in names) or (isinstance(value, dict) and "max" in value):
            return None
        minimums = dict.fromkeys(names, least)
        return {"type": "tool_trajectory", "mode": "any_order", "args_match": "ignore", "minimums": minimums}
    if type_ == "trajectory:tool-sequence":
        steps = value if isinstance(value, list) else data.get("steps")
        if not isinstance(steps, list):
            return None
        calls = [{"tool": step if isinstance(step, str) else step.get("name", "")} for step in steps]
        mode = "exact" if data.get("mode") == "exact" and not isinstance(value, list) else "in_order"
        return {"type": "tool_trajectory", "mode": mode, "args_match": "ignore", "expected": calls}
    is_plain = isinstance(data.get("name"), str) and not {"defaults", "ignore"} & data.keys()
    if type_ == "trajectory:tool-args-match" and is_plain:
        match = "exact" if data.get("mode") == "exact" else "superset"
        call = {"tool": data["name"], "args": data.get("args", data.get("arguments", {}))}
        return {"type": "tool_trajectory", "mode": "in_order", "args_match": match, "expected": [call]}
    if type_ == "trajectory:step-count" and data.keys() == {"type", "max"} and data["type"] == "tool":
        return {"type": "execution_metrics", "max_tool_calls": int(data["max"])}
    return None
