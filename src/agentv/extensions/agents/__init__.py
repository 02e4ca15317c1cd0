"""Coding agents as targets: Claude Code, Codex, Copilot CLI, Gemini CLI, OpenCode and pi."""

_AGENTS = "agentv.extensions.agents"

ROWS = {
    "agentv.targets": {
        "claude-code": f"{_AGENTS}.vendor_agents:ClaudeCode claude claude-cli claude-sdk",
        "codex": f"{_AGENTS}.vendor_agents:Codex codex-cli codex-sdk codex-app-server",
        "copilot-cli": f"{_AGENTS}.multi_model_agents:CopilotCli copilot copilot-sdk",
        "gemini-cli": f"{_AGENTS}.vendor_agents:GeminiCli",
        "pi-coding-agent": f"{_AGENTS}.multi_model_agents:PiCodingAgent pi pi-cli pi-sdk pi-rpc",
        "opencode": f"{_AGENTS}.multi_model_agents:OpenCode",
        "copilot-log": f"{_AGENTS}.copilot_log:CopilotLog",
    },
}
