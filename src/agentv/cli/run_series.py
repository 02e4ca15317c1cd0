"""Make several runs in one folder, one after the other, and resume them together."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import click
import msgspec

from agentv.cli import output
from agentv.cli.commands.eval import print_reasons, run_folder
from agentv.cli.display import RunDisplay
from agentv.cli.dry_run import print_plan
from agentv.cli.evaluation_options import SeriesOptions
from agentv.engine.answers.rescored_answers import prepare_rescore
from agentv.engine.answers.stored_answers import StoredAnswers, cases_to_rescore
from agentv.engine.cost import costs_so_far
from agentv.engine.prepare import prepare
from agentv.engine.resume import folder_of, resumed
from agentv.engine.run import open_executor, open_store, run
from agentv.engine.run_options import EvalOptions, RescoreOptions
from agentv.engine.run_plan import RunPlan
from agentv.engine.run_project import RESULTS
from agentv.errors import EXIT_BUDGET, EXIT_ERRORS, UsageError
from agentv.report.terminal import Line, print_lines
from agentv.runs.folder import RunFolder, new_run_id, short_path
from agentv.runs.store import RunStore
from agentv.settings.project import project_root

_SHARED = (
    *("targets_file", "judge", "workers", "timeout_s", "max_retries", "max_outage_s", "on_error"),
    *("allow_outside_files", "max_line_bytes", "fields", "strict", "executor", "processes", "ray_address", "sandbox"),
)
"""The options of a run that also apply when its answers are scored again."""


def print_run_plan(options: EvalOptions, args: SeriesOptions) -> None:
    """Print the plan of one run of a series; call nothing."""
    print_plan(prepare(options, options.open_cases(*output.listeners(args.quiet))), as_json=args.as_json)


def print_result(args: SeriesOptions, data: dict[str, Any], lines: Sequence[Line]) -> None:
    """Print the result of a command as lines, or with `--json` as data."""
    if args.as_json:
        output.echo_json(data)
    else:
        print_lines(lines, sys.stdout, sys.stdout.isatty())


class RunSeries:
    """The runs of one command, in folders of `home`. Budget and deadline are for all of them together.

    A run that is complete is not repeated, and one that was interrupted is resumed. If a run stops, or none of its jobs
    has a score, the program ends with its exit code. What is done is kept, and `command` is how to continue.
    """

    def __init__(self, home: Path, args: SeriesOptions, command: str) -> None:
        self.home = home
        self._args = args
        self._command = command
        self._has_warned = False
        self._left_usd = args.budget_usd
        self._ends = None if args.deadline_s is None else monotonic() + args.deadline_s

    @classmethod
    def open(cls, kind: str, first: str, args: SeriesOptions, command: str) -> RunSeries:
        """Open a new folder, or with `--resume` the one in `--out` or the latest; its first run is called `first`."""
        root = Path(project_root(folder_of(args.paths)))
        out = run_folder(args.out)
        if not args.resume:
            if not args.paths:
                raise click.UsageError("Missing argument 'PATHS...'")
            home = root / RESULTS / f"{kind}-{new_run_id()}" if out is None else Path(out)
            if home.exists() and any(home.iterdir() if home.is_dir() else (home,)):
                raise UsageError(f"{home} already exists", hint="Continue it with --resume, or choose another folder")
            return cls(home, args, command)
        if out is not None:
            if not args.paths and not RunFolder(Path(out, first)).manifest_path.is_file():
                raise UsageError(f"Nothing to resume in {out}", hint=f"Start with: agentv {kind} PATHS…")
            return cls(Path(out), args, command)
        if not (manifests := sorted((root / RESULTS).glob(f"{kind}-*/{first}/run.json"))):
            raise UsageError(f"No `agentv {kind}` to resume", hint="Name its folder with --out, or start a new one")
        return cls(manifests[-1].parent.parent, args, command)

    def options(self, options: EvalOptions, name: str) -> EvalOptions:
        """Return the given options, or with `--resume` those of a run that was started."""
        folder = self.home / name
        if not self._args.resume or not RunFolder(folder).manifest_path.is_file():
            return options.lasting()
        return resumed(options.lasting(), str(folder), folder_of(options.paths))[0]

    def evaluate(self, name: str, options: EvalOptions, title: str) -> RunPlan:
        """Run all cases that are not done yet."""
        folder = self.home / name
        options = self._limited(options)
        if RunFolder(folder).manifest_path.is_file():
            options = resumed(options, str(folder), folder_of(options.paths))[0]
        plan = prepare(options, options.open_cases(*output.listeners(self._args.quiet or self._has_warned)))
        self._has_warned = True
        self._run(plan, folder, title)
        return plan

    def rescore(self, name: str, run_name: str, options: EvalOptions, title: str, **further: Any) -> None:
        """Score the answers of a run of this series again with every evaluator."""
        folder = self.home / name
        shared = {field: getattr(options, field) for field in _SHARED}
        run_path = str((self.home / run_name).resolve())
        rescoring = RescoreOptions(**{**shared, "run": run_path, "every_evaluator": True, **further})
        rescoring = self._limited(rescoring)
        if RunFolder(folder).manifest_path.is_file():
            rescoring = resumed(rescoring, str(folder), ".")[0]
        with closing(StoredAnswers(rescoring.run)) as answers:
            cases = cases_to_rescore(rescoring, answers, *output.listeners(True))
            self._run(prepare_rescore(rescoring, cases, answers), folder, title)

    def _stop(self, exit_code: int) -> NoReturn:
        """Print how to continue, and exit."""
        budget = " --budget-usd USD" if exit_code == EXIT_BUDGET else ""
        output.message(f"Resume with: {self._command} --resume --out {shlex.quote(short_path(self.home))}{budget}")
        raise SystemExit(exit_code)

    def _limited(self, options: EvalOptions) -> Any:
        """Return the options with what is left of the budget and the time. Exits if nothing is."""
        if self._left_usd is not None and self._left_usd <= 0:
            output.error("the budget is used up", "Stopped")
            self._stop(EXIT_BUDGET)
        left_s = None if self._ends is None else max(0.001, self._ends - monotonic())
        return msgspec.structs.replace(options, budget_usd=self._left_usd, deadline_s=left_s)

    def _run(self, plan: RunPlan, folder: Path, title: str) -> None:
        """Run a plan unless its folder has the complete run, and subtract its cost from the budget."""
        run_files = RunFolder(folder)
        manifest = run_files.read_manifest() if run_files.manifest_path.is_file() else None
        if manifest is None or manifest.finished_at is None:
            if not self._args.quiet and not self._args.as_json:
                output.message(title)
            is_new = plan.rescored is None
            store = open_store(plan, str(folder), resume=manifest is not None, listed=is_new)
            outcome = run(plan, store, open_executor(plan), RunDisplay(plan, self._args))
            code = outcome.verdict.exit_code
            if outcome.stopped is not None or not any(target.scored for target in outcome.summary.targets.values()):
                print_reasons(outcome)
                self._stop(code if outcome.stopped is not None else code or EXIT_ERRORS)
        if plan.options.budget_usd is not None:
            self._left_usd = costs_so_far(plan, RunStore.open(folder)).left_usd
