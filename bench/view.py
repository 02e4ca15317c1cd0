"""Cost of `agentv view`: time until the first rows of a run are shown, until all are read, and of a filter. Time until
two runs are compared, and the memory of the server."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import chromium
import generate
import harness
from harness import Goal, Measurement, Options

SIZES, QUICK_SIZES = (100_000, 1_000_000), (5_000,)
PAINT = {100_000: Goal("ours", "≤", 1_500), 1_000_000: Goal("ours", "≤", 3_000)}
FILTER = Goal("ours", "≤", 200)
MEMORY = Goal("ours", "≤", 400)
BLANK_IS = "a text file of the same server"
NO_WORK_IS = "two frames without work"
VERDICTS = ((0.0, "fail"), (0.25, "fail"), (0.7, "borderline"), (0.9, "pass"), (1.0, "pass"))

FRAMES = "const frame = () => new Promise((drawn) => requestAnimationFrame(drawn));"
TIMED = f"""async (name) => {{
    {FRAMES}
    const button = [...document.querySelectorAll(".tally")].find((each) => each.textContent.includes(name));
    await frame();
    const start = performance.now();
    button?.click();
    await frame();
    await frame();
    return performance.now() - start;
}}"""


def measurements(options: Options) -> Iterator[Measurement]:
    """Time to the first rows, to all rows and of a filter, at each size. Skipped without Chromium or Playwright."""
    rounds = options.rounds or (1 if options.quick else 3)
    with chromium.launched() as browser:
        if browser is None:
            return
        for results in options.sizes(SIZES, QUICK_SIZES):
            with tempfile.TemporaryDirectory() as folder:
                runs = [write_run(Path(folder) / name, results, seed) for seed, name in enumerate(("a", "b"), 1)]
                samples = [measure(browser, runs[0], results) for _ in range(rounds)]
                yield from summed_up(samples, results)
                yield from compared(browser, runs, results)


def summed_up(samples: list[dict[str, float]], results: int) -> Iterator[Measurement]:
    """Return the best of each figure beside its floor."""
    details = {"cases": results, "rounds": len(samples), "statistic": "best"}
    rows = (
        ("first rows", "paint", "blank", BLANK_IS, PAINT.get(results)),
        ("all rows", "read", "blank", BLANK_IS, None),
        ("a filter", "filter", "frames", NO_WORK_IS, FILTER if results in SIZES else None),
    )
    for name, ours, floor, floor_is, goal in rows:
        figures = [sample[ours] for sample in samples]
        best = min(sample[floor] for sample in samples)
        more = {**details, "ours_median": round(median(figures), 1)}
        yield Measurement("view", f"{results:,} results, {name}", "ms", min(figures), best, floor_is, goal, more)


def measure(browser: Any, run: Path, results: int) -> dict[str, float]:
    """Serve a run that has not been read yet, open it, and filter it twice, in milliseconds."""
    with served(run) as (url, _), browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(120_000)
        found = {"paint": since(lambda: (page.goto(url, wait_until="commit"), page.wait_for_selector(".window .row")))}
        everything = page.locator(".count-line").get_by_text(f"{results:,} results", exact=True)
        found["read"] = found["paint"] + since(everything.wait_for)
        found["frames"] = page.evaluate(TIMED, "no such verdict")
        found["filter"] = max(page.evaluate(TIMED, name) for name in ("failed", "passed", "failed"))
        blank = context.new_page()
        found["blank"] = since(lambda: blank.goto(f"{url.split('?')[0]}page/page.css"))
    return found


def compared(browser: Any, runs: list[Path], results: int) -> Iterator[Measurement]:
    """Compare two runs that have not been read yet: the time until the verdict and the first cases are shown."""
    with served(*runs) as view, browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(600_000)
        page.goto(view.url, wait_until="commit")
        page.wait_for_selector("main")
        blank = context.new_page()
        floor = since(lambda: blank.goto(f"{view.url.split('?')[0]}page/core/dom.js"))
        found = since(lambda: (page.evaluate("location.hash = '#view=compare'"), page.wait_for_selector(".verdict")))
        rows = found + since(lambda: page.wait_for_selector(".window .pair-row"))
        memory = view.peak_mb
    names = (("verdict", found, "ms", floor, BLANK_IS), ("first cases", rows, "ms", floor, BLANK_IS))
    for name, ours, unit, beside, floor_is in (*names, ("memory of the server", memory, "MB", 1.0, "1 MB")):
        goal = MEMORY if unit == "MB" and results in SIZES else None
        label = f"two runs of {results:,} results compared, {name}"
        yield Measurement("view", label, unit, ours, beside, floor_is, goal, {"cases": results, "rounds": 1})


def since(work: Any) -> float:
    """Return how long work takes, in milliseconds."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


class Served(NamedTuple):
    """A running `agentv view`: its link and its process."""

    url: str
    pid: int

    @property
    def peak_mb(self) -> float:
        """The most memory that the server used so far."""
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0


@contextmanager
def served(*runs: Path) -> Iterator[Served]:
    """Start `agentv view`."""
    command = [sys.executable, "-m", "agentv", "view", *map(str, runs), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        try:
            assert found, "agentv view printed no link"
            yield Served(found[0], process.pid)
        finally:
            process.terminate()


def write_run(folder: Path, results: int, seed: int = 1) -> Path:
    """Write a run of short records."""
    folder.mkdir(exist_ok=True)
    chance = random.Random(seed)
    with open(folder / "results.jsonl", "w") as records:
        for number in range(results):
            records.write(json.dumps(_record(number, chance)) + "\n")
    generate.write_manifest(folder)
    return folder


def _record(number: int, chance: random.Random) -> dict[str, Any]:
    score, verdict = chance.choice(VERDICTS)
    misses = [] if verdict == "pass" else [f"does not mention {chance.getrandbits(32):x}"]
    judge = {"name": "correct", "type": "contains", "score": score, "weight": 1.0, "verdict": verdict, "misses": misses}
    return {
        **generate.scored_job(number, score, verdict),
        "misses": misses,
        "candidate_answer": f"answer {chance.getrandbits(64):x}",
        "evaluator_results": [judge],
        "execution_metrics": {"cost_usd": 0.0001, "duration_ms": round(chance.uniform(100, 2000), 1)},
        "attempts": 1,
        "tags": [chance.choice(("billing", "login", "refund"))],
    }


if __name__ == "__main__":
    harness.main(__doc__ or "", measurements)
