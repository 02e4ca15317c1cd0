"""Generate rubrics and cases: with a model, from rows, from sessions, from OpenAI's hosted evals."""

ROWS = {
    "agentv.commands": {
        "generate": "agentv.extensions.generate.command:generate_command | "
        "Generate rubrics, or cases from rows or recorded sessions.",
    },
}
