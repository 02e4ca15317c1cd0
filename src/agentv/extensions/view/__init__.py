"""The served page: `agentv view`."""

ROWS = {
    "agentv.commands": {
        "view": "agentv.extensions.view.command:view_command | "
        "Show runs in the browser: live, with filters and comparisons.",
    },
}
