"""Write cases as samples of OpenAI Evals. A model can grade by `criteria`, and other classes compare with `ideal`."""

from __future__ import annotations

from typing import Any

from agentv.datasets.foreign.case_parts import NO_CHECK, chat_messages, count_losses, first_input, text_in
from agentv.datasets.foreign.foreign_format import Lose, write_records
from agentv.datasets.formats.dataset_format import Content
from agentv.extensions.interop.datasets.written_case import seal
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec

_LAXER = "that an answer must equal the reference: `Match` of OpenAI Evals accepts one that begins with it"


def write_samples(content: Content, path: str) -> None:
    """Write one sample per case."""
    write_records((_sample(row.case, content.lose) for row in content.rows), path)


def _sample(case: EvalCase, lose: Lose) -> dict[str, Any]:
    reference = text_in(case.expected_output, lose) if case.expected_output else ""

    def is_exact(spec: EvaluatorSpec) -> bool:
        is_reference = bool(reference) and spec.settings.get("value", reference) == reference
        return spec.type == "equals" and not spec.negate and is_reference and spec in case.evaluators

    count_losses(case, lose, keeps=is_exact)
    if any(map(is_exact, case.evaluators)):
        lose(_LAXER)
    if not reference:
        lose("an ideal answer: classes that compare with `ideal` end with an error, and a model grades by `criteria`")
    record = {  # without the id: with `criteria`, it would be a case of ours
        "input": chat_messages(first_input(case), lose),
        "ideal": reference,
        "criteria": case.expected_outcome if reference else case.expected_outcome or NO_CHECK,
    }
    return seal(record, "metadata", case, ("input", "chat", *(("expected_output",) if reference else ())))
