"""Fuzz every reader with atheris: any input is read or refused with an AgentvError, and nothing else is raised.

    pip install atheris
    python bench/siege/fuzz.py --minutes 60
    python bench/siege/fuzz.py --reader results --minutes 5

Starts from the inputs in `corpus/READER`. An input that breaks a reader is saved as `crash-…` in the current folder.
Add it to the corpus, and to `tests/data/hard` or a test of the reader. `--corpus-only` reads each input of the corpus
once, without atheris.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="in total, divided among the readers")
    parser.add_argument("--reader", choices=READERS, help="only this one")
    parser.add_argument("--corpus-only", action="store_true", help="read each input of the corpus once")
    options = parser.parse_args()
    names = [options.reader] if options.reader else list(READERS)
    if options.corpus_only:
        return 0 if all(map(_read_corpus, names)) else 1
    if options.reader:
        _fuzz(options.reader, options.minutes)
    codes = {}
    for name in names:
        command = [sys.executable, __file__, "--reader", name, "--minutes", str(options.minutes / len(names))]
        codes[name] = subprocess.run(command, check=False).returncode
    print("| reader | result |\n|---|---|")
    print("\n".join(f"| {name} | {'no finding' if code == 0 else '**finding**'} |" for name, code in codes.items()))
    return 1 if any(codes.values()) else 0


def _read_corpus(name: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((CORPUS / name).iterdir()):
            READERS[name](path.read_bytes(), Path(folder))
            print(f"{name}: {path.name}")
    return True


def _fuzz(name: str, minutes: float) -> None:
    """Fuzz one reader; does not return."""
    import atheris

    with atheris.instrument_imports(include=["agentv"]):
        READERS[name](b"", Path(tempfile.mkdtemp()))
    work, grown = Path(tempfile.mkdtemp()), tempfile.mkdtemp()
    arguments = [sys.argv[0], f"-max_total_time={int(minutes * 60)}", "-max_len=4096", "-timeout=20", grown]
    atheris.Setup([*arguments, str(CORPUS / name)], lambda data: READERS[name](data, work))
    atheris.Fuzz()


def _refuses(read: Callable[[bytes, Path], object]) -> Callable[[bytes, Path], None]:
    def reads_or_refuses(data: bytes, folder: Path) -> None:
        from agentv.errors import AgentvError

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with suppress(AgentvError):
                read(data, folder)

    return reads_or_refuses


def _dataset(suffix: str) -> Callable[[bytes, Path], object]:
    def read(data: bytes, folder: Path) -> object:
        from agentv import load_cases

        path = folder / f"d{suffix}"
        path.write_bytes(data)
        return load_cases(str(path))

    return read


def _results(suffix: str) -> Callable[[bytes, Path], object]:
    def read(data: bytes, folder: Path) -> object:
        from agentv.runs.store import RunStore

        path = folder / f"eval_r{suffix}"
        path.write_bytes(data)
        return RunStore.open(path).figures()

    return read


def _run_file(name: str) -> Callable[[bytes, Path], object]:
    def read(data: bytes, folder: Path) -> object:
        from agentv.runs.maintenance.damage import check_run
        from agentv.runs.maintenance.repair import repair_run
        from agentv.runs.store import RunStore

        run = folder / "run"
        run.mkdir(exist_ok=True)
        for path in run.iterdir():
            path.unlink()
        for path in (CORPUS / "run").iterdir():
            (run / path.name).write_bytes(path.read_bytes())
        (run / name).write_bytes(data)
        check_run(run)
        repair_run(run)
        return [list(case.fields) for case in RunStore.open(run).cases()], RunStore.open(run).figures()

    return read


def _targets(data: bytes, folder: Path) -> object:
    from agentv.datasets.formats.yaml_dataset import parse_yaml_file
    from agentv.settings.environment import Environment
    from agentv.targets.catalog import load_targets

    path = folder / "targets.yaml"
    path.write_bytes(data)
    return load_targets(parse_yaml_file(str(path)), str(path), Environment({}))


def _labels(data: bytes, folder: Path) -> object:
    from agentv.calibration.labels import read_labels

    path = folder / "labels.jsonl"
    path.write_bytes(data)
    return read_labels(path)


READERS: dict[str, Callable[[bytes, Path], None]] = {
    "jsonl": _refuses(_dataset(".jsonl")),
    "yaml": _refuses(_dataset(".yaml")),
    "prompt_mdx": _refuses(_dataset(".prompt.mdx")),
    "results": _refuses(_results(".jsonl")),
    "results_yaml": _refuses(_results(".yaml")),
    "manifest": _refuses(_run_file("run.json")),
    "cases": _refuses(_run_file("cases.jsonl")),
    "records": _refuses(_run_file("results.jsonl")),
    "summary": _refuses(_run_file("summary.json")),
    "targets": _refuses(_targets),
    "labels": _refuses(_labels),
}

if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    sys.exit(main())
