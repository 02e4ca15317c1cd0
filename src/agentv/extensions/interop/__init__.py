"""Read and write the datasets, results and sessions of other tools."""

_DATASETS = "agentv.extensions.interop.datasets"
_RESULTS = "agentv.extensions.interop.results"
_SESSIONS = "agentv.extensions.interop.sessions"

ROWS = {
    "agentv.foreign_formats": {
        "agent-skills": f"{_DATASETS}.agent_skills:AGENT_SKILLS",
        "skill-triggers": f"{_DATASETS}.skill_triggers:SKILL_TRIGGERS",
        "github-prompt": f"{_DATASETS}.github_prompt:GITHUB_PROMPT",
        "agentv-5": f"{_DATASETS}.promptfoo.agentv_suite:AGENTV_SUITE",
        "promptfoo": f"{_DATASETS}.promptfoo.promptfoo_config:PROMPTFOO_CONFIG",
        "promptfoo-tests": f"{_DATASETS}.promptfoo.promptfoo_config:PROMPTFOO_TESTS",
        "openai-hosted": f"{_DATASETS}.openai_evals:OPENAI_HOSTED",
        "openai-evals": f"{_DATASETS}.openai_evals:OPENAI_SAMPLES",
        "inspect": f"{_DATASETS}.inspect_samples:INSPECT_SAMPLES",
        "deepeval": f"{_DATASETS}.deepeval_goldens:DEEPEVAL_GOLDENS",
        "vally": f"{_DATASETS}.agents.vally:VALLY",
        "waza": f"{_DATASETS}.agents.waza:WAZA",
        "lm-eval": f"{_DATASETS}.benchmarks.lm_eval:LM_EVAL",
        "adk": f"{_DATASETS}.agents.adk:ADK",
        "pydantic-evals": f"{_DATASETS}.platforms.pydantic_cases:PYDANTIC_CASES",
        "langfuse": f"{_DATASETS}.platforms.langfuse:LANGFUSE",
        "braintrust": f"{_DATASETS}.platforms.braintrust:BRAINTRUST",
        "mlflow": f"{_DATASETS}.platforms.mlflow:MLFLOW",
        "langsmith": f"{_DATASETS}.platforms.langsmith:LANGSMITH",
        "letta": f"{_DATASETS}.agents.letta:LETTA",
        "ragas": f"{_DATASETS}.platforms.ragas:RAGAS",
        "azure": f"{_DATASETS}.platforms.azure:AZURE",
        "phoenix": f"{_DATASETS}.platforms.phoenix:PHOENIX",
        "swe-bench": f"{_DATASETS}.benchmarks.swe_bench:SWE_BENCH",
        "human-eval": f"{_DATASETS}.benchmarks.human_eval:HUMAN_EVAL",
        "mt-bench": f"{_DATASETS}.benchmarks.mt_bench:MT_BENCH",
        "tau2": f"{_DATASETS}.benchmarks.tau2:TAU2",
        "sharegpt": f"{_DATASETS}.training.sharegpt:SHAREGPT",
        "alpaca": f"{_DATASETS}.training.alpaca:ALPACA",
        "chat": f"{_DATASETS}.training.chat:CHAT",
    },
    "agentv.foreign_folders": {
        "harbor": f"{_DATASETS}.agents.harbor:HARBOR",
        "hugging-face": f"{_DATASETS}.benchmarks.hugging_face:HUGGING_FACE",
    },
    "agentv.result_formats": {
        "openai-hosted": f"{_RESULTS}.openai_items:OpenAiItems",
        "inspect": f"{_RESULTS}.inspect_logs:InspectLog",
        "promptfoo": f"{_RESULTS}.promptfoo_results:PromptfooResults",
        "deepeval": f"{_RESULTS}.deepeval_runs:DeepEvalRun",
        "pydantic-evals": f"{_RESULTS}.pydantic_reports:PydanticReport",
        "lm-eval": f"{_RESULTS}.lm_eval_samples:LmEvalSamples",
        "helm": f"{_RESULTS}.helm_runs:HelmRun",
        "openai-evals": f"{_RESULTS}.openai_logs:OpenAiLog",
        "every-eval-ever": f"{_RESULTS}.every_eval_ever:EveryEvalEver",
    },
    "agentv.session_formats": {
        "claude-code": f"{_SESSIONS}.claude_code:CLAUDE_CODE",
        "codex": f"{_SESSIONS}.codex:CODEX",
        "copilot-cli": f"{_SESSIONS}.copilot:COPILOT",
        "vscode-copilot": f"{_SESSIONS}.vscode_chat:VSCODE_CHAT",
        "pi-coding-agent": f"{_SESSIONS}.pi:PI",
        "opencode": f"{_SESSIONS}.opencode:OPENCODE",
        "atif": f"{_SESSIONS}.atif:ATIF",
        "gemini-cli": f"{_SESSIONS}.gemini_cli:GEMINI_CLI",
    },
    "agentv.services": {
        "every-eval-ever": f"{_RESULTS}.every_eval_ever_export:export_run",
    },
}
