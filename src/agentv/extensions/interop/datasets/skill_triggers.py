"""Trigger sets of Agent Skills: queries that should or should not make an agent load the skill."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, document_of, objects
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import filled, first_of, metadata_of, text_of, texts_of

_NAMES = ("skill_name", "skill", "skillName")
_LISTS = ("queries", "evals", "cases", "trigger_evals", "triggers", "tests", "test_cases")
_PARTS = ("train", "validation", "test", "dev", "holdout")
"""Lists of a set that was split, for example to improve the description of a skill with one part."""

_SPLIT = ("should_trigger", "should_not_trigger")
_SPLITS = (_SPLIT, ("should_fire", "should_not_fire"), ("positive", "negative"), ("positives", "negatives"))
_QUESTIONS = ("query", "prompt", "input", "text")
ACTIVATION = ("should_trigger", "expected_activation", "should_activate")
_ANSWERS = (*ACTIVATION, "shouldTrigger", "expected_trigger", "expected_skill", "expected", "trigger", "expect")
_USED = (*_QUESTIONS, *_ANSWERS, _SPLIT[1], *_NAMES, "id", "tags", "metadata", "skills")
_WORDS = {
    **dict.fromkeys(("true", "yes", "trigger", "should-trigger"), True),
    **dict.fromkeys(("false", "no", "no-trigger", "no_trigger", "should-not-trigger"), False),
    **dict.fromkeys(("none", "null", ""), None),
}


class _SkillTriggers(ForeignFormat):
    title = "a trigger set of Agent Skills"
    strength = 0.9
    fields = "query → input, should_trigger → skill_trigger"
    in_folders = True

    def fits(self, file: RecordFile) -> bool:
        if file.kind not in ("json", "jsonl", "yaml"):
            return False
        document, is_named = document_of(file), "trigger" in os.path.basename(file.path).lower()
        if _halves(document) == _SPLIT or (is_named and _split_sets(document)):
            return True
        entries = _listed(document)
        rows = [row for row in (entries if entries is not None else objects(file)) if isinstance(row, dict)]
        answers = _ANSWERS if is_named else _ANSWERS[:5]
        has_answers = bool(rows) and all(any(key in row for key in answers) for row in rows)
        return has_answers and all(first_of(row, *_QUESTIONS) is not None for row in rows)

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:  # noqa: ARG002
        return {"dataset": f"{skill_of(file)}-triggers"}

    def items(self, file: RecordFile) -> Iterator[Record]:
        document, skill = document_of(file), skill_of(file)
        if sets := _split_sets(document):
            for data, (wanted, unwanted) in sets:
                name = skill if data is document else text_of(data.get("name"))
                for key in (wanted, unwanted):
                    for line, item, _ in items_of(data[key]):
                        query = item if isinstance(item, dict) else {"query": item}
                        yield Record(line, {**query, "should_trigger": key == wanted, "skill": name})
            return
        entries = _listed(document)
        records = list(items_of(entries) if entries is not None else file.records())
        added = {"skill": skill, "skills": _named_skills(record.data for record in records)}
        for line, item, _ in records:
            yield Record(line, {**added, **item} if isinstance(item, dict) else item)

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:  # noqa: ARG002
        data = record.data
        triggers = skills_wanted(data)
        row = {
            "id": data.get("id"),
            "input": text_of(first_of(data, *_QUESTIONS)),
            "expected_outcome": " and ".join(
                f"{'Uses' if expected else 'Does not use'} the skill {skill}" for skill, expected in triggers.items()
            ),
            "assertions": trigger_checks(triggers),
            "tags": [
                *texts_of(data.get("tags")),
                "should-trigger" if any(triggers.values()) else "should-not-trigger",
            ],
            "metadata": metadata_of(data, _USED, data.get("metadata")),
        }
        return [filled(row)]


SKILL_TRIGGERS = _SkillTriggers()


def trigger_checks(triggers: dict[str, bool]) -> list[dict[str, Any]]:
    """Return an evaluator for each skill, which checks whether it was used."""
    return [
        {"type": "skill_trigger", "skill": skill, "should_trigger": expected}
        | ({"name": f"skill_trigger_{skill}"} if len(triggers) > 1 else {})
        for skill, expected in triggers.items()
    ]


def _halves(document: dict[str, Any]) -> tuple[str, str] | None:
    """Return the keys of two lists: of queries that should trigger a skill, and of those that should not."""
    return next((keys for keys in _SPLITS if all(isinstance(document.get(key), list) for key in keys)), None)


def _split_sets(document: dict[str, Any]) -> list[tuple[dict[str, Any], tuple[str, str]]]:
    """Return the objects with two lists of queries, and their keys: the document, or all entries of its skills."""
    entries = [document] if _halves(document) else document.get("skills")
    skills = entries if isinstance(entries, list) else []
    sets = [(entry, halves) for entry in skills if isinstance(entry, dict) and (halves := _halves(entry))]
    return sets if len(sets) == len(skills) else []


def _listed(document: dict[str, Any]) -> list[Any] | None:
    """Return the queries of a document: one list, or all parts of a set that was split."""
    for key in _LISTS:
        if isinstance(document.get(key), list):
            return document[key]  # type: ignore[no-any-return]
    parts = [document[key] for key in _PARTS if isinstance(document.get(key), list)]
    return [item for part in parts for item in part] if parts else None


def _answer(data: dict[str, Any]) -> Any:
    """Return whether a query should trigger: true or false, the name or names of skills, or None for no skill."""
    answer = next((data[key] for key in _ANSWERS if key in data), "missing")
    return _WORDS.get(answer.strip().lower(), answer) if isinstance(answer, str) else answer


def _named_skills(items: Iterable[Any]) -> list[str]:
    """Return the skills that the queries of a set for several skills name."""
    answers = [_answer(item) for item in items if isinstance(item, dict)]
    names = [name for answer in answers if not isinstance(answer, bool) for name in texts_of(answer)]
    return list(dict.fromkeys(names))


def skills_wanted(data: dict[str, Any]) -> dict[str, bool]:
    """Return for each skill that a query is about whether it should be used. Raises ValueError."""
    answer, others = _answer(data), data.get(_SPLIT[1])
    unwanted = dict.fromkeys(texts_of(others) if isinstance(others, list | str) else (), False)
    if isinstance(answer, bool):
        own = {text_of(first_of(data, *_NAMES)): answer}
        return own | unwanted | own
    if answer is None and data.get("skills"):
        return dict.fromkeys(data["skills"], False)
    names = answer if isinstance(answer, list) else [answer]
    if answer == "missing" or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("'should_trigger' must be true, false, or the name of the skill")
    if sentence := next((name for name in names if " " in name.strip()), None):
        raise ValueError(f"'{sentence}' is not the name of a skill")
    own = dict.fromkeys(names, True)
    return own | unwanted | own


def skill_of(file: RecordFile) -> str:
    """Return the name of the skill: from the file, or from the folder with its SKILL.md."""
    name = first_of(document_of(file), *_NAMES)
    if isinstance(name, str):
        return name
    folder = os.path.dirname(os.path.abspath(file.path))
    parent = os.path.dirname(folder)
    places = (folder, parent, os.path.dirname(parent))
    skill = next((place for place in places if os.path.isfile(os.path.join(place, "SKILL.md"))), None)
    return name_in(skill or (parent if os.path.basename(folder) in ("evals", "eval", "tests") else folder))


def name_in(folder: str) -> str:
    """Return the name in the SKILL.md of a folder, else that of the folder."""
    from agentv.targets.workspace_target import skill_name  # late: few datasets are about a skill

    return skill_name(folder)
