"""Eval files of Vally: stimuli with graders, and the older scenarios with assertions and a rubric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, document_of
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import (
    filled,
    first_of,
    is_blank,
    metadata_of,
    object_at,
    text_of,
    texts_of,
    with_outcome,
)

_LISTS = ("stimuli", "scenarios")
_USED = (
    "name",
    "id",
    "prompt",
    "turns",
    "graders",
    "assertions",
    "rubric",
    "tags",
    "description",
    "setup",
    "timeout",
    "environment",
    "constraints",
)
_NO_CHECK = "None of its graders can be run here: run the stimulus with Vally"
_CHECKS = {
    "output-matches": "regex",
    "output-not-matches": "not-regex",
    "output-contains": "icontains",
    "output-not-contains": "not-icontains",
    "output_contains": "icontains",
    "output_not_contains": "not-icontains",
    "output_matches": "regex",
    "output_not_matches": "not-regex",
}


class _Vally(ForeignFormat):
    title = "an eval file of Vally"
    strength = 0.88
    fields = "prompt or turns → input, graders → evaluators and rubrics"
    in_folders = True

    def fits(self, file: RecordFile) -> bool:
        document = document_of(file)
        items: list[Any] = next((document[key] for key in _LISTS if isinstance(document.get(key), list)), [])
        rows = [row for row in items if isinstance(row, dict)]
        return bool(rows) and all("name" in row and ("prompt" in row or "turns" in row) for row in rows)

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:
        document = document_of(file)
        for grader in document.get("graders") or ():
            lose(f"a grader of all stimuli of type '{_type(grader)}'")
        if not is_blank(document.get("include")) or not is_blank(document.get("includes")):
            lose("included files")
        for key in ("scoring", "environment"):
            if not is_blank(document.get(key)):
                lose(f"the {key} of all stimuli")
        runs = object_at(document, "config").get("runs")
        trials = {"trials": runs} if isinstance(runs, int) and runs > 1 else {}
        header = {"dataset": document.get("name"), "description": document.get("description"), "execution": trials}
        return filled(header)

    def items(self, file: RecordFile) -> Iterator[Record]:
        document = document_of(file)
        for key in _LISTS:
            yield from items_of(document[key]) if isinstance(document.get(key), list) else ()

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        questions = [_prompt(turn) for turn in data["turns"]] if data.get("turns") else [text_of(data["prompt"])]
        entries, rubrics = _graders(data, lose)
        entries += _constraints(object_at(data, "constraints"), lose)
        if not is_blank(data.get("setup")):
            lose("the setup of a scenario: it is in the metadata")
        row = {
            "id": first_of(data, "id", "name"),
            "input": questions[0],
            "turns": [{"input": text} for text in questions[1:]],
            "rubrics": [*rubrics, *texts_of(data.get("rubric"))],
            "assertions": entries,
            "tags": _tags(data.get("tags")),
            "workspace": _workspace(data, lose),
            "description": data.get("description"),
            "metadata": {
                **metadata_of(data, _USED),
                **filled({"setup": data.get("setup"), "environment": data.get("environment")}),
            },
        }
        if not (entries or row["rubrics"]) and (data.get("graders") or data.get("assertions")):
            row["case_error"] = _NO_CHECK
        return [with_outcome(row)]


VALLY = _Vally()


def _type(grader: Any) -> str:
    return text_of(grader.get("type")) if isinstance(grader, dict) else text_of(grader)


def _tags(tags: Any) -> list[str]:
    """Return the tags: a list, or an object with names and values."""
    return [f"{name}:{text_of(value)}" for name, value in tags.items()] if isinstance(tags, dict) else texts_of(tags)


def _workspace(data: dict[str, Any], lose: Lose) -> dict[str, Any]:
    """Return the workspace of a stimulus: its files by their path there, and a folder that is copied as a whole."""
    environment = object_at(data, "environment")
    if set(environment) - {"files"}:
        lose("settings of the environment: they are in the metadata")
    files = environment.get("files")
    pairs = [(file.get("dest") or file.get("src"), file.get("src")) for file in files or () if isinstance(file, dict)]
    files = {place: source for place, source in pairs if isinstance(place, str) and isinstance(source, str)}
    template = files.pop(".", None)
    return filled({"template": template, "files": files})


def _prompt(turn: Any) -> str:
    return text_of(first_of(turn, "prompt", "input", "content") if isinstance(turn, dict) else turn)


def _graders(data: dict[str, Any], lose: Lose) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the evaluators and the criteria for a judge."""
    entries: list[dict[str, Any]] = []
    rubrics: list[str] = []
    for grader in [*(data.get("graders") or ()), *(data.get("assertions") or ())]:
        settings = {**grader, **(grader.get("config") or {})} if isinstance(grader, dict) else {}
        kind = _type(grader)
        value = first_of(settings, "pattern", "value", "text", "expected")
        if kind in _CHECKS and value is not None:
            negated = {"negate": True} if _CHECKS[kind].startswith("not-") else {}
            entries.append({"type": _CHECKS[kind].removeprefix("not-"), "value": text_of(value), **negated})
        elif kind in ("prompt", "llm", "rubric"):
            rubrics += texts_of(first_of(settings, "prompt", "criteria", "rubric", "text"))
        elif kind in ("wall-time", "max-duration"):
            seconds = first_of(settings, "max_seconds", "seconds", "max", "value")
            entries += [{"type": "latency", "threshold": float(seconds) * 1000}] if _is_number(seconds) else []
        elif kind in ("exit-success", "exit_success"):
            continue  # an agent that fails is an error here
        elif (entry := _program(kind, settings, lose)) and object_at(data, "environment").get("files"):
            entries.append(entry)
        elif kind == "skill-invocation" and isinstance(first_of(settings, "skill", "name"), str):
            should_trigger = settings.get("should_trigger", settings.get("expected", True)) is not False
            name = first_of(settings, "skill", "name")
            entries.append({"type": "skill_trigger", "skill": name, "should_trigger": should_trigger})
        else:
            lose(f"a grader of type '{kind}'")
    return entries, rubrics


