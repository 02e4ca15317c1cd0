"""Run tests in copies of the repository that lack one extension each: its folder, and its lines in the registry and in
the source map.

    python tests/without_extension.py                       the tests in TESTS, for every extension
    python tests/without_extension.py otel ray --tests tests/engine
    python tests/without_extension.py --tests tests          everything; takes hours

Prints a table in Markdown, and the tests that failed. Exits with 1 if a test failed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))

from agentv.registry import EXTENSIONS  # noqa: E402

TESTS = (
    "tests/test_architecture.py",
    "tests/test_registry.py",
    "tests/test_schemas.py",
    "tests/test_golden.py",
    "tests/cli/test_help.py",
    "tests/contracts",
    "tests/sessions",
)
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|error)")


def copied(name: str, folder: Path) -> None:
    """Copy the files of the repository to a folder, without an extension."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    for file in listed.stdout.splitlines():
        source, copy = REPOSITORY / file, folder / file
        if source.is_file() and not file.startswith(f"src/agentv/extensions/{name}/"):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    for file, start in (("src/agentv/registry.py", f'    "{name}": "'), ("CONTRIBUTING.md", f"    {name}/ ")):
        lines = (folder / file).read_text(encoding="utf-8").splitlines(keepends=True)
        rest = [line for line in lines if not line.startswith(start)]
        assert len(rest) == len(lines) - 1, (file, name)
        (folder / file).write_text("".join(rest), encoding="utf-8")


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the agentv of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def tested(name: str, tests: list[str], workers: str) -> tuple[dict[str, int], list[str]]:
    """Run tests without an extension. Returns how many ended how, and the ids of those that failed."""
    with tempfile.TemporaryDirectory(prefix=f"agentv-without-{name}-") as place:
        folder = Path(place)
        copied(name, folder)
        for command in (["-m", "agentv.schemas", "schemas"], ["docs/generate.py"]):
            made = run([sys.executable, *command], folder)
            assert made.returncode == 0, made.stderr
        ended = run([sys.executable, "-m", "pytest", "-n", workers, "-rfE", *tests], folder)
    counts = {noun: int(count) for count, noun in _COUNT.findall(ended.stdout.splitlines()[-1])}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+(?: [^-\n]+)?)", ended.stdout, re.MULTILINE)
    if ended.returncode not in (0, 1):
        failed.append(ended.stdout[-2000:] + ended.stderr[-2000:])
    return counts, failed


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="extensions to remove (default: each)")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), metavar="PATH")
    parser.add_argument("-n", default="0", metavar="WORKERS", help="workers of pytest (default: 0)")
    arguments = parser.parse_args()
    print("| without | passed | skipped | failed | seconds |\n|---|--:|--:|--:|--:|", flush=True)
    failures = []
    for name in arguments.names or EXTENSIONS:
        start = time.monotonic()
        counts, failed = tested(name, arguments.tests, arguments.n)
        took = time.monotonic() - start
        print(
            f"| {name} | {counts.get('passed', 0):,} | {counts.get('skipped', 0):,} | {len(failed)} | {took:.0f} |",
            flush=True,
        )
        failures += [f"{name}: {test}" for test in failed]
        print(
            *failures[-len(failed) :] if failed else (),
            sep="\n",
            end="\n" if failed else "",
            file=sys.stderr,
            flush=True,
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
