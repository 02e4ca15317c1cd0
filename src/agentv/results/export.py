"""The records of a run as one file of the user's choice, whole each time."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import yaml

from agentv.errors import AgentvError


def export_records(results: Path, target: str, file_format: str) -> None:
    """Writes all records to a file: as `jsonl` as they are, as `yaml` one document each."""
    try:
        if file_format == "jsonl":
            shutil.copyfile(results, target)
            return
        with results.open("rb") as lines, Path(target).open("w", encoding="utf-8", newline="\n") as stream:
            for line in lines:
                yaml.dump(
                    msgspec.json.decode(line),
                    stream,
                    Dumper=yaml.CSafeDumper,
                    explicit_start=True,
                    allow_unicode=True,
                    sort_keys=False,
                )
    except OSError as error:
        raise AgentvError(f"Cannot write {target}", error.strerror or str(error)) from None
