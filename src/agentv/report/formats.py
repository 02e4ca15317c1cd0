"""Report formats: their interface, lookup by file extension, and writing a report to a file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from agentv.errors import UsageError
from agentv.model.diagnostics import did_you_mean
from agentv.registry import REPORTS
from agentv.runs.folder import whole_file
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore


class ReportFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A report format, listed in `REPORTS` of the registry and written by `agentv report --NAME`.

    `file_name` is its file in the run folder. A text format is written to stdout if it is the only one.
    """

    write: Callable[[RunStore, Figures, BinaryIO], None]
    extensions: tuple[str, ...]
    file_name: str
    help: str
    is_text: bool = True


def report_format(name: str) -> ReportFormat:
    """Return the format with this name, built in or from a plug-in."""
    plugin = REPORTS.find(name)
    if not isinstance(plugin, ReportFormat):
        raise UsageError(
            f"The plug-in '{name}' is not a report format: it must be a {ReportFormat.__module__}.ReportFormat"
        )
    return plugin


def format_of(file: str) -> str:
    """Return the name of the format for a file's extension."""
    extension = os.path.splitext(file)[1].lower()
    known_extensions: list[str] = []
    for name in REPORTS.all_names():
        extensions = report_format(name).extensions
        if extension in extensions:
            return name
        known_extensions += extensions
    hint = did_you_mean(extension, known_extensions) or f"Known extensions: {', '.join(known_extensions)}"
    raise UsageError(f"Cannot write a report to {file}: unknown extension {extension!r}", hint=hint)


def write_report(name: str, run: RunStore, figures: Figures, file: str | Path) -> None:
    """Write a report completely or not at all."""
    with whole_file(Path(file), is_private=False) as stream:
        report_format(name).write(run, figures, stream)