def _constraints(constraints: dict[str, Any], lose: Lose) -> list[dict[str, Any]]:
    """Return the evaluators for tools that must not be called."""
    for key in constraints:
        if key != "reject_tools":
            lose(f"the constraint '{key}'")
    forbidden = {"type": "tool_trajectory", "mode": "any_order", "negate": True}
    return [{**forbidden, "minimums": {name: 1}} for name in texts_of(constraints.get("reject_tools"))]


def _program(kind: str, settings: dict[str, Any], lose: Lose) -> dict[str, Any] | None:
    """Return the evaluator for a grader that runs a command in the workspace, or looks at a file there."""
    if kind == "run-command" and isinstance(settings.get("command"), str):
        for key in settings.keys() & {"stdout_matches", "stdout_contains", "stderr_matches"}:
            lose(f"{key} of a command: only its exit code is checked")
        code = settings.get("expected_exit_code", 0)
        codes = {"pass_codes": [code], "fail_codes": [number for number in range(126) if number != code]}
        return {"type": "command", "command": settings["command"], **codes}
    path, value = settings.get("path"), settings.get("value")
    if kind not in ("file-contains", "file-not-contains") or not isinstance(path, str) or not isinstance(value, str):
        return None
    if "\n" in value:
        return None  # for grep, each line is a text of its own
    name = path.removeprefix("**/")
    if "/" in name if name != path else any(mark in path for mark in "*?["):
        return None  # another pattern than the name of files in any folder
    places = ["--", path] if name == path else [f"--include={name}", "-r", "."]
    codes = (
        {"pass_codes": [0], "fail_codes": [1, 2]} if kind == "file-contains" else {"pass_codes": [1], "fail_codes": [0]}
    )
    return {"type": "command", "command": ["grep", "-qF", "-e", value, *places], **codes}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
