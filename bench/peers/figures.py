"""Measure the size, the start and the speed of other tools and of agentv, and print a table.

    python bench/peers/figures.py               # all tools
    python bench/peers/figures.py agentv promptfoo

Each Python package is installed into an environment of its own, and each npm package into a folder of its own, unless
`PROMPTFOO_PACKAGE` or `AGENTV_PACKAGE` names one. The speed is that of one command with 2,000 cases that are echoed and
checked by one `contains`, results on disk, start-up included.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from peer_tools import PeerError, npm_package, npm_version, run_tool, temporary_folder

REPOSITORY = Path(__file__).resolve().parents[2]
CASES, STARTS = 2_000, 5
_QUIET = {
    **{f"PROMPTFOO_DISABLE_{name}": "1" for name in ("TELEMETRY", "UPDATE", "REMOTE_GENERATION", "SHARING")},
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "DEEPEVAL_DISABLE_DOTENV": "1",
}


class Installation(NamedTuple):
    """A tool in a folder of its own: its version, its number of packages and its command."""

    folder: Path
    version: str
    packages: int
    command: list[str]


def from_pip(requirement: str, name: str, program: str) -> Installation:
    """Install a package of PyPI into a new environment."""
    folder = temporary_folder(name)
    python = str(folder / "bin" / "python")
    run_tool([sys.executable, "-m", "venv", str(folder)], folder)
    run_tool([python, "-m", "pip", "install", "--quiet", requirement], folder, timeout=1800)
    packages = json.loads(run_tool([python, "-m", "pip", "list", "--format", "json"], folder).stdout)
    version = next(each["version"] for each in packages if each["name"] == name)
    own = [each for each in packages if each["name"] not in ("pip", "setuptools")]
    return Installation(folder, version, len(own), [str(folder / "bin" / program)])


def from_npm(name: str, variable: str, version: str) -> Installation:
    """Install a package of npm, or use the folder that a variable names."""
    package = npm_package(name, variable, version)
    root = package.parent.parent
    programs = json.loads((package / "package.json").read_text("utf-8"))["bin"]
    packages = sum(1 for pattern in ("*", "@*/*") for _ in root.glob(f"node_modules/{pattern}/package.json"))
    return Installation(root, npm_version(package), packages, ["node", str(package / programs[name])])


INSTALL: dict[str, Callable[[], Installation]] = {
    "agentv": lambda: from_pip(str(REPOSITORY), "agentv", "agentv"),
    "promptfoo": lambda: from_npm("promptfoo", "PROMPTFOO_PACKAGE", "0.121"),
    "agentv_ts": lambda: from_npm("agentv", "AGENTV_PACKAGE", "4"),
    "inspect": lambda: from_pip("inspect-ai", "inspect_ai", "inspect"),
    "deepeval": lambda: from_pip("deepeval", "deepeval", "deepeval"),
}


def _bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _seconds(command: list[str], folder: Path, codes: tuple[int, ...] = (0,)) -> float:
    start = time.perf_counter()
    run_tool(command, folder, {**_QUIET, "PROMPTFOO_CONFIG_DIR": str(folder)}, codes=codes)
    return time.perf_counter() - start


def cases_per_second(tool: str, command: list[str]) -> str:
    """Return the speed of a run; a dash for tools whose cases are code."""
    folder = temporary_folder("run")
    if tool == "promptfoo":
        tests = [
            {"vars": {"q": f"question {n}"}, "assert": [{"type": "contains", "value": str(n)}]} for n in range(CASES)
        ]
        (folder / "c.yaml").write_text(json.dumps({"prompts": ["{{q}}"], "providers": ["echo"], "tests": tests}))
        options = ["eval", "-c", "c.yaml", "--no-cache", "--no-progress-bar", "--no-table", "-o", "out.json"]
    elif tool == "agentv":
        checks = [[{"type": "contains", "value": str(n)}] for n in range(CASES)]
        rows = [
            {"id": str(n), "expected_outcome": "Repeats it", "input": f"question {n}", "evaluators": check}
            for n, check in enumerate(checks)
        ]
        (folder / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "targets.yaml").write_text(json.dumps({"targets": [{"name": "default", "provider": "mock"}]}))
        options = ["eval", "c.jsonl", "--out", "run", "--quiet"]
    else:
        return "-"
    return f"{CASES / _seconds([*command, *options], folder):,.0f}"


def row(tool: str) -> str:
    """Return the line of one tool."""
    installed = INSTALL[tool]()
    starts = [_seconds([*installed.command, "--help"], installed.folder) for _ in range(STARTS)]
    size, start_ms = _bytes(installed.folder) / 1e6, statistics.median(starts) * 1e3
    figures = [f"{size:,.0f}", str(installed.packages), f"{start_ms:,.0f}"]
    return " | ".join([f"| {tool} {installed.version}", *figures, f"{cases_per_second(tool, installed.command)} |"])


def main() -> int:
    """Print the table. Returns 1 if a tool could not be measured."""
    failed = False
    print(f"Measured on {datetime.now(UTC):%Y-%m-%d} on this machine.\n")
    print("| tool | installed, MB | packages | `--help`, ms | cases/s |\n|---|--:|--:|--:|--:|")
    for tool in sys.argv[1:] or INSTALL:
        try:
            print(row(tool), flush=True)
        except PeerError as error:
            failed = True
            print(f"{tool}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
