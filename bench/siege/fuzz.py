"""Fuzz every reader with atheris: any input is read or refused with an AgentvError, and nothing else is raised.

    pip install atheris
    python bench/siege/fuzz.py --minutes 60
    python bench/siege/fuzz.py --reader results --minutes 5

Starts from the inputs in `corpus/READER`. The first input that breaks a reader in one place is saved as
`finding-READER-…` in the current folder; others in the same place are ignored, so that one finding does not hide the
next. Add it to the corpus, and to `tests/data/hard` or a test of the reader. `--corpus-only` reads each input of the
corpus once, without atheris.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from readers import READERS, seeds

_INPUTS = re.compile(r"^#(\d+)\s", re.MULTILINE)
_FINDING = "Finding in "
_SECONDS_PER_INPUT = 120
"""Much more than any input takes, for machines that are busy."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="in total, divided among the readers")
    parser.add_argument("--reader", choices=READERS, action="append", help="only this one; may be repeated")
    parser.add_argument("--corpus-only", action="store_true", help="read each input of the corpus once")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.reader or list(READERS)
    if options.corpus_only:
        return 0 if all(map(_read_corpus, names)) else 1
    if options.here:
        _fuzz(names[0], options.minutes)
    print("| reader | inputs | findings |\n|---|---|---|", flush=True)
    inputs, findings = 0, 0
    for name in names:
        count, found = _fuzzed_apart(name, options.minutes / len(names))
        print(f"| {name} | {count:,} | {found} |", flush=True)
        inputs, findings = inputs + count, findings + found
    print(f"fuzz: {inputs:,} inputs in {options.minutes:g} minutes, {findings} findings")
    return 1 if findings else 0


def _fuzzed_apart(name: str, minutes: float) -> tuple[int, int]:
    """Fuzz a reader in its own process; return the number of inputs and findings."""
    command = [sys.executable, __file__, "--here", "--reader", name, "--minutes", str(minutes)]
    ended = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, errors="replace")
    found, counts = ended.stderr.count(_FINDING), _INPUTS.findall(ended.stderr)
    if found or ended.returncode:
        shown = (line for line in ended.stderr.splitlines() if not line.startswith("#"))
        print("\n".join(shown), file=sys.stderr, flush=True)
    return int(counts[-1]) if counts else 0, max(found, int(ended.returncode != 0))


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
