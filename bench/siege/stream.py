"""Stream many cases from a file, and watch the memory of the process.

    python bench/siege/stream.py --cases 10000000

Prints a Markdown table of samples. The exit code is 1 if a case is missing, or if memory grows by more than 40 bytes
per case: a stream remembers only a hash of each id, to find duplicates.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

_SAMPLES = 10
_MOST_BYTES_PER_CASE = 40
_WARM_UP = 100_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000_000)
    wanted = parser.parse_args().cases
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.jsonl"
        with path.open("w") as file:
            file.writelines(f'{{"id":"c{n}","input":"q {n}","expected_outcome":"a"}}\n' for n in range(wanted))
        print("| cases | seconds | cases/s | MB |\n|---|---|---|---|", flush=True)
        read, first_mb, most_mb = stream(path, wanted)
    grown = (most_mb - first_mb) * 1e6 / max(1, wanted)
    print(f"stream: {read:,} of {wanted:,} cases, at most {most_mb:.0f} MB, {grown:.0f} bytes per case")
    return 1 if read != wanted or grown > _MOST_BYTES_PER_CASE else 0


def stream(path: Path, wanted: int) -> tuple[int, float, float]:
    """Read all cases; return their number, and the megabytes after the first ones and at most."""
    from agentv import stream_cases

    every = max(1, wanted // _SAMPLES)
    first_mb, most_mb, read, started = 0.0, 0.0, 0, time.monotonic()
    for read, _ in enumerate(stream_cases(path), 1):
        if read == min(_WARM_UP, wanted):
            first_mb = megabytes()
        if read % every == 0:
            took, most_mb = time.monotonic() - started, max(most_mb, megabytes())
            print(f"| {read:,} | {took:.0f} | {read / took:,.0f} | {megabytes():.0f} |", flush=True)
    return read, first_mb, most_mb


def megabytes() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


if __name__ == "__main__":
    sys.exit(main())
