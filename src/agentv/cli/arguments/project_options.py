"""The arguments of the commands that look after a project: its datasets, targets, schemas and starter files."""

from __future__ import annotations

import click

from agentv.cli.options import (
    Arguments,
    FileOptions,
    ReadingOptions,
    SelectionOptions,
    argument,
    declare,
    flag,
    option,
)

FORMATS = ("dataset", "line", "sidecar", "targets", "config", "result", "run")


class CasesArguments(SelectionOptions, ReadingOptions):
    """PATHS are dataset files, folders or globs. Everything is read and checked first: after an error no case is
    printed.
    """

    action = "agentv.cli.commands.cases:print_cases"
    examples = (
        "agentv cases evals/dataset.jsonl",
        "agentv cases evals --filter 'math-*' --count",
        "agentv cases evals --resolve | jq .id",
    )

    paths: tuple[str, ...] = argument(nargs=-1, required=True)
    resolve: bool = flag("--resolve", help="Include the contents of files in the output.")
    count: bool = flag("--count", help="Print only the number of cases.")
    as_json: bool = flag("--json", help="Print JSON Lines on a terminal too.")


class ValidateArguments(FileOptions):
    """PATHS are files, folders or globs. Exit code 0: no findings; 1: findings; 2: wrong usage."""

    action = "agentv.cli.commands.validate:validate"
    examples = ("agentv validate evals", "agentv validate . --strict", "agentv validate evals --format github")

    paths: tuple[str, ...] = argument(nargs=-1, required=True)
    strict: bool = flag("--strict", help="Treat warnings as errors in the exit code.")
    style: str = option(
        "--format",
        type=click.Choice(["human", "json", "github"]),
        default="human",
        show_default=True,
        help="For people, for programs, or as annotations of a pull request.",
    )
    as_json: bool = flag("--json", help="The same as --format json.")
    quiet: bool = flag("--quiet", "-q", help="Print findings only.")


class ConvertArguments(FileOptions):
    """SOURCE and TARGET are .yaml, .yml, .jsonl, .ndjson, .jsonl.gz or .jsonl.zst; the settings of JSONL go into the
    sidecar next to it. The result is read back and must give the same cases. YAML that stays YAML keeps its comments.
    """

    action = "agentv.cli.commands.convert:convert"
    examples = (
        "agentv convert evals/dataset.jsonl evals/readable.yaml",
        "agentv convert evals/dataset.yaml data/dataset.jsonl.gz",
    )

    source: str = argument()
    target: str = argument(type=click.Path(dir_okay=False))
    force: bool = flag("--force", help="Replace files that exist.")


class SchemaArguments(Arguments):
    """\b
    dataset   a YAML document of cases        config    .agentv/config.yaml
    line      one line of a JSONL dataset     result    one line of results.jsonl
    sidecar   the settings next to JSONL      run       run.json
    targets   targets.yaml
    """

    action = "agentv.cli.commands.project_files:print_schema"
    examples = (
        "agentv schema dataset > dataset.schema.json, and as the first line of a dataset  "
        "# yaml-language-server: $schema=dataset.schema.json",
    )

    name: str = argument(type=click.Choice(FORMATS))


class TargetsOptions(Arguments):
    """Which targets, and how they are printed."""

    targets_file: str | None = option("--targets", metavar="FILE", type=click.Path(), help="Targets file to read.")
    as_json: bool = flag("--json", help="Print one JSON object per line.")


class TargetsArguments(TargetsOptions):
    """The file is the nearest .agentv/targets.yaml or targets.yaml from here up to the project root. Nothing is called
    without `check`.

    \b
    agentv targets               name, provider, model and place of each target
    agentv targets check NAME…   one tiny call to each (all without a name); exit code 1 when one fails
    """

    action = "agentv.cli.commands.targets:list_targets"
    examples = (
        "agentv targets",
        "agentv targets --json",
        "agentv targets check",
        "agentv targets check gpt --targets ci/targets.yaml",
    )


class CheckArguments(TargetsOptions):
    """Make one tiny call to each target and report how it went.

    Exit code 0: all answered; 1: one did not; 2: wrong usage, or an invalid targets file.
    """

    action = "agentv.cli.commands.targets:check"
    examples = ("agentv targets check", "agentv targets check gpt judge --json")

    names: tuple[str, ...] = argument(nargs=-1, metavar="[NAME]...", type=str)


class InitArguments(Arguments):
    """Writes two small datasets, a targets file that needs no key, a configuration, and the schemas that let an editor
    complete and check them. Existing files are kept unless you say otherwise.
    """

    action = "agentv.cli.commands.project_files:init"
    examples = ("agentv init", "agentv init my-project")

    folder: str = argument(type=click.Path(file_okay=False), default=".")
    force: bool = flag("--force", help="Replace existing files without asking.")


class CompletionArguments(Arguments):
    """\b
    eval "$(agentv completion bash)"        in ~/.bashrc
    eval "$(agentv completion zsh)"         in ~/.zshrc
    agentv completion fish > ~/.config/fish/completions/agentv.fish
    """

    action = "agentv.cli.commands.project_files:print_completion"
    examples = ("agentv completion bash",)

    shell: str = argument(type=click.Choice(["bash", "zsh", "fish"]))


cases_command = declare("cases", CasesArguments)
validate_command = declare("validate", ValidateArguments)
convert_command = declare("convert", ConvertArguments)
schema_command = declare("schema", SchemaArguments)
targets_command = declare("targets", TargetsArguments, declare("check", CheckArguments))
init_command = declare("init", InitArguments)
completion_command = declare("completion", CompletionArguments)
