"""What it costs to start: `agentv --help` and `import agentv`, beside `python -c pass`, with byte code cached."""

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
HELP = Goal("ratio", "≤", 8)
FLOOR = "python -c pass"


def measurements(options: Options) -> Iterator[Measurement]:
    """Every command once a round, after one round that only fills the cache."""
    runs = options.rounds or (QUICK_RUNS if options.quick else RUNS)
    with tempfile.TemporaryDirectory() as cache:
        environment = caching(cache)
        milliseconds: dict[str, list[float]] = {name: [] for name in commands()}
        for turn in range(runs + 1):
            for name, command in commands().items():
                took = run_ms(command, environment)
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
        goal = HELP if "--help" in name else None
        yield Measurement("startup", name, "ms", median(ours), floor, FLOOR, goal, details)


def commands() -> dict[str, list[str]]:
    """What is started; the console script only where one is installed beside the interpreter."""
    python = sys.executable
    found = {
        FLOOR: [python, "-c", "pass"],
        "import agentv": [python, "-c", "import agentv"],
        "python -m agentv --help": [python, "-m", "agentv", "--help"],
    }
    script = Path(python).with_name("agentv.exe" if sys.platform == "win32" else "agentv")
    return {**found, "agentv --help": [str(script), "--help"]} if script.exists() else found


def caching(folder: str) -> dict[str, str]:
    """An environment that keeps byte code in a folder of its own, whatever the user's says about writing it."""
    environment = harness.environment() | {"PYTHONPYCACHEPREFIX": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def run_ms(command: list[str], environment: dict[str, str]) -> float:
    """The wall time of one start, to the end of the process."""
    start = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    harness.main(__doc__ or "", measurements)
