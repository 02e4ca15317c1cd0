"""Datasets of pydantic-evals: cases with inputs and evaluators in three spellings, in YAML or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, document_of
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import filled, is_blank, metadata_of, question_of, text_of, with_outcome

_EQUALS = "EqualsExpected"
_SKIPPED = "\0skipped"
"""The mark of a case that only `EqualsExpected` would check, and that has no expected output."""
_REFUSED = "\0refused"
"""The evaluators of the dataset that cannot be run here."""
_UNSCORED = "\0unscored"
"""The mark of a case without evaluators, its own or of the dataset."""
_BUILT_IN = (
    *("Equals", "EqualsExpected", "Contains", "MaxDuration", "LLMJudge", "HasMatchingSpan", "ToolCorrectness"),
    *("TrajectoryMatch", "ArgumentCorrectness", "MaxToolCalls", "MaxModelRequests", "GEval"),
)
_DOCUMENT = frozenset(("$schema", "name", "cases", "evaluators", "report_evaluators"))
_FIELDS = frozenset(("name", "inputs", "expected_output", "metadata", "evaluators"))
"""All fields of a document, and of a case: pydantic-evals refuses a file with others."""
_USED = (*_FIELDS, _SKIPPED, _REFUSED, _UNSCORED)


class _PydanticCases(ForeignFormat):
    title = "a dataset of pydantic-evals"
    strength = 0.82
    fields = "inputs → input, evaluators → evaluators"
    in_folders = True

    def fits(self, file: RecordFile) -> bool:
        document = document_of(file)
        cases = document.get("cases")
        return (
            document.keys() <= _DOCUMENT
            and isinstance(cases, list)
            and bool(cases)
            and all(isinstance(case, dict) and "inputs" in case and case.keys() <= _FIELDS for case in cases)
        )

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:
        document = document_of(file)
        for name in _listed(document.get("report_evaluators")):
            lose(f"the report evaluator '{_name_of(name)}'")
        shared = [item for item in _listed(document.get("evaluators")) if _name_of(item) != _EQUALS]
        return filled({"dataset": document.get("name"), "assertions": _entries(shared, lose)})

    def items(self, file: RecordFile) -> Iterator[Record]:
        document = document_of(file)
        is_shared = any(_name_of(item) == _EQUALS for item in _listed(document.get("evaluators")))
        refused = _unsupported(document.get("evaluators"))
        for record in items_of(document["cases"]):
            own = _listed(record.data.get("evaluators"))
            # Without an expected output, `EqualsExpected` skips the case; the settings of the dataset could not.
            evaluators = [item for item in own if _name_of(item) != _EQUALS]
            if record.data.get("expected_output") is not None and (is_shared or len(evaluators) < len(own)):
                evaluators = [_EQUALS, *evaluators]
            skipped = is_shared or len(evaluators) < len(own)
            marks = {_SKIPPED: skipped and not evaluators, _REFUSED: refused}
            marks[_UNSCORED] = not own and not _listed(document.get("evaluators"))
            yield Record(record.line, {**record.data, "evaluators": evaluators, **marks})

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        metadata = data.get("metadata")
        row = {
            "id": data.get("name"),
            "input": question_of(data["inputs"], lose),
            "expected_output": data.get("expected_output"),
            "assertions": _entries(data.get("evaluators"), lose),
            "metadata": metadata_of(data, _USED, metadata if isinstance(metadata, dict) else None),
        }
        if refused := [*data.get(_REFUSED, ()), *_unsupported(data.get("evaluators"))]:
            row["case_error"] = "; ".join(map(_refusal, dict.fromkeys(refused)))
        if not is_blank(metadata) and not isinstance(metadata, dict):
            row["metadata"] = {"metadata": metadata}
        if data.get(_UNSCORED):
            lose("that a case without evaluators is not scored: here a judge scores it")
        if data.get(_SKIPPED) and "expected_output" not in filled(row):
            return [{**filled(row), "expected_outcome": "", "assertions": []}]
        return [with_outcome(row)]


PYDANTIC_CASES = _PydanticCases()


def _listed(value: Any) -> list[Any]:
    return [_short_form(item) for item in value] if isinstance(value, list) else []


def _short_form(item: Any) -> Any:
    """Return an evaluator with a `name` and `arguments` as `Name` or `{Name: argument}`; other values unchanged."""
    if not isinstance(item, dict) or "arguments" not in item or not isinstance(item.get("name"), str):
        return item
    arguments = item["arguments"]
    if isinstance(arguments, list) and len(arguments) == 1:  # one that has no name
        arguments = {"value": arguments[0]} if isinstance(arguments[0], dict) else arguments[0]
    return {item["name"]: arguments} if arguments is not None else item["name"]


def _name_of(entry: Any) -> str:
    return text_of(next(iter(entry), "")) if isinstance(entry, dict) else text_of(entry)


def _entries(items: Any, lose: Lose) -> list[dict[str, Any]]:
    """Return the evaluators of a list: `Name`, `{Name: argument}` or `{Name: {key: value}}`."""
    entries = []
    for item in items if isinstance(items, list) else ():
        name, argument = (_name_of(item), next(iter(item.values()), None)) if isinstance(item, dict) else (item, None)
        own = argument.get("evaluation_name") if isinstance(argument, dict) else None
        own_name = {"name": own} if isinstance(own, str) else {}
        if text_of(name) == "ToolCorrectness":
            entries += [{**entry, **own_name} for entry in _tools(argument)]
        elif (entry := _entry(text_of(name), argument, lose)) is not None:
            entries.append({**entry, **own_name})
    return entries


def _unsupported(items: Any) -> list[str]:
    """Return the names of the evaluators that cannot be run here."""
    return [_name_of(item) for item in _listed(items) if not _entries([item], lambda _: None)]


def _refusal(name: str) -> str:
    if name == "IsInstance":
        return "The evaluator 'IsInstance' checks a Python type, and an answer is text: only 'str' can be checked"
    if name in _BUILT_IN:
        return f"The evaluator '{name}' of pydantic-evals has no counterpart with these settings"
    return f"The evaluator '{name}' is a class of your project: score its cases with `python` or `code_judge`"


def _entry(name: str, argument: Any, lose: Lose) -> dict[str, Any] | None:
    options = argument if isinstance(argument, dict) else {}
    value = options.get("value", None if isinstance(argument, dict) else argument)
    if name == "EqualsExpected":
        return {"type": "equals", "exact": True}
    if name == "IsInstance" and options.get("type_name", argument) == "str":
        return {"type": "regex", "name": "IsInstance", "value": "^"}  # as there, every text is one
    if name == "Equals":
        return {"type": "equals", "value": value, "exact": True}
    if name == "Contains":  # another value than a text is looked for in data, which an answer is not
        lowers = options.get("case_sensitive") is False
        is_text = isinstance(value, str) or (options.get("as_strings") is True and isinstance(value, int))
        return {"type": "icontains" if lowers else "contains", "value": str(value), "exact": True} if is_text else None
    if name == "MaxDuration":
        seconds = options.get("seconds", argument)
        return {"type": "latency", "threshold": float(seconds) * 1000} if isinstance(seconds, int | float) else None
    if name == "LLMJudge":
        if not is_blank(options.get("model")):
            lose("the model of an LLMJudge: the judge is a target")
        if options.get("score"):
            lose("the score of an LLMJudge: the judge decides whether the rubric holds")
        return {"type": "rubric", "rubrics": [text_of(options.get("rubric", argument))]}
    if name == "GEval":
        lose("the scale of a GEval: the judge decides whether each step holds")
        steps = options.get("evaluation_steps") or [options.get("criteria", argument)]
        return {"type": "rubric", "rubrics": [text_of(step) for step in steps]}
    if name == "MaxToolCalls":
        most = options.get("max_calls", argument)
        return {"type": "execution_metrics", "max_tool_calls": most} if isinstance(most, int) else None
    if name == "TrajectoryMatch" and options.get("order") == "exact":  # the other orders are scored by F1
        return _calls(options.get("expected_trajectory"), "exact")
    return None


def _tools(argument: Any) -> list[dict[str, Any]]:
    """Return the evaluators for tools in any order; unless others are allowed, they are the only ones."""
    options = argument if isinstance(argument, dict) else {"expected_tools": argument}
    modes = ("superset",) if options.get("allow_extra") is True else ("superset", "subset")
    return [_calls(options["expected_tools"], mode) for mode in modes if _listed(options.get("expected_tools"))]


def _calls(tools: Any, mode: str) -> dict[str, Any]:
    return {"type": "tool_trajectory", "mode": mode, "expected": [{"tool": text_of(tool)} for tool in _listed(tools)]}
