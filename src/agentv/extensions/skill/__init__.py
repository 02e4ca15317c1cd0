"""Compare targets with and without a skill, prompt, file or MCP server."""

_COMMAND = "agentv.extensions.skill.command"

ROWS = {
    "agentv.commands": {
        "skill": f"{_COMMAND}:skill_command | Measure whether an Agent Skill helps your coding agents.",
        "ablate": f"{_COMMAND}:ablate_command | Measure whether a prompt, a file or an MCP server helps.",
    },
}
