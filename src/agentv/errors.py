"""Exceptions for mistakes that users can fix, the exit codes, and helpers for the texts of messages.

    AgentvError                     exit code 2, printed without a traceback
    ├── UsageError                  invalid or conflicting options
    └── PlacedError                 .path .line .column .field .hint
        ├── DatasetError
        │   ├── DatasetNotFoundError    missing file, no match, unknown extension
        │   ├── DatasetParseError       invalid JSON Lines, YAML, gzip …
        │   ├── InvalidDatasetError     invalid document around the cases
        │   ├── InvalidCaseError        invalid case
        │   └── DatasetChangedError     changed during a run
        └── TargetsError            invalid targets file

    DatasetWarning                  valid, but probably a mistake
    RunWarning                      readable, but changed after it was written

Any other exception is a bug in agentv and shows its traceback.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypedDict, Unpack

from agentv.lazy_regex import lazy_regex

_LONGEST_WORD = 256
_LAST_WORD = lazy_regex(r"\S*\Z")
_LAST_TOKEN = lazy_regex(r"[\w+/=.~%:@&?-]*\Z")

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_ERRORS = 3
EXIT_BUDGET = 4
EXIT_UNDECIDED = 5
"""The results do not decide: can't tell."""
EXIT_INTERRUPTED = 130


class AgentvError(Exception):
    """A mistake the user can fix: a headline, an optional detail and an optional hint."""

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
        """The hint as printed. A list of required fields is printed without the `Hint:` prefix."""
        return self.hint if self.hint.startswith("Required fields:") else f"Hint: {self.hint}"


@contextmanager
def file_errors(headline: str, hint: str = "") -> Iterator[None]:
    """Raise AgentvError with this headline and the system's reason instead of an OSError."""
    try:
        yield
    except OSError as error:
        raise AgentvError(headline, error.strerror or str(error), open_files_hint(error) or hint) from error


def open_files_hint(error: OSError) -> str:
    """Return what to do if there are too many open files; an empty string for other errors."""
    is_limit = error.errno in (errno.EMFILE, errno.ENFILE)
    return "Raise the limit on open files, e.g. with `ulimit -n 4096`" if is_limit else ""


class UsageError(AgentvError):
    """Invalid or conflicting options."""


class NoEvaluatorsError(UsageError, ValueError):
    """An answer cannot be checked, because there are no evaluators."""


class FilePlace(TypedDict, total=False):
    """A position in a file. `line` and `column` start at 1; `field` is the path of a key."""

    path: str | None
    line: int | None
    column: int | None
    field: str | None


class PlacedError(AgentvError):
    """A mistake in a file, with its position. Parts that are not known are None."""

    def __init__(self, headline: str, detail: str = "", hint: str = "", **place: Unpack[FilePlace]) -> None:
        super().__init__(headline, detail, hint)
        self.path = place.get("path")
        self.line = place.get("line")
        self.column = place.get("column")
        self.field = place.get("field")


class DatasetError(PlacedError):
    """A mistake in a dataset."""


class DatasetNotFoundError(DatasetError):
    """A path without a dataset: missing, matching nothing, or with an unknown extension."""


class DatasetParseError(DatasetError):
    """A file whose content does not match its extension."""


class InvalidDatasetError(DatasetError):
    """A dataset that is invalid outside its cases."""


class InvalidCaseError(DatasetError):
    """An invalid case."""


class DatasetChangedError(DatasetError):
    """A dataset that changed while it was read, or during a run."""


class TargetsError(PlacedError):
    """A mistake in a targets file."""


class RunWarning(UserWarning):
    """A run that can be read, but was changed after it was written."""


class DatasetWarning(UserWarning):
    """Valid, but probably a mistake. Has the attributes of PlacedError."""

    def __init__(self, message: str, hint: str = "", **place: Unpack[FilePlace]) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = place.get("path")
        self.line = place.get("line")
        self.column = place.get("column")
        self.field = place.get("field")


class MissingSidecarWarning(DatasetWarning):
    """A dataset without its optional sidecar. Reported when it is loaded; not an error in the file."""


class MappedNote(DatasetWarning):
    """What another tool's file was read as. Not a problem."""


class LossWarning(DatasetWarning):
    """A difference from the file's own tool: something that could not be kept, or that is read in another way."""


class RefusedCaseWarning(LossWarning):
    """A case that cannot be run. Its jobs end in an error; the other cases of the file are not affected."""


def import_extra(name: str, error: Exception) -> Any:
    """Import a module of an optional package when it is first needed. Raises the error if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise error from None


def plural(count: int, noun: str) -> str:
    """Return the count with the noun in the right number: `1 case`, `1,200 cases`, `2 entries`."""
    if count != 1:
        noun = (
            f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith(("s", "x", "ch")) else f"{noun}s"
        )
    return f"{count:,} {noun}"


def start_of(text: str, most: int) -> str:
    """Return the start of a text, cut between words: half a secret would not be recognized."""
    if len(text) <= most:
        return text
    start = text[: most - 1]
    if not text[most - 1].isspace():
        # Data without spaces is cut at other signs. A very long word is not a secret.
        last = start[-_LONGEST_WORD - 1 :]
        lengths = (len(match[0]) for pattern in (_LAST_WORD, _LAST_TOKEN) if (match := pattern.search(last)))
        start = start[: len(start) - next((length for length in lengths if length <= _LONGEST_WORD), 0)]
    return start.rstrip() + "…"


def end_of(text: str, most: int) -> str:
    """Return the end of a text, cut like `start_of`."""
    return text if len(text) <= most else start_of(text[: -most - 1 : -1] + "x", most)[::-1]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.split("\n"))
