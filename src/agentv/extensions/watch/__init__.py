"""`agentv eval --watch`: run what each saved file changes."""

ROWS = {
    "agentv.services": {
        "watch": "agentv.extensions.watch.watch:watch",
    },
}
