"""Task folders of Harbor and Terminal-Bench: an instruction, files and tests that run in a container."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, document_of, record_file
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import filled, first_of, object_at, text_of, texts_of

_TASK = ("task.toml", "task.yaml")
_INSTRUCTIONS = ("instruction.md", "task.md")


class _Harbor(ForeignFormat):
    """A folder with a task, or with folders of tasks."""

    title = "task folders of Harbor"
    strength = 0.9
    fields = "instruction.md → input, task.toml → metadata"
    is_folder = True
    in_folders = True

    def sniff(self, head: bytes, path: str) -> bool:  # noqa: ARG002
        return bool(self.files(path)) and all(_task_file(os.path.dirname(file)) for file in self.files(path))

    def files(self, path: str) -> tuple[str, ...]:
        """Return the task files: that of the folder, or those of the folders in it."""
        own = _task_file(path)
        if own is not None:
            return (own,)
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
        found = (_task_file(os.path.join(path, name)) for name in names if not name.startswith("."))
        return tuple(file for file in found if file is not None)

    def fits(self, file: RecordFile) -> bool:
        return os.path.basename(file.path) in _TASK

    def items(self, file: RecordFile) -> Iterator[Record]:
        yield Record(1, {"folder": os.path.dirname(file.path), "settings": document_of(file)})

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        folder, settings = record.data["folder"], record.data["settings"]
        written = (os.path.join(folder, name) for name in _INSTRUCTIONS)
        path = next((each for each in written if os.path.isfile(each)), None)
        text = record_file(path).text if path else text_of(first_of(settings, "instruction", "prompt"))
        if not text.strip():
            raise ValueError("The task has no instruction")
        for name, what in (("environment", "the container of a task"), ("tests", "the tests of a task")):
            if os.path.isdir(os.path.join(folder, name)):
                lose(f"{what}, which need a container engine")
        metadata = object_at(settings, "metadata") or settings
        row = {
            "id": os.path.basename(os.path.abspath(folder)),
            "input": text,
            "expected_outcome": "Completes the task as instructed",
            "tags": [*texts_of(metadata.get("tags")), *texts_of(metadata.get("difficulty"))],
            "metadata": {key: value for key, value in metadata.items() if key not in ("tags", "instruction")},
        }
        return [filled(row)]


HARBOR = _Harbor()


def _task_file(folder: str) -> str | None:
    found = (os.path.join(folder, name) for name in _TASK)
    path = next((each for each in found if os.path.isfile(each)), None)
    if path is None:
        return None
    has_text = any(os.path.isfile(os.path.join(folder, name)) for name in _INSTRUCTIONS)
    return path if has_text or path.endswith(".yaml") else None
