"""`agentv schema` and `completion`: print schemas and completion scripts."""

from click.shell_completion import get_completion_class

from agentv.cli import cli, output
from agentv.cli.project_options import CompletionArguments, SchemaArguments
from agentv.schemas import schema, to_text


def print_schema(args: SchemaArguments) -> None:
    """Print the JSON Schema of a file format."""
    output.echo_bytes(to_text(schema(args.name)))


def print_completion(args: CompletionArguments) -> None:
    """Print the completion script for a shell."""
    kind = get_completion_class(args.shell)
    assert kind is not None
    output.echo_bytes(kind(cli, {}, "agentv", "_AGENTV_COMPLETE").source().encode() + b"\n")
