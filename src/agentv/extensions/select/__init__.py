"""Choose the best of many prompts, models or settings, and confirm it on other cases."""

ROWS = {
    "agentv.commands": {
        "select": "agentv.extensions.select.command:select_command | "
        "Choose the best of many prompts or models, and confirm it.",
    },
}
