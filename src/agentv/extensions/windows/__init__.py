"""Run programs, and functions that score answers, on Windows: without process groups and fork."""

ROWS = {
    "agentv.services": {
        "plain-process": "agentv.extensions.windows.plain_process:run_plainly",
        "plain-judge": "agentv.extensions.windows.plain_judge:judge_plainly",
    },
}
