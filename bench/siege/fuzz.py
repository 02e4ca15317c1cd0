"""Fuzz every reader: any input is read or refused with an AgentvError, and nothing else is raised.

    python bench/siege/fuzz.py --minutes 60
    python bench/siege/fuzz.py --reader results --minutes 5
    pip install atheris && python bench/siege/fuzz.py --bytes --minutes 60

Valid inputs are changed at a few places: other types, missing keys, swapped values. Inputs that reach new lines of a
reader are changed further, and the lines are counted. With `--bytes`, atheris changes bytes instead, most of which end
at the first check.

Starts from the inputs in `corpus/READER` and the examples of the tests. The first input that breaks a reader in one
place is saved as `finding-READER-…` in the current folder; others in the same place are ignored, so that one finding
does not hide the next. Add it to the corpus, and to `tests/data/hard` or a test of the reader. `--corpus-only` reads
each input of the corpus once, without changing it.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from line_coverage import LineCoverage
from mutations import Mutator
from readers import PACKAGES, READERS, file_name, seeds

_INPUTS = re.compile(r"^#(\d+)\s", re.MULTILINE)
_FINDING = "Finding in "
_MEMORY_BYTES = 8 * 1024 * 1024 * 1024
_MOST_BYTES = 100_000
_SECONDS_PER_INPUT = 120
"""Much more than any input takes, for machines that are busy."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="in total, divided among the readers")
    parser.add_argument("--reader", choices=READERS, action="append", help="only this one; may be repeated")
    parser.add_argument("--bytes", action="store_true", help="change bytes, with atheris")
    parser.add_argument("--seed", type=int, default=0, help="of the random changes")
    parser.add_argument("--corpus-only", action="store_true", help="read each input of the corpus once")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.reader or list(READERS)
    if options.corpus_only:
        return 0 if all(map(_read_corpus, names)) else 1
    if options.here:
        if options.bytes:
            _fuzz(names[0], options.minutes)
        return _fuzz_structures(names[0], options)
    print("| reader | inputs | lines with the seeds | after | of | findings |\n|---|---|---|---|---|---|", flush=True)
    inputs, findings = 0, 0
    for name in names:
        count, row, found = _fuzzed_apart(name, options)
        print(row, flush=True)
        inputs, findings = inputs + count, findings + found
    left = _children()
    print(f"fuzz: {inputs:,} inputs in {options.minutes:g} minutes, {findings} findings, {len(left)} processes left")
    return 1 if findings or left else 0


def _fuzzed_apart(name: str, options: argparse.Namespace) -> tuple[int, str, int]:
    """Fuzz a reader in its own process; return the number of inputs, a row of the table, and the number of findings."""
    minutes = options.minutes / len(options.reader or READERS)
    command = [sys.executable, __file__, "--here", "--reader", name, "--minutes", str(minutes)]
    command += ["--seed", str(options.seed), *(["--bytes"] if options.bytes else [])]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    found, counts = ended.stderr.count(_FINDING), _INPUTS.findall(ended.stderr)
    found = max(found, int(ended.returncode != 0))
    if found:
        trace = (line for line in ended.stderr.splitlines() if not line.startswith("#"))
        print("\n".join(trace), file=sys.stderr, flush=True)
    lines = ended.stdout.strip().rpartition("\n")[2] or "? | ? | ?"
    count = int(counts[-1]) if counts else 0
    return count, f"| {name} | {count:,} | {lines} | {found} |", found


def _fuzz_structures(name: str, options: argparse.Namespace) -> int:
    """Fuzz one reader in this process, which has limits on memory and time."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    signal.signal(signal.SIGALRM, _too_slow)
    mutator, coverage, places = Mutator(options.seed), LineCoverage(PACKAGES[name]), set[str]()
    pool = [data for _, data in seeds(name)]
    with tempfile.TemporaryDirectory(prefix="agentv-fuzz-") as folder, tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # results of other tools that were read before are not read again

        def reads(data: bytes) -> bool:
            """Read an input; return whether it reached a new line."""
            before = len(coverage.lines)
            signal.setitimer(signal.ITIMER_REAL, _SECONDS_PER_INPUT)
            try:
                with coverage:
                    READERS[name](data, Path(folder))
            except Exception as error:
                _report(name, data, error, places)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            return len(coverage.lines) > before

        for data in pool:
            file, _, content = file_name(name, data)
            mutator.learn(content, file)
            reads(data)
        at_first, count, end = coverage.counts()[0], 0, time.monotonic() + options.minutes * 60
        while time.monotonic() < end:
            file, head, content = file_name(name, mutator.random.choice(pool))
            data = head + mutator.changed(content, file)
            count += 1
            if reads(data) and len(data) < _MOST_BYTES:
                pool.append(data)
    print(f"#{count} inputs", file=sys.stderr)
    print("{:,} | {:,} | {:,}".format(at_first, *coverage.counts()))
    return 1 if places else 0


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"the input took longer than {_SECONDS_PER_INPUT} s")


def _children() -> list[str]:
    """Return the processes that this one still has."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def _read_corpus(name: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        for title, data in seeds(name):
            READERS[name](data, Path(folder))
            print(f"{name}: {title}")
    return True


def _fuzz(name: str, minutes: float) -> None:
    """Fuzz one reader in this process; does not return."""
    import atheris

    work, grown, start = (Path(tempfile.mkdtemp(prefix="agentv-fuzz-")) for _ in range(3))
    for title, data in seeds(name):
        (start / title).write_bytes(data)
    places: set[str] = set()

    def read(data: bytes) -> None:
        try:
            READERS[name](data, work)
        except Exception as error:
            _report(name, data, error, places)

    with atheris.instrument_imports(include=["agentv"]):
        for path in (*start.iterdir(), Path(os.devnull)):  # imports what the reader needs
            read(path.read_bytes())
    limits = [f"-max_total_time={int(minutes * 60)}", "-max_len=4096", f"-timeout={_SECONDS_PER_INPUT}"]
    atheris.Setup([sys.argv[0], *limits, str(grown), str(start)], read)
    atheris.Fuzz()


def _report(name: str, data: bytes, error: Exception, places: set[str]) -> None:
    """Save an input that breaks a reader in a new place."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
    if place in places:
        return
    places.add(place)
    path = Path(f"finding-{name}-{len(places)}")
    path.write_bytes(data)
    print(f"{_FINDING}{name}: {place}, saved as {path}", file=sys.stderr)
    traceback.print_exception(error)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    sys.exit(main())
