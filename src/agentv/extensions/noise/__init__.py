"""Run the same cases twice and measure the noise of a suite."""

ROWS = {
    "agentv.commands": {
        "noise": "agentv.extensions.noise.command:noise_command | Run the same cases twice and measure the noise.",
    },
}
