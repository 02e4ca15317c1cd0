"""What the tests share: files written into a folder of their own, datasets loaded with their warnings, the command."""

import ast
import faulthandler
import gc
import json
import math
import os
import signal
import site
import subprocess
import sys
import threading
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import agentv
from agentv import AgentvError, DatasetWarning, EvalCase
from agentv.registry import EXTENSIONS
from warm_program import warm_program

REPOSITORY = Path(__file__).parent.parent

pytest_plugins = ["agentv_testing.plugin", "browser", "missing_extras"]

sys.dont_write_bytecode = False  # or every worker compiles all tests in every run, for more than 10 seconds


def check_handle(handle: int) -> None:
    """Do not wait for the disk, as `os.fsync` does: the tests write thousands of small runs."""
    os.fstat(handle)


os.fsync = os.fdatasync = check_handle

parse, parsing = ast.parse, threading.RLock()


def parse_without_collection(*arguments: Any, **options: Any) -> ast.AST:
    """Parse code in one thread at a time, and collect no garbage meanwhile.

    CPython 3.11 fails, which ends a worker, if other code is parsed while it makes a tree ("AST constructor recursion
    depth mismatch"). Hypothesis runs Python code at each collection, so that another thread may continue then.
    """
    with parsing:
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            return parse(*arguments, **options)
        finally:
            if is_enabled:
                gc.enable()


ast.parse = parse_without_collection


def pytest_configure() -> None:
    """Let property tests try the same examples everywhere, without a time limit that a busy machine could break."""
    from hypothesis import HealthCheck, settings

    common = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    settings.register_profile("thorough", common, max_examples=500)
    settings.register_profile("agentv", common, max_examples=30)
    settings.load_profile("agentv")


