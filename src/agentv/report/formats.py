"""The seam of report formats: what a format is, which one a file name means, and writing a report to a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from agentv.errors import AgentvError, UsageError
from agentv.registry import REPORTS
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore
from agentv.settings.diagnostics import did_you_mean


class ReportFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A report format: one module defines it, one row of `REPORTS` names it; `agentv report --NAME` writes it.

    `file_name` is its file in the run's folder. A text format goes to stdout when it is the only one.
    """

    write: Callable[[RunStore, Figures, BinaryIO], None]
    extensions: tuple[str, ...]
    file_name: str
    help: str
    is_text: bool = True


def report_format(name: str) -> ReportFormat:
    """Return the format of this name, which is a row of the registry or a plug-in's."""
    found = REPORTS.find(name)
    if not isinstance(found, ReportFormat):
        raise UsageError(
            f"The plug-in '{name}' is not a report format: it must be a {ReportFormat.__module__}.ReportFormat"
        )
    return found


def format_of(file: str) -> str:
    """Return the name of the format that a file's extension means."""
    extension = os.path.splitext(file)[1].lower()
    known: list[str] = []
    for name in REPORTS.all_names():
        extensions = report_format(name).extensions
        if extension in extensions:
            return name
        known += extensions
    hint = did_you_mean(extension, known) or f"Known extensions: {', '.join(known)}"
    raise UsageError(f"No report is written to {file}", f"Its extension {extension!r} names no format", hint)


def write_report(name: str, run: RunStore, figures: Figures, file: str | Path) -> None:
    """Write a report completely or not at all: the previous file stays until the new one is complete."""
    path = Path(file)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            report_format(name).write(run, figures, stream)
        os.replace(temporary, path)
    except OSError as error:
        raise AgentvError(f"Cannot write {path}", error.strerror or str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)
