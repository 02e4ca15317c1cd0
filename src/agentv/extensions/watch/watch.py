"""`agentv eval --watch`: wait until a file is saved, and run what it changed, each time in a new process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NoReturn

from agentv.cli import output
from agentv.cli.evaluation_options import EvalArguments
from agentv.engine.resume import folder_of
from agentv.errors import EXIT_INTERRUPTED, UsageError
from agentv.runs.folder import RESULTS_FOLDER, RunFolder, new_run_id
from agentv.runs.store import RunStore
from agentv.settings.project import project_root
from agentv.support.hashes import relative_path

FLAG = "--watch"
_INTERVAL_S = 0.3
_SETTLE_S = 0.1
_MOST_TIME = 0.05
"""The fraction of time to spend looking at files: large projects are looked at less often."""
_MOST_SHOWN = 3

_IGNORED_FOLDERS = frozenset(
    [
        *(
            ".git",
            ".hg",
            ".svn",
            ".idea",
            ".venv",
            "venv",
            "node_modules",
            "__pycache__",
            "site-packages",
            ".tox",
            ".nox",
        ),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints"),
    ]
)
_IGNORED_FILES = ("*.py[cod]", "*~", ".*.sw?", "4913", "*.tmp", ".DS_Store", ".#*")
_CODE = frozenset((".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".tsx", ".sh", ".rb", ".go", ".rs", ".java"))
_TESTS = ("test_*", "*_test.*", "*.test.*", "*.spec.*", "conftest.py")
_CODE_EVALUATORS = ("code_judge", "python", "command")

Stamps = dict[str, tuple[int, int, int]]


class FileWatch:
    """Finds files that were saved since the last look. Polls, which also works on network and container volumes."""

    def __init__(self, folders: Iterable[str], ignored: Iterable[str]) -> None:
        self._folders = tuple(dict.fromkeys(map(os.path.realpath, folders)))
        self._ignored = frozenset(map(os.path.realpath, ignored))
        self._seen = self._look()

    def changed(self) -> set[str]:
        """Return the files that changed since the last look."""
        stamps = self._look()
        changed = {path for path in {*stamps, *self._seen} if stamps.get(path) != self._seen.get(path)}
        self._seen = stamps
        return changed

    def wait(self) -> set[str]:
        """Return the next files that change, as soon as they stay unchanged for a moment."""
        paths: set[str] = set()
        while True:
            started = time.monotonic()
            more = self.changed()
            if paths and not more:
                return paths
            paths |= more
            took = time.monotonic() - started
            time.sleep(_SETTLE_S if paths else max(_INTERVAL_S, took / _MOST_TIME))

    def _look(self) -> Stamps:
        return dict(stamp for folder in self._folders for stamp in self._stamps(folder))

    def _stamps(self, folder: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
        folders = [folder]
        while folders:
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        if entry.path in self._ignored:
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            folders += [] if entry.name in _IGNORED_FOLDERS else [entry.path]
                        elif not _matches(entry.name, _IGNORED_FILES):
                            status = entry.stat()
                            yield entry.path, (status.st_mtime_ns, status.st_size, status.st_ino)
            except OSError:  # removed in the meantime, or not readable
                continue


def watch(args: EvalArguments) -> NoReturn:
    """Run the cases, then again what each saved file changed, until Ctrl-C."""
    _check(args)
    root = project_root(folder_of(args.paths))
    results = os.path.join(root, RESULTS_FOLDER)
    own_files = (args.record, args.dump_prompts, args.dump_traces)
    ignored = [results, *(os.path.join(root, ".agentv", name) for name in ("cache", "runs.jsonl"))]
    files = FileWatch([root, *map(_folder, args.paths)], [*ignored, *filter(None, own_files)])
    command = [argument for argument in sys.argv[1:] if argument != FLAG]
    last: str | None = None
    whole, before = True, set[str]()
    while True:
        folder = os.path.join(results, new_run_id())
        carried = [] if whole or last is None else ["--changed-since", last, "--if-changed"]
        _run([*command, "--out", folder, *carried])
        last = folder if os.path.isfile(os.path.join(folder, "results.jsonl")) else last
        during = files.changed()
        changed = sorted(during - before)  # files that change during every run are written by the run itself
        before = during
        if not changed:
            output.message(f"\nWaiting for changes in {_shown(root)}. Press Ctrl-C to stop.")
            changed = sorted(files.wait())
        whole = last is None or _may_change_everything(changed, last)
        names = ", ".join(map(_shown, changed[:_MOST_SHOWN])) + (", …" if len(changed) > _MOST_SHOWN else "")
        output.message(f"Changed: {names}. Running {'all cases' if whole else 'what it affects'}.")


def _check(args: EvalArguments) -> None:
    flags = {"--out": args.out, "--resume": args.resume, "--dry-run": args.dry_run, "--retry-errors": args.retry_errors}
    for name, value in flags.items():
        if value:
            raise UsageError(f"--watch and {name} cannot be combined", hint=f"Remove {name}")


def _run(arguments: list[str]) -> None:
    """Run a command in a new process and pass on Ctrl-C. Exit if it was interrupted."""
    interrupted = False
    command = [sys.executable, "-m", "agentv", *arguments]
    group = None if sys.platform == "win32" else 0  # its own group: the terminal sends Ctrl-C only to this process
    with subprocess.Popen(command, process_group=group) as process:  # noqa: S603

        def interrupt(number: int, _: object) -> None:
            nonlocal interrupted
            interrupted = True
            process.send_signal(number)

        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            code = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    if interrupted or code == EXIT_INTERRUPTED:
        sys.exit(EXIT_INTERRUPTED)


def _may_change_everything(changed: Iterable[str], last: str) -> bool:
    """Return whether code changed that a target or evaluator may import: only files that settings name are tracked."""
    code = [path for path in changed if os.path.splitext(path)[1] in _CODE]
    return any(not _matches(os.path.basename(path), _TESTS) for path in code) and _runs_own_code(last)


def _runs_own_code(run: str) -> bool:
    manifest = RunFolder(run).read_manifest()
    if any(entry.files for entry in (*manifest.targets, *manifest.judges)):
        return True
    kinds = {evaluator["type"] for case in RunStore.open(run).cases() for evaluator in case.fields["evaluators"]}
    return any(kind in _CODE_EVALUATORS or ".py:" in kind for kind in kinds)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _folder(path: str) -> str:
    """Return the folder of a dataset path, which may be a glob."""
    folder = Path(path)
    while not folder.is_dir():
        folder = folder.parent
    return str(folder)


def _shown(path: str) -> str:
    relative = relative_path(path, os.path.realpath("."))
    return path if relative.startswith(os.pardir) else "this folder" if relative == os.curdir else relative
