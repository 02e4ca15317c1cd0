"""`agentv.cases`: a test for each case of a dataset."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from agentv.datasets.files import project_root
from agentv.datasets.loader import load_cases
from agentv.errors import AgentvError, MissingSidecarWarning

if TYPE_CHECKING:
    import pytest


def cases(path: str | os.PathLike[str], *, argument: str = "case", **options: Any) -> pytest.MarkDecorator:
    """Parametrises a test by the cases of a dataset: one test each, under the case's id, as the argument `case`.

        @agentv.cases("evals/support.yaml", filter="tag=billing")
        def test_support(case): ...

    `path` is a file, a folder or a glob, from the working directory, else from the test's folder and its parents up to
    the project root. Options are those of `load_cases`.
    """
    import pytest  # late: not a dependency; who uses this has it

    file = _located(os.fspath(path), sys._getframe(1).f_code.co_filename)
    try:
        with warnings.catch_warnings():
            # It says which target and evaluator hold, and a test has its own.
            warnings.simplefilter("ignore", MissingSidecarWarning)
            found = load_cases(file, **options)
    except AgentvError as error:
        raise pytest.Collector.CollectError(str(error)) from error
    several = len({case.path for case in found}) > 1
    named = [pytest.param(case, id=f"{case.dataset}-{case.id}" if several else case.id) for case in found]
    return pytest.mark.parametrize(argument, named)


def _located(path: str, test_file: str) -> str:
    """The path as it can be opened from here; as it was given, where nothing is found, for the error to name."""
    if os.path.isabs(path) or os.path.exists(path) or any(char in path for char in "*?["):
        return path
    folder = os.path.dirname(os.path.abspath(test_file))
    root = project_root(folder)
    while True:
        if os.path.exists(os.path.join(folder, path)):
            return os.path.relpath(os.path.join(folder, path))
        if folder in (root, os.path.dirname(folder)):
            return path
        folder = os.path.dirname(folder)
