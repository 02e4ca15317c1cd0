"""Create a starter project."""

ROWS = {
    "agentv.commands": {"init": "agentv.extensions.init.command:init_command | Create a starter project."},
}
