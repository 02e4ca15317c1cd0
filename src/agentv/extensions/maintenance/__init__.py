"""Maintain run folders: merge the runs of shards, find damage, and repair it."""

_COMMAND = "agentv.extensions.maintenance.command"

ROWS = {
    "agentv.commands": {
        "runs merge": f"{_COMMAND}:merge_command",
        "runs check": f"{_COMMAND}:check_command",
        "runs repair": f"{_COMMAND}:repair_command",
    },
}
