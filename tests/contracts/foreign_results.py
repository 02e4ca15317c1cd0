"""Results of other tools for tests: files written as YAML, one per format, with the records that are expected."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent / "data" / "foreign_results"


@dataclass
class Example:
    """One run of another tool. `data` has its files, and what is expected of it."""

    format: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.format}: {self.data['why']}"

    def write(self, folder: Path, compression: int = zipfile.ZIP_DEFLATED) -> Path:
        """Write the files, and return the path of the run."""
        for name, content in self.data.get("also", {}).items():
            put(folder / name, json.dumps(content))
        for name, text in self.data.get("also_text", {}).items():
            put(folder / name, text)
        if "archive" in self.data:
            members = {name: json.dumps(content) for name, content in self.data["members"].items()}
            return archive(folder / self.data["archive"], members, compression)
        text = self.data["text"] if "text" in self.data else json.dumps(self.data["content"])
        path = put(folder / self.data["file"], text)
        return folder / self.data["run"] if "run" in self.data else path


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def archive(path: Path, members: dict[str, str], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    if compression not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        from backports.zstd import zipfile as module
    else:
        module = zipfile
    with module.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(module.ZipInfo(name), content, compression)  # without a date: the same bytes each time
    return path


EXAMPLES = [
    Example(file.stem, data)
    for file in sorted(FOLDER.glob("*.yaml"))
    for data in yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
]
READABLE = [example for example in EXAMPLES if "records" in example.data]
REFUSED = [example for example in EXAMPLES if "refused" in example.data]
