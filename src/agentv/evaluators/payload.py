"""What judges are told of an answer, under AgentV's names of 2.x and of 4.x. User data arrives as it was written."""

from __future__ import annotations

from typing import Any

from agentv.model.judgement import Judgement


def payload(judgement: Judgement, config: dict[str, Any]) -> dict[str, Any]:
    """What a judge is told, under the names of 2.x."""
    return {
        "question": judgement.question,
        "expected_outcome": judgement.expected_outcome,
        "expected_messages": judgement.expected_messages,
        "reference_answer": judgement.reference_answer,
        "candidate_answer": judgement.candidate_answer,
        "output_messages": judgement.output_messages,
        "guideline_files": judgement.guideline_files,
        "input_files": judgement.input_files,
        "input_messages": judgement.input_messages,
        "context": judgement.context,
        "trace_summary": judgement.trace_summary,
        "execution_metrics": judgement.execution_metrics,
        "workspace_path": judgement.workspace_path,
        "file_changes": judgement.file_changes,
        "config": config,
    }


def with_names_of_4x(told: dict[str, Any]) -> dict[str, Any]:
    """The same with the names of 4.x besides. `output` is the text, which it has been since AgentV 4.38."""
    return {
        **told,
        "criteria": told["expected_outcome"],
        "input": told["input_messages"],
        "output": told["candidate_answer"],
        "expected_output": told["expected_messages"],
    }
