"""Cells of the claims through the command line."""

import contextlib
import io
import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from claim_rows import NULLS, POWER, RATES, errored_answer, errored_sides, pooled_sides, variant_answers, variants
from verdict_rows import results

from agentv.cli import cli
from agentv.errors import UsageError
from agentv.model.manifest import RunManifest, TargetEntry
from agentv.runs.folder import RunFolder
from agentv.runs.record import encode_record
from agentv.stats.paired_comparison import compare_paired

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "command-claims.md"
SEED = 7
DRAWS = 100
REFUSED = "refused"

HEAD = f"""# Claims through the command line

Cells of [Claims](claims.md) repeated with `agentv compare --json` on {DRAWS} pairs of simulated run folders each, with
seed {SEED}. `agreed` counts the pairs for which the command prints the verdict (for errors, verdict and exit code) that
the functions give. `refused` counts pools that are refused because `runs trend` sees a change in them, which is a false
alarm here, in at most 5 % of pools. `distance` is that of the two rates, in standard errors of their difference.
`python tests/claim_pages.py command-claims` rewrites this page, and `pytest -m slow
tests/stats/test_command_claims.py` checks it. [Claims about clusters](cluster-claims.md) have their own rows.

| claim | setting | functions | command | agreed | refused | distance |
|---|---|--:|--:|--:|--:|--:|
"""


class Measurement(NamedTuple):
    """How often the claim is true by the command, how many outcomes agree, and how many pools are refused."""

    rate: float
    agreed: int
    refused: int


class Cell(NamedTuple):
    """A cell of docs/claims.md. `draw(random, folder)` returns the outcome of the functions and of the command."""

    group: str
    setting: str
    draw: Callable
    is_hit: Callable

    def measure(self, draws=DRAWS):
        """Repeat the command on simulated runs, and compare it with the functions."""
        random, hits, agreed, refused = np.random.default_rng(SEED), 0, 0, 0
        for _ in range(draws):
            with TemporaryDirectory() as folder:
                expected, outcome = self.draw(random, Path(folder))
            refused += outcome == REFUSED
            hits += outcome != REFUSED and self.is_hit(outcome)
            agreed += outcome == expected
        return Measurement(hits / (draws - refused), agreed, refused)

    def page_rate(self):
        """Return the rate that docs/claims.md has, and its number of simulations."""
        start = f"| {self.group} | {self.setting} | "
        (line,) = (line for line in (DOCS / "claims.md").read_text("utf-8").splitlines() if line.startswith(start))
        *_, rate, simulations = line.strip("| ").split(" | ")
        return float(rate.removesuffix(" %")) / 100, int(simulations.replace(",", ""))

    def distance(self, rate, draws=DRAWS):
        """Return the difference of both rates in standard errors."""
        expected, simulations = self.page_rate()
        pooled = (rate * draws + expected * simulations) / (draws + simulations)
        spread = max(pooled * (1 - pooled), 1 / (draws + simulations))
        return (rate - expected) / math.sqrt(spread * (1 / draws + 1 / simulations))


def command(*words):
    """Return what a command prints as JSON."""
    printed = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(printed, encoding="utf-8", write_through=True)) as stdout:
        with contextlib.suppress(SystemExit):
            cli.main([*map(str, words), "--json", "--changes", "0"], standalone_mode=False)
        stdout.detach()
    return json.loads(printed.getvalue())


def write_run(path, scores, day):
    """Write a finished run with a fingerprint of its target, and return its path."""
    folder = RunFolder.create(path)
    moment = f"2026-11-{day:02d}T12:00:00.000Z"
    target = TargetEntry(name="t", provider="python", fingerprint="0")
    folder.write_manifest(RunManifest(run_id=path.name, started_at=moment, finished_at=moment, targets=(target,)))
    folder.results_path.write_bytes(b"".join(map(encode_record, results(scores[None, :], None))))
    return path


def draw_pooled(setting, gain):
    def draw(random, folder):
        baseline, candidate = pooled_sides(random, *setting, gain=gain)
        runs = [write_run(folder / f"r{day}", scores, day) for day, scores in enumerate(baseline, 1)]
        after = write_run(folder / "after", candidate, 28)
        expected = compare_paired(baseline.mean(axis=0), candidate).answer
        try:
            printed = command("compare", after, *(word for run in runs for word in ("--baseline", run)))
        except UsageError as error:
            assert "The level of the baseline changed" in str(error)
            return expected, REFUSED
        return expected, printed["summary"]["answer"]

    return draw


def draw_errors(rate, gain):
    def draw(random, folder):
        sides = errored_sides(random, 300, gain, rate)
        summary = command("compare", *(write_run(folder / f"r{day}", side, day) for day, side in enumerate(sides, 1)))
        answer, is_open = errored_answer(sides)
        code = 5 if is_open else 1 if answer == "worse" else 0
        return (answer, code), (summary["summary"]["answer"], summary["summary"]["exit_code"])

    return draw


def draw_variants(count, gain):
    def draw(random, folder):
        _, expected = variant_answers(np.random.default_rng(seed := int(random.integers(1 << 32))), count, gain)
        sides = variants(np.random.default_rng(seed), count - 1, gain)
        runs = [write_run(folder / f"r{day}", side, day) for day, side in enumerate(sides, 1)]
        rows = command("compare", *runs)["differences"]
        return expected, [row["answer"] for row in rows if row["run1"] == 0 and row["run2"]]

    return draw


def cells() -> Iterator[Cell]:
    """Yield the cells that are repeated."""
    for setting in POWER:
        name = "{}, {} cases, {} runs".format(*setting)
        yield Cell("10 points shown, pooled baseline", name, draw_pooled(setting, 0.1), "better".__eq__)
    for setting in NULLS[::4]:
        name, group = "{}, {} cases, {} runs".format(*setting), "False verdict, pooled baseline, nothing changed"
        yield Cell(group, name, draw_pooled(setting, 0.0), "cannot tell".__ne__)
    for rate in RATES:
        name = f"300 cases, {100 * rate:g} % errors on both sides"
        yield Cell("10 points shown, with errors", name, draw_errors(rate, 0.1), lambda outcome: outcome[0] == "better")
        yield Cell("Equal runs exit with 5", name, draw_errors(rate, 0.0), lambda outcome: outcome[1] == 5)
    for count in (5, 10):
        group, name = "Variant shown, p adjusted for the baseline only", f"one of {count} is better by 0.1, 200 cases"
        yield Cell(group, name, draw_variants(count, 0.1), lambda answers: answers[-1] == "better")
        group, name = "Any false verdict about a variant", f"{count} equal variants, 200 cases"
        yield Cell(group, name, draw_variants(count, 1e-9), lambda answers: set(answers) != {"cannot tell"})


def measure(place):
    """Measure a cell by its place, in a process of its own."""
    return list(cells())[place].measure()


def page(measured) -> str:
    """Return the cells with their rates as a page."""
    lines = [
        f"| {cell.group} | {cell.setting} | {100 * cell.page_rate()[0]:.1f} % | {100 * found.rate:.1f} % "
        f"| {found.agreed} of {DRAWS - found.refused} | {found.refused} | {cell.distance(found.rate):+.1f} |\n"
        for cell, found in measured
    ]
    return HEAD + "".join(lines)


def write():
    """Run every simulation and write the page."""
    everything = list(cells())
    with ProcessPoolExecutor(2) as pool:
        measured = zip(everything, pool.map(measure, range(len(everything))), strict=True)
        PAGE.write_text(page(measured), encoding="utf-8")
