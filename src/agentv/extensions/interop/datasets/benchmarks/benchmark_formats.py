"""The formats of benchmarks and of training data whose records become one case each."""

from agentv.extensions.interop.datasets.record_keys import RecordKeys

BENCHMARK_FORMATS: dict[str, RecordKeys] = {
    "swe-bench": {
        "title": "tasks of SWE-bench",
        "strength": 0.58,
        "fields": "problem_statement → input, patch → expected_output",
        "fits": ({"all": "instance_id problem_statement", "none": "model_patch"},),
        "in_documents": True,
        "refused": {
            "instance_id model_patch": (
                "The file has predictions of SWE-bench",
                "Answers of a model are not cases: to see them as a run, use `agentv report`",
            )
        },
        "case": {
            "id": "instance_id",
            "input": "text: text | paragraphs: problem_statement requirements interface",
            "expected_output": "patch",
            "tags": "texts: difficulty",
            "metadata.FAIL_TO_PASS": "cells: FAIL_TO_PASS fail_to_pass",
            "metadata.PASS_TO_PASS": "cells: PASS_TO_PASS pass_to_pass",
        },
        "losses": {
            "FAIL_TO_PASS PASS_TO_PASS fail_to_pass pass_to_pass": (
                "the tests of a task, which run in its container: they are in the metadata"
            ),
        },
        "outcome": "Fixes the problem, as the reference patch does",
    },
    "toolbench": {
        "title": "queries of ToolBench",
        "strength": 0.59,
        "fields": "query → input, api_list and relevant APIs → metadata",
        "fits": ({"all": "api_list query"},),
        "case": {"id": "text: query_id", "input": "text: query"},
        "losses": {"api_list": "the APIs that the model can call, and the evaluator of ToolBench"},
    },
    "gsm8k": {
        "title": "problems of GSM8K",
        "strength": 0.56,
        "fields": "question → input, the number at the end of answer → expected_output",
        "fits": ({"all": "question answer", "contains": {"answer": "#### "}},),
        "case": {
            "id": "id",
            "input": "text: question",
            "expected_output": "after_marks: answer",
            "metadata.solution": "answer",
        },
    },
    "human-eval": {
        "title": "problems of HumanEval",
        "strength": 0.57,
        "fields": "prompt → input, canonical_solution → expected_output",
        "fits": ({"all": "task_id prompt test entry_point"},),
        "case": {"id": "text: task_id", "input": "text: prompt", "expected_output": "canonical_solution"},
        "losses": {
            "test": "the tests of a problem, which are in the metadata: run them with a `command` or `python` evaluator"
        },
    },
    "mt-bench": {
        "title": "questions of MT-bench",
        "strength": 0.56,
        "fields": "turns → input and turns, category → tags, reference → expected_output of each turn",
        "fits": (
            {"all": "question_id turns", "none": "choices judge model_id"},
            {"all": "prompt_id prompt category", "lists": "prompt"},
        ),
        "refused": {
            "question_id model_id": (
                "The file has answers of MT-bench",
                "Answers of a model are not cases: use the file with the questions",
            ),
            "question_id judge": (
                "The file has judgments of MT-bench",
                "Verdicts are not cases: to see them as a run, use `agentv report`",
            ),
        },
        "case": {
            "id": "question_id prompt_id",
            "input": "turns: turns prompt",
            "references": "texts: reference",
            "tags": "texts: category",
        },
    },
    "sharegpt": {
        "title": "conversations in the format of ShareGPT",
        "strength": 0.4,
        "fields": "the last reply → expected_output, earlier messages → input",
        "fits": ({"all": "conversations", "lists": "conversations"},),
        "case": {"id": "id", "input": "last_reply: conversations", "system": "text: system"},
    },
    "alpaca": {
        "title": "instruction data in the format of Alpaca",
        "strength": 0.3,
        "fields": "instruction and input → input, output → expected_output",
        "fits": ({"all": "instruction", "any": "output", "none": "generator"},),
        "case": {"id": "id", "input": "paragraphs: instruction input", "expected_output": "output"},
    },
    "chat": {
        "title": "chat training data",
        "strength": 0.2,
        "fields": "the last reply → expected_output, earlier messages → input",
        "fits": ({"all": "messages", "none": "ideal testData input preferred_output"},),
        "case": {"id": "id", "input": "last_reply: messages", "metadata": "json: metadata"},
        "unused": "weight parallel_tool_calls",
        "losses": {"tools": "tools that the model could call: they are in the metadata"},
    },
}
"""The formats by name."""
