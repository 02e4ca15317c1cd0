"""The pytest plug-in: options and fixtures. Imports nothing heavy, because pytest always loads it."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import agentv

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentv.api import Run
    from agentv.model.result import Result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("agentv", "evaluations (agentv)")
    group.addoption(
        "--agentv-evals",
        action="store_true",
        help="collect datasets as tests: those named on the command line, and *.eval.*",
    )
    group.addoption(
        "--agentv-target", action="append", default=[], metavar="NAME", help="target to evaluate; repeatable"
    )
    group.addoption(
        "--agentv-trials", type=partial(_number, "AT_LEAST_1"), metavar="N", help="number of times to run each case"
    )
    group.addoption(
        "--agentv-threshold",
        type=partial(_number, "SHARE"),
        metavar="X",
        help="required mean of each file and target; failures of single cases are then expected failures",
    )
    group.addoption(
        "--agentv-gate-on",
        choices=["point", "interval"],
        default="point",
        help="decide thresholds by the mean itself, or by its whole 95 %% interval; what it does not decide fails",
    )
    group.addoption(
        "--agentv-trust",
        action="append",
        default=[],
        metavar="PATH",
        help="trust a dataset outside the root of the tests: run its programs and let it read variables; repeatable",
    )
    group.addoption("--agentv-report", action="store_true", help="store the results as a run with an HTML report")
    group.addoption(
        "--agentv-report-to",
        action="append",
        default=[],
        metavar="FILE",
        help="also write a report: .html, .xml, .md, .csv or .parquet; repeatable",
    )
    meaning = "globs of datasets whose cases are collected as tests (default: none)"
    parser.addini("agentv_evals", meaning, type="linelist", default=[])


def _number(range_name: str, text: str) -> float:
    from agentv.model import diagnostics  # late: rarely needed

    allowed: diagnostics.Range = getattr(diagnostics, range_name)
    try:
        return allowed.read(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def pytest_configure(config: pytest.Config) -> None:
    """Register the plug-ins that the options request."""
    if config.getoption("--agentv-evals") or config.getini("agentv_evals"):
        _register(config, "agentv-evals", "pytest-datasets")
    if config.getoption("--agentv-report") or config.getoption("--agentv-report-to"):
        _register(config, "agentv-recording", "pytest-runs")


def _register(config: pytest.Config, name: str, service_name: str) -> None:
    from agentv.registry import service  # late: it imports the engine

    config.pluginmanager.register(service(service_name, "The pytest plug-in")(config), name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """End a test of a refused case in an error with the reason."""
    if "agentv.model.case" not in sys.modules:
        return  # no test has a case
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    for case in parameters.values():
        if isinstance(case, agentv.EvalCase) and case.case_error is not None:
            pytest.fail(f"{case.path}, line {case.line}: refused case '{case.id}': {case.case_error}", pytrace=False)


@pytest.fixture
def agentv_answer(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return a function that stores the answer of a test made by `agentv.cases` in its report, and returns it."""

    def record(answer: str) -> str:
        request.node.agentv_answer = answer
        return answer

    return record


@pytest.fixture
def agentv_assert_passes(request: pytest.FixtureRequest) -> Callable[..., Result]:
    """Return `agentv.assert_passes` for a test made by `agentv.cases`: its case and evaluators are the default.

    The answer is stored for the report. Without a case, it is `agentv.assert_passes` itself.
    """
    callspec = getattr(request.node, "callspec", None)
    parameters = () if callspec is None else callspec.params.values()
    cases = [value for value in parameters if isinstance(value, agentv.EvalCase)]

    def check(answer: Any, evaluators: Any = None, **options: Any) -> Result:
        if isinstance(answer, str):
            request.node.agentv_answer = answer
        if cases and not options:
            options = {"case": cases[0]}
        return agentv.assert_passes(answer, evaluators, **options)

    return check


@pytest.fixture
def agentv_evaluate(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Return `agentv.evaluate` with the run in a temporary folder, unless `out` is given."""

    def run(*arguments: Any, **options: Any) -> Run:
        return agentv.evaluate(
            *arguments, **{"out": tmp_path_factory.mktemp("agentv") / "run", "progress": False, **options}
        )

    return run
