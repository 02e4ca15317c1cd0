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
    """Return the reason to skip: the extra that a message names, or the module that a test itself imports."""
    for extra in re.findall(r"agentv\[([\w-]+)\]", text):
        if extra in missing_extras():
            return f"{missing_extras()[extra]} is not installed: pip install 'agentv[{extra}]'"
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, ModuleNotFoundError) and call.excinfo:
        importer = next(entry for entry in reversed(call.excinfo.traceback) if not str(entry.path).startswith("<"))
        if TESTS in Path(importer.path).parents:
            return f"{error.name} is not installed: pip install 'agentv[dev]'"
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report = yield
    if report.failed and (reason := missing_package(call, report.longreprtext)):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {reason}")
    return report
