"""Task folders of Harbor and Terminal-Bench: an instruction, files and tests that run in a container."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, document_of, record_file
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import filled, first_of, object_at, text_of, texts_of
from agentv.datasets.formats.dataset_format import Document, Source
from agentv.errors import InvalidDatasetError
from agentv.settings.project import is_inside

_TASK = ("task.toml", "task.yaml")
_INSTRUCTIONS = ("instruction.md", "task.md")
_TEXTS = ("instruction", "descriptions")
_FOLDERS = ("environment", "tests", "solution")
_NO_INSTRUCTION = "The task has no instruction: there is no instruction.md with text next to it"
_REFUSAL = "The tests of a Harbor task decide its reward, and they need a container: run the task with Harbor"


class _HarborTask(ForeignFormat):
    """The settings file of a task, next to its instruction and tests."""

    title = "a task of Harbor"
    strength = 0.9
    fields = "instruction.md → input, steps → turns, task.toml and the names of files → metadata"

    def fits(self, file: RecordFile) -> bool:
        has_tests = os.path.isfile(os.path.join(os.path.dirname(file.path), "run-tests.sh"))
        is_task = file.suffix == ".toml" or has_tests or not document_of(file).keys().isdisjoint(_TEXTS)
        return _is_manifest(file) or (is_task and _task_file(os.path.dirname(file.path)) == file.path)

    def open(self, source: Source) -> Document:
        if not self.is_folder and _is_manifest(record_file(source.path)):
            what, hint = (
                "It names tasks, which are in the registry of Harbor",
                "Download them with Harbor, and name them",
            )
            raise InvalidDatasetError(f"No cases in {source.path}", what, hint, path=source.path, line=1)
        return super().open(source)

    def items(self, file: RecordFile) -> Iterator[Record]:
        yield Record(1, {"folder": os.path.dirname(file.path), "settings": document_of(file)})

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:  # noqa: ARG002
        folder, settings = record.data["folder"], record.data["settings"]
        steps = [os.path.join("steps", name) for name in _step_names(folder, settings)]
        _refuse_links(
            folder, [*_FOLDERS, *(os.path.join(step, name) for step in ("", *steps) for name in _INSTRUCTIONS)]
        )
        texts = [_instruction(os.path.join(folder, step)) for step in steps]
        own = _instruction(folder) or text_of(first_of(settings, "instruction", "prompt")) or _described(settings)
        first, *later = [text for text in (own, *texts) if text.strip()] or [_NO_INSTRUCTION]
        metadata = object_at(settings, "metadata") or settings
        files = {name: _files_in(os.path.join(folder, name)) for name in (*_FOLDERS, *steps)}
        task = object_at(settings, "task")
        others = {key: value for key, value in settings.items() if metadata is not settings and key != "metadata"}
        row = {
            "id": task.get("name") or os.path.basename(os.path.abspath(folder)),
            "input": first,
            "turns": [{"input": text} for text in later],
            "expected_outcome": "Completes the task as instructed",
            "description": task.get("description"),
            "tags": [
                tag
                for tags in (metadata.get("tags"), task.get("keywords"), metadata.get("difficulty"))
                for tag in texts_of(tags)
            ],
            "metadata": {
                **{key: value for key, value in metadata.items() if key not in ("tags", "instruction")},
                **others,
                **filled({"files": filled(files), "instructions": [first, *later] if later else None}),
            },
            "case_error": _REFUSAL if first != _NO_INSTRUCTION else f"{_NO_INSTRUCTION}. {_REFUSAL}",
        }
        return [filled(row)]


def _refuse_links(folder: str, names: Iterable[str]) -> None:
    """Raise ValueError if the files of a task are outside of its folder."""
    real = os.path.realpath(folder)
    for name in names:
        if not is_inside(os.path.realpath(os.path.join(folder, name)), real):
            raise ValueError(f"'{name}' is outside the folder of the task, and was not read")


def _instruction(folder: str) -> str:
    paths = (os.path.join(folder, name) for name in _INSTRUCTIONS)
    path = next((path for path in paths if os.path.isfile(path)), None)
    return record_file(path).text if path else ""


def _described(settings: dict[str, Any]) -> str:
    """Return the instruction of the first generation of Terminal-Bench, where a task has several: the basic one."""
    items = [item for item in settings.get("descriptions") or () if isinstance(item, dict)]
    texts = {text_of(item.get("key")): text_of(item.get("description")) for item in items}
    return texts.get("base") or next(iter(texts.values()), "")


def _step_names(folder: str, settings: dict[str, Any]) -> list[str]:
    """Return the folders of a task's steps, in the order of the settings, or else by name."""
    steps = settings.get("steps")
    names = [text_of(step.get("name")) for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    place = os.path.join(folder, "steps")
    return names or (sorted(os.listdir(place)) if os.path.isdir(place) else [])


def _files_in(folder: str) -> list[str]:
    """Return the files below a folder, relative to it."""
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sorted(os.path.relpath(path, folder).replace(os.sep, "/") for path in paths)


HARBOR_TASK = _HarborTask()


class _Harbor(_HarborTask):
    """A folder with a task, or with folders of tasks."""

    title = "task folders of Harbor"
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
        task_files = (_task_file(os.path.join(path, name)) for name in names if not name.startswith("."))
        return tuple(file for file in task_files if file is not None)


HARBOR = _Harbor()


def _task_file(folder: str) -> str | None:
    candidates = (os.path.join(folder, name) for name in _TASK)
    path = next((candidate for candidate in candidates if os.path.isfile(candidate)), None)
    if path is None:
        return None
    has_text = any(os.path.isfile(os.path.join(folder, name)) for name in _INSTRUCTIONS)
    has_steps = os.path.isdir(os.path.join(folder, "steps"))
    return path if has_text or has_steps or path.endswith(".yaml") or _is_settings(path) else None


def _is_settings(path: str) -> bool:
    """Whether a file has the settings of a task, although its instruction is not next to it."""
    return {"agent", "verifier", "environment"} <= document_of(record_file(path)).keys()


def _is_manifest(file: RecordFile) -> bool:
    """Whether a file is a dataset.toml, which pins tasks of the registry."""
    document = document_of(file) if file.suffix == ".toml" else {}
    return isinstance(document.get("dataset"), dict) and isinstance(document.get("tasks"), list)
