"""Time to compare two runs, including intervals and tests, compared with a bare loop over their lines."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
from harness import Goal, Measurement, Options, Pair, Work

SIZES, QUICK_SIZES = (100_000,), (10_000,)
FLOOR_IS = "a loop over the lines"


def compare(before: str, after: str) -> Callable[[], Any]:
    """The work of `agentv compare`: read and join both runs, build every table and the terminal text."""

    def work() -> int:
        from agentv.comparison.run_comparison import compare_runs
        from agentv.comparison.scores import RunScores
        from agentv.report.comparisons.comparison_text import comparison_lines

        found = compare_runs(RunScores(before, "before"), RunScores(after, "after"))
        comparison_lines(found)
        return len(found.pairs)

    return work


def floor(before: str, after: str) -> Callable[[], Any]:
    """Count the lines."""

    def work() -> int:
        for path in (before, after):
            with open(path, "rb") as lines:
                count = sum(1 for _ in lines)
        return count

    return work


def measurements(options: Options) -> Iterator[Measurement]:
    """Speed and memory at each size. Scores are not 0/1, which is the slower case."""
    for records in options.sizes(SIZES, QUICK_SIZES):
        with tempfile.TemporaryDirectory() as folder:
            paths = tuple(str(write_run(Path(folder, f"{name}.jsonl"), records, name)) for name in ("before", "after"))
            works = {"ours": Work(compare, paths), "floor": Work(floor, paths)}
            samples = harness.interleaved(works, options.rounds_for(records), records)
            arguments = ("-m", "agentv", "compare", *paths, "--fail-on", "never")
            ours, least = (min(processor_ms(*each) for _ in range(3)) for each in (arguments, ("-c", "import numpy")))
        pair = Pair("compare", f"{records:,} results each", samples["ours"], samples["floor"], FLOOR_IS)
        yield pair.speed()
        yield pair.memory(Goal("ours", "≤", 300))
        name = f"{records:,} results each, processor time of the command"
        yield Measurement("compare", name, "ms", ours, least, "python -c 'import numpy'", Goal("ours", "≤", 2000))


def processor_ms(*arguments: str) -> float:
    """User and system CPU time of a Python command."""
    command = [sys.executable, *arguments]
    earlier = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=harness.environment(), stdout=subprocess.DEVNULL, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (used.ru_utime + used.ru_stime - earlier.ru_utime - earlier.ru_stime)


def write_run(path: Path, records: int, name: str) -> Path:
    """Write records of about 1 kB with two evaluators, two tags, cost and time."""
    from agentv.model.result import EvaluatorResult, ExecutionMetrics, Result
    from agentv.runs.record import encode_record

    def judged(evaluator: str, score: float) -> EvaluatorResult:
        return EvaluatorResult(
            name=evaluator, type="llm_judge", score=score, weight=1.0, verdict="fail", reasoning="Because " * 8
        )

    easy, chance = random.Random(1), random.Random(name)
    with path.open("wb") as stream:
        for number in range(records):
            score = min(1.0, max(0.0, chance.gauss(easy.random(), 0.2)))
            result = Result(
                timestamp="2026-11-15T00:00:00.000Z",
                run_id=name,
                eval_id=f"case-{number:07d}",
                dataset="cases",
                dataset_path="evals/cases.jsonl",
                target="default",
                trial=1,
                status="ok",
                score=score,
                verdict="pass" if score >= 0.8 else "fail",
                candidate_answer="An answer of some length, as they come. " * 10,
                evaluator_results=tuple(judged(evaluator, score) for evaluator in ("right", "kind")),
                execution_metrics=ExecutionMetrics(cost_usd=chance.random() / 100, duration_ms=100 * chance.random()),
                fingerprint="0123456789abcdef0123456789abcdef",
                tags=("even" if number % 2 else "odd", f"part-{number % 5}"),
            )
            stream.write(encode_record(result))
    return path


if __name__ == "__main__":
    harness.main(__doc__ or "", measurements)
