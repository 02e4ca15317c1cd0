"""Start-up time of `agentv --help`, `import agentv` and a one-case run, compared with `python -c pass`.

Byte code is cached, as it is after an installation.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import harness
from harness import Goal, Measurement, Options

RUNS, QUICK_RUNS = 31, 7
FLOOR = "python -c pass"
ONE_CASE = "agentv eval of one case"
GOALS = {"--help": Goal("ratio", "≤", 8), ONE_CASE: Goal("ratio", "≤", 14)}
PROJECT = {
    "targets.yaml": "targets: [{name: default, provider: mock, response: Paris}]\n",
    "one.yaml": "evalcases:\n  - {id: one, input: The capital of France?, expected_outcome: Says Paris}\n"
    "evaluators: [{type: contains, value: Paris}]\n",
}


def measurements(options: Options) -> Iterator[Measurement]:
    """Run every command once per round, after one round that fills the bytecode cache."""
    runs = options.rounds or (QUICK_RUNS if options.quick else RUNS)
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as project:
        for file, text in PROJECT.items():
            Path(project, file).write_text(text)
        environment = caching(cache)
        milliseconds: dict[str, list[float]] = {name: [] for name in commands()}
        for turn in range(runs + 1):
            for name, command in commands().items():
                took = run_ms(command, environment, project)
                if turn:
                    milliseconds[name].append(took)
        cached = any(Path(cache).rglob("agentv/__init__*.pyc"))
    floor = median(milliseconds.pop(FLOOR))
    for name, ours in milliseconds.items():
        details = {
            "extra_ms": round(median(ours) - floor, 2),
            "best": round(min(ours), 2),
            "rounds": runs,
            "statistic": "median",
            "bytecode": "cached" if cached else "compiled at every start",
        }
        goal = next((goal for part, goal in GOALS.items() if part in name), None)
        yield Measurement("startup", name, "ms", median(ours), floor, FLOOR, goal, details)


def commands() -> dict[str, list[str]]:
    """The commands to start; the console script only if it is installed next to the interpreter."""
    python = sys.executable
    found = {
        FLOOR: [python, "-c", "pass"],
        "import agentv": [python, "-c", "import agentv"],
        "python -m agentv --help": [python, "-m", "agentv", "--help"],
        ONE_CASE: [python, "-m", "agentv", "eval", "one.yaml"],
    }
    script = Path(python).with_name("agentv.exe" if sys.platform == "win32" else "agentv")
    return {**found, "agentv --help": [str(script), "--help"]} if script.exists() else found


def caching(folder: str) -> dict[str, str]:
    """An environment with its own bytecode folder, regardless of PYTHONDONTWRITEBYTECODE."""
    environment = harness.environment() | {"PYTHONPYCACHEPREFIX": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def run_ms(command: list[str], environment: dict[str, str], folder: str) -> float:
    """The wall time of one start until the process ends."""
    start = time.perf_counter()
    quiet = subprocess.DEVNULL
    subprocess.run(command, env=environment, cwd=folder, stdout=quiet, stderr=quiet, check=True)
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    harness.main(__doc__ or "", measurements)
