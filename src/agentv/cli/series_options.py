"""The options of commands that make several runs of the same cases."""

from __future__ import annotations

from agentv.cli.evaluation_options import TRIALS, ExecutorOptions, JobArguments
from agentv.cli.options import FOLDER, flag, option


class SeriesOptions(ExecutorOptions, JobArguments):
    """Options for several runs of the same cases."""

    seed: int | None = option("--seed N", "Random seed for --sample (default: 0).", int)
    trials: int | None = option("--trials N", "Number of times to run each case in each run.", TRIALS)
    out: str | None = option("--out DIR", "Folder of the runs (default: a new one in .agentv/results).", FOLDER)
    dry_run: bool = flag("--dry-run", "Check the inputs and print the plan of one run; call nothing.")
    resume: bool = flag("--resume", "Continue in the folder given by --out, or in the latest one.")
    as_json: bool = flag("--json", "Print the figures as JSON on stdout.")