def pytest_collection() -> None:
    """Collect no garbage while the tests are collected: it takes a fifth of the time, and they live until the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the collected tests out of garbage collection, and collect less often: most tests leave no cycles."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 10, 10)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Distribute the tests over worker processes if pytest-xdist is installed and `-n` is not given.

    A run of all tests leaves out those that only CI runs.
    """
    if config.args_source == config.ArgsSource.TESTPATHS and "not slow" in config.option.markexpr:
        config.option.markexpr += "" if "ci" in config.option.markexpr.split() else " and not ci"
    if config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput"):
        if config.option.numprocesses is None:
            config.option.numprocesses = "auto"
        if config.option.dist == "no":
            config.option.dist = "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three times as many workers as cores, up to 4 more: many tests wait, for processes they start or for a time."""
    cores = os.cpu_count() or 1
    return cores + min(2 * cores, 4)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Compile the tests before the first run of all of them, or every worker would compile every test."""
    files = sorted(REPOSITORY.glob("tests/**/test_*.py"))
    compiled = list(REPOSITORY.glob(f"tests/**/test_*.{sys.implementation.cache_tag}-pytest-*.pyc"))
    if config.args_source != config.ArgsSource.TESTPATHS or len(compiled) > len(files) / 2:
        return
    cores = os.cpu_count() or 1
    command = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "--quiet"]
    shares = [[*command, *map(str, files[core::cores])] for core in range(cores)]
    for process in [subprocess.Popen(share, cwd=REPOSITORY, stdout=subprocess.DEVNULL) for share in shares]:
        process.wait()


UNWIND_S = 60.0
"""How long a test that timed out may take to end, for example while it waits for a program it started."""


class Watchdog(threading.Thread):
    """Ends a worker whose test does not end even after its timeout.

    Only faulthandler ends a process that never runs Python code again, but to set and cancel its timer takes a thread
    that starts and ends: on a busy machine 30 ms, for each of thousands of tests. This thread sets it now and then.
    """

    INTERVAL_S, LONGEST_S = 20.0, 600.0

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.deadline = math.inf

    def run(self) -> None:
        pause = threading.Event()
        while True:
            time_left = self.deadline - time.monotonic()
            seconds = max(1.0, min(time_left, self.LONGEST_S))
            faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
            pause.wait(self.INTERVAL_S)

    def start_test(self, timeout: float) -> None:
        self.deadline = time.monotonic() + timeout + UNWIND_S

    def end_test(self) -> None:
        is_close = self.deadline < time.monotonic() + 2 * self.INTERVAL_S
        self.deadline = math.inf
        if is_close:
            faulthandler.cancel_dump_traceback_later()


WATCHDOG = Watchdog()


def pytest_sessionstart() -> None:
    WATCHDOG.start()


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """A timeout fails only its test. If the test does not end even then, end the worker."""
    WATCHDOG.start_test(settings.timeout)


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    WATCHDOG.end_test()


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "Rewrite tests/data/golden with what the commands print now."
    parser.addoption("--update-golden", action="store_true", help=help_text)
    help_text = "Rewrite the output in README.md, docs/ and the examples with what their commands print now."
    parser.addoption("--update-docs", action="store_true", help=help_text)


EXTENSION_USES = tomllib.loads((Path(__file__).parent / "extensions/uses.toml").read_text(encoding="utf-8"))
"""Tests that use an extension, by its name."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not import the files of tests that use an extension which is not installed."""
    files = (file for name, uses in EXTENSION_USES.items() if name not in EXTENSIONS for file in uses)
    return collection_path in {REPOSITORY / file for file in files} or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark combinations as slow that only repeat others, and skip tests of extensions that are not installed."""
    combinations: Counter[str] = Counter()
    for item in items:
        for mark in item.iter_markers("every"):
            name = item.nodeid.partition("[")[0]
            if combinations[name] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            combinations[name] += 1
    for name, uses in EXTENSION_USES.items():
        if name not in EXTENSIONS:
            for item in items:
                if item.nodeid.startswith(tuple(uses)):
                    item.add_marker(pytest.mark.skip(f"the extension {name} is not installed"))


# What changes how programs print, where they send a request or which key they find, on one machine and not on another.
SURROUNDINGS = ("CI", "BUILD_NUMBER", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "CLICOLOR", "CLICOLOR_FORCE")
SURROUNDINGS += ("PYTEST_ADDOPTS", "COLUMNS", "LINES", "PYTHONWARNINGS", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
BEGINNINGS = ("AGENTV_", "GITHUB_", "OPENAI_", "ANTHROPIC_", "AZURE_", "GEMINI_", "GOOGLE_", "GIT_", "XDG_")


@pytest.fixture(scope="session", autouse=True)
def plain_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No variable of this machine decides how a test ends, and no file of the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONUSERBASE", site.getuserbase())  # packages installed with `pip install --user`
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in list(os.environ):
            if name in SURROUNDINGS or name.startswith(BEGINNINGS) or name.lower().endswith("_proxy"):
                patch.delenv(name)
        for name in ("CONFIG", "STATE", "CACHE"):  # a folder that is trusted in one run is not trusted in the next
            patch.setenv(f"XDG_{name}_HOME", str(tmp_path_factory.mktemp(name.lower())))
        yield


@pytest.fixture(scope="session", autouse=True)
def plain_signals() -> None:
    """Signals end the programs that tests start, even if `nohup` or `&` lets this process ignore them."""
    for name in ("SIGHUP", "SIGINT", "SIGQUIT"):
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) is signal.SIG_IGN:
            handler = signal.default_int_handler if name == "SIGINT" else (lambda *_: None)
            signal.signal(number, handler)  # unlike SIG_IGN, no program inherits a handler


@pytest.fixture(autouse=True)
def plain_module_path() -> Iterator[None]:
    """A test that imports modules of its project does not hide those of the next one."""
    path = list(sys.path)
    yield
    sys.path[:] = path


@dataclass
class Loaded:
    """Cases, and what was warned about on the way."""

    cases: list[EvalCase]
    warnings: list[DatasetWarning]

    def __iter__(self) -> Iterator[EvalCase]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, index: int) -> EvalCase:
        return self.cases[index]

    @property
    def ids(self) -> list[str]:
        return [case.id for case in self.cases]

    @property
    def messages(self) -> list[str]:
        """The warnings as text, but for the one about a sidecar, which most tests have no use for."""
        texts = [str(warning) for warning in self.warnings]
        return [text for text in texts if not text.startswith("Sidecar metadata file not found")]


class Folder:
    """A folder that is the working directory, so that paths and messages are relative and short."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: Any) -> str:
        """Text and bytes as they are; a list of rows as JSON Lines; any other value as JSON, which is YAML too."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
        elif isinstance(content, dict):
            content = json.dumps(content, ensure_ascii=False)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    def load(self, *paths: str, **options: Any) -> Loaded:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cases = agentv.load_cases(list(paths), **options)
        return Loaded(cases, [found.message for found in caught if isinstance(found.message, DatasetWarning)])

    def stream(self, *paths: str, **options: Any) -> Loaded:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cases = list(agentv.stream_cases(list(paths), **options))
        return Loaded(cases, [found.message for found in caught if isinstance(found.message, DatasetWarning)])

    def error(self, *paths: str, **options: Any) -> Any:
        """The error that loading ends in."""
        with warnings.catch_warnings(), pytest.raises(AgentvError) as raised:
            warnings.simplefilter("ignore", DatasetWarning)
            agentv.load_cases(list(paths), **options)
        return raised.value

    def rows(self, *rows: dict[str, Any], sidecar: Any = None) -> Loaded:
        """The cases of rows written as JSON Lines."""
        self.write("rows.jsonl", list(rows))
        if sidecar is not None:
            self.write("rows.yaml", sidecar)
        return self.load("rows.jsonl")

    def row_error(self, *rows: dict[str, Any], sidecar: Any = None) -> Any:
        """The error that rows written as JSON Lines end in."""
        self.write("rows.jsonl", list(rows))
        if sidecar is not None:
            self.write("rows.yaml", sidecar)
        return self.error("rows.jsonl")

    def yaml(self, text: str, name: str = "cases.yaml") -> Loaded:
        """The cases of a YAML document."""
        return self.load(self.write(name, text))

    def yaml_error(self, text: str, name: str = "cases.yaml") -> Any:
        """The error that a YAML document ends in."""
        return self.error(self.write(name, text))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of `agentv` as a program that starts fast, see `warm_program`."""
    with warm_program(tmp_path_factory.mktemp("bin") / "agentv") as path:
        yield path


@pytest.fixture(scope="session")
def warm_pytest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of `pytest` as a program that starts fast; the plugin is not yet imported."""
    with warm_program(tmp_path_factory.mktemp("bin") / "pytest", "pytest:main") as path:
        yield path


@dataclass
class Ended:
    """How a command ended and what it said."""

    code: int
    stdout: str
    stderr: str

    @property
    def printed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.split("\n") if line]


@pytest.fixture
def command(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Any:
    """`agentv` in this process, from its arguments to its exit code."""
    from agentv.cli import cli
    from agentv.cli.output import run

    def agentv_command(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["agentv", *arguments])
        capfdbinary.readouterr()
        try:
            code = run(cli)
        except SystemExit as ending:
            code = int(ending.code or 0)
        out, err = capfdbinary.readouterr()
        return Ended(code, out.decode(), err.decode())

    return agentv_command
