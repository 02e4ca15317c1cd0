"""The shapes of runs that the siege uses: a small project for each, the command, and the number of paid calls."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH), str(BENCH.parent / "packages" / "agentv-testing" / "src")]

WORKERS = 4
SPOILT = ("half_closed", "truncated")
FAULTS = dict.fromkeys(("429", "500", "503", "reset", *SPOILT), 0.01)
AGENT = """
import os, time
from posix import write as pay  # not counted as a write of agentv

LOG = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def answer(prompt):
    time.sleep(0.005)
    pay(LOG, b"call\\n")
    return prompt

def judge(prompt):
    answer(prompt)
    return '{{"score": 1.0, "hits": ["good"], "misses": [], "reasoning": "fine"}}'
"""
JUDGED = '{"score": 1.0, "hits": ["good"], "misses": [], "reasoning": "fine"}'
SHARDS = 3


@dataclass(frozen=True)
class Shape:
    """One kind of run. `calls_per_job` is the number of paid calls that a job needs."""

    cases: int = 40
    trials: int = 1
    prompts: bool = False
    turns: bool = False
    judge: bool = False
    target: str = "function"
    options: tuple[str, ...] = ()
    shards: int = 1
    rescored: bool = False

    @property
    def jobs(self) -> int:
        return self.cases * self.trials * (2 if self.prompts else 1)

    @property
    def calls_per_job(self) -> int:
        return 2 if self.turns else 1

    def most_in_flight(self, executor: str) -> int:
        """Return the paid calls whose answers a kill can lose. A batch is found again by its id.

        Answers of worker processes may also be on their way to the process that records them.
        """
        on_their_way = 1 if executor == "local" else 4
        return 0 if self.target == "batch" else on_their_way * WORKERS * self.calls_per_job


SHAPES = {
    "function": Shape(cases=80),
    "trials": Shape(cases=28, trials=3),
    "prompts": Shape(cases=40, prompts=True),
    "conversation": Shape(cases=40, turns=True),
    "command": Shape(cases=24, target="command"),
    "model": Shape(cases=60, target="model", options=("--max-retries", "6")),
    "judge": Shape(cases=60, judge=True),
    "record": Shape(cases=60, options=("--record", "calls.jsonl")),
    "batch": Shape(cases=20, target="batch"),
    "shards": Shape(cases=30, shards=SHARDS),
    "rescore": Shape(cases=60, rescored=True),
}


@dataclass(frozen=True)
class Project:
    """A project with a run of one shape. `paid` returns the number of calls so far that were answered."""

    folder: Path
    shape: Shape
    executor: str
    paid: Callable[[], int]

    @property
    def command(self) -> list[str]:
        """The command of a run that takes only one, as a process of its own."""
        (only,) = self.commands
        return [sys.executable, "-m", "agentv", *only]

    @property
    def first(self) -> list[list[str]]:
        """The commands that come before those that are killed."""
        return [["eval", self._dataset, "--out", "base", "--quiet"]] if self.shape.rescored else []

    @property
    def commands(self) -> list[list[str]]:
        """The commands to kill, each repeated until it ends: they start or resume the run."""
        where = ["--executor", self.executor] if self.executor != "local" else []
        more = ["--quiet", *where, *self.shape.options]
        if self.shape.rescored:
            judged = ["-e", '{"type": "llm_judge", "name": "good"}', "--judge", "judge"]
            return [["rescore", "base", *judged, "--resume", "--out", "out", *more]]
        if self.shape.shards == 1:
            return [["eval", self._dataset, "--resume", "--out", "out", *more]]
        names = [f"shard-{number}" for number in range(1, self.shape.shards + 1)]
        shards = [
            ["eval", self._dataset, "--shard", f"{number}/{len(names)}", "--resume", "--out", name, *more]
            for number, name in enumerate(names, 1)
        ]
        return [*shards, ["runs", "merge", *names, "--out", "out"]]

    @property
    def _dataset(self) -> str:
        return "d.yaml" if self.shape.turns or self.shape.prompts else "d.jsonl"


@contextmanager
def project(folder: Path, shape: Shape, executor: str) -> Iterator[Project]:
    """Write a project, with a server if its target is a model."""
    from agentv_testing import FaultyServer

    log = folder / "calls.log"
    log.touch()
    _write_dataset(folder, shape)
    (folder / "agent.py").write_text(AGENT.format(log=str(log)))
    (folder / "count.sh").write_text(f"echo call >> {log}\n")
    faults = FAULTS if shape.target == "model" else {}
    with FaultyServer("yes", latency_s=0.005, keep=0, faults=faults) as server:
        targets: list[dict[str, Any]] = [{"name": "default", "workers": WORKERS, **_target(shape, server.url)}]
        if shape.rescored:
            targets.append({"name": "judge", "workers": WORKERS, "provider": "python", "function": "agent.py:judge"})
        if shape.judge:
            targets.append({"name": "judge", "provider": "mock", "response": JUDGED, "delay_ms": 5})
        (folder / ".agentv").mkdir()
        (folder / ".agentv" / "targets.yaml").write_text(json.dumps({"targets": targets}))

        def paid() -> int:
            if shape.target == "batch":
                return len(server.batches.submitted)
            if shape.target != "model":
                return log.read_bytes().count(b"\n")
            # A truncated body has status 200 too, but is not a usable response.
            return server.counts.by_status[200] - sum(server.counts.by_fault[kind] for kind in SPOILT)

        yield Project(folder, shape, executor, paid)


def _target(shape: Shape, url: str) -> dict[str, Any]:
    if shape.target == "model":
        return {"provider": "openai", "model": "m", "base_url": url}
    if shape.target == "batch":
        return {"provider": "openai", "model": "m", "base_url": url, "api_key": "none", "batch": True}
    if shape.target == "command":
        return {"provider": "cli", "command_template": "cat {PROMPT_FILE}; sh count.sh"}
    return {"provider": "python", "function": "agent.py:answer"}


def _write_dataset(folder: Path, shape: Shape) -> None:
    cases: list[dict[str, Any]] = [
        {"id": f"case-{number}", "input": f"yes {number}", "expected_outcome": "Answers yes"}
        for number in range(shape.cases)
    ]
    evaluator = {"type": "llm_judge", "name": "good"} if shape.judge else {"type": "contains", "value": "yes"}
    settings: dict[str, Any] = {"evaluators": [evaluator], "execution": {"trials": shape.trials}}
    if shape.turns:
        for case in cases:
            case["turns"] = [{"input": "And yes again?"}]
    if shape.prompts:
        for case in cases:
            case["input"] = {"number": case["input"]}
        settings["prompts"] = [{"id": name, "prompt": f"{name}: {{{{ number }}}}"} for name in ("plain", "polite")]
    if shape.turns or shape.prompts:
        (folder / "d.yaml").write_text(json.dumps({**settings, "evalcases": cases}))
    else:
        (folder / "d.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
        (folder / "d.yaml").write_text(json.dumps(settings))
