"""What can go wrong that a user can mend, as exceptions that print well. Knows no file format.

    AgentvError                     exit code 2, message and hint, never a traceback
    ├── UsageError                  options that contradict each other or have wrong values
    └── PlacedError                 .path .line .column .field .hint
        ├── DatasetError
        │   ├── DatasetNotFoundError    no such file, nothing matched, unknown extension
        │   ├── DatasetParseError       bytes that are no JSON Lines, YAML, gzip …
        │   ├── InvalidDatasetError     the document around the cases is wrong
        │   └── InvalidCaseError        one case is wrong
        └── TargetsError            the targets file is wrong

    DatasetWarning                  legal, but probably not what was meant

Anything else that is raised is our own fault and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict, Unpack

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_ERRORS = 3
EXIT_BUDGET = 4
EXIT_INTERRUPTED = 130


class AgentvError(Exception):
    """A mistake the user can mend: a headline, an optional detail and an optional hint."""

    exit_code = EXIT_USAGE

    def __init__(self, headline: str, detail: str = "", hint: str = "") -> None:
        super().__init__(headline, detail, hint)
        self.headline = headline
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        text = self.headline
        if self.detail:
            text += "\n" + _indented(self.detail)
        if self.hint:
            text += "\n\n" + _indented(self.hint_line)
        return text

    @property
    def hint_line(self) -> str:
        """The hint as it is printed; a list of what is required stands on its own, without the word."""
        return self.hint if self.hint.startswith("Required fields:") else f"Hint: {self.hint}"


@contextmanager
def file_errors(headline: str) -> Iterator[None]:
    """Raise AgentvError with this headline and the system's reason instead of an OSError."""
    try:
        yield
    except OSError as error:
        raise AgentvError(headline, error.strerror or str(error)) from error


class UsageError(AgentvError):
    """Options that contradict each other or have values that make no sense."""


class FilePlace(TypedDict, total=False):
    """A place in a file: `line` and `column` count from 1; `field` is the path of a key."""

    path: str | None
    line: int | None
    column: int | None
    field: str | None


class PlacedError(AgentvError):
    """Something wrong in a file, with its place; None where a part of it is not known."""

    def __init__(self, headline: str, detail: str = "", hint: str = "", **place: Unpack[FilePlace]) -> None:
        super().__init__(headline, detail, hint)
        self.path = place.get("path")
        self.line = place.get("line")
        self.column = place.get("column")
        self.field = place.get("field")


class DatasetError(PlacedError):
    """Something wrong in a dataset."""


class DatasetNotFoundError(DatasetError):
    """A path that names no dataset: missing, matching nothing, or of an unknown kind."""


class DatasetParseError(DatasetError):
    """A file whose bytes are not what its extension says."""


class InvalidDatasetError(DatasetError):
    """A document whose parts around the cases are wrong."""


class InvalidCaseError(DatasetError):
    """One case that is wrong."""


class TargetsError(PlacedError):
    """Something wrong in a targets file."""


class DatasetWarning(UserWarning):
    """Legal, but probably not what was meant. `.path .line .column .field .hint` as on errors."""

    def __init__(self, message: str, hint: str = "", **place: Unpack[FilePlace]) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = place.get("path")
        self.line = place.get("line")
        self.column = place.get("column")
        self.field = place.get("field")


class MissingSidecarWarning(DatasetWarning):
    """A dataset without the sidecar it may have: worth a line when it is loaded, and not an error in the file."""


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.split("\n"))
