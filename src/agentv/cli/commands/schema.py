"""`agentv schema`: the JSON Schema of each file format, for editors and other programs."""

from __future__ import annotations

import click

_NAMES = ("dataset", "line", "sidecar", "targets", "config", "result", "run")


@click.command(
    "schema",
    epilog="Example:  agentv schema dataset > dataset.schema.json, and as the first line of a dataset  "
    "# yaml-language-server: $schema=dataset.schema.json",
)
@click.argument("name", type=click.Choice(_NAMES))
def command(name: str) -> None:
    """Print the JSON Schema (2020-12) of a file format.

    \b
    dataset   a YAML document of cases        config    .agentv/config.yaml
    line      one line of a JSONL dataset     result    one line of results.jsonl
    sidecar   the settings beside JSONL       run       run.json
    targets   targets.yaml
    """
    from agentv.schemas import schema, to_text

    click.echo(to_text(schema(name)), nl=False)
