"""`agentv view` as a process, and its page in a real Chromium."""

from contextlib import contextmanager
from functools import partial

import pytest
from view_process import started


@pytest.fixture
def server(program):
    """Start `agentv view`: `with server("run") as view: view.login()`."""
    return partial(started, program)


@pytest.fixture
def served(chromium, server):
    """Open the page of `agentv view` in Chromium: `with served("run", fragment="#view=run") as page:`."""

    @contextmanager
    def opened(*arguments, fragment="", **settings):
        with server(*arguments) as view, chromium(view.url, fragment, **settings) as page:
            page.server = view
            yield page

    return opened


@pytest.fixture
def evaluated(folder):
    """Evaluate cases named by letters, whose answers are the letters in upper case: `evaluated("abc")`."""
    import agentv

    def evaluate(letters="abc", out="run", **options):
        checks = [{"type": "contains", "value": "A"}]
        cases = [{"id": each, "input": each, "expected_outcome": "Says A", "evaluators": checks} for each in letters]
        folder.write("evals/letters.yaml", {"evalcases": cases})
        agentv.evaluate("evals/letters.yaml", str.upper, out=out, **options)
        return folder.path / out

    return evaluate
