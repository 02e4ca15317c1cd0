"""`agentv convert`: a dataset in another format, proven equal to the one it was made from."""

from __future__ import annotations

import click

from agentv.cli import output
from agentv.cli.options import AT_LEAST_1
from agentv.datasets.formats.lines import MAX_LINE_BYTES
from agentv.errors import UsageError


@click.command(
    "convert",
    epilog="Examples:  agentv convert evals/dataset.jsonl evals/readable.yaml  ·  "
    "agentv convert evals/dataset.yaml data/dataset.jsonl.gz",
)
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--allow-outside-files", is_flag=True, help="Let the dataset read files outside its project.")
@click.option(
    "--max-line-bytes", type=AT_LEAST_1, default=MAX_LINE_BYTES, show_default=True,
    help="The longest line of JSONL that is read.",
)  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Hide warnings and notes.")
def command(source: str, target: str, force: bool, allow_outside_files: bool, max_line_bytes: int, quiet: bool) -> None:
    """Write a dataset in another format, without loss.

    SOURCE and TARGET are .yaml, .yml, .jsonl, .ndjson, .jsonl.gz or .jsonl.zst; the settings of JSONL go into the
    sidecar beside it. The result is read back and must give the same cases. YAML that stays YAML keeps its comments.
    """
    from agentv.datasets.conversion import Conversion
    from agentv.datasets.dataset import Options
    from agentv.datasets.discovery import find_datasets

    found = find_datasets(source, output.silent if quiet else output.warn, output.silent)
    if len(found) != 1:
        names = ", ".join(each.path for each in found[:5])
        raise UsageError(f"{source} holds {len(found)} datasets: {names}", hint="Convert them one by one")
    options = Options(allow_outside_files, max_line_bytes)
    done = Conversion(found[0], target, options, overwrite=force).run()
    if not quiet:
        cases = f"{done.cases:,} case{'' if done.cases == 1 else 's'}"
        output.say(f"Wrote {' and '.join(done.files)}: {cases}, equal to those of {found[0].path}")
