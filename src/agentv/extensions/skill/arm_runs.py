"""Run the arms of a comparison, print the findings and exit with the code of the gate."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from agentv.cli import output
from agentv.cli.commands.compare import write_page
from agentv.cli.options import options_of
from agentv.cli.run_series import RunSeries, SeriesStopped, print_run_plan
from agentv.engine.run_options import EvalOptions
from agentv.errors import file_errors, plural
from agentv.extensions.skill.ablation_text import ablation_lines, ablation_markdown
from agentv.extensions.skill.arms import WITHOUT, Arm
from agentv.extensions.skill.command import ArmOptions
from agentv.extensions.skill.findings import Findings, Gate, find, findings_data
from agentv.report.terminal import print_lines
from agentv.runs.folder import short_path

EVALS, TRIGGERS = "evals", "triggers"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured: its name in sentences, its arms, and the datasets of its runs."""

    command: str
    subject: str
    arms: tuple[Arm, ...]
    datasets: Mapping[str, tuple[str, ...]]
    skill: str | None = None
    versions: Mapping[str, str] = {}
    earlier: Mapping[str, str] = {}
    """The earlier runs whose answers are reused, by the name of the run."""


def run_options(args: ArmOptions, measured: Measured, run: str) -> EvalOptions:
    """Return the options of a run: its datasets, and the arms that answer them. Triggers need the skill."""
    arms = [arm for arm in measured.arms if run == EVALS or arm.label != WITHOUT]
    return options_of(
        EvalOptions,
        args,
        paths=measured.datasets[run],
        targets=tuple(arm.name for arm in arms),
        variants=tuple(arm.variant for arm in arms),
        changed_since=measured.earlier.get(run),
    )


def print_plans(args: ArmOptions, measured: Measured) -> None:
    """Print the plan of each run; call nothing."""
    for run in measured.datasets:
        options = run_options(args, measured, run)
        if not args.as_json:
            output.note(f"Run {run}: {plural(len(options.variants), 'arm')}")
        print_run_plan(options, args)


def measure(args: ArmOptions, series: RunSeries, measured: Measured) -> None:
    """Make the runs that are not complete, print the findings and exit."""
    try:
        for place, run in enumerate(measured.datasets, 1):
            options = series.options(run_options(args, measured, run), run)
            series.evaluate(run, options, f"Run {place} of {len(measured.datasets)}: {run}")
    except SeriesStopped as stopped:
        series.stop(measured.command, stopped)
    runs = {run: series.home / run for run in measured.datasets}
    findings = Findings(
        subject=measured.subject,
        targets=find(measured.arms, runs, measured.skill, args.changes),
        folders={run: short_path(path) for run, path in runs.items()},
        versions=dict(measured.versions),
        trials=args.trials,
    )
    gate = cast("Gate", args.fail_on)
    code = findings.exit_code(gate)
    _write(args, findings)
    if args.as_json:
        output.echo_json(findings_data(findings, gate, code))
    else:
        print_lines(ablation_lines(findings), sys.stdout, sys.stdout.isatty())
    sys.exit(code)


def _write(args: ArmOptions, findings: Findings) -> None:
    if args.html is not None:
        write_page(args.html, f"Does {findings.subject} help?", ablation_markdown(findings))
    if args.md is not None:
        with file_errors(f"Cannot write {args.md}"):
            Path(args.md).write_text(ablation_markdown(findings), encoding="utf-8")
