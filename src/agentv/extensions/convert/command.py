"""`agentv convert`: convert a dataset to another format."""

import click

from agentv.cli import output
from agentv.cli.evaluation_options import FileOptions
from agentv.cli.options import argument, declare, flag, option, with_help
from agentv.datasets.dataset import Options
from agentv.datasets.discovery import GivenFormat, find_datasets
from agentv.engine.run_options import EvalOptions
from agentv.errors import LossWarning, UsageError, plural
from agentv.extensions.convert.conversion import Conversion


class ConvertArguments(FileOptions):
    """SOURCE is a dataset in any format that agentv reads, including those of other tools. TARGET is a .yaml, .yml,
    .jsonl, .ndjson, .jsonl.gz or .jsonl.zst file. Settings of a JSONL dataset are written to its sidecar. The result is
    read back and checked to have the same cases. YAML to YAML keeps comments.
    """

    only_checks = True
    action = "agentv.extensions.convert.command:convert"
    examples = (
        "agentv convert evals/dataset.jsonl evals/readable.yaml",
        "agentv convert evals/dataset.yaml data/dataset.jsonl.gz",
        "agentv convert questions.csv evals/questions.yaml --map 'input=question,expected_output=answer'",
        "agentv convert evals/dataset.yaml samples.jsonl --to inspect",
    )

    source: str = argument()
    target: str = argument(type=click.Path(dir_okay=False))
    source_format: str | None = option("--from FORMAT", "Format of SOURCE, if it is not recognized.")
    target_format: str | None = option(
        "--to FORMAT", "Write for another tool: promptfoo, inspect, deepeval, agent-skills, openai-evals or adk."
    )
    strict = with_help(EvalOptions.strict, "Fail if something cannot be kept, or is not read exactly.")
    force: bool = flag("--force", "Replace existing files.")


def convert(args: ConvertArguments) -> None:
    """Write the dataset in another format."""
    file_format = GivenFormat(args.source_format or "", args.fields or "")
    warn = output.discard if args.quiet else output.warn
    sources = find_datasets(args.source, warn, output.discard, given_format=file_format)
    if len(sources) != 1:
        names = ", ".join(source.path for source in sources[:5])
        raise UsageError(
            f"{args.source} has {plural(len(sources), 'dataset')}: {names}", hint="Convert them one by one"
        )
    reading = Options(args.allow_outside_files, args.max_line_bytes, fields=args.fields or "", strict=args.strict)
    with Conversion(
        sources[0], args.target, reading, overwrite=args.force, kind=args.target_format or ""
    ) as conversion:
        for warning in conversion.write():
            warn(warning)
            if args.strict and isinstance(warning, LossWarning):
                raise UsageError("Part of the dataset would be lost, and --strict is set", str(warning))
        result = conversion.keep()
    if not args.quiet:
        same = f", identical to {sources[0].path}" if result.is_same else ""
        output.message(f"Wrote {' and '.join(result.files)}: {plural(result.cases, 'case')}{same}")


convert_command = declare("convert", ConvertArguments)
