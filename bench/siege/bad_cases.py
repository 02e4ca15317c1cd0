"""Run agentv against servers that always fail some requests, and compare the time with that of the simulated rules.

    python bench/siege/bad_cases.py               # 20 cells of the table in docs/explanation/load-control.md
    python bench/siege/bad_cases.py --only 429

Prints a Markdown table. The exit code is 1 if a healthy job was lost, or if the times differ by a fifth and 2 s.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.extend((str(ROOT / "bench"), str(ROOT / "tests"), str(ROOT / "packages" / "agentv-testing" / "src")))

from agentv_testing import Fault, FaultyServer  # noqa: E402  # from the source tree
from harness import environment  # noqa: E402
from load_simulation import (  # noqa: E402
    LATENCY_S,
    PLACES,
    RETRIES,
    TIMEOUT_S,
    WORKERS,
    places,
    simulate_cell,
)

CELLS = [
    *(("500", "1 in 3", workers) for workers in ("1", "4", "50")),
    *(("429", "1 in 8", workers) for workers in ("1", "4", "50")),
    *(("timeout", "1 in 8", workers) for workers in ("4", "50", "adaptive")),
    *(("reset", "1 in 3", workers) for workers in ("4", "50", "adaptive")),
    *(("503", "1 in 20", workers) for workers in ("4", "50")),
    *(("500", place, "4") for place in PLACES),
    *(("429", place, "4") for place in PLACES),
]


@dataclass(eq=False)
class BadServer(FaultyServer):
    """Always fails the requests of bad jobs in one way."""

    kind: str = "500"
    bad: frozenset[int] = frozenset()
    calls: Counter[int] = field(default_factory=Counter)
    first_at: float = 0.0
    last_at: float = 0.0

    def _next_fault(self, raw: bytes) -> Fault | None:
        self.last_at = time.monotonic()
        self.first_at = self.first_at or self.last_at
        number = int(raw.partition(b"question ")[2].split(b'"')[0])
        self.calls[number] += 1
        if number not in self.bad:
            return None
        return Fault({"timeout": "hang"}.get(self.kind, self.kind))


def run(kind: str, where: str, workers: str) -> tuple[float, set[str], int]:
    """Return the seconds from the first to the last call, the healthy jobs lost, and the most calls of a bad job."""
    jobs = 200 if where in PLACES else 60 if workers == "1" else 120
    bad = places(where, jobs)
    with tempfile.TemporaryDirectory() as folder, BadServer("yes", latency_s=LATENCY_S, kind=kind, bad=bad) as server:
        most = {} if workers == "adaptive" else {"workers": WORKERS[workers][1]}
        target = {"name": "default", "provider": "openai", "model": "m", "base_url": server.url, "api_key": "none"}
        target |= {"timeout_seconds": TIMEOUT_S, "max_retries": RETRIES, **most}
        check = [{"type": "contains", "value": "yes"}]
        cases = [
            {"id": f"c{number}", "input": f"question {number}", "expected_outcome": "yes", "evaluators": check}
            for number in range(jobs)
        ]
        Path(folder, ".agentv").mkdir()
        Path(folder, ".agentv", "targets.yaml").write_text(json.dumps({"targets": [target]}), encoding="utf-8")
        Path(folder, "cases.yaml").write_text(json.dumps({"evalcases": cases}), encoding="utf-8")
        command = [sys.executable, "-m", "agentv", "eval", "cases.yaml", "--out", "run", "--quiet"]
        subprocess.run(command, cwd=folder, env=environment(), capture_output=True, check=False, timeout=300)
        lines = Path(folder, "run", "results.jsonl").read_text(encoding="utf-8").splitlines()
    scored = {record["eval_id"] for record in map(json.loads, lines) if record["status"] == "ok"}
    lost = {f"c{number}" for number in range(jobs) if number not in bad} - scored
    most_calls = max(server.calls[number] for number in bad)
    return server.last_at - server.first_at + LATENCY_S, lost, most_calls


def main() -> int:
    """Run the cells; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run the cells whose kind or place contains this")
    only = parser.parse_args().only
    is_wrong = False
    print("| fails | kind | workers | ideal | simulated | real | lost | most calls |\n" + "|---" * 8 + "|")
    for kind, where, workers in [cell for cell in CELLS if only in " ".join(cell)]:
        ended, ideal_s = simulate_cell(kind, where, workers, outage=False)
        seconds, lost, calls = run(kind, where, workers)
        is_wrong |= bool(lost) or abs(seconds - ended.seconds) > 0.2 * ended.seconds + 2
        figures = f"{ideal_s:.1f} s | {ended.seconds:.1f} s | {seconds:.1f} s | {len(lost)} | {calls}"
        print(f"| {where} | {kind} | {workers} | {figures} |", flush=True)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
