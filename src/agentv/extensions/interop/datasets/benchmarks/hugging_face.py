"""Folders in the layout of Hugging Face datasets: `configs` of the README, or data files named after their split."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from typing import Any

from agentv.datasets.detection import MAPPED, foreign_format
from agentv.datasets.foreign.foreign_format import ForeignFormat, MappedFile
from agentv.datasets.foreign.records import RecordFile
from agentv.datasets.formats.dataset_format import Batch, Document, ReadOptions, Source, load_format, source_of
from agentv.settings.project import project_root
from agentv.support.yaml.yaml_parser import YamlError, parse_yaml

_SPLITS = ("test", "testing", "eval", "evaluation", "validation", "valid", "val", "dev", "train", "training")
"""Splits, the one that is evaluated first."""

_SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".jsonl.gz")
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.parquet$")
"""Without a README, only files named like the shards of the hub count: other tables in a folder may be fixtures."""

_FRONT_MATTER = re.compile(rb"\A---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)


class _HuggingFace(ForeignFormat):
    title = "a Hugging Face dataset"
    strength = 0.8
    fields = ""
    is_folder = True
    in_folders = True

    def sniff(self, head: bytes, path: str) -> bool:  # noqa: ARG002
        return bool(_configured(path)) or any(map(_SHARD.search, self.files(path)))

    def files(self, path: str) -> tuple[str, ...]:
        """Return the files of the split to evaluate."""
        splits = _configured(path) or _by_name(path)
        for split in _SPLITS:
            if splits.get(split):
                return tuple(splits[split])
        return tuple(next(iter(splits.values()), ()))

    def open(self, source: Source) -> Document:
        inner = self._inner(source)
        document = load_format(inner.kind).open(inner)
        mapped = document.mapped or MappedFile(self.title, "")
        return Document(source, document.header, document.header_path, True, mapped=mapped, cases=document)

    def read(self, document: Document, options: ReadOptions) -> Iterator[Batch]:
        inner: Document = document.cases
        return load_format(inner.source.kind).read(inner, options)

    def _inner(self, source: Source) -> Source:
        """Return the source of the files in the format that recognizes their records."""
        kind = foreign_format(source.files[0]) or MAPPED
        inner = source_of(source.files[0], kind, source.fields)
        return Source(source.files, inner.base, kind, source.path, source.fields)

    def fits(self, file: RecordFile) -> bool:  # noqa: ARG002
        return False


HUGGING_FACE = _HuggingFace()


def _configured(path: str) -> dict[str, list[str]]:
    """Return the files of each split by the front matter of the README: of the default configuration, or the first."""
    readme = os.path.join(path, "README.md")
    match = _FRONT_MATTER.match(RecordFile(readme).head) if os.path.isfile(readme) else None
    if match is None:
        return {}
    try:
        data = parse_yaml(match[1])
    except YamlError:
        return {}
    configs = data.get("configs") if isinstance(data, dict) else None
    usable = [entry for entry in configs if isinstance(entry, dict)] if isinstance(configs, list) else []
    config = next((entry for entry in usable if entry.get("default") is True), usable[0] if usable else {})
    return _splits_of(path, config.get("data_files"), config.get("data_dir"))


def _splits_of(path: str, files: Any, folder: Any) -> dict[str, list[str]]:
    base = os.path.join(path, folder) if isinstance(folder, str) else path
    entries = files if isinstance(files, list) else [files] if files else []
    splits: dict[str, list[str]] = {}
    for entry in entries:
        split, patterns = ("train", entry) if not isinstance(entry, dict) else (entry.get("split"), entry.get("path"))
        for pattern in patterns if isinstance(patterns, list) else [patterns]:
            splits.setdefault(str(split), []).extend(_inside(path, base, str(pattern)))
    return {split: paths for split, paths in splits.items() if paths}


def _inside(path: str, base: str, pattern: str) -> list[str]:
    """Return the files that match a pattern, without those outside the project."""
    root = project_root(path)
    matches = sorted(glob.glob(os.path.join(base, pattern)))
    return [file for file in matches if os.path.commonpath((root, os.path.realpath(file))) == root]


def _by_name(path: str) -> dict[str, list[str]]:
    """Return the files in the folder or in `data` by the split in their names."""
    splits: dict[str, list[str]] = {}
    for folder in (path, os.path.join(path, "data")):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            words = re.split(r"[^a-z]+", name.lower())
            split = next((word for word in words if word in _SPLITS), None)
            if split is not None and name.lower().endswith(_SUFFIXES):
                splits.setdefault(split, []).append(os.path.join(folder, name))
    return splits
