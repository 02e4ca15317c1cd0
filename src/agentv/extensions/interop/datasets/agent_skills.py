"""Agent Skills: `evals/evals.json` in its shapes. Files of an eval are copied into its workspace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any

from agentv.datasets.foreign.case_parts import NO_CHECK, count_losses, text_in
from agentv.datasets.foreign.field_map import FieldMap
from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, document_of, objects
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import OUTCOME, filled, first_of, is_blank, metadata_of, text_of, texts_of
from agentv.datasets.formats.dataset_format import Content
from agentv.extensions.interop.datasets.skill_triggers import ACTIVATION, skill_of, skills_wanted, trigger_checks
from agentv.extensions.interop.datasets.written_case import (
    calls_of,
    criteria_of,
    is_call_list,
    question_in,
    restore,
    seal,
)
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.values import to_json

_LISTS = ("evals", "cases", "test_cases", "tests", "scenarios")
_CHECKS = (
    *("expectations", "assertions", "deterministic_assertions", "rubric", "rubrics", "scorers", "checks"),
    *("expect", "criteria", "evaluation_criteria", "success_criteria", "expected_behaviors"),
)
_UNWANTED = ("fail", "must_not", "anti_patterns")
"""Keys of an eval with what the answer must not do."""

_EXPECTED = ("expected_output", "expected_behavior", "expected_outcome")
_USED = (
    *("id", "prompt", "input", "query", "files", "tags", "metadata", "description"),
    *_EXPECTED,
    *_CHECKS,
    *_UNWANTED,
)
_NAMES = ("skill_name", "skill", "skillName")
_RUBRIC_TEXTS = ("text", "description", "criterion", "pass_if", "expectation", "assertion", "value", "name")
_TEXTS = {
    "contains_all": ("must_include", "must_contain", "must_mention", "required_keywords", "expected_contains"),
    "contains_any": ("must_include_any", "must_contain_any", "must_mention_any"),
    "not_contains_any": ("must_avoid", "must_not_include", "must_not_contain", "must_not_mention", "forbidden_phrases"),
}
"""Keys of an eval with texts that the answer must contain, or must not."""

_EXACT = ("equals", "exact", "exact_match")
_MATCHES: dict[str, dict[str, Any]] = {
    **{kind: {"type": "regex"} for kind in ("regex", "pattern", "matches")},
    **{kind: {"type": "contains"} for kind in ("string_match", "contains", "substring", "string", "includes")},
    **{kind: {"type": "contains", "negate": True} for kind in ("not_contains", "excludes", "forbidden")},
    **{kind: {"type": "equals"} for kind in _EXACT},
}
"""Types of checks that compare the answer with a value."""

_JUDGED = ("semantic", "llm_judge", "llm-judge", "llm", "judge", "model", "rubric", "")


class _AgentSkills(ForeignFormat):
    title = "Agent Skills evals"
    strength = 0.92
    fields = "prompt → input, expected_output → expected_outcome, expectations and assertions → rubric and checks"
    in_folders = True
    writes = (".json",)

    def fits(self, file: RecordFile) -> bool:
        if file.kind not in ("json", "yaml"):
            return False
        document = document_of(file)
        rows = _cases_in(document) if document else objects(file)
        has_known_name = any(key in document for key in _NAMES) or os.path.basename(file.path) == "evals.json"
        has_known_name = has_known_name or all_have(rows, "skills", "query", "expected_behavior")
        is_other = all_have(rows, "inputs") or (all_have(rows, "should_trigger") and not any_has(rows, *_CHECKS))
        return has_known_name and any(_question(row) is not None for row in rows) and not is_other

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:  # noqa: ARG002
        name = first_of(document_of(file), *_NAMES)
        return {"dataset": name} if isinstance(name, str) else {}

    def items(self, file: RecordFile) -> Iterator[Record]:
        document = document_of(file)
        keys = (key for key in _LISTS if isinstance(document.get(key), list))
        entries = document.get(next(keys, ""), [document]) if document else file.document
        for record in items_of(entries):
            asks = isinstance(record.data, dict) and not record.data.keys().isdisjoint(ACTIVATION)
            yield Record(record.line, {"skill": skill_of(file), **record.data}) if asks else record

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        rubrics, evaluators = _checks(data, lose)
        asks = not data.keys().isdisjoint(ACTIVATION)
        trigger_keys = (*ACTIVATION, "skill") if asks else ()
        expected = first_of(data, *_EXPECTED)
        if isinstance(expected, list):
            rubrics, expected = [*texts_of(expected), *rubrics], None
        texts = {name: key for key, names in _TEXTS.items() for name in names if isinstance(data.get(name), list | str)}
        for name, key in texts.items():
            evaluators += FieldMap({key: name}).values(data).get("assertions", [])
        if asks:
            evaluators = [*trigger_checks(skills_wanted(data)), *evaluators]
        row = {
            "id": data.get("id") if not is_blank(data.get("id")) else data.get("name"),
            "input": text_of(_question(data)),
            "expected_outcome": text_of(expected),
            "rubrics": rubrics,
            "assertions": evaluators,
            "description": data.get("description"),
            "tags": texts_of(data.get("tags")),
            "metadata": metadata_of(data, (*_USED, *trigger_keys, *texts), data.get("metadata")),
            "workspace": filled({"files": _files(data, lose)}),
        }
        if not row["expected_outcome"] and not rubrics and not evaluators:
            row["expected_outcome"] = OUTCOME
            lose("a way to check the answer: the eval has none, so the judge only sees the prompt")
        return [restore(filled(row), data, "metadata", lose)]

    def write(self, content: Content, path: str) -> None:
        """Write the evals of a skill, named as the dataset. Its grader is a model, so that checks become sentences."""
        evals = [_eval(row.case, content.lose) for row in content.rows]
        document = {"skill_name": text_of(content.header.get("dataset")), "evals": evals}
        Path(path).write_bytes(to_json(document) + b"\n")


AGENT_SKILLS = _AgentSkills()


def _cases_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    items: list[Any] = next((document[key] for key in _LISTS if isinstance(document.get(key), list)), [document])
    return [item for item in items if isinstance(item, dict)]


def _question(data: dict[str, Any]) -> Any:
    return first_of(data, "prompt", "input", "query", "task")


def _files(data: dict[str, Any], lose: Lose) -> dict[str, str]:
    """Return the files of an eval by their path in the workspace; those given with their content are lost."""
    files = data.get("files")
    if isinstance(files, dict):
        lose("files that are written inside the eval")
        return {}
    paths = (
        [item.get("path") if isinstance(item, dict) else item for item in files if item]
        if isinstance(files, list)
        else []
    )
    return {_place(item): item for item in paths if isinstance(item, str)}


def _place(path: str) -> str:
    """Return the path in the workspace: without leading steps out of the folder."""
    parts = path.replace("\\", "/").split("/")
    return "/".join(dropwhile(lambda part: part in ("", ".", ".."), parts)) or path


def _checks(data: dict[str, Any], lose: Lose) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the checks of an eval: criteria for a judge, and evaluators for those that need none."""
    rubrics: list[Any] = []
    evaluators: list[dict[str, Any]] = []
    for key in _CHECKS:
        checks = None if isinstance(data.get(key), bool) else data.get(key)
        if isinstance(checks, dict):
            checks = [{"name": name, "text": text_of(text)} for name, text in checks.items()]
        for check in checks if isinstance(checks, list) else texts_of(checks):
            _add_check(check, rubrics, evaluators, lose)
    unwanted = [text for key in _UNWANTED if isinstance(data.get(key), list) for text in texts_of(data[key])]
    return [*rubrics, *(f"Does not do this: {text}" for text in unwanted)], evaluators


