"""The records of a run as one file of the user's choice, whole each time."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec
import yaml

from agentv.errors import AgentvError, UsageError

_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".yaml": "yaml", ".yml": "yaml"}
_REPORTS = (".csv", ".html", ".md", ".parquet", ".xml")
_OTHER_FILES = (".gz", ".json", ".log", ".tsv", ".txt", ".xlsx", ".zst")


def places_of(out: str | None, said: str | None = None) -> tuple[str | None, tuple[str, str] | None]:
    """The run folder that `--out` names, or the file of records and its format: by `--format`, else by extension."""
    extension = os.path.splitext(out or "")[1].lower()
    file_format = said or _FORMATS.get(extension)
    if out is None or (file_format is None and (os.path.isdir(out) or extension not in (*_REPORTS, *_OTHER_FILES))):
        return out, None
    if file_format is None:
        hint = f"Run first, then: agentv report RUN {out}" if extension in _REPORTS else "Say which with --format"
        raise UsageError(f"Cannot write {out}", "A file of records ends in .jsonl or .yaml; else it is a folder", hint)
    if os.path.isdir(out):
        raise UsageError(f"Cannot write {out}", "It is a folder")
    if not os.path.isdir(os.path.dirname(out) or "."):
        raise UsageError(f"Cannot write {out}", f"There is no folder {os.path.dirname(out)}")
    return None, (out, file_format)


def export_records(results: Path, target: str, file_format: str) -> None:
    """Writes all records to a file: as `jsonl` as they are, as `yaml` one document each.

    A file that is there is replaced by a whole one; what is no file, such as a pipe, is written to.
    """
    path = Path(os.path.realpath(target))
    in_place = path.exists() and not path.is_file()
    written = path if in_place else path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _write(results, written, file_format)
        if not in_place:
            os.replace(written, path)
    except OSError as error:
        if not in_place:
            with suppress(OSError):
                written.unlink(missing_ok=True)
        raise AgentvError(f"Cannot write {target}", error.strerror or str(error)) from None


def _write(results: Path, path: Path, file_format: str) -> None:
    with results.open("rb") as lines, path.open("wb") as stream:
        if file_format == "jsonl":
            shutil.copyfileobj(lines, stream)
            return
        for line in lines:
            yaml.dump(
                msgspec.json.decode(line),
                stream,
                Dumper=yaml.CSafeDumper,
                encoding="utf-8",
                explicit_start=True,
                allow_unicode=True,
                sort_keys=False,
            )
