"""The pytest plug-in: fixtures, options, and what they switch on. Imports nothing: pytest loads it everywhere."""

from __future__ import annotations

from argparse import ArgumentTypeError
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


EVALS_HELP = "globs of datasets whose cases are collected as tests; empty for none"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options; nothing else is done here, because most test runs want none of it."""
    group = parser.getgroup("agentv", "evaluations (agentv)")
    group.addoption("--agentv-evals", action="store_true", help="collect datasets as tests: those named, and *.eval.*")
    group.addoption("--agentv-target", action="append", default=[], metavar="NAME", help="who answers; repeatable")
    group.addoption(
        "--agentv-trials", type=partial(_number, "AT_LEAST_1"), metavar="N", help="how often each case is asked"
    )
    group.addoption(
        "--agentv-threshold",
        type=partial(_number, "SHARE"),
        metavar="X",
        help="the mean of each file and target must reach this; then single failures are expected ones",
    )
    group.addoption("--agentv-report", action="store_true", help="keep the results as a run, with its page")
    group.addoption(
        "--agentv-report-to",
        action="append",
        default=[],
        metavar="FILE",
        help="write a report besides: .html, .xml, .md, .csv or .parquet; repeatable",
    )
    parser.addini("agentv_evals", EVALS_HELP, type="linelist", default=[])


def _number(range_name: str, text: str) -> float:
    from agentv.settings import diagnostics  # late: most test runs give no such option

    allowed: diagnostics.Range = getattr(diagnostics, range_name)
    try:
        return allowed.read(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def pytest_configure(config: pytest.Config) -> None:
    """Brings in what was asked for."""
    if config.getoption("--agentv-evals") or config.getini("agentv_evals"):
        from agentv.pytest_plugin.eval_items import DatasetCollector  # late: it imports the engine

        config.pluginmanager.register(DatasetCollector(config), "agentv-evals")
    if config.getoption("--agentv-report") or config.getoption("--agentv-report-to"):
        from agentv.pytest_plugin.recorded_tests import RunRecorder  # late: it imports the reports

        config.pluginmanager.register(RunRecorder(config), "agentv-recording")


@pytest.fixture
def agentv_answer(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Notes what was answered, for the report of a test that `agentv.cases` made; gives the answer back."""

    def note(answer: str) -> str:
        request.node.agentv_answer = answer
        return answer

    return note
