"""`agentv completion`: the script that lets a shell complete commands, options and values."""

from __future__ import annotations

import click

_WHERE = {
    "bash": 'eval "$(agentv completion bash)"        in ~/.bashrc',
    "zsh": 'eval "$(agentv completion zsh)"         in ~/.zshrc',
    "fish": "agentv completion fish > ~/.config/fish/completions/agentv.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(_WHERE.values()))
@click.argument("shell", type=click.Choice(list(_WHERE)))
def command(shell: str) -> None:
    """Print the completion script of a shell. Put this where the shell reads it at its start:"""
    from click.shell_completion import get_completion_class

    from agentv.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "agentv", "_AGENTV_COMPLETE").source())
