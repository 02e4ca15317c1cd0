"""Skip a test that needs an extra of agentv or another package which is not installed, and name it in the reason."""

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, metadata, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

TESTS = Path(__file__).parent


@cache
def missing_extras() -> dict[str, str]:
    """Return the extras that are not installed, each with a package that it needs."""
    extras = metadata("agentv").get_all("Provides-Extra") or []
    requirements = [Requirement(text) for text in requires("agentv") or []]
    return {
        extra: requirement.name
        for requirement in requirements
        if requirement.marker and not is_installed(requirement.name)
        for extra in extras
        if requirement.marker.evaluate({"extra": extra})
    }


def is_installed(package: str) -> bool:
    try:
        return distribution(package) is not None
    except PackageNotFoundError:
        return False


def missing_package(call: pytest.CallInfo[None], text: str) -> str | None:
    """Return the reason to skip: the extra that a message or value names, or the module that a test itself imports."""
    for extra in re.findall(r"agentv\[([\w-]+)\]", text + (results_of(call) if missing_extras() else "")):
        if extra in missing_extras():
            return f"{missing_extras()[extra]} is not installed: pip install 'agentv[{extra}]'"
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, ModuleNotFoundError) and call.excinfo:
        importer = next(entry for entry in reversed(call.excinfo.traceback) if not str(entry.path).startswith("<"))
        if TESTS in Path(importer.path).parents:
            return installation_of(str(error.name))
    return None


def results_of(call: pytest.CallInfo[None]) -> str:
    """Return the local values of a failed test, such as how a command ended and the records of its run."""
    entries = call.excinfo.traceback if call.excinfo else []
    frames = [entry.frame for entry in entries if TESTS in Path(entry.path).parents]
    return "\n".join(text_of(value) for frame in frames for value in frame.f_locals.values())


def text_of(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # the value of a test may refuse it
        return ""


def installation_of(module: str) -> str:
    """Return the reason to skip a test of a module, with the extra that has it."""
    package = module.partition(".")[0]
    extras = [extra for extra in metadata("agentv").get_all("Provides-Extra") or [] if extra != "dev"]
    for requirement in map(Requirement, requires("agentv") or []):
        if f"{requirement.name}-".startswith(f"{package.replace('_', '-')}-"):
            for extra in extras:
                if requirement.marker and requirement.marker.evaluate({"extra": extra}):
                    return f"{package} is not installed: pip install 'agentv[{extra}]'"
    return f"{package} is not installed: pip install 'agentv[dev]'"


def name_extra(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Let the reason of `pytest.importorskip` name the extra."""
    if report.skipped and isinstance(report.longrepr, tuple):
        file, line, reason = report.longrepr
        if match := re.search(r"could not import '([\w.]+)'", reason):
            report.longrepr = (file, line, f"Skipped: {installation_of(match[1])}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> object:
    report = yield
    name_extra(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report = yield
    name_extra(report)
    if report.failed and (reason := missing_package(call, report.longreprtext)):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {reason}")
    return report
