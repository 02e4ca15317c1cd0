"""Human labels: collect them in the terminal or on the served page, calibrate judges with them, and probe judges."""

ROWS = {
    "agentv.commands": {
        "judge": "agentv.extensions.judge.command:judge_command | Label answers, calibrate a judge, and probe it.",
    },
    "agentv.services": {
        "judge-labels": "agentv.extensions.judge.judge_labels:ProjectLabels",
        "page-labels": "agentv.extensions.judge.page_labels:FilePageLabels",
    },
}