def _add_check(check: Any, rubrics: list[Any], evaluators: list[dict[str, Any]], lose: Lose) -> None:
    if isinstance(check, str):
        rubrics.append(check)
        return
    if not isinstance(check, dict):
        lose("a check that is neither text nor an object")
        return
    if " " in text_of(check.get("check")).strip():  # a sentence; one word is the type
        check = {**check, "text": check["check"], "check": None}
    kind = text_of(first_of(check, "type", "kind", "check")).lower()
    entry = _entry(kind, check, lose)
    if entry is not None:
        name = check.get("name") or check.get("id")
        evaluators.append({**entry, **({"name": text_of(name)} if not is_blank(name) else {})})
        return
    text = first_of(check, *_RUBRIC_TEXTS)
    if text is None:
        lose(f"a check of type '{kind or 'unknown'}'")
        return
    item: dict[str, Any] = {"id": text_of(check.get("id") or check.get("name")), "expected_outcome": text_of(text)}
    if isinstance(check.get("weight"), int | float):
        item["weight"] = check["weight"]
    rubrics.append(filled(item))


def _entry(kind: str, check: dict[str, Any], lose: Lose) -> dict[str, Any] | None:
    """Return the evaluator for a check without a judge; None for one that a judge decides."""
    # `text` describes the check ("Mentions --dry-run"), so a model judges it.
    value = first_of(check, "pattern", "value", "expected", "substring", "expect_substring")
    if kind in _MATCHES and value is not None:
        return {"value": value if kind in _EXACT else text_of(value), **_MATCHES[kind]}
    command = first_of(check, "cmd", "command", "script")
    if command is not None:
        codes = check.get("expect_exit")
        passes = {"pass_codes": [codes]} if isinstance(codes, int) and 0 < codes < 256 else {}
        if "expect_substring" in check:
            lose("expect_substring of a command: only its exit code is checked")
        is_list = isinstance(command, list) and all(isinstance(part, str) for part in command)
        return {"type": "command", "command": command if is_list else text_of(command), **passes}
    if kind not in _JUDGED and first_of(check, *_RUBRIC_TEXTS) is not None:
        lose(f"the type '{kind}' of a check: its text is judged by a model")
    return None


