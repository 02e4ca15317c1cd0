"""Find the commit that changed the scores: history, worktrees, batches of cases, and the decision at each commit."""

ROWS = {
    "agentv.commands": {
        "bisect": "agentv.extensions.bisect.command:bisect_command | Find the commit that changed the scores.",
    },
}
