"""The table of AgentV's command line, from the options that agentv translates or refuses by name."""

from __future__ import annotations

from pathlib import Path

from agentv.extensions.interop.agentv_commands import COMMANDS, EQUIVALENTS, SUBCOMMANDS, SUCCESSORS
from writing.markup import DOCS, Lines, cell
from writing.peer_differences import with_table

PAGE = DOCS / "how-to" / "agentv-command-line.md"


def pages() -> dict[Path, str]:
    """Return the text of the page with its table up to date."""
    return {PAGE: with_table(PAGE.read_text(encoding="utf-8"), "\n".join(_table()))}


def _table() -> Lines:
    yield from ("| AgentV (TypeScript) | agentv |", "|---|---|")
    for command, options in EQUIVALENTS.items():
        for theirs, ours in options.items():
            text = f"`{ours}`" if ours else "no effect: it is the default"
            yield f"| {_spellings(command, theirs)} | {cell(text)} |"
    for command, options in SUCCESSORS.items():
        for theirs, instead in options.items():
            yield f"| {_spellings(command, theirs)} | refused: {cell(instead)} |"
    for theirs, instead in COMMANDS.items():
        yield f"| {', '.join(f'`{name}`' for name in theirs.split())} | refused: {cell(instead)} |"
        for name, successor in SUBCOMMANDS.get(theirs.split()[0], {}).items():
            yield f"| `{theirs.split()[0]} {name}` | refused: {cell(successor)} |"
    for name, successor in SUBCOMMANDS["runs"].items():  # a command that is here too
        yield f"| `runs {name}` | refused: {cell(successor)} |"


def _spellings(command: str, names: str) -> str:
    *options, value = names.split() if names.split()[-1].isupper() else (*names.split(), "")
    return f"{command}: " + ", ".join(f"`{option} {value}`".replace(" `", "`") for option in options)
