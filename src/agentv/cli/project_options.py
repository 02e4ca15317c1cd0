"""The arguments of the commands for project files: datasets, targets, schemas and the starter project."""

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

KINDS = ("demo", "function", "command", "http", "model", "local", "agent")
"""What `agentv init` can write a project for."""


class CasesArguments(SelectionOptions, ReadingOptions):
    """PATHS are dataset files, folders or globs. All of them are read and checked first: after an error, no case is
    printed.
    """

    only_checks = True
    action = "agentv.cli.commands.dataset_files:print_cases"
    examples = (
        "agentv cases evals/dataset.jsonl",
        "agentv cases evals --filter 'math-*' --count",
        "agentv cases evals --resolve | jq .id",
        "agentv cases questions.csv --guess",
    )

    paths: tuple[str, ...] = argument(nargs=-1, required=True)
    resolve: bool = flag("--resolve", "Include the contents of files in the output.")
    count: bool = flag("--count", "Print only the number of cases.")
    guess: bool = flag("--guess", "Propose a value for --map from the records, and show three rows.")
    as_json: bool = flag("--json", "Print JSON Lines even on a terminal.")


class ValidateArguments(FileOptions):
    """PATHS are files, folders or globs.

    \b
    Exit codes: 0 no findings   1 findings   2 usage error
    """

    only_checks = True
    action = "agentv.cli.commands.dataset_files:validate"
    examples = ("agentv validate evals", "agentv validate . --strict", "agentv validate evals --format github")

    paths: tuple[str, ...] = argument(nargs=-1, required=True)
    strict: bool = flag("--strict", "Exit with 1 on warnings too; what is not read exactly is an error.")
    style: str = option(
        "--format",
        "Print findings as text, as JSON, or as GitHub annotations.",
        click.Choice(["human", "json", "github"]),
        default="human",
    )
    as_json: bool = flag("--json", "Same as --format json.")
    quiet: bool = flag("--quiet -q", "Print findings only.")


class ConvertArguments(FileOptions):
    """SOURCE is a dataset in any format that agentv reads, including those of other tools. TARGET is a .yaml, .yml,
    .jsonl, .ndjson, .jsonl.gz or .jsonl.zst file. Settings of a JSONL dataset are written to its sidecar. The result is
    read back and checked to have the same cases. YAML to YAML keeps comments.
    """

    only_checks = True
    action = "agentv.cli.commands.dataset_files:convert"
    examples = (
        "agentv convert evals/dataset.jsonl evals/readable.yaml",
        "agentv convert evals/dataset.yaml data/dataset.jsonl.gz",
        "agentv convert questions.csv evals/questions.yaml --map 'input=question,expected_output=answer'",
        "agentv convert evals/dataset.yaml samples.jsonl --to inspect",
    )

    source: str = argument()
    target: str = argument(type=click.Path(dir_okay=False))
    source_format: str | None = option("--from FORMAT", "Format of SOURCE, if it is not recognized.")
    target_format: str | None = option("--to FORMAT", "Write for another tool: deepeval or inspect.")
    strict: bool = flag("--strict", "Fail if something cannot be kept, or is not read exactly.")
    force: bool = flag("--force", "Replace existing files.")


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


