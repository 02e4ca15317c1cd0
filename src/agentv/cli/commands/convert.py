"""`agentv convert`: writes a dataset in another format and checks that its cases are the same."""

from __future__ import annotations

from agentv.cli import output
from agentv.cli.arguments.project_options import ConvertArguments
from agentv.datasets.conversion import Conversion
from agentv.datasets.dataset import Options
from agentv.datasets.discovery import find_datasets
from agentv.errors import UsageError


def convert(args: ConvertArguments) -> None:
    """Write the dataset in another format."""
    found = find_datasets(args.source, output.silent if args.quiet else output.warn, output.silent)
    if len(found) != 1:
        names = ", ".join(each.path for each in found[:5])
        raise UsageError(f"{args.source} holds {len(found)} datasets: {names}", hint="Convert them one by one")
    options = Options(args.allow_outside_files, args.max_line_bytes)
    done = Conversion(found[0], args.target, options, overwrite=args.force).run()
    if not args.quiet:
        cases = f"{done.cases:,} case{'' if done.cases == 1 else 's'}"
        output.say(f"Wrote {' and '.join(done.files)}: {cases}, equal to those of {found[0].path}")
