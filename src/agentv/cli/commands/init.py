"""`agentv init`: a starter project that works, written without touching what is there."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import click

from agentv.cli import output
from agentv.errors import UsageError

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


@click.command("init", epilog="Examples:  agentv init  ·  agentv init my-project")
@click.argument("folder", type=click.Path(file_okay=False), default=".")
@click.option("--force", is_flag=True, help="Replace files that exist, without asking.")
def command(folder: str, force: bool) -> None:
    """Set up a starter project that works.

    Writes two small datasets, a targets file that needs no key, a configuration, and the schemas that let an editor
    complete and check them. A file that exists is kept unless you say otherwise.
    """
    root = Path(folder)
    written, kept = 0, 0
    for name, text in _project_files().items():
        path = root / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if path.exists() and not force and not _may_replace(path):
            output.note(f"{path} exists and was kept")
            kept += 1
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise UsageError(f"Cannot write {path}", error.strerror or str(error)) from None
        written += 1
    click.echo(f"Wrote {written} files{f', kept {kept}' if kept else ''} in {root}")
    where = "" if folder == "." else f"cd {folder} && "
    click.echo(f"\nNext:\n  {where}agentv validate .\n  {where}agentv eval evals")


def _project_files() -> dict[str, str]:
    from agentv.schemas import schema, to_text

    starter = files("agentv.starter")
    texts = {name: starter.joinpath(source).read_text(encoding="utf-8") for name, source in _FILES.items()}
    return texts | {f".agentv/schemas/{name}.schema.json": to_text(schema(name)).decode() for name in _SCHEMAS}


def _may_replace(path: Path) -> bool:
    """Asks on a terminal; elsewhere there is nobody to ask, and the answer is no."""
    return sys.stdin.isatty() and click.confirm(f"{path} exists. Replace it?", default=False, err=True)
