"""`agentv skill`: run coding agents with and without a skill, and compare the answers."""

import re
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

import click

from agentv.cli.run_series import RunSeries
from agentv.engine.run_project import is_remote, open_targets
from agentv.errors import UsageError
from agentv.extensions.skill.arm_runs import EVALS, TRIGGERS, Measured, measure, print_plans
from agentv.extensions.skill.arms import PREVIOUS, WITH, check_leaks, coding_agents, skill_arms
from agentv.extensions.skill.command import SkillArguments
from agentv.extensions.skill.skill_folder import SkillFolder, copy_previous, copy_skill, open_skill
from agentv.runs.folder import RunFolder
from agentv.support.hashes import folder_digest


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
    series = RunSeries.open(f"skill-{re.sub(r'[^A-Za-z0-9_.-]+', '-', skill.name)}", first, args)
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
        command=f"agentv skill {shlex.quote(skill.path)}",
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
