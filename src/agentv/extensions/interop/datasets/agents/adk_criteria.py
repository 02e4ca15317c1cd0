"""The criteria of an eval set of Google ADK, which a file next to it has."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from agentv.datasets.foreign.foreign_format import Lose, record_file
from agentv.datasets.foreign.values import first_of, is_blank, object_at, text_of, texts_of

CONFIGS = ("test_config.json", *(f"{folder}eval_config.{kind}" for folder in ("", "../") for kind in ("json", "yaml")))
"""Where criteria are: the first is read by ADK itself, the others are those of its project templates."""

QUALITY = "rubric_based_final_response_quality_v1"
_TOOL_USE = "rubric_based_tool_use_quality_v1"
RUBRIC_TYPES = {
    QUALITY: "FINAL_RESPONSE_QUALITY",
    _TOOL_USE: "TOOL_USE_QUALITY",
    "rubric_based_multi_turn_trajectory_quality_v1": "TRAJECTORY_QUALITY",
}
"""Criteria that use rubrics, and the type of the rubrics of turns and cases that each uses."""

MOST_INVOCATIONS, _UNLIMITED = 20, 100
"""The default limit of ADK for messages of a simulated user, the first included, and ours if it has none (-1)."""

_CRITERIA = {"tool_trajectory_avg_score": 1.0, "response_match_score": 0.8}
"""The criteria of ADK without a configuration."""

_MODES = {
    "EXACT": "exact",
    "IN_ORDER": "in_order",
    "ANY_ORDER": "superset",
    "0": "exact",
    "1": "in_order",
    "2": "superset",
}
_ROUGE = {"type": "rouge", "variant": "rouge1", "stem": True}
PASS_LIMIT = 0.8
"""The score that a judge must give where ADK asks whether an answer is valid."""

NO_CRITERION = "None of the criteria of ADK can be used here: evaluate the agent with ADK"
"""Why a case cannot run. A judge would decide about something else."""

_JUDGED = ("final_response_match_v2", "response_evaluation_score")


class AdkCriteria(NamedTuple):
    """How the turns of an eval set are checked: settings of the tool trajectory, evaluators of answers, and of rubrics.

    All have a minimum, and a case passes if they reach it.
    """

    calls: dict[str, Any] | None
    answers: tuple[dict[str, Any], ...]
    rubrics: tuple[dict[str, Any], ...]
    most_turns: int
    names: frozenset[str]
    has_limits: bool

    @property
    def is_unusable(self) -> bool:
        """Whether there are criteria, and none that can be used here."""
        return bool(self.names) and not (self.calls or self.answers or self.rubrics)


def read_criteria(path: str, lose: Lose) -> AdkCriteria:
    """Return the criteria in the configuration of an eval set, or those of ADK by default. Raises DatasetError."""
    config = next(filter(os.path.isfile, (os.path.join(os.path.dirname(path), name) for name in CONFIGS)), "")
    document = record_file(config).document if config else {"criteria": _CRITERIA}
    limits = document.get("criteria") or {} if isinstance(document, dict) else document
    if not isinstance(limits, dict):
        raise record_file(config).problem("'criteria' must be an object")
    for name in texts_of(document.get("metrics_to_run")):
        lose(f"the metric '{name}'")
    calls: dict[str, Any] | None = None
    answers: list[dict[str, Any]] = []
    rubrics: list[dict[str, Any]] = []
    names = []
    for name, value in limits.items():
        options: dict[str, Any] = value if isinstance(value, dict) else {"threshold": value}
        if options.get("threshold") == 0:
            continue  # every answer reaches it
        names.append(name)
        if name == "tool_trajectory_avg_score":
            mode = text_of(first_of(options, "match_type", "matchType") or 0).upper()
            if mode not in _MODES:
                raise record_file(config).problem(f"unknown 'match_type' {mode} of '{name}'")
            ignored = first_of(options, "ignore_args", "ignoreArgs") is True
            calls = {"mode": _MODES[mode], "args_match": "ignore" if ignored else "exact", "required": 1.0}
        elif name == "response_match_score":  # ROUGE-1 with stemming
            answers.append({**_ROUGE, "threshold": options["threshold"], "required": 1.0})
        elif name in _JUDGED:
            answers.append({"type": "llm_judge", "required": PASS_LIMIT})
        elif name in (QUALITY, _TOOL_USE):
            items, limit = rubrics_in(options), options.get("threshold")
            if len(items) < len(options.get("rubrics") or ()):
                lose("rubrics without 'text_property', which ADK refuses")
            share = limit if isinstance(limit, int | float) and 0 < limit <= 1 else PASS_LIMIT
            items = [{**item, "required": False} for item in items]  # the mean of all decides
            trace = {"include_trace": True} if name == _TOOL_USE else {}
            rubrics += [{"type": "rubric", "rubrics": items, **trace, "required": share}] if items else []
        else:
            lose(f"the criterion '{name}' of ADK")
    has_limits = limits.get("tool_trajectory_avg_score", 1) != 1 or "response_match_score" in limits or bool(rubrics)
    most = _most_turns(object_at(document, "user_simulator_config"), lose)
    return AdkCriteria(calls, tuple(answers), tuple(rubrics), most, frozenset(names), has_limits)


def _most_turns(simulator: dict[str, Any], lose: Lose) -> int:
    """Return how many messages a simulated user may write after the first, which is in the file."""
    for key in ("custom_instructions", "include_function_calls"):
        if simulator.get(key):
            lose(f"'{key}' of the simulated user")
    most = simulator.get("max_allowed_invocations", MOST_INVOCATIONS)
    if most == -1:
        lose(f"that messages of the simulated user have no limit: here it is {_UNLIMITED}")
        return _UNLIMITED
    return (most if isinstance(most, int) else MOST_INVOCATIONS) - 1


def rubrics_in(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rubrics of a case: a list, or groups of them."""
    groups = first_of(data, "rubric_groups", "rubricGroups") or {}
    lists = [data.get("rubrics"), *(group.get("rubrics") for group in groups.values() if isinstance(group, dict))]
    rubrics: dict[str, dict[str, Any]] = {}
    for item in (item for items in lists if isinstance(items, list) for item in items if isinstance(item, dict)):
        content = first_of(item, "rubric_content", "rubricContent", "content") or {}
        text = first_of(content, "text_property", "textProperty") or object_at(content, "property").get("description")
        if not is_blank(text):
            name = text_of(first_of(item, "rubric_id", "rubricId")) or f"rubric-{len(rubrics) + 1}"
            rubrics.setdefault(name, {"id": name, "expected_outcome": text_of(text)})
    return list(rubrics.values())
