"""Read and write the datasets, results and sessions of other tools."""

_DATASETS = "agentv.extensions.interop.datasets"
_RESULTS = "agentv.extensions.interop.results"
_SESSIONS = "agentv.extensions.interop.sessions"
_RECORD_FORMATS = (
    *("langfuse", "braintrust", "mlflow", "langsmith", "ragas", "azure", "phoenix", "opik", "vertex", "letta"),
    *("nemo-gym", "swe-bench", "toolbench", "gsm8k", "human-eval", "mt-bench", "sharegpt", "alpaca", "chat"),
)
"""The rows of `datasets.record_formats`, which is not imported here because a run rarely needs it."""

ROWS = {
    "agentv.foreign_formats": {
        "agent-skills": f"{_DATASETS}.agent_skills:AGENT_SKILLS",
        "skill-triggers": f"{_DATASETS}.skill_triggers:SKILL_TRIGGERS",
        "github-prompt": f"{_DATASETS}.github_prompt:GITHUB_PROMPT",
        "openai-hosted": f"{_DATASETS}.openai_evals:OPENAI_HOSTED",
        "openai-evals": f"{_DATASETS}.openai_evals:OPENAI_SAMPLES",
        "inspect": f"{_DATASETS}.inspect_samples:INSPECT_SAMPLES",
        "deepeval": f"{_DATASETS}.deepeval_goldens:DEEPEVAL_GOLDENS",
        "vally": f"{_DATASETS}.agents.vally:VALLY",
        "waza": f"{_DATASETS}.agents.waza:WAZA",
        "harbor-task": f"{_DATASETS}.agents.harbor:HARBOR_TASK",
        "lm-eval": f"{_DATASETS}.benchmarks.lm_eval:LM_EVAL",
        "adk": f"{_DATASETS}.agents.adk:ADK",
        "pydantic-evals": f"{_DATASETS}.platforms.pydantic_cases:PYDANTIC_CASES",
        "bfcl": f"{_DATASETS}.benchmarks.bfcl:BFCL",
        "tau2": f"{_DATASETS}.benchmarks.tau2:TAU2",
        "multiple-choice": f"{_DATASETS}.multiple_choice:MULTIPLE_CHOICE",
        "preference-pairs": f"{_DATASETS}.preference_pairs:PREFERENCE_PAIRS",
        **{name: f"{_DATASETS}.keyed_records:{name}" for name in _RECORD_FORMATS},
    },
    "agentv.foreign_folders": {
        "harbor": f"{_DATASETS}.agents.harbor:HARBOR",
        "hugging-face": f"{_DATASETS}.benchmarks.hugging_face:HUGGING_FACE",
    },
    "agentv.result_formats": {
        "agentv-jsonl": f"{_RESULTS}.agentv.agentv_rows:AgentvLines",
        "agentv-yaml": f"{_RESULTS}.agentv.agentv_rows:AgentvYaml",
        "agentv-fixtures": f"{_RESULTS}.agentv.agentv_fixtures:AgentvFixtures",
        "openai-hosted": f"{_RESULTS}.openai_items:OpenAiItems",
        "inspect": f"{_RESULTS}.inspect_logs:InspectLog",
        "promptfoo": f"{_RESULTS}.promptfoo_results:PromptfooResults",
        "promptfoo-csv": f"{_RESULTS}.tables.promptfoo_tables:PromptfooTable",
        "promptfoo-yaml": f"{_RESULTS}.tables.promptfoo_tables:PromptfooYaml",
        "deepeval": f"{_RESULTS}.deepeval_runs:DeepEvalRun",
        "pydantic-evals": f"{_RESULTS}.pydantic_reports:PydanticReport",
        "lm-eval": f"{_RESULTS}.lm_eval_samples:LmEvalSamples",
        "helm": f"{_RESULTS}.helm_runs:HelmRun",
        "openai-evals": f"{_RESULTS}.openai_logs:OpenAiLog",
        "braintrust": f"{_RESULTS}.braintrust_experiments:BraintrustExperiment",
        "swe-bench": f"{_RESULTS}.benchmarks.swe_bench_results:SweBenchResults",
        "waza": f"{_RESULTS}.waza_runs:WazaRun",
        "nemo-gym": f"{_RESULTS}.nemo_gym_rollouts:NemoGymRollouts",
        "every-eval-ever": f"{_RESULTS}.every_eval_ever:EveryEvalEver",
        "letta": f"{_RESULTS}.letta_results:LettaResults",
        "azure": f"{_RESULTS}.tables.azure_evaluations:AzureEvaluation",
        "ragas": f"{_RESULTS}.tables.score_tables:RagasResults",
        "mlflow": f"{_RESULTS}.tables.score_tables:MlflowResults",
        "mt-bench": f"{_RESULTS}.benchmarks.mt_bench_judgments:MtBenchJudgments",
        "tau2": f"{_RESULTS}.benchmarks.tau2_simulations:Tau2Simulations",
        "terminal-bench": f"{_RESULTS}.benchmarks.terminal_bench_results:TerminalBenchResults",
    },
    "agentv.session_formats": {
        "claude-code": f"{_SESSIONS}.claude_code:CLAUDE_CODE",
        "codex": f"{_SESSIONS}.codex:CODEX",
        "copilot-cli": f"{_SESSIONS}.copilot:COPILOT",
        "vscode-copilot": f"{_SESSIONS}.vscode_chat:VSCODE_CHAT",
        "pi-coding-agent": f"{_SESSIONS}.pi:PI",
        "opencode": f"{_SESSIONS}.opencode:OPENCODE",
        "atif": f"{_SESSIONS}.atif:ATIF",
        "qwen-code": f"{_SESSIONS}.qwen_code:QWEN_CODE",
        "swe-agent": f"{_SESSIONS}.swe_agent:SWE_AGENT",
        "gemini-cli": f"{_SESSIONS}.gemini_cli:GEMINI_CLI",
        "agentv-transcript": f"{_SESSIONS}.agentv_transcripts:AGENTV_TRANSCRIPT",
    },
    "agentv.evaluators": {"fuzzy_match": "agentv.extensions.interop.fuzzy_match:FuzzyMatch"},
    "agentv.commands": {
        "runs import": "agentv.extensions.interop.command:import_command",
        "runs export": "agentv.extensions.interop.command:export_command",
    },
    "agentv.services": {
        "config-files": "agentv.extensions.interop.agentv_providers:config_of_project",
        "providers-files": "agentv.extensions.interop.agentv_providers:targets_of_providers",
        "command-successor": "agentv.extensions.interop.agentv_commands:successor",
        "option-translation": "agentv.extensions.interop.agentv_commands:translate",
        "run-import": "agentv.extensions.interop.imports.import_cache:imported_folder",
    },
}
