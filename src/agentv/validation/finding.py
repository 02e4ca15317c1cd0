"""A finding: one thing wrong at one place of one file, ready to print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from agentv.datasets.formats.yaml_parser import locate
from agentv.errors import DatasetError, DatasetWarning
from agentv.settings.diagnostics import Problem, Severity

MAX_PER_FILE = 1000
"""Findings kept of one file; the rest is counted. Nobody reads a thousand, and a million would not fit in memory."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `agentv validate --json` prints for each thing wrong."""

    severity: Severity
    path: str
    message: str
    line: int | None = None
    column: int | None = None
    field: str | None = None
    hint: str = ""


class Report(msgspec.Struct):
    """What was checked and what was found, counted in full even where the list is cut."""

    files: int = 0
    cases: int = 0
    errors: int = 0
    warnings: int = 0
    findings: list[Finding] = []
    notes: list[str] = []

    def add(self, findings: Iterable[Finding]) -> None:
        """Takes the findings of one file."""
        for position, finding in enumerate(findings):
            if finding.severity == "error":
                self.errors += 1
            else:
                self.warnings += 1
            if position < MAX_PER_FILE:
                self.findings.append(finding)


def from_error(error: DatasetError) -> Finding:
    """An exception as a finding: its place, and its detail where it has one."""
    message = error.detail or error.headline
    prefix = f"Line {error.line}: "
    return Finding(
        "error", error.path or "", message.removeprefix(prefix), error.line, error.column, error.field, error.hint
    )


def from_warning(warning: DatasetWarning) -> Finding:
    """A warning as a finding, without the place that its text repeats."""
    message = warning.message
    for repeated in (f"{warning.path}, line {warning.line}: ", f"{warning.path}: "):
        message = message.removeprefix(repeated)
    message = message.removesuffix(f" ({warning.hint})")
    return Finding("warning", warning.path or "", message, warning.line, warning.column, warning.field, warning.hint)


def from_problem(problem: Problem, path: str, document: Any) -> Finding:
    """A problem in a settings file as a finding, with the line its key stands on."""
    mark = locate(document, problem.path)
    line, column = (1, None) if mark is None else mark
    return Finding(problem.severity, path, problem.message, line, column, problem.field, problem.hint)
