"""The arguments of the commands that look after a project: its datasets, targets, schemas and starter files."""

from __future__ import annotations

import click

from agentv.cli.options import (
    AT_LEAST_1,
    FILE,
    Arguments,
    FileOptions,
    ReadingOptions,
    SelectionOptions,
    TargetsFileOption,
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

    action = "agentv.cli.commands.dataset_files:print_cases"
    examples = (
        "agentv cases evals/dataset.jsonl",
        "agentv cases evals --filter 'math-*' --count",
        "agentv cases evals --resolve | jq .id",
    )

    paths: tuple[str, ...] = argument(nargs=-1, required=True)
    resolve: bool = flag("--resolve", "Include the contents of files in the output.")
    count: bool = flag("--count", "Print only the number of cases.")
    as_json: bool = flag("--json", "Print JSON Lines on a terminal too.")


class ValidateArguments(FileOptions):
    """PATHS are files, folders or globs. Exit code 0: no findings; 1: findings; 2: wrong usage."""

    action = "agentv.cli.commands.dataset_files:validate"
    examples = ("agentv validate evals", "agentv validate . --strict", "agentv validate evals --format github")

    paths: tuple[str, ...] = argument(nargs=-1, required=True)
    strict: bool = flag("--strict", "Treat warnings as errors in the exit code.")
    style: str = option(
        "--format",
        "For people, for programs, or as annotations of a pull request.",
        click.Choice(["human", "json", "github"]),
        default="human",
    )
    as_json: bool = flag("--json", "The same as --format json.")
    quiet: bool = flag("--quiet -q", "Print findings only.")


class ConvertArguments(FileOptions):
    """SOURCE and TARGET are .yaml, .yml, .jsonl, .ndjson, .jsonl.gz or .jsonl.zst; the settings of JSONL go into the
    sidecar next to it. The result is read back and must give the same cases. YAML that stays YAML keeps its comments.
    """

    action = "agentv.cli.commands.dataset_files:convert"
    examples = (
        "agentv convert evals/dataset.jsonl evals/readable.yaml",
        "agentv convert evals/dataset.yaml data/dataset.jsonl.gz",
    )

    source: str = argument()
    target: str = argument(type=click.Path(dir_okay=False))
    force: bool = flag("--force", "Replace files that exist.")


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


class TargetsOptions(TargetsFileOption):
    """Which targets, and how they are printed."""

    as_json: bool = flag("--json", "Print one JSON object per line.")


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
    force: bool = flag("--force", "Replace existing files without asking.")


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


class GenerateArguments(Arguments):
    """\b
    agentv generate rubrics FILE            adds what is missing; nothing else in the file changes
    agentv generate evals ROWS --out FILE   one case per row, by templates or by a model
    """

    examples = (
        "agentv generate rubrics evals/dataset.yaml --target gpt",
        "agentv generate evals tickets.csv --out evals/tickets.jsonl --input '{{ question }}'",
    )


class ModelOptions(TargetsFileOption):
    """The model to generate with."""

    target: str | None = option("--target -t NAME", "Target to generate with (default: `judge`).")
    workers: int | None = option("--workers N", "Maximum concurrent calls.", AT_LEAST_1)
    cache: bool = flag("--cache", "Reuse answers that the model gave before.")
    dry_run: bool = flag("--dry-run", "Call nothing and write nothing; print what would be made.")
    quiet: bool = flag("--quiet -q", "Hide notes.")


class RubricsArguments(ModelOptions):
    """Write rubrics into FILE for cases that have an expected outcome and no rubrics.

    Lines are added and none is changed: comments, order, indentation, anchors, line ends and a byte order mark stay. A
    case that has rubrics is never touched. The file is replaced whole, every few seconds and at the end; after an
    interruption the same command does what is left.
    """

    action = "agentv.cli.commands.generate:rubrics"
    examples = (
        "agentv generate rubrics evals/dataset.yaml",
        "agentv generate rubrics evals/dataset.jsonl --target gpt --case refund-*",
        "agentv generate rubrics evals/dataset.yaml --dry-run",
    )

    file: str = argument()
    cases: tuple[str, ...] = option("--case ID", "Only these cases; an id or a glob.", multiple=True)


class EvalsArguments(ModelOptions):
    """Make a dataset out of ROWS, a .csv, .tsv or .jsonl file: one case per row.

    Columns are the variables of the templates. What no template fills, a model writes: `input`, `expected_outcome`, and
    `expected_output` where the row holds one. With templates for the first two no model is called. Each case is checked
    as a dataset's is, written the moment it exists, and names its row in `metadata`.
    """

    action = "agentv.cli.commands.generate:evals"
    examples = (
        "agentv generate evals faq.csv --out evals/faq.jsonl --input '{{ question }}' "
        "--expected-outcome 'Answers as our FAQ does' --expected-output '{{ answer }}'",
        "agentv generate evals tickets.jsonl --out evals/tickets.jsonl --target gpt",
    )

    rows: str = argument(type=click.Path(exists=True, dir_okay=False))
    out: str = option("--out FILE", "The .jsonl file to write.", FILE, required=True)
    id_template: str | None = option("--id TEMPLATE", "Default: the row's own id, else row-1, row-2 …")
    input_template: str | None = option("--input TEMPLATE", "The question, such as '{{ question }}'.")
    outcome_template: str | None = option("--expected-outcome TEMPLATE", "What a good answer does.")
    output_template: str | None = option("--expected-output TEMPLATE", "The reference answer.")
    limit: int | None = option("--limit N", "Maximum number of rows.", AT_LEAST_1)
    resume: bool = flag("--resume", "Add to the file what is missing in it.")


generate_command = declare(
    "generate", GenerateArguments, declare("rubrics", RubricsArguments), declare("evals", EvalsArguments)
)
