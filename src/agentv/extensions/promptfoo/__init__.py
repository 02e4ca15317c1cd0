"""Run projects of promptfoo, and suites of AgentV 5, which are written in its language."""

_HERE = "agentv.extensions.promptfoo"

ROWS = {
    "agentv.evaluators": {
        "context_graded": f"{_HERE}.evaluators.answer_context:ContextGraded",
        "embedding_similarity": f"{_HERE}.evaluators.embedded_texts:EmbeddingSimilarity",
        "model_graded": f"{_HERE}.evaluators.rubric_prompt:ModelGraded",
        "scoring_function": f"{_HERE}.evaluators.scoring_function:ScoringFunction",
        "tool_steps": f"{_HERE}.evaluators.tool_steps:ToolSteps",
    },
    "agentv.foreign_formats": {
        "agentv-5": f"{_HERE}.agentv5.agentv_suite:AGENTV_SUITE",
        "promptfoo": f"{_HERE}.promptfoo_config:PROMPTFOO_CONFIG",
        "promptfoo-tests": f"{_HERE}.promptfoo_tests:PROMPTFOO_TESTS",
    },
    "agentv.targets": {
        "promptfoo_http": f"{_HERE}.nunjucks.http_templates:PromptfooHttp | an HTTP endpoint as promptfoo calls it",
    },
    "agentv.services": {
        "promptfoo-prompts": f"{_HERE}.functions.prompt_function:read_prompt",
        "promptfoo-anthropic-prompts": f"{_HERE}.functions.prompt_lines:read_prompt_lines",
        "promptfoo-output": f"{_HERE}.providers.model_output:read_reply",
        "promptfoo-call": f"{_HERE}.providers.provider_response:with_names",
        "promptfoo-response": f"{_HERE}.providers.provider_response:read_response",
    },
}
