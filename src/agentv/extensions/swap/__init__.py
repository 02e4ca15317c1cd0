"""Rehearse a change of model on the same cases."""

ROWS = {
    "agentv.commands": {
        "swap": "agentv.extensions.swap.command:swap_command | "
        "Rehearse a change of model: quality, cost, time, refusals.",
    },
}
