"""Write cases as `evals/evals.json` of a skill. Its grader is a model, so that checks become sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentv.datasets.foreign.case_parts import NO_CHECK, count_losses, question_in, text_in
from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import text_of
from agentv.datasets.formats.dataset_format import Content
from agentv.extensions.interop.datasets.written_case import calls_of, criteria_of, is_call_list, seal
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.values import to_json

_CHECKS = {
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


def write_evals(content: Content, path: str) -> None:
    """Write the evals of a skill. The name of the dataset is that of the skill."""
    evals = [_eval(row.case, content.lose) for row in content.rows]
    document = {"skill_name": text_of(content.header.get("dataset")), "evals": evals}
    Path(path).write_bytes(to_json(document) + b"\n")


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
    if not outcome and not record["assertions"]:
        lose("every check of a case: its only assertion tells the grader to fail it")
        record["assertions"] = [NO_CHECK]
    fields = ("id", "input", "evaluators", *(() if reference else ("expected_output", "expected_outcome")))
    return seal(record, "metadata", case, fields)


def _sentence(spec: EvaluatorSpec, reference: str) -> str:
    """Return a check as a sentence about the answer; an empty text if there is none."""
    if is_call_list(spec):
        return f"The agent calls these tools: {', '.join(call['name'] for call in calls_of((spec,)))}"
    if spec.type not in _CHECKS:
        return ""
    text = text_of(spec.settings.get("value", reference))
    return f"{'It is not true that the' if spec.negate else 'The'} answer {_CHECKS[spec.type]}: {text}"
