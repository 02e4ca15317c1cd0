"""A project with one dataset and a few targets, and helpers to run it: shared by the tests of runs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PASSING = {"type": "contains", "value": "yes", "name": "says-yes"}


class Project:
    """A folder with `d.yaml` and `targets.yaml`. Commands run in this process, or in one of their own."""

    def __init__(self, folder: Any, command: Any) -> None:
        self.folder = folder
        self.path: Path = folder.path
        self.command = command
        self.targets({"name": "default", "provider": "mock"})

    def write(self, name: str, content: Any) -> str:
        return self.folder.write(name, content)

    def targets(self, *entries: dict[str, Any]) -> None:
        self.write("targets.yaml", {"targets": list(entries)})

    def dataset(self, *cases: dict[str, Any] | str, name: str = "d.yaml", **document: Any) -> str:
        """Cases as dicts, or as the texts that the echoing mock answers with; ids are c0, c1 …"""
        rows = [
            {"id": f"c{number}", "expected_outcome": "x", **({"input": case} if isinstance(case, str) else case)}
            for number, case in enumerate(cases)
        ]
        return self.write(name, {"evaluators": [PASSING], **document, "evalcases": rows})

    def eval(self, *arguments: str) -> Any:
        """`agentv eval d.yaml`, or what is named instead, in this process."""
        named = any(not each.startswith("-") and each.endswith((".yaml", ".jsonl")) for each in arguments[:1])
        return self.command("eval", *(() if named or "--resume" in arguments else ("d.yaml",)), *arguments)

    def spawn(self, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        """`agentv eval` in a process of its own."""
        command = [sys.executable, "-m", "agentv", "eval", *arguments]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen(command, cwd=self.path, **options)

    def run(self, *arguments: str, **options: Any) -> tuple[int, str, str]:
        """The same to its end: exit code, stdout, stderr."""
        with self.spawn(*arguments, **options) as process:
            out, err = process.communicate()
        return process.returncode, out, err

    def lines(self, name: str, out: str = "out") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / out / name).read_bytes().splitlines()]

    def records(self, out: str = "out") -> list[dict[str, Any]]:
        return self.lines("results.jsonl", out)

    def by_id(self, out: str = "out") -> dict[str, dict[str, Any]]:
        return {record["eval_id"]: record for record in self.records(out)}

    def manifest(self, out: str = "out") -> dict[str, Any]:
        return json.loads((self.path / out / "run.json").read_bytes())

    def summary(self, out: str = "out", target: str = "default") -> dict[str, Any]:
        return json.loads((self.path / out / "summary.json").read_bytes())["targets"][target]

    @property
    def runs(self) -> list[str]:
        """The folders of runs under `.agentv/results`."""
        folder = self.path / ".agentv" / "results"
        return sorted(os.listdir(folder)) if folder.is_dir() else []


def jobs_of(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the sorted job keys of records."""
    keys = ("dataset_path", "eval_id", "target", "prompt", "trial")
    return sorted(tuple(str(record.get(key)) for key in keys) for record in records)
