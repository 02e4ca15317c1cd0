"""`agentv generate`: its options."""

import click

from agentv.cli.evaluation_options import TargetsFileOption
from agentv.cli.options import AT_LEAST_1, FILE, Arguments, argument, declare, flag, option, with_help
from agentv.engine.run_options import EvalOptions


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
    workers = with_help(EvalOptions.workers, "Maximum concurrent calls.")
    cache = with_help(EvalOptions.cache, "Reuse cached responses of the model.")
    dry_run: bool = flag("--dry-run", "List what would be generated; call nothing and write nothing.")
    quiet: bool = flag("--quiet -q", "Hide notes.")


class RubricsArguments(ModelOptions):
    """Add rubrics to cases without them.

    Writes rubrics into FILE for cases that have an expected outcome but no rubrics. Lines are added, none is changed:
    comments, order, indentation, anchors, line endings and a byte order mark stay. The file is saved every few seconds
    and at the end; after an interruption, the same command continues.
    """

    action = "agentv.extensions.generate.actions:rubrics"
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

    action = "agentv.extensions.generate.actions:evals"
    examples = (
        "agentv generate evals faq.csv --out evals/faq.jsonl --input '{{ question }}' "
        "--expected-outcome 'Answers as our FAQ does' --expected-output '{{ answer }}'",
        "agentv generate evals tickets.jsonl --out evals/tickets.jsonl --target gpt",
    )

    rows: str = argument(type=click.Path(exists=True, dir_okay=False))
    out: str = option("--out FILE", "Write the cases to this .jsonl file.", FILE, required=True)
    fields: str | None = option(
        "--map FIELDS", "Take fields from the rows, such as 'input=question,expected_output=answers[0]'."
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

    action = "agentv.extensions.generate.hosted_evals:from_openai"
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

    action = "agentv.extensions.generate.session_suite:from_sessions"
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
