"""`agentv skill` and `agentv ablate`: run targets with and without something, and compare the answers."""

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import cast

import click
import msgspec

from agentv.cli import output
from agentv.cli.commands.compare import write_page
from agentv.cli.options import options_of
from agentv.cli.run_series import RunSeries, print_result, print_run_plan
from agentv.engine.resume import folder_of
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_project import is_remote, open_targets
from agentv.errors import UsageError, file_errors, plural
from agentv.extensions.skill.ablation_text import ablation_lines, ablation_markdown
from agentv.extensions.skill.arms import (
    PREVIOUS,
    WITH,
    WITHOUT,
    Arm,
    check_leaks,
    coding_agents,
    file_arms,
    mcp_arms,
    prompt_arms,
    skill_arms,
)
from agentv.extensions.skill.command import AblateArguments, ArmOptions, SkillArguments
from agentv.extensions.skill.findings import Findings, Gate, find, findings_data
from agentv.extensions.skill.skill_folder import SkillFolder, copy_previous, copy_skill, open_skill
from agentv.runs.folder import RunFolder, short_path
from agentv.support.hashes import folder_digest
from agentv.targets.target import Target

EVALS, TRIGGERS = "evals", "triggers"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured: its name in sentences, its arms, and the datasets of its runs."""

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
    for place, run in enumerate(measured.datasets, 1):
        options = series.options(run_options(args, measured, run), run)
        series.evaluate(run, options, f"Run {place} of {len(measured.datasets)}: {run}")
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
    if args.html is not None:
        write_page(args.html, f"Does {findings.subject} help?", ablation_markdown(findings))
    if args.md is not None:
        with file_errors(f"Cannot write {args.md}"):
            Path(args.md).write_text(ablation_markdown(findings), encoding="utf-8")
    print_result(args, findings_data(findings, gate, code), ablation_lines(findings))
    sys.exit(code)


def ablate(args: AblateArguments) -> None:
    """Measure a prompt, a file or an MCP server, print the report and exit with the exit code."""
    options = {"--prompt": args.prompt, "--file": args.file, "--mcp": args.mcp}
    subjects = [(name, value) for name, value in options.items() if value is not None]
    if len(subjects) != 1:
        raise click.UsageError("Name what to measure: --prompt FILE, --file PATH or --mcp NAME")
    if not args.paths:
        raise click.UsageError("Missing argument 'PATHS...'")
    if args.mcp is not None and args.against is not None:
        raise click.UsageError("--against needs --prompt or --file")
    file = open_targets(folder_of(args.paths), args.targets_file)
    targets = [(file.get(name), file.raw(name)) for name in file.pick(args.targets)]
    measured = Measured(
        subject=args.prompt or args.file or f"the MCP server '{args.mcp}'",
        arms=tuple(arm for target, settings in targets for arm in _arms(args, target, settings)),
        datasets={EVALS: args.paths},
        versions={} if args.against is None else {"against": args.against},
    )
    if args.dry_run:
        print_plans(args, measured)
        return
    further = () if args.against is None else ("--against", args.against)
    command = shlex.join(("agentv", "ablate", *args.paths, *subjects[0], *further))
    measure(args, RunSeries.open("ablate", EVALS, args, command), measured)


def _arms(args: AblateArguments, target: Target, settings: dict[str, object]) -> list[Arm]:
    if args.prompt is not None:
        return prompt_arms(target, _text(args.prompt), None if args.against is None else _text(args.against))
    if args.mcp is not None:
        return mcp_arms(target, args.mcp, settings)
    assert args.file is not None
    place, equals, source = args.file.partition("=")
    source = source if equals else place
    path = os.path.normpath(place if equals else os.path.relpath(source) if os.path.isabs(source) else source)
    for file in (source, args.against):
        if file is not None and not os.path.exists(file):
            raise UsageError(f"There is no file {file}", hint="Paths are relative to the working directory")
    if os.path.isabs(path) or path.startswith(os.pardir):
        hint = f"Name the path in the workspace: --file {os.path.basename(source)}={shlex.quote(source)}"
        raise UsageError(f"{source} is outside the working directory", hint=hint)
    return file_arms(target, path, source, args.against)


def _text(path: str) -> str:
    with file_errors(f"Cannot read {path}"):
        return Path(path).read_text(encoding="utf-8")


def measure_skill(args: SkillArguments) -> None:
    """Measure a skill, print the report and exit with the exit code."""
    if len(args.paths) != 1:
        raise click.UsageError("Name the folder of one skill: agentv skill DIR")
    skill = open_skill(args.paths[0])
    first = EVALS if skill.evals else TRIGGERS
    if args.dry_run:
        with tempfile.TemporaryDirectory(prefix="agentv-skill-") as folder:
            print_plans(args, _measured(args, skill, Path(folder)))
        return
    kind = f"skill-{re.sub(r'[^A-Za-z0-9_.-]+', '-', skill.name)}"
    series = RunSeries.open(kind, first, args, f"agentv skill {shlex.quote(skill.path)}")
    try:
        measure(args, series, _measured(args, skill, series.home))
    finally:
        if not any(RunFolder(series.home / run).manifest_path.is_file() for run in (EVALS, TRIGGERS)):
            rmtree(series.home / "versions", ignore_errors=True)  # nothing was started
            with suppress(OSError):
                series.home.rmdir()


def _measured(args: SkillArguments, skill: SkillFolder, home: Path) -> Measured:
    """Return the arms of every agent, with copies of the versions of the skill in `home`."""
    file = open_targets(skill.path, args.targets_file)
    agents = coding_agents(file, args.targets)
    for agent in agents:
        check_leaks(agent, skill.name, file.home, tempfile.gettempdir())
        if not args.dry_run and not is_remote(args.executor):
            agent.check_ready(file.home)
    folders, versions = _copies(args, skill, home / "versions")
    datasets = {EVALS: skill.evals, TRIGGERS: skill.triggers}
    return Measured(
        subject=f"the skill '{skill.name}'",
        arms=tuple(arm for agent in agents for arm in skill_arms(agent, file.home, folders)),
        datasets={run: paths for run, paths in datasets.items() if paths},
        skill=skill.name,
        versions=versions,
        earlier=_earlier(args.baseline) if args.baseline is not None else {},
    )


def _earlier(folder: str) -> dict[str, str]:
    """Return the run of evals in the folder of an earlier `agentv skill`. Raises UsageError."""
    run = Path(folder, EVALS)
    if not RunFolder(run).manifest_path.is_file():
        detail = f"{run} is not a run"
        hint = "Name the folder that `agentv skill` wrote: --out, or .agentv/results/skill-NAME-…"
        raise UsageError(f"--baseline: {folder} is not the folder of an earlier `agentv skill`", detail, hint)
    return {EVALS: str(run)}


def _copies(args: SkillArguments, skill: SkillFolder, home: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Copy the current version of the skill, and the earlier one; return the folders and the commits.

    A run that is resumed keeps its copies. Raises UsageError if the skill has changed since.
    """
    earlier, commit = home / PREVIOUS, home / "previous.txt"
    if args.resume and (home / WITH).is_dir():
        current = str(home / WITH / skill.name)
        now = copy_skill(skill.path, home / "now")
        if folder_digest(now) != folder_digest(current):
            hint = "Undo the change, or start a new run without --resume"
            raise UsageError(f"Cannot resume: the skill '{skill.name}' has changed since the run started", hint=hint)
    else:
        current = copy_skill(skill.path, home / WITH)
        if args.previous is not None:
            commit.write_text(copy_previous(skill.path, args.previous or None, current, earlier)[1], encoding="utf-8")
    if not commit.is_file():
        return {WITH: current}, {}
    return {PREVIOUS: str(earlier / "skill" / skill.name), WITH: current}, {PREVIOUS: commit.read_text("utf-8")}
