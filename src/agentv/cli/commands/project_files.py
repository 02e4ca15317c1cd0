"""`agentv init`, `schema` and `completion`: create a project, print schemas and completion scripts."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from agentv.cli import cli, output
from agentv.cli.project_options import CompletionArguments, InitArguments, SchemaArguments
from agentv.errors import UsageError, plural
from agentv.schemas import schema, to_text

_FILES = {
    ".agentv/config.yaml": "agentv/config.yaml",
    ".agentv/targets.yaml": "agentv/targets.yaml",
    "evals/greetings.yaml": "evals/greetings.yaml",
    "evals/arithmetic.jsonl": "evals/arithmetic.jsonl",
    "evals/arithmetic.yaml": "evals/arithmetic.yaml",
    ".env.example": "env.example",
    ".gitignore": "gitignore",
}
_SCHEMAS = ("dataset", "line", "sidecar", "targets", "config")


def print_schema(args: SchemaArguments) -> None:
    """Print the JSON Schema of a file format."""
    click.echo(to_text(schema(args.name)), nl=False)


def print_completion(args: CompletionArguments) -> None:
    """Print the completion script for a shell."""
    kind = get_completion_class(args.shell)
    assert kind is not None
    click.echo(kind(cli, {}, "agentv", "_AGENTV_COMPLETE").source())


def init(args: InitArguments) -> None:
    """Write the starter project."""
    root, starter = Path(args.folder), files("agentv") / "starter"
    texts = {name: starter.joinpath(source).read_text(encoding="utf-8") for name, source in _FILES.items()}
    texts |= {f".agentv/schemas/{name}.schema.json": to_text(schema(name)).decode() for name in _SCHEMAS}
    written, kept = 0, 0
    for name, text in texts.items():
        path = root / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        # Without a terminal, existing files are kept.
        if (
            path.exists()
            and not args.force
            and not (
                sys.stdin.isatty() and click.confirm(f"{path} already exists. Replace it?", default=False, err=True)
            )
        ):
            output.note(f"Kept existing {path}")
            kept += 1
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise UsageError(f"Cannot write {path}", error.strerror or str(error)) from None
        written += 1
    click.echo(f"Wrote {plural(written, 'file')}{f', kept {kept}' if kept else ''} in {root}")
    where = "" if args.folder == "." else f"cd {args.folder} && "
    click.echo(f"\nNext:\n  {where}agentv validate .\n  {where}agentv eval evals")
