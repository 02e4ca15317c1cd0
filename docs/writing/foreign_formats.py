"""The reference page of other tools' dataset formats."""

from __future__ import annotations

from collections.abc import Iterator

from agentv.datasets.formats.dataset_format import load_format
from agentv.registry import FOREIGN_FOLDERS, FOREIGN_FORMATS


def page() -> Iterator[str]:
    """One line per format, in the order in which they are tried."""
    yield "# Dataset formats of other tools"
    yield ""
    yield "These formats are recognized by their content, in this order. The first column is the value of `--from`; a"
    yield "star marks formats that are also found in folders."
    yield "See [Use datasets of other tools](../how-to/other-formats.md)."
    yield ""
    yield "| format | files | what becomes what |"
    yield "|---|---|---|"
    for name in (*FOREIGN_FOLDERS.names(), *FOREIGN_FORMATS.names()):
        found = load_format(name)
        star = "*" if found.in_folders else ""
        yield f"| `{name}`{star} | {found.title} | {found.fields or 'fields by `--map`'} |"
