"""Evals of waza: a suite that names a skill and its task files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, Mapper, document_of, record_file
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import (
    expected_calls,
    filled,
    first_of,
    is_blank,
    metadata_of,
    object_at,
    text_of,
    texts_of,
    with_outcome,
)
from agentv.datasets.formats.dataset_format import Document
from agentv.extensions.interop.datasets.skill_triggers import name_in, trigger_checks
from agentv.extensions.interop.imports.foreign_values import number_or_none
from agentv.settings.project import is_inside, project_root

_TEXT_CHECKS = {
    **dict.fromkeys(("must_match", "must_not_match", "regex_match", "regex_not_match"), "regex"),
    **dict.fromkeys(("contains", "not_contains"), "icontains"),
    **dict.fromkeys(("contains_cs", "not_contains_cs"), "contains"),
}
"""Settings of graders that check the text of an answer, and their evaluators."""

_MODES = {"exact_match": "exact", "in_order_match": "in_order", "any_order_match": "superset"}
_SKILLS = ("required_skills", "forbidden_skills")
MOST_TASKS = 10_000
_ASKED = "should_trigger"
_USED = (
    "id",
    "name",
    "description",
    "inputs",
    "prompt",
    "expected",
    "graders",
    "tags",
    "enabled",
    _ASKED,
)
_NO_CHECK = "None of its checks can be made here: run the task with waza"


_MISSING = "\0missing"
"""The mark of a pattern that no file matches."""
_WORKSPACE = {"files": "files", "fixture": "fixtures", "repos": "repositories", "environment": "environment variables"}
_TURNS = ("prompt", "follow_up_prompts", "responder")


class _Waza(ForeignFormat):
    title = "an eval of waza"
    strength = 0.87
    fields = "tasks → cases, inputs.prompt → input, expected and graders → evaluators"
    in_folders = True

    def fits(self, file: RecordFile) -> bool:
        document = document_of(file)
        names = isinstance(document.get("skill"), str) or {"scenario", "metrics", "config"} <= document.keys()
        return names and isinstance(document.get("tasks"), list)

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:
        document = document_of(file)
        trials = object_at(document, "config").get("trials_per_task")
        return filled(
            {
                "dataset": first_of(document, "name", "skill"),
                "description": document.get("description"),
                "assertions": _entries(document.get("graders"), lose),
                "execution": {"trials": trials} if isinstance(trials, int) and trials > 1 else {},
            }
        )

    def items(self, file: RecordFile) -> Iterator[Record]:
        """Yield the tasks: in the suite itself, or in the files that match its patterns, inside the project."""
        folder = os.path.dirname(file.path) or "."
        root = project_root(folder)
        for task in document_of(file)["tasks"]:
            pattern = task.get("file") if isinstance(task, dict) and "prompt" not in task else task
            if isinstance(task, dict) and not isinstance(pattern, str):
                yield Record(1, task)
                continue
            paths = sorted(glob.glob(os.path.join(folder, text_of(pattern)), recursive=True))[:MOST_TASKS]
            if not paths:
                yield Record(1, {"id": pattern, _MISSING: pattern})
            for path in paths:
                if os.path.isfile(path) and os.path.commonpath((root, os.path.realpath(path))) == root:
                    yield Record(1, _with_prompt(document_of(record_file(path)), os.path.dirname(path), root))

    def mapper(self, document: Document) -> Mapper:
        path = document.source.files[0]
        suite = document_of(record_file(path))
        skill = _skill_name(text_of(suite.get("skill")), os.path.dirname(path))
        has_checks = bool(_entries(suite.get("graders"), lambda _: None))
        is_graded = None if is_blank(suite.get("graders")) else has_checks
        return lambda record, lose: self._rows(record.data, skill, is_graded, lose)

    def _rows(self, data: dict[str, Any], skill: str, is_graded: bool | None, lose: Lose) -> Iterable[dict[str, Any]]:
        if _MISSING in data:
            raise ValueError(f"No file of a task matches '{data[_MISSING]}'")
        inputs, expected = object_at(data, "inputs"), object_at(data, "expected")
        question = first_of(inputs, "prompt") or data.get("prompt")
        if data.get("enabled") is False:
            lose("tasks that are not enabled")
            return []
        if is_blank(question) and "instruction" in data:
            raise ValueError("A task of skillgrade is scored by programs in its workspace: run it with skillgrade")
        if is_blank(question):
            raise ValueError("The task has no prompt, or its 'prompt_file' is not in the project")
        context = object_at(inputs, "context")
        for key, value in {**inputs, "fixture": context.get("fixture")}.items():
            if key in _WORKSPACE and not is_blank(value):
                lose(f"the {_WORKSPACE[key]} of a task: they are in the metadata")
        user = object_at(inputs, "responder")
        is_expected = expected.get(_ASKED, data.get(_ASKED))
        triggers = trigger_checks({skill: is_expected}) if isinstance(is_expected, bool) else []
        row: dict[str, Any] = {
            "id": first_of(data, "id", "name"),
            "input": text_of(question),
            "rubrics": texts_of(expected.get("assertions")),
            "assertions": [*triggers, *_expected(expected, lose), *_entries(data.get("graders"), lose)],
            "description": data.get("description"),
            "tags": texts_of(data.get("tags")),
            "metadata": metadata_of(data, _USED, {"inputs": {k: v for k, v in inputs.items() if k not in _TURNS}}),
            "turns": [{"input": text} for text in texts_of(inputs.get("follow_up_prompts"))],
        }
        if user:
            row["user"] = {"goal": text_of(user.get("instructions")), "max_turns": user.get("max_followups")}
        if not (row["assertions"] or row["rubrics"] or is_graded):
            if expected or data.get("graders") or is_graded is False:
                row["case_error"] = _NO_CHECK
            else:
                lose("a check of the answer: the task has none, so a judge only sees the prompt")
        return [with_outcome(row)]


WAZA = _Waza()


def _skill_name(skill: str, folder: str) -> str:
    """Return the name of a skill: as it is written, or that in its SKILL.md."""
    path = os.path.abspath(os.path.join(folder, skill))
    place = os.path.dirname(path) if skill.endswith(".md") else path
    if not is_inside(os.path.realpath(os.path.join(place, "SKILL.md")), project_root(folder or ".")):
        return os.path.basename(place)
    return name_in(place) if place != path or os.path.isfile(os.path.join(place, "SKILL.md")) else skill


def _with_prompt(task: dict[str, Any], folder: str, root: str) -> dict[str, Any]:
    """Return a task with the text of its prompt, which may be in another file of the project."""
    inputs = object_at(task, "inputs")
    path = os.path.join(folder, text_of(inputs.get("prompt_file")))
    if not inputs.get("prompt_file") or os.path.commonpath((root, os.path.realpath(path))) != root:
        return task
    others = {key: value for key, value in inputs.items() if key != "prompt_file"}
    return {**task, "inputs": {**others, "prompt": record_file(path).text if os.path.isfile(path) else ""}}


def _expected(expected: dict[str, Any], lose: Lose) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for key, value in expected.items():
        if key in ("output_contains", "contains"):
            entries.append({"type": "icontains_all", "value": texts_of(value)})
        elif key in ("output_not_contains", "not_contains"):
            entries.append({"type": "icontains_any", "value": texts_of(value), "negate": True})
        elif key == "behavior" and isinstance(value, dict):
            entries += _behavior(value, lose)
        elif key not in (_ASKED, "assertions"):
            lose(f"the expectation '{key}'")
    return [{**entry, "required": True} for entry in entries]


def _behavior(rules: dict[str, Any], lose: Lose) -> list[dict[str, Any]]:
    """Return the evaluators for limits of tool calls, tokens and time, and for tools that must be called."""
    entries: list[dict[str, Any]] = []
    for key, value in rules.items():
        if key == "required_tools" and value:
            entries.append(expected_calls([{"tool": text, "input": {}} for text in texts_of(value)]))
        elif key == "forbidden_tools":
            forbidden = {"type": "tool_trajectory", "mode": "any_order", "negate": True}
            entries += ({**forbidden, "minimums": {text: 1}} for text in texts_of(value))
        elif key == "max_tool_calls" and isinstance(value, int):
            entries.append({"type": "execution_metrics", "max_tool_calls": value})
        elif key == "max_tokens" and value:
            entries.append({"type": "token_usage", "max_total": value})
        elif key in ("max_response_time_ms", "max_duration_ms") and value:
            entries.append({"type": "latency", "threshold": value})
        elif not is_blank(value):
            lose(f"the rule '{key}' of a behavior")
    return entries


def _entries(graders: Any, lose: Lose) -> list[dict[str, Any]]:
    """Return the evaluators for graders, all of which must pass. Those of one grader share its weight."""
    entries: list[dict[str, Any]] = []
    for grader in graders if isinstance(graders, list) else ():
        checks = _checks(grader, lose)
        settings = grader if isinstance(grader, dict) else {}
        share = (number_or_none(settings.get("weight")) or 1.0) / max(1, len(checks))
        common = filled({"name": settings.get("name"), "weight": None if share == 1 else share})
        entries += ({**common, **check, "required": True} for check in checks)
    return entries


def _checks(grader: Any, lose: Lose) -> list[dict[str, Any]]:
    kind = text_of(grader.get("type")) if isinstance(grader, dict) else text_of(grader)
    config = object_at(grader, "config")
    checks = [
        {"type": name, "value": text, **({"negate": True} if "not" in key else {})}
        for key, name in _TEXT_CHECKS.items()
        for text in texts_of(config.get(key))
    ]
    actions = [{"tool": text, "input": {}} for text in texts_of(config.get("expected_actions"))]
    mode = _MODES.get(text_of(config.get("matching_mode")))
    if kind in ("regex", "text") and checks:
        return checks
    if kind == "prompt" and not is_blank(config.get("prompt")):
        return [{"type": "rubric", "rubrics": [text_of(config["prompt"])]}]
    if kind == "behavior":
        return _behavior(config, lose)
    if kind == "json_schema" and isinstance(config.get("schema"), dict):
        return [{"type": "json_schema", "schema": config["schema"]}]
    if kind == "skill_invocation":
        return trigger_checks({text: key == "required_skills" for key in _SKILLS for text in texts_of(config.get(key))})
    if kind == "action_sequence" and actions and mode:
        return [{**expected_calls(actions, mode), "args_match": "ignore"}]
    lose(f"a grader of type '{kind}'")
    return []