_SENTENCES = {
    "contains": "contains",
    "icontains": "contains, in any case,",
    "equals": "equals",
    "starts_with": "starts with",
    "ends_with": "ends with",
    "regex": "matches the regular expression",
    "contains_any": "contains one of",
    "contains_all": "contains all of",
    "icontains_any": "contains, in any case, one of",
    "icontains_all": "contains, in any case, all of",
}


def _eval(case: EvalCase, lose: Lose) -> dict[str, Any]:
    reference = text_in(case.expected_output, lose) if case.expected_output else ""
    specs = {_sentence(spec, reference): spec for spec in case.evaluators if _sentence(spec, reference)}
    for spec in specs.values():
        lose(f"that `{spec.type}` needs no judge: a model grades it as a sentence")

    def keeps(spec: EvaluatorSpec) -> bool:
        return spec in specs.values() or (spec.type == "rubric" and not spec.negate)

    count_losses(case, lose, ("workspace",), keeps)
    outcome = "\n\n".join(filter(None, (case.expected_outcome, reference and f"Reference answer: {reference}")))
    files = [file.source for file in case.workspace.files if file.source] if case.workspace else []
    if case.workspace is not None and case.workspace.template:
        lose("the template of a workspace")
    record = {
        "id": int(case.id) if case.id.isdecimal() and str(int(case.id)) == case.id else case.id,
        "prompt": question_in(case, lose),
        "expected_output": outcome,
        "files": files,
        "assertions": [*criteria_of(case), *specs],
    }
    fields = ["id", "input", *(() if reference else ("expected_output", "expected_outcome"))]
    if outcome or record["assertions"]:
        fields.append("evaluators")
    else:
        lose("every check of a case: its only assertion tells the grader to fail it")
        record["assertions"] = [NO_CHECK]
    return seal(record, "metadata", case, fields)


def _sentence(spec: EvaluatorSpec, reference: str) -> str:
    """Return a check as a sentence about the answer; an empty text if there is none."""
    if is_call_list(spec):
        return f"The agent calls these tools: {', '.join(call['name'] for call in calls_of((spec,)))}"
    if spec.type not in _SENTENCES:
        return ""
    text = text_of(spec.settings.get("value", reference))
    return f"{'It is not true that the' if spec.negate else 'The'} answer {_SENTENCES[spec.type]}: {text}"
