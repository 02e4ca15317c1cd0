"""The options of commands that make several runs of the same cases."""

from __future__ import annotations

from agentv.cli.evaluation_options import ExecutorOptions, JobArguments
from agentv.cli.options import FOLDER, flag, option, with_help
from agentv.engine.run_options import EvalOptions


class SeriesOptions(ExecutorOptions, JobArguments):
    """Options for several runs of the same cases."""

    seed = with_help(EvalOptions.seed, "Random seed for --sample (default: 0).")
    trials = with_help(EvalOptions.trials, "Number of times to run each case in each run.")
    out: str | None = option("--out DIR", "Folder of the runs (default: a new one in .agentv/results).", FOLDER)
    dry_run: bool = flag("--dry-run", "Check the inputs and print the plan of one run; call nothing.")
    resume: bool = flag("--resume", "Continue in the folder given by --out, or in the latest one.", "Resume")
    as_json: bool = flag("--json", "Print the figures as JSON on stdout.")
