"""`agentv ablate`: run targets with and without a prompt, a file or an MCP server, and compare the answers."""

import os
import shlex
from pathlib import Path

import click

from agentv.cli.run_series import RunSeries
from agentv.engine.resume import folder_of
from agentv.engine.run_project import open_targets
from agentv.errors import UsageError, file_errors
from agentv.extensions.skill.arm_runs import EVALS, Measured, measure, print_plans
from agentv.extensions.skill.arms import Arm, file_arms, mcp_arms, prompt_arms
from agentv.extensions.skill.command import AblateArguments
from agentv.targets.target import Target


def ablate(args: AblateArguments) -> None:
    """Measure a prompt, a file or an MCP server, print the report and exit with the exit code."""
    options = {"--prompt": args.prompt, "--file": args.file, "--mcp": args.mcp}
    names = [name for name, value in options.items() if value is not None]
    if len(names) != 1:
        raise click.UsageError("Name what to measure: --prompt FILE, --file PATH or --mcp NAME")
    if not args.paths:
        raise click.UsageError("Missing argument 'PATHS...'")
    if args.mcp is not None and args.against is not None:
        raise click.UsageError("--against needs --prompt or --file")
    measured = _measured(args)
    if args.dry_run:
        print_plans(args, measured)
        return
    measure(args, RunSeries.open("ablate", EVALS, args), measured)


def _measured(args: AblateArguments) -> Measured:
    file = open_targets(folder_of(args.paths), args.targets_file)
    targets = [(file.get(name), file.raw(name)) for name in file.pick(args.targets)]
    subject = args.prompt or args.file or f"the MCP server '{args.mcp}'"
    option = next(
        f"--{name} {shlex.quote(value)}" for name in ("prompt", "file", "mcp") if (value := getattr(args, name))
    )
    against = "" if args.against is None else f" --against {shlex.quote(args.against)}"
    return Measured(
        command=f"agentv ablate {shlex.join(args.paths)} {option}{against}",
        subject=subject,
        arms=tuple(arm for target, settings in targets for arm in _arms(args, target, settings)),
        datasets={EVALS: args.paths},
        versions={} if args.against is None else {"against": args.against},
    )


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
