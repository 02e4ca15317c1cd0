"""The arguments of the commands for project files: datasets, targets and schemas."""

import click

from agentv.cli.evaluation_options import FileOptions, ReadingOptions, SelectionOptions, TargetsFileOption
from agentv.cli.options import Arguments, argument, declare, flag, option, with_help
from agentv.engine.run_options import EvalOptions

FORMATS = ("dataset", "line", "sidecar", "targets", "config", "result", "run")


class CasesArguments(SelectionOptions, ReadingOptions):
    """PATHS are dataset files, folders or globs; without PATHS, the folder `evals`. All of them are read and checked
    first: after an error, no case is printed.
    """

    only_checks = True
    action = "agentv.cli.commands.dataset_files:print_cases"
    examples = (
        "agentv cases evals/dataset.jsonl",
        "agentv cases evals --filter 'math-*' --count",
        "agentv cases evals --resolve | jq .id",
        "agentv cases questions.csv --guess",
    )

    paths: tuple[str, ...] = argument(nargs=-1)
    resolve: bool = flag("--resolve", "Include the contents of files in the output.")
    count: bool = flag("--count", "Print only the number of cases.")
    guess: bool = flag("--guess", "Propose a value for --map from the records, and show three rows.")
    as_json: bool = flag("--json", "Print JSON Lines even on a terminal.")


class ValidateArguments(FileOptions):
    """PATHS are files, folders or globs; without PATHS, the folder `evals`.

    \b
    Exit codes: 0 no findings   1 findings   2 usage error
    """

    only_checks = True
    action = "agentv.cli.commands.dataset_files:validate"
    examples = ("agentv validate evals", "agentv validate . --strict", "agentv validate evals --format github")

    paths: tuple[str, ...] = argument(nargs=-1)
    strict = with_help(EvalOptions.strict, "Exit with 1 on warnings too; what is not read exactly is an error.")
    style: str = option(
        "--format",
        "Print findings as text, as JSON, or as GitHub annotations.",
        click.Choice(["human", "json", "github"]),
        default="human",
    )
    as_json: bool = flag("--json", "Same as --format json.")
    quiet: bool = flag("--quiet -q", "Print findings only.")


class SchemaArguments(Arguments):
    """\b
    dataset   a YAML document of cases        config    .agentv/config.yaml
    line      one line of a JSONL dataset     result    one line of results.jsonl
    sidecar   the settings next to JSONL      run       run.json
    targets   targets.yaml
    """

    action = "agentv.cli.commands.project_files:print_schema"
    examples = (
        "agentv schema dataset > dataset.schema.json",
        "# and as the first line of a dataset:",
        "# yaml-language-server: $schema=dataset.schema.json",
    )

    name: str = argument(type=click.Choice(FORMATS))


class TargetsOptions(TargetsFileOption):
    """Options of the commands for targets."""

    as_json: bool = flag("--json", "Print one JSON object per line.")


class TargetsArguments(TargetsOptions):
    """Targets are read from the nearest .agentv/targets.yaml or targets.yaml, from this folder up to the project root.
    Only `check` calls them.

    \b
    agentv targets               list name, provider, model and location of each target
    agentv targets check NAME…   make one small call to each named target (default: all); exit with 1 if one fails
    """

    only_checks = True
    action = "agentv.cli.commands.targets:list_targets"
    examples = (
        "agentv targets",
        "agentv targets --json",
        "agentv targets check",
        "agentv targets check gpt --targets ci/targets.yaml",
    )


class CheckArguments(TargetsOptions):
    """Make one small call to each target and report the result. A second call to a model API finds out whether it
    supports JSON Schemas, which judges use.

    \b
    Exit codes: 0 all targets responded   1 a target failed   2 usage error, or an invalid targets file
    """

    action = "agentv.cli.commands.targets:check"
    examples = ("agentv targets check", "agentv targets check gpt judge --json")

    names: tuple[str, ...] = argument(nargs=-1, metavar="[NAME]...", type=str)


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
schema_command = declare("schema", SchemaArguments)
targets_command = declare("targets", TargetsArguments, declare("check", CheckArguments))
completion_command = declare("completion", CompletionArguments)
