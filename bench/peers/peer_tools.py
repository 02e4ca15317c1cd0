"""Common parts of the drivers: install a tool into a temporary folder, run it, and write its records."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "tests" / "data" / "peers"
"""The pair files of each tool, in a folder of its name, and the records, in `TOOL.jsonl`."""

_INSTALL_SECONDS = 1800
_RUN_SECONDS = 900
_ORDER = ("tool", "version", "file", "case", "evaluator", "answer", "passed", "score", "error")


class PeerError(Exception):
    """A tool could not be installed or run. The message has the reason."""


def pair_files(tool: str, *suffixes: str) -> list[Path]:
    """Return the pair files of a tool, in order."""
    return sorted(path for path in (DATA / tool).iterdir() if path.suffix in suffixes)


def copied(tool: str) -> Path:
    """Copy the pair files of a tool to a temporary folder, so that nothing is written next to them."""
    folder = temporary_folder(tool) / tool
    shutil.copytree(DATA / tool, folder)
    return folder


def temporary_folder(name: str) -> Path:
    """Return a new folder that is deleted at the end."""
    folder = tempfile.mkdtemp(prefix=f"agentv-peer-{name.replace('/', '-')}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def npm_package(name: str, variable: str, version: str) -> Path:
    """Return the folder `node_modules/NAME`: in the folder that a variable names, or newly installed by npm."""
    folder = os.environ.get(variable)
    root = Path(folder) if folder else temporary_folder(name)
    if not folder:
        (root / "package.json").write_text("{}", encoding="utf-8")
        options = ("--no-audit", "--no-fund", "--prefix", str(root))
        run_tool(["npm", "install", *options, f"{name}@{version}"], root, timeout=_INSTALL_SECONDS)
    package = root / "node_modules" / name
    if not (package / "package.json").is_file():
        raise PeerError(f"{package} does not exist; install {name} into the folder that {variable} names, or unset it")
    return package


def npm_version(package: Path) -> str:
    """Return the version of a package of npm."""
    return str(json.loads((package / "package.json").read_text("utf-8"))["version"])


def python_with(packages: Iterable[str], variable: str, alone: Iterable[str] = ()) -> str:
    """Return an interpreter with some packages: the one that a variable names, or that of a new environment.

    Those in `alone` are installed without their dependencies, some of which do not build any more.
    """
    program = os.environ.get(variable)
    if program:
        return program
    folder = temporary_folder("python")
    run_tool([sys.executable, "-m", "venv", str(folder)], folder)
    program = str(folder / "bin" / "python")
    for parts in (["--no-deps", *alone] if alone else [], list(packages)):
        if parts:
            run_tool([program, "-m", "pip", "install", "--quiet", *parts], folder, timeout=_INSTALL_SECONDS)
    return program


def python_records(tool: str, suffix: str, packages: Iterable[str], program: str) -> Iterator[dict[str, Any]]:
    """Yield what a program prints for each pair file of a tool, one record per line; `PEERS_PYTHON` may run it."""
    python, folder = python_with(packages, "PEERS_PYTHON"), copied(tool)
    env = {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "DEEPEVAL_DISABLE_DOTENV": "1"}
    for path in pair_files(tool, suffix):
        ended = run_tool([python, "-c", program, path.name], folder, env)
        for line in ended.stdout.splitlines():
            if line.startswith("{"):
                yield {"tool": tool, "file": path.name, **json.loads(line)}


def run_tool(
    command: list[str],
    folder: Path,
    env: Mapping[str, str] | None = None,
    timeout: int = _RUN_SECONDS,
    codes: tuple[int, ...] = (0,),
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder. Raises PeerError if it is missing, too slow, or ends with another exit code."""
    environment = {**os.environ, **(env or {})}
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{command[0]} failed: {error}") from None
    if ended.returncode not in codes:
        text = (ended.stderr or ended.stdout).strip()[-2000:]
        raise PeerError(f"{' '.join(command[:3])} ended with exit code {ended.returncode}:\n{text}")
    return ended


def write_records(records: Iterable[dict[str, Any]], path: Path) -> Path:
    """Write records as JSON Lines with their keys in one order; two records of the same check are an error."""
    lines: dict[tuple[Any, ...], str] = {}
    for record in records:
        key = tuple(record[name] for name in ("file", "case", "evaluator", "answer"))
        if key in lines:
            raise PeerError(f"two records of {record['file']}, case {record['case']!r}, {record['answer']!r}")
        ordered = {name: record[name] for name in _ORDER if name in record}
        lines[key] = json.dumps(ordered, ensure_ascii=False)
    path.write_text("".join(f"{line}\n" for line in lines.values()), encoding="utf-8", newline="\n")
    return path
