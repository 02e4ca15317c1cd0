"""Keep a comment with the result of a comparison up to date on GitHub pull requests."""

ROWS = {
    "agentv.commands": {
        "comment": "agentv.extensions.github.command:comment_command | Comment on a GitHub pull request.",
    },
}
