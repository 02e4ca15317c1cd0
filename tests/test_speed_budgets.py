"""The cost of start-up, of a case and of a result does not grow unnoticed. No test asserts on seconds."""

import subprocess
import sys
import tomllib

import pytest

from speed_counts import BUDGETS, BYTES, CALLS, COMMANDS, run_in_child, version

LIMITS = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))
VARIABLE = {"agentv.stats.distributions._away_from_zero": 10}
"""Calls that depend on the time cases take, with their limits."""
SPARE_CALLS = 1.03
"""Calls depend a little on the depth of folders."""
ATTEMPTS = 5
"""On a busy machine, more calls are in flight when memory is measured: the size is the smallest of several."""
SPARE_BYTES = 24
"""Sizes differ by this much between runs and versions of Python."""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other platforms import other modules")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_imports_no_further_modules(name):
    limits, imports = LIMITS["imports"][name], run_in_child("imports", name)
    if version() != LIMITS["python"]:
        del imports["standard"]
    new = [
        f"{package}: {module}"
        for package, modules in imports.items()
        for module in modules
        if module not in limits.get(package, "").split()
    ]
    assert not new, f"new modules: {', '.join(new)}. See `tests/speed_budgets.toml`"


@pytest.mark.skipif(version() != LIMITS["python"], reason="other versions of Python compile and import differently")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_small_command_needs_no_further_function_calls(name):
    limits, calls = LIMITS["startup"][name], run_in_child("startup", name)
    new = [
        f"{package}: {count} instead of {limits[package]}"
        for package, count in calls.items()
        if count > limits[package] * SPARE_CALLS + 20
    ]
    assert not new, f"more calls: {', '.join(new)}. See `tests/speed_budgets.toml`"


@pytest.mark.parametrize("name", CALLS)
def test_a_case_needs_no_further_function_calls(name):
    limits = LIMITS["calls"][name] | VARIABLE
    calls = run_in_child("calls", name)
    new = [
        f"{function}: {count:.2f} instead of {limits.get(function, 0)}"
        for function, count in calls.items()
        if count > limits.get(function, 0) + 0.5
    ]
    assert not new, f"more calls per case: {', '.join(new)}. See `tests/speed_budgets.toml`"


@pytest.mark.parametrize("name", BYTES)
def test_a_case_allocates_no_further_memory(name):
    limit, sizes = LIMITS["bytes"][name] + SPARE_BYTES, []
    while len(sizes) < ATTEMPTS and (not sizes or sizes[-1] > limit):
        sizes.append(run_in_child("bytes", name))
    assert sizes[-1] <= limit, f"more bytes per case: {sizes}. See `tests/speed_budgets.toml`"


ANSWERS = "import gc\ndef answer(prompt):\n    return f'{gc.isenabled()} {gc.get_freeze_count() > 10_000}'\n"
CASE = "evalcases: [{id: a, input: x, expected_outcome: y}]\nevaluators: [{type: equals, value: True True}]\n"
TARGETS = "targets: [{name: default, provider: python, function: 'answers.py:answer'}]\n"


def test_garbage_is_collected_again_when_the_modules_are_imported(tmp_path):
    for name, text in {"answers.py": ANSWERS, "targets.yaml": TARGETS, "d.yaml": CASE}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "agentv", "eval", "d.yaml", "--threshold", "1"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
