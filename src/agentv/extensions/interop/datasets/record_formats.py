"""Formats that are lists of keys: how their records are recognized, and which key becomes which part of a case.

A part of a case is `reader: key key`: the first key with a value is read with this function of `keyed_records`, and
without a reader the value is unchanged. ` | ` separates readers for different keys, and `a.b` is a key of an object.
Keys that are not named go to the metadata.
"""

from __future__ import annotations

from agentv.extensions.interop.datasets.benchmarks.benchmark_formats import BENCHMARK_FORMATS
from agentv.extensions.interop.datasets.record_keys import RecordKeys

RECORD_FORMATS: dict[str, RecordKeys] = {
    "langfuse": {
        "title": "dataset items of Langfuse",
        "strength": 0.74,
        "fields": "input → input, expectedOutput → expected_output",
        "fits": (
            {
                "all": "input",
                "any": "expectedOutput datasetName dataset_name sourceTraceId source_trace_id validFrom",
                "none": "retrievalContext",
            },
        ),
        "case": {
            "id": "id",
            "input": "question: input",
            "expected_output": "reference: expectedOutput expected_output",
            "metadata": "json: metadata",
        },
        "pages": "data items",
        "skipped": ("status", "archived", "archived items"),
    },
    "braintrust": {
        "title": "a dataset of Braintrust",
        "strength": 0.72,
        "fields": "input → input, expected → expected_output",
        "fits": ({"all": "input", "any": "expected _xact_id upsert_id", "none": "expected_outcome target"},),
        "case": {
            "id": "id",
            "input": "question: input",
            "expected_output": "json: expected",
            "tags": "texts: tags",
            "metadata": "json: metadata",
        },
        "pages": "events data",
        "unused": "_xact_id created origin _pagination_key is_root dataset_id project_id root_span_id span_id",
        "skipped": ("is_root", "false", "spans that are not the root of their trace"),
    },
    "mlflow": {
        "title": "an evaluation dataset of MLflow",
        "strength": 0.7,
        "fields": "inputs → input, expected_response → expected_output, expected_facts and guidelines → rubrics",
        "fits": (
            {"all": "inputs", "any": "expectations"},
            {"all": "inputs", "any": "ground_truth targets", "none": "reference_outputs"},
            {"all": "inputs", "any": "predictions", "none": "outputs reference_outputs"},
        ),
        "case": {
            "id": "dataset_record_id",
            "input": "question: inputs",
            "expected_output": "expectations.expected_response ground_truth targets",
            "rubrics": "all_texts: expectations.expected_facts expectations.guidelines",
            "context": "passages: expectations.expected_retrieved_context",
            "tags": "labels: tags",
            "metadata": "json: metadata",
        },
    },
    "langsmith": {
        "title": "examples of LangSmith",
        "strength": 0.68,
        "fields": "inputs → input, reference_outputs or outputs → expected_output, split → tags",
        "fits": (
            {"all": "inputs", "any": "outputs reference_outputs", "none": "expectations expected_output evaluators"},
            {"all": "inputs", "objects": "inputs", "none": "expectations expected_output evaluators"},
        ),
        "case": {
            "id": "id",
            "input": "question: inputs",
            "expected_output": "reference: reference_outputs outputs",
            "tags": "texts: split metadata.dataset_split",
            "metadata": "json: metadata",
        },
        "unused": "attachments",
        "losses": {"attachments": "attachments, which are stored in LangSmith"},
    },
    "ragas": {
        "title": "a test set of Ragas",
        "strength": 0.64,
        "fields": "user_input → input, reference → expected_output, contexts → context",
        "fits": ({"all": "user_input"}, {"all": "question", "any": "ground_truth ground_truths"}),
        "case": {
            "id": "id",
            "input": "dialogue: user_input question",
            "expected_output": "reference ground_truth | first: ground_truths",
            "context": "lines: reference_contexts retrieved_contexts contexts ground_truth_context",
            "assertions": "calls: reference_tool_calls",
            "metadata.rubrics": "json: rubrics",
            "metadata": "json: metadata",
        },
        "losses": {"rubrics": "rubrics with a description per score: they are in the metadata"},
    },
    "azure": {
        "title": "a dataset of Azure AI evaluation",
        "strength": 0.62,
        "fields": "query → input, ground_truth → expected_output, context → context",
        "fits": (
            {"all": "conversation.messages"},
            {
                "all": "query",
                "any": "ground_truth truth response context tool_definitions",
                "none": "should_trigger input conversation",
            },
        ),
        "case": {
            "id": "id",
            "input": "dialogue: conversation.messages | question: query",
            "expected_output": "ground_truth truth",
            "context": "texts: context",
            "metadata.recorded_response": "response",
            "metadata": "json: metadata",
        },
    },
    "phoenix": {
        "title": "examples of Phoenix",
        "strength": 0.6,
        "fields": "input → input, output → expected_output, splits → tags",
        "pages": "data.examples",
        "flattened": "input output metadata",
        "fits": ({"all": "input output", "objects": "input", "none": "sample_id evaluation_id"},),
        "case": {
            "id": "id example_id",
            "input": "question: input",
            "expected_output": "reference: reference_output output",
            "tags": "texts: splits",
            "metadata": "json: metadata",
        },
        "unused": "node_id span_id example_id",
    },
    "opik": {
        "title": "dataset items of Opik",
        "strength": 0.67,
        "fields": "input → input, expected_output → expected_output",
        "fits": (
            {"all": "input source", "any": "expected_output", "objects": "input"},
            {"all": "data source", "objects": "data"},
            {"all": "data assertions", "objects": "data", "lists": "assertions"},
        ),
        "case": {
            "id": "id",
            "input": "question: input data.input data.user_input data.question data.query data.prompt data",
            "expected_output": "reference: expected_output data.expected_output",
            "rubrics": "texts: assertions",
            "tags": "texts: tags",
            "metadata": "json: metadata",
        },
    },
    "vertex": {
        "title": "a dataset of Vertex AI evaluation",
        "strength": 0.65,
        "fields": "prompt or request → input, reference or the last reply → expected_output",
        "fits": (
            {"all": "prompt reference", "none": "id prompt_id input question chosen"},
            {"all": "prompt reference_trajectory", "none": "input"},
            {"all": "request.contents"},
            {"all": "contents", "lists": "contents", "none": "input prompt"},
        ),
        "case": {
            "id": "id eval_case_id eval_id",
            "input": "question: prompt request.contents | last_reply: contents",
            "system": "parts: request.systemInstruction request.system_instruction systemInstruction instruction",
            "expected_output": "reference",
            "context": "texts: context",
            "assertions": "calls: reference_trajectory",
            "metadata.recorded_response": "json: response",
        },
        "losses": {
            "rubric_groups": "rubrics of Vertex AI: they are in the metadata",
            "reference_trajectory": "the metric of a trajectory: its calls are expected in this order",
        },
    },
    "bedrock": {
        "title": "a dataset of Bedrock evaluations",
        "strength": 0.63,
        "fields": "prompt or conversationTurns → input and turns, referenceResponse → expected_output",
        "fits": ({"all": "prompt referenceResponse"}, {"all": "conversationTurns", "lists": "conversationTurns"}),
        "case": {
            "input": "text: prompt | bedrock_turns: conversationTurns",
            "expected_output": "referenceResponse",
            "tags": "texts: category",
            "metadata.recorded_response": "json: modelResponses",
        },
    },
    "giskard": {
        "title": "a test set of Giskard",
        "strength": 0.61,
        "fields": "conversation_history and question → input, reference_answer → expected_output",
        "fits": ({"all": "question reference_answer reference_context"},),
        "case": {
            "id": "id",
            "input": "chat: conversation_history question",
            "expected_output": "reference_answer",
            "context": "texts: reference_context",
            "metadata": "json: metadata",
        },
    },
    "letta": {
        "title": "rows of letta-evals",
        "strength": 0.66,
        "fields": "input → input and turns, ground_truth → expected_output",
        "fits": ({"all": "input", "any": "ground_truth agent_args rubric_vars rubric_path", "none": "target"},),
        "case": {
            "id": "id",
            "input": "turns: input",
            "references": "texts: ground_truth",
            "tags": "texts: tags",
            "metadata": "json: metadata",
        },
        "losses": {
            "agent_args": "arguments of the agent: they are in the metadata",
            "rubric rubric_path": "the prompt of a grader (rubric)",
        },
    },
    "nemo-gym": {
        "title": "tasks of NeMo Gym",
        "strength": 0.86,
        "fields": "responses_create_params.input → input, expected_answer or answer → expected_output",
        "fits": ({"all": "responses_create_params.input", "none": "reward response"},),
        "refused": {
            "responses_create_params response reward": (
                "The file has rollouts of NeMo Gym",
                "Answers of a model are not cases: to see them as a run, use `agentv report`",
            )
        },
        "case": {
            "id": "id uuid",
            "input": "responses: responses_create_params.input | text: problem_statement prompt",
            "system": "text: responses_create_params.instructions",
            "expected_output": "expected_answer answer",
        },
        "losses": {
            "responses_create_params": "the verifier of an environment, which computes the reward, and its tools",
        },
    },
    **BENCHMARK_FORMATS,
}
"""The formats by name."""
