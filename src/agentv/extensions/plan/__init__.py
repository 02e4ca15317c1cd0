"""Estimate how many cases the next run needs, or choose a subset of them."""

ROWS = {
    "agentv.commands": {
        "plan": "agentv.extensions.plan.command:plan_command | "
        "Estimate the number of cases you need, or choose a smaller suite.",
    },
}
