"""The formats of reports: one row and one module each, imported when it is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import msgspec

from agentv.errors import AgentvError, UsageError
from agentv.runs.opened_run import Figures, OpenedRun
from agentv.settings.diagnostics import did_you_mean

Write = Callable[[OpenedRun, Figures, BinaryIO], None]


class Format(msgspec.Struct, frozen=True):
    """A kind of report: the extensions that mean it, the name of its file, and whether people read it as text."""

    module: str
    extensions: tuple[str, ...]
    file_name: str
    is_text: bool = True


FORMATS = {
    "html": Format("agentv.report.html", (".html", ".htm"), "report.html", is_text=False),
    "junit": Format("agentv.report.junit", (".xml",), "junit.xml"),
    "markdown": Format("agentv.report.markdown", (".md", ".markdown"), "report.md"),
    "csv": Format("agentv.report.csv", (".csv",), "results.csv"),
    "parquet": Format("agentv.report.parquet", (".parquet",), "results.parquet", is_text=False),
}


def format_of(file: str) -> str:
    """The format that a file's extension means."""
    extension = os.path.splitext(file)[1].lower()
    for name, kind in FORMATS.items():
        if extension in kind.extensions:
            return name
    known = [each for kind in FORMATS.values() for each in kind.extensions]
    hint = did_you_mean(extension, known) or f"Known extensions: {', '.join(known)}"
    raise UsageError(f"No report is written to {file}", f"Its extension {extension!r} names no format", hint)


def write_report(name: str, run: OpenedRun, figures: Figures, file: str | Path) -> None:
    """Writes a report whole or not at all: what was there before stays until the new one is complete."""
    path = Path(file)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            write_to(name, run, figures, stream)
        os.replace(temporary, path)
    except OSError as error:
        raise AgentvError(f"Cannot write {path}", error.strerror or str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_to(name: str, run: OpenedRun, figures: Figures, stream: BinaryIO) -> None:
    """Writes a report to a stream of bytes."""
    write: Write = import_module(FORMATS[name].module).write
    write(run, figures, stream)
