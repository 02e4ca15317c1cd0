"""Trigger sets of Agent Skills: queries that should or should not make an agent load the skill."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, document_of, objects
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import filled, first_of, metadata_of, text_of, texts_of

_NAMES = ("skill_name", "skill", "skillName")
_LISTS = ("queries", "evals", "cases", "trigger_evals", "triggers", "tests")
_SPLIT = ("should_trigger", "should_not_trigger")
_QUESTIONS = ("query", "prompt", "input", "text")
_ANSWERS = ("should_trigger", "shouldTrigger", "expected", "trigger")
_USED = (*_QUESTIONS, *_ANSWERS, *_NAMES, "id", "tags", "metadata")


class _SkillTriggers(ForeignFormat):
    title = "a trigger set of Agent Skills"
    fields = "query → input, should_trigger → skill_trigger"
    in_folders = True

    def fits(self, file: RecordFile) -> bool:
        if file.kind not in ("json", "jsonl", "yaml"):
            return False
        document = document_of(file)
        if all(isinstance(document.get(key), list) for key in _SPLIT):
            return True
        rows = next((document[key] for key in _LISTS if isinstance(document.get(key), list)), objects(file))
        rows = [row for row in rows if isinstance(row, dict)]
        return all_have(rows, "should_trigger") and all(first_of(row, *_QUESTIONS) is not None for row in rows)

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:  # noqa: ARG002
        return {"dataset": f"{_skill(file)}-triggers"}

    def items(self, file: RecordFile) -> Iterator[Record]:
        document, skill = document_of(file), _skill(file)
        if all(isinstance(document.get(key), list) for key in _SPLIT):
            for key in _SPLIT:
                for line, item in items_of(document[key]):
                    query = item if isinstance(item, dict) else {"query": item}
                    yield Record(line, {**query, "should_trigger": key == _SPLIT[0], "skill": skill})
            return
        listed = next((document[key] for key in _LISTS if isinstance(document.get(key), list)), None)
        for line, item in items_of(listed) if listed is not None else file.records():
            yield Record(line, {"skill": skill, **item} if isinstance(item, dict) else item)

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:  # noqa: ARG002
        data = record.data
        expected = first_of(data, *_ANSWERS)
        if not isinstance(expected, bool):
            raise ValueError("'should_trigger' must be true or false")
        skill = text_of(first_of(data, *_NAMES))
        row = {
            "id": data.get("id"),
            "input": text_of(first_of(data, *_QUESTIONS)),
            "expected_outcome": f"{'Uses' if expected else 'Does not use'} the skill {skill}",
            "assertions": [{"type": "skill_trigger", "skill": skill, "should_trigger": expected}],
            "tags": [*texts_of(data.get("tags")), "should-trigger" if expected else "should-not-trigger"],
            "metadata": metadata_of(data, _USED, data.get("metadata")),
        }
        return [filled(row)]


SKILL_TRIGGERS = _SkillTriggers()


def _skill(file: RecordFile) -> str:
    """Return the name of the skill: from the file, or from the folder with its SKILL.md."""
    named = first_of(document_of(file), *_NAMES)
    if isinstance(named, str):
        return named
    folder = os.path.dirname(os.path.abspath(file.path))
    parent = os.path.dirname(folder)
    return os.path.basename(parent if os.path.basename(folder) in ("evals", "eval", "tests") else folder)
