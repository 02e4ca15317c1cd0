"""Cost of `agentv report --html`: file size, time to write it, and time to open it in Chromium."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import chromium
import generate
import harness
from harness import Goal, Measurement, Options, Pair, Work

SIZES, QUICK_SIZES = (100_000,), (5_000,)
SIZE, OPENING = Goal("ours", "≤", 40), Goal("ours", "≤", 2_000)
BLANK_IS = "a page of the same size with one block of text and no work"


def write_page(run: str, page: str) -> Callable[[], Any]:
    """Write the page the way the command does."""
    from agentv.report.formats import write_report
    from agentv.runs.store import RunStore

    def work() -> int:
        opened = RunStore.open(run)
        figures = opened.figures()
        write_report("html", opened, figures, page)
        return figures.done

    return work


def read_and_sum(run: str) -> Callable[[], Any]:
    """Decode and summarise every record, which every report must do."""
    from agentv.runs.store import RunStore

    return lambda: RunStore.open(run).figures().done


def measurements(options: Options) -> Iterator[Measurement]:
    """Size, speed and memory of writing, and the time to open, at each size."""
    for results in options.sizes(SIZES, QUICK_SIZES):
        full = results in SIZES
        with tempfile.TemporaryDirectory() as folder:
            run = write_run(Path(folder), results)
            page = Path(folder, "page.html")
            works = {"ours": Work(write_page, (str(run), str(page))), "floor": Work(read_and_sum, (str(run),))}
            samples = harness.interleaved(works, options.rounds or (1 if options.quick else 3), results)
            floor_is = "records decoded and summed up"
            pair = Pair("report", f"{results:,} results, writing", samples["ours"], samples["floor"], floor_is)
            yield pair.speed()
            yield pair.memory()
            raw = sum((run / name).stat().st_size for name in ("results.jsonl", "cases.jsonl"))
            size = page.stat().st_size
            name = f"{results:,} results, size of the page"
            yield Measurement("report", name, "MB", size / 1e6, raw / 1e6, "records and cases", SIZE if full else None)
            yield from opening(page, results, options.rounds or 5, OPENING if full else None)


def opening(page: Path, results: int, rounds: int, goal: Goal | None) -> Iterator[Measurement]:
    """Time from requesting the file until the table is visible. Skipped without Chromium or Playwright."""
    blank = page.with_name("blank.html")
    script = "<script type=module>document.documentElement.dataset.ready = 'true'</script>"
    with blank.open("w") as stream:
        stream.write(f"<!doctype html><script type=text/plain>{'x' * page.stat().st_size}</script>{script}")
    ours, floor = [], []
    with chromium.launched() as browser:
        if browser is None:
            return
        for _ in range(rounds):
            for file, times in ((page, ours), (blank, floor)):
                times.append(milliseconds_to_open(browser, file))
    details = {"cases": results, "rounds": rounds, "statistic": "best", "ours_median": round(median(ours), 1)}
    name = f"{results:,} results, opening the page"
    yield Measurement("report", name, "ms", min(ours), min(floor), BLANK_IS, goal, details)


def milliseconds_to_open(browser: Any, file: Path) -> float:
    page = browser.new_context(offline=True, viewport={"width": 1440, "height": 900}).new_page()
    start = time.perf_counter()
    page.goto(file.as_uri(), wait_until="commit")
    page.wait_for_selector("html[data-ready]")
    taken = (time.perf_counter() - start) * 1000
    page.context.close()
    return taken


def write_run(folder: Path, results: int) -> Path:
    """Write a run with records of about 1 kB of random words, which compress badly."""
    chance = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(chance.choices(letters, range(26, 0, -1), k=chance.randint(2, 10))) for _ in range(3000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]

    def text(count: int) -> str:
        return " ".join(chance.choices(words, weights, k=count))

    with open(folder / "results.jsonl", "w") as records, open(folder / "cases.jsonl", "w") as cases:
        for number in range(results):
            records.write(json.dumps(_record(number, chance, text)) + "\n")
            cases.write(json.dumps(_case(number, text)) + "\n")
    generate.write_manifest(folder)
    return folder


def _record(number: int, chance: random.Random, text: Callable[[int], str]) -> dict[str, Any]:
    score = chance.choice((0.0, 0.25, 0.7, 0.9, 1.0, 1.0))
    verdict = "pass" if score >= 0.8 else "borderline" if score >= 0.6 else "fail"
    findings = {"hits": [f"names {text(4)}"], "misses": [] if verdict == "pass" else [f"does not mention {text(4)}"]}
    judge = {"name": "correct", "type": "llm_judge", "score": score, "weight": 1.0, "verdict": verdict, **findings}
    tokens = {"input": chance.randint(50, 400), "output": chance.randint(50, 400)}
    duration = round(chance.lognormvariate(6.5, 0.6), 3)
    return {
        **generate.scored_job(number, score, verdict),
        **findings,
        "candidate_answer": text(40),
        "evaluator_results": [{**judge, "reasoning": text(12)}],
        "execution_metrics": {"token_usage": tokens, "cost_usd": tokens["output"] * 2e-6, "duration_ms": duration},
        "attempts": 1,
        "fingerprint": f"{chance.getrandbits(128):032x}",
        "tags": [chance.choice(("billing", "login", "refund"))],
    }


def _case(number: int, text: Callable[[int], str]) -> dict[str, Any]:
    return {
        "id": f"case-{number:06d}",
        "dataset": "support",
        "dataset_path": "evals/support.jsonl",
        "line": number + 1,
        "expected_outcome": f"Says {text(6)}",
        "input": [{"role": "user", "content": f"{text(14)}?"}],
        "expected_output": [{"role": "assistant", "content": text(10)}],
    }


if __name__ == "__main__":
    harness.main(__doc__ or "", measurements)
