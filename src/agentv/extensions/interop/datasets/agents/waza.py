"""Evals of waza: a suite that names a skill and its task files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, document_of, record_file
from agentv.datasets.foreign.records import Record, RecordFile
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
from agentv.settings.project import project_root

_TEXT_CHECKS = {
    **dict.fromkeys(("must_match", "must_not_match", "regex_match", "regex_not_match"), "regex"),
    **dict.fromkeys(("contains", "not_contains"), "icontains"),
    **dict.fromkeys(("contains_cs", "not_contains_cs"), "contains"),
}
"""Settings of graders that check the text of an answer, and their evaluators."""

MOST_TASKS = 10_000
_USED = ("id", "name", "description", "inputs", "prompt", "expected", "graders", "tags", "enabled")


class _Waza(ForeignFormat):
    title = "an eval of waza"
    strength = 0.87
    fields = "tasks → cases, inputs.prompt → input, expected and graders → evaluators"
    in_folders = True

    def fits(self, file: RecordFile) -> bool:
        document = document_of(file)
        return isinstance(document.get("skill"), str) and isinstance(document.get("tasks"), list)

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
            for path in sorted(glob.glob(os.path.join(folder, text_of(pattern)), recursive=True))[:MOST_TASKS]:
                if os.path.isfile(path) and os.path.commonpath((root, os.path.realpath(path))) == root:
                    yield Record(1, document_of(record_file(path)))

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        inputs, expected = object_at(data, "inputs"), object_at(data, "expected")
        question = first_of(inputs, "prompt") or data.get("prompt")
        if is_blank(question):
            raise ValueError("The task has no prompt")
        if not is_blank(inputs.get("files")):
            lose("the files of a task: they are in the metadata")
        row = {
            "id": first_of(data, "id", "name"),
            "input": text_of(question),
            "assertions": [*_expected(expected, lose), *_entries(data.get("graders"), lose)],
            "description": data.get("description"),
            "tags": texts_of(data.get("tags")),
            "metadata": metadata_of(data, _USED, {"inputs": {k: v for k, v in inputs.items() if k != "prompt"}}),
        }
        return [with_outcome(row)]


WAZA = _Waza()


def _expected(expected: dict[str, Any], lose: Lose) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for key, value in expected.items():
        if key in ("output_contains", "contains"):
            entries.append({"type": "icontains_all", "value": texts_of(value)})
        elif key in ("output_not_contains", "not_contains"):
            entries.append({"type": "icontains_any", "value": texts_of(value), "negate": True})
        else:
            lose(f"the expectation '{key}'")
    return entries


def _entries(graders: Any, lose: Lose) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for grader in graders if isinstance(graders, list) else ():
        kind = text_of(grader.get("type")) if isinstance(grader, dict) else text_of(grader)
        config = object_at(grader, "config")
        checks = [
            {"type": name, "value": text, **({"negate": True} if "not" in key else {})}
            for key, name in _TEXT_CHECKS.items()
            for text in texts_of(config.get(key))
        ]
        if kind in ("regex", "text") and checks:
            entries += checks
        elif kind == "prompt" and not is_blank(config.get("prompt")):
            entries.append({"type": "rubric", "rubrics": [text_of(config["prompt"])]})
        else:
            lose(f"a grader of type '{kind}'")
    return entries
