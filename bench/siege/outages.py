"""Run agentv against servers on loopback that refuse, fail, reset and hang, and print how each run ended.

    python bench/siege/outages.py                 # all scenarios, about ten minutes on an idle machine
    python bench/siege/outages.py --only reset

Each scenario states what must hold: no lost job, a time, or a throughput. The exit code is 1 if one does not hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.extend((str(ROOT / "bench"), str(ROOT / "packages" / "agentv-testing" / "src")))

from agentv_testing import Fault, FaultyServer  # noqa: E402  # from the source tree
from harness import environment  # noqa: E402

LATENCY_S, WORKERS, TIMEOUT_S, START_S = 0.1, 20, 3, 4.0
ALWAYS = 1e9


@dataclass(eq=False)
class SiegeServer(FaultyServer):
    """Fails a fraction of the requests for some seconds, and those that exceed the number of slots."""

    kind: str | None = None
    fraction: float = 1.0
    start_s: float = START_S
    lasts_s: float = 10.0
    slots: int | None = None
    first_at: float | None = None
    pace: Counter[int] = field(default_factory=Counter)

    def _next_fault(self, raw: bytes) -> Fault | None:  # noqa: ARG002  # every request fails alike
        now = time.monotonic()
        self.first_at = self.first_at or now
        since_s = now - self.first_at
        is_full = self.slots is not None and self.counts.at_once > self.slots
        is_time = self.start_s <= since_s < self.start_s + self.lasts_s
        # By chance, but the same in every run.
        is_drawn = self.counts.requests * 7919 % 1000 < 1000 * self.fraction
        if self.kind is not None and (is_full or (self.slots is None and is_time and is_drawn)):
            return Fault(self.kind)
        self.pace[int(since_s)] += 1
        return None


@dataclass
class Ended:
    """How a run ended; `usual_s` is the time of an undisturbed run with as many jobs."""

    seconds: float
    usual_s: float
    errors: int
    server: SiegeServer

    @property
    def survives(self) -> bool:
        """Whether the run took at most the outage and 1.5 times the usual time, and no job was lost."""
        outage_s = self.server.lasts_s if self.server.kind and self.server.lasts_s < ALWAYS else 0.0
        last_attempt_s = TIMEOUT_S if self.server.kind == "hang" else 0.0
        return not self.errors and self.seconds <= outage_s + 1.5 * self.usual_s + last_attempt_s

    @property
    def recovers(self) -> bool:
        """Whether the pace a minute after the refusals is 80 % of the one before."""
        server = self.server
        before = [server.pace[second] for second in range(1, int(server.start_s))]
        later = [server.pace[second] for second in range(int(server.start_s + server.lasts_s) + 60, max(server.pace))]
        return bool(later) and sum(later) / len(later) >= 0.8 * sum(before) / len(before)

    def keeps(self, fraction: float) -> bool:
        """Whether the run was at most so much slower than usual."""
        return self.usual_s / self.seconds >= fraction


@dataclass(frozen=True)
class Scenario:
    """A way to fail, the number of jobs, and what must hold."""

    name: str
    faults: dict[str, float | str | int]
    jobs: int
    required: str
    holds: Callable[[Ended], bool]


SURVIVES = ("outage + 1.5 × undisturbed, no error", lambda ended: ended.survives)
SCENARIOS = (
    *(Scenario(f"{kind} for 10 s", {"kind": kind}, 3000, *SURVIVES) for kind in ("503", "500", "reset", "hang")),
    Scenario("503 for 60 s", {"kind": "503", "lasts_s": 60.0}, 3000, *SURVIVES),
    Scenario("half of the response for 10 s", {"kind": "half_closed"}, 3000, *SURVIVES),
    Scenario("10 slots, then 503", {"kind": "503", "slots": 10}, 1500, "no error", lambda ended: ended.errors == 0),
    Scenario("10 slots, then reset", {"kind": "reset", "slots": 10}, 1500, "no error", lambda ended: ended.errors == 0),
    Scenario("429 for 10 s", {"kind": "429"}, 16_000, "80 % of the pace after 60 s", lambda ended: ended.recovers),
    Scenario(
        "429 for 1 % of calls",
        {"kind": "429", "fraction": 0.01, "start_s": 0.0, "lasts_s": ALWAYS},
        5000,
        "80 % of the usual pace",
        lambda ended: ended.keeps(0.8),
    ),
    Scenario(
        "reset for 10 % of calls",
        {"kind": "reset", "fraction": 0.1, "start_s": 0.0, "lasts_s": ALWAYS},
        5000,
        "85 % of the usual pace",
        lambda ended: ended.keeps(0.85),
    ),
)


def run(jobs: int, server: SiegeServer) -> tuple[float, int]:
    """Evaluate cases in a process of its own; return the seconds since its first call, and the number of errors."""
    with tempfile.TemporaryDirectory() as made, server:
        folder = Path(made)
        rows = (json.dumps({"id": f"c{number}", "input": "q", "expected_outcome": "x"}) for number in range(jobs))
        (folder / "d.jsonl").write_text("\n".join(rows) + "\n")
        (folder / "d.yaml").write_text("evaluators: [{type: contains, value: Paris}]\n")
        target = {"name": "default", "provider": "openai", "model": "m", "base_url": server.url}
        target |= {"workers": WORKERS, "timeout_seconds": TIMEOUT_S}
        (folder / "targets.yaml").write_text(json.dumps({"targets": [target]}))
        command = [sys.executable, "-m", "agentv", "eval", "d.jsonl", "--out", "out", "--quiet"]
        subprocess.run(command, cwd=folder, env={**environment(), "XDG_STATE_HOME": made}, check=True)
        ended_at = time.monotonic()
        summary = json.loads((folder / "out" / "summary.json").read_bytes())["targets"]["default"]
    assert summary["scored"] + summary["errors"] == jobs
    return ended_at - (server.first_at or ended_at), summary["errors"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the scenarios whose names contain this text")
    options = parser.parse_args()
    print("| scenario | jobs | undisturbed | took | errors | required | held |\n|---|---|---|---|---|---|---|")
    usual: dict[int, float] = {}
    failed = 0
    for scenario in SCENARIOS:
        if options.only not in scenario.name:
            continue
        if scenario.jobs not in usual:
            usual[scenario.jobs] = run(scenario.jobs, SiegeServer("Paris", latency_s=LATENCY_S, keep=0))[0]
        server = SiegeServer("Paris", latency_s=LATENCY_S, keep=0, **scenario.faults)  # type: ignore[arg-type]
        seconds, errors = run(scenario.jobs, server)
        ended = Ended(seconds, usual[scenario.jobs], errors, server)
        held = scenario.holds(ended)
        failed += not held
        cells = (scenario.name, scenario.jobs, f"{ended.usual_s:.1f} s", f"{seconds:.1f} s", errors, scenario.required)
        print("| " + " | ".join(map(str, cells)) + f" | {'yes' if held else 'NO'} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
