"""The arguments of `agentv generate rubrics` and `agentv generate evals`."""

from __future__ import annotations

import click

from agentv.cli.options import AT_LEAST_1, FILE, Arguments, TargetsFileOption, argument, declare, flag, option


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

    target: str | None = option("--target", "-t", metavar="NAME", help="Target to generate with (default: `judge`).")
    workers: int | None = option("--workers", type=AT_LEAST_1, metavar="N", help="Maximum concurrent calls.")
    cache: bool = flag("--cache", help="Reuse answers that the model gave before.")
    dry_run: bool = flag("--dry-run", help="Call nothing and write nothing; print what would be made.")
    quiet: bool = flag("--quiet", "-q", help="Hide notes.")


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
    cases: tuple[str, ...] = option("--case", multiple=True, metavar="ID", help="Only these cases; an id or a glob.")


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
    out: str = option("--out", required=True, metavar="FILE", type=FILE, help="The .jsonl file to write.")
    id_template: str | None = option("--id", metavar="TEMPLATE", help="Default: the row's own id, else row-1, row-2 …")
    input_template: str | None = option("--input", metavar="TEMPLATE", help="The question, such as '{{ question }}'.")
    outcome_template: str | None = option("--expected-outcome", metavar="TEMPLATE", help="What a good answer does.")
    output_template: str | None = option("--expected-output", metavar="TEMPLATE", help="The reference answer.")
    limit: int | None = option("--limit", type=AT_LEAST_1, metavar="N", help="Maximum number of rows.")
    resume: bool = flag("--resume", help="Add to the file what is missing in it.")


generate_command = declare(
    "generate", GenerateArguments, declare("rubrics", RubricsArguments), declare("evals", EvalsArguments)
)
