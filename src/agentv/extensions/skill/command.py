"""`agentv skill` and `agentv ablate`: their options."""

import click

from agentv.cli.evaluation_options import EvaluatedTargets, SeriesOptions
from agentv.cli.options import AT_LEAST_0, FILE, PATH, argument, declare, option

_GATES = ["regression", "worse", "any-loss", "no-help", "never"]


class ArmOptions(EvaluatedTargets, SeriesOptions):
    """Options of a comparison with and without something."""

    fail_on: str = option(
        "--fail-on",
        "Exit with 1 if a target is shown to be worse with what is measured (regression), has a lower mean (worse) or "
        "loses a case (any-loss). With no-help, also exit with 5 unless every target is shown to be better.",
        click.Choice(_GATES),
        group="Scoring",
        default="regression",
    )
    changes: int = option("--changes N", "Number of changed cases to show for each target.", AT_LEAST_0, default=5)
    html: str | None = option("--html FILE", "Also write the report as an HTML page that opens offline.", FILE)
    md: str | None = option("--md FILE", "Also write the report as Markdown, for a pull request.", FILE)


class SkillArguments(ArmOptions):
    """DIR is the folder of an Agent Skill: SKILL.md, and evals in evals/. Every coding agent of the targets file, or
    those named with --target, answers each eval with and without the skill, in a home and a workspace of its own. The
    skill is installed where the agent looks for skills; an agent that would find it elsewhere is refused. Answers are
    compared case by case, with the statistics of `agentv compare`. Trigger sets in evals/ give precision and recall.

    \b
    Exit codes: 0 passed   1 the --fail-on condition is met   2 usage, configuration or dataset error
                3 too many errors   4 budget reached   5 can't tell   130 interrupted
    """

    action = "agentv.extensions.skill.actions:measure_skill"
    examples = (
        "agentv skill skills/release-notes",
        "agentv skill skills/release-notes --target claude --trials 3",
        "agentv skill skills/release-notes --previous --fail-on no-help --md report.md",
        "agentv skill skills/release-notes --baseline .agentv/results/skill-release-notes-1",
        "agentv skill skills/release-notes --resume",
    )

    paths: tuple[str, ...] = argument(nargs=-1, metavar="DIR")
    previous: str | None = option(
        "--previous [REF]",
        "Also run the version of a commit; without REF, the newest version in Git that differs.",
        group="Targets",
        is_flag=False,
        flag_value="",
    )
    baseline: str | None = option(
        "--baseline FOLDER",
        "Reuse the answers of an earlier `agentv skill` that are still valid: those without the skill.",
        PATH,
        group="Targets",
    )


class AblateArguments(ArmOptions):
    """Runs the cases of the datasets in PATHS with and without a system prompt, a file of the workspace or an MCP
    server, and compares the answers case by case, with the statistics of `agentv compare`. With --against, two versions
    of the prompt or file are compared instead.

    \b
    Exit codes: 0 passed   1 the --fail-on condition is met   2 usage, configuration or dataset error
                3 too many errors   4 budget reached   5 can't tell   130 interrupted
    """

    action = "agentv.extensions.skill.actions:ablate"
    examples = (
        "agentv ablate evals --prompt prompts/system.md",
        "agentv ablate evals --prompt new.md --against old.md --target gpt",
        "agentv ablate evals --file AGENTS.md --target claude --trials 3",
        "agentv ablate evals --mcp search-server --fail-on no-help",
    )

    prompt: str | None = option("--prompt FILE", "Text file with the system prompt to measure.", FILE, group="Targets")
    file: str | None = option(
        "--file PATH|DEST=PATH",
        "File or folder to measure. It is added to each workspace at the same path, or at DEST.",
        group="Targets",
    )
    mcp: str | None = option(
        "--mcp NAME",
        "MCP server to measure: a part of its command or address in `tools` of the target.",
        group="Targets",
    )
    against: str | None = option(
        "--against FILE", "Compare with this version of the prompt or file instead of none.", group="Targets"
    )


skill_command = declare("skill", SkillArguments)
ablate_command = declare("ablate", AblateArguments)