class InitArguments(Arguments):
    """Writes a project that runs without an API key: two small datasets, a targets file for what you evaluate, a
    configuration, a README with the next steps, and the schemas for completion and validation in editors. On a
    terminal, asks what you evaluate, and before it replaces an existing file.

    \b
    demo      fixed answers            model    a model API
    function  a Python function        local    a model on this machine
    command   a program                agent    a coding agent
    http      an HTTP service
    """

    action = "agentv.cli.commands.project_files:init"
    examples = ("agentv init", "agentv init my-project --for function", "agentv init --for model --ci")

    folder: str = argument(type=click.Path(file_okay=False), default=".")
    kind: str | None = option(
        "--for", "What you evaluate (default: asked on a terminal, else demo).", click.Choice(KINDS)
    )
    ci: bool = flag("--ci", "Also write a GitHub workflow that runs the evaluations.")
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
    agentv generate rubrics FILE                     add rubrics to the cases without them
    agentv generate evals ROWS --out FILE            write one case per row, with templates or a model
    agentv generate from-openai --out DIR            download the evals of OpenAI's hosted service
    agentv generate from-sessions PATHS --out FILE   write a suite from recorded sessions, without a model
    """

    examples = (
        "agentv generate rubrics evals/dataset.yaml --target gpt",
        "agentv generate evals tickets.csv --out evals/tickets.jsonl --input '{{ question }}'",
        "agentv generate from-sessions ~/.claude/projects/my-project --out evals/sessions.yaml",
    )


class ModelOptions(TargetsFileOption):
    """Options for the model to generate with."""

    target: str | None = option("--target -t NAME", "Target to generate with (default: the target named `judge`).")
    workers: int | None = option("--workers N", "Maximum concurrent calls.", AT_LEAST_1)
    cache: bool = flag("--cache", "Reuse cached responses of the model.")
    dry_run: bool = flag("--dry-run", "List what would be generated; call nothing and write nothing.")
    quiet: bool = flag("--quiet -q", "Hide notes.")


class RubricsArguments(ModelOptions):
    """Add rubrics to cases without them.

    Writes rubrics into FILE for cases that have an expected outcome but no rubrics. Lines are added, none is changed:
    comments, order, indentation, anchors, line endings and a byte order mark stay. The file is saved every few seconds
    and at the end; after an interruption, the same command continues.
    """

    action = "agentv.cli.commands.generate:rubrics"
    examples = (
        "agentv generate rubrics evals/dataset.yaml",
        "agentv generate rubrics evals/dataset.jsonl --target gpt --case refund-*",
        "agentv generate rubrics evals/dataset.yaml --dry-run",
    )

    file: str = argument()
    cases: tuple[str, ...] = option(
        "--case ID", "Write rubrics only for cases with this id or glob. Repeatable.", multiple=True
    )


class EvalsArguments(ModelOptions):
    """Create a dataset with one case per row.

    ROWS is a .csv, .tsv, .jsonl, .json, .xlsx or .parquet file. Templates can use its columns as variables; --map takes
    fields as they are. A model writes the other fields: `input`, `expected_outcome`, and `expected_output` if the row
    contains one. If the first two are given, no model is called. Each case is validated, written to disk as soon as it
    exists, and has its row number in `metadata`.
    """

    action = "agentv.cli.commands.generate:evals"
    examples = (
        "agentv generate evals faq.csv --out evals/faq.jsonl --input '{{ question }}' "
        "--expected-outcome 'Answers as our FAQ does' --expected-output '{{ answer }}'",
        "agentv generate evals tickets.jsonl --out evals/tickets.jsonl --target gpt",
    )

    rows: str = argument(type=click.Path(exists=True, dir_okay=False))
    out: str = option("--out FILE", "Write the cases to this .jsonl file.", FILE, required=True)
    fields: str | None = option(
        "--map FIELDS",
        "Take fields from the rows, such as 'input=question,expected_output=answers[0]'.",
    )
    id_template: str | None = option(
        "--id TEMPLATE", "Template of the id (default: the id of the row, else row-1, row-2 …)."
    )
    input_template: str | None = option("--input TEMPLATE", "Template of the input, such as '{{ question }}'.")
    outcome_template: str | None = option("--expected-outcome TEMPLATE", "Template of the expected outcome.")
    output_template: str | None = option("--expected-output TEMPLATE", "Template of the expected output.")
    limit: int | None = option("--limit N", "Maximum number of rows to read.", AT_LEAST_1)
    resume: bool = flag("--resume", "Continue an existing file: add the cases that are missing.")


class FromOpenAIArguments(Arguments):
    """Download the evals of OpenAI's hosted service, which ends on 30 November 2026.

    For each eval, DIR gets a dataset with its items and criteria, which `agentv eval` reads, and one .jsonl file for
    each run with its answers and grades. The key is read from OPENAI_API_KEY, also in .env. After an interruption, the
    same command continues: runs that are complete are not downloaded again.
    """

    action = "agentv.cli.commands.generate:from_openai"
    examples = (
        "agentv generate from-openai --out evals/openai",
        "agentv generate from-openai eval_68a1 --out evals/openai",
    )

    evals: tuple[str, ...] = argument(required=False, nargs=-1)
    out: str = option("--out DIR", "Write to this folder.", click.Path(file_okay=False), required=True)
    base_url: str | None = option("--base-url URL", "Address of the API (default: OPENAI_BASE_URL, or that of OpenAI).")
    quiet: bool = flag("--quiet -q", "Hide notes.")


class SessionsArguments(Arguments):
    """Write a regression suite from recorded sessions, without a model.

    PATHS are files or folders: sessions of Claude Code, Codex, the Copilot CLI, VS Code, the Gemini CLI, pi and
    opencode, ATIF trajectories, and traces as OTLP JSON. Repeated and nearly equal requests are merged, the rest is
    grouped by wording and tools, and cases are chosen from all groups. A case has the request, the recorded answer as
    the reference, and a proposed tool_trajectory of weight 0. Secrets, e-mail addresses and home folders are replaced.
    Nothing is called or sent.
    """

    action = "agentv.cli.commands.sessions:from_sessions"
    examples = (
        "agentv generate from-sessions ~/.claude/projects/my-project --out evals/sessions.yaml",
        "agentv generate from-sessions ~/.codex/sessions traces.jsonl --out evals/sessions.jsonl --max-cases 50",
    )

    paths: tuple[str, ...] = argument(nargs=-1, required=True)
    out: str = option("--out FILE", "Write the cases to this .yaml or .jsonl file.", FILE, required=True)
    max_cases: int = option("--max-cases N", "Maximum number of cases.", AT_LEAST_1, default=100)
    per_cluster: int = option("--per-cluster N", "Maximum number of cases per group.", AT_LEAST_1, default=5)
    requests: str = option(
        "--requests",
        "Make a case of the first request of a session, of each request with the messages before it, or of all "
        "requests as one conversation.",
        click.Choice(["first", "each", "all"]),
        default="first",
    )
    force: bool = flag("--force", "Replace existing files.")
    dry_run: bool = flag("--dry-run", "Print what would be written; write nothing.")
    as_json: bool = flag("--json", "Print the summary as JSON on stdout.")


generate_command = declare(
    "generate",
    GenerateArguments,
    declare("rubrics", RubricsArguments),
    declare("evals", EvalsArguments),
    declare("from-openai", FromOpenAIArguments),
    declare("from-sessions", SessionsArguments),
)
