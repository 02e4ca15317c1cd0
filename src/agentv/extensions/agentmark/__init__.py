"""Prompt files of AgentMark (`.prompt.mdx`): as prompts of a dataset, and as datasets."""

ROWS = {
    "agentv.dataset_formats": {
        "prompt-mdx": "agentv.extensions.agentmark.prompt_dataset:PROMPT_MDX",
    },
    "agentv.services": {
        "agentmark-prompts": "agentv.extensions.agentmark.prompt_file:read_prompt_file",
    },
}
