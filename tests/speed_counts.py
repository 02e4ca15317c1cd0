"""Count work in ways that do not depend on the speed of the machine: imports, function calls, bytes.

Each measurement runs in a process of its own: `python tests/speed_counts.py calls run`. Calls and bytes are the
difference between N and 2 N cases, divided by N, so that start-up cancels out.

`python tests/speed_counts.py update` rewrites `speed_budgets.toml`.
"""

import gc
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

BUDGETS = Path(__file__).with_name("speed_budgets.toml")
HEAD = """# The most modules that a command may import, calls of a small command and of a case, and bytes per case.
# After a deliberate change: python tests/speed_counts.py update

"""
CASES = 256
LARGE_CASES, LARGE_BYTES = 1200, 1000  # more than 1 MB, so that the file is streamed
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")  # they are no calls since Python 3.12
COMMANDS = {"help": ["--help"], "run": ["eval", "one.yaml"], "compare": ["compare", "before", "after"]}
PROJECT = {
    "targets.yaml": "targets: [{name: default, provider: mock, response: Paris}]\n",
    "one.yaml": "evalcases: [{id: one, input: Where?, expected_outcome: Says Paris}]\n"
    "evaluators: [{type: contains, value: Paris}]\n",
}


def write_cases(count, extra_bytes=0):
    """Write a JSONL dataset with lines of the same length."""
    path = Path(f"cases{count}.jsonl")
    path.with_suffix(".yaml").write_text("evaluators: [{type: contains, value: Where}]\n", encoding="utf-8")
    row = '{{"id": "c{:06}", "input": "Where is {:06}? %s", "expected_outcome": "x"}}\n' % ("x" * extra_bytes)
    path.write_text("".join(row.format(number, number) for number in range(count)), encoding="utf-8")
    return str(path)


def evaluate(path, target=None):
    import agentv

    return agentv.evaluate(path, target or {"provider": "mock"}, out=tempfile.mkdtemp(dir="."), progress=False)


def load(path):
    import agentv

    agentv.load_cases(path)


def stream(path):
    import agentv

    for _ in agentv.stream_cases(path):
        pass


def run_command(*arguments):
    from agentv.cli import main

    sys.argv = ["agentv", *arguments]
    with suppress(SystemExit):
        main()


def prepared(name, path):
    """Return work for the cases of a file."""
    if name == "compare":
        return partial(run_command, "compare", *(str(evaluate(path).path) for _ in range(2)))
    return partial({"run": evaluate, "load": load, "stream": stream}[name], path)


def is_ours(frame):
    return frame is not None and frame.f_globals.get("__name__", "").startswith("agentv.")


def counted_calls(work):
    """Return how often each function of agentv, and each Python function that it calls directly, is called."""
    calls = Counter()

    def count(frame, event, _):
        if event == "call" and (is_ours(frame) or is_ours(frame.f_back)):
            calls[f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def calls_per_case(name):
    prepared(name, write_cases(CASES))()  # imports, caches
    few, many = (counted_calls(prepared(name, write_cases(count))) for count in (CASES, 2 * CASES))
    return {
        function: (many[function] - few[function]) / CASES for function in many if not function.endswith(COMPREHENSIONS)
    }


def allocated_bytes(name, count):
    """Return the memory that is in use at its peak, or for a run, the memory it needs in addition to its buffers.

    A thread hashes the results of a run at times of its own, so that the peak differs.
    """
    path, samples = write_cases(count, LARGE_BYTES), []

    async def answer(prompt):
        samples.append(tracemalloc.get_traced_memory()[0])
        return prompt

    work = partial(evaluate, path, answer) if name == "run" else prepared(name, path)
    gc.collect()
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return min(samples[count // 2 :], default=peak)


def bytes_per_case(name):
    _, few, many = (allocated_bytes(name, count) for count in (CASES, LARGE_CASES, 2 * LARGE_CASES))
    return (many - few) / LARGE_CASES


def prepare_command(name):
    if name == "compare":
        command = [sys.executable, "-m", "agentv", *COMMANDS["run"], "--out", "before"]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=True)
        shutil.copytree("before", "after")


def package_of(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0]


def startup_calls(name):
    """Return how often agentv calls Python functions: its own, and those that create classes and patterns."""
    prepare_command(name)
    calls = Counter()
    for variable in set(os.environ) - {"PATH", "HOME"}:
        del os.environ[variable]  # each is checked for a secret

    def count(frame, event, _):
        package = package_of(frame)
        if event != "call" or package not in STARTUP_PACKAGES:
            return
        while frame is not None and package_of(frame) in STARTUP_PACKAGES[1:]:
            frame = frame.f_back
        if frame is not None and package_of(frame) == "agentv":
            calls[package] += 1

    sys.setprofile(count)
    run_command(*COMMANDS[name])
    sys.setprofile(None)
    return {package: calls[package] for package in STARTUP_PACKAGES}


def imported_modules(name):
    """Return the imported modules of agentv by package, and the names of imported packages and standard modules."""
    prepare_command(name)
    before = set(sys.modules)
    run_command(*COMMANDS[name])
    new = sorted(set(sys.modules) - before)
    modules = {}
    for module in new:
        package, _, last = module.rpartition(".")
        if package.partition(".")[0] == "agentv":
            modules.setdefault(package, []).append(last)
    tops = {module.partition(".")[0] for module in new if not module.startswith("_")} - {"agentv"}
    standard = tops & sys.stdlib_module_names
    return modules | {"packages": sorted(tops - standard), "standard": sorted(standard)}


def run_in_child(*arguments):
    """Run this file in an empty folder, without the variables of this machine, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTV_", "PYTHON"))}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


MEASURES = {
    "imports": imported_modules,
    "startup": startup_calls,
    "calls": calls_per_case,
    "bytes": bytes_per_case,
}
STARTUP_PACKAGES = ("agentv", "msgspec", "re", "typing")
CALLS, BYTES = ("run", "load", "stream", "compare"), ("run", "load", "stream")


def updated_budgets():
    """Measure everything, and return the text of the file of budgets."""
    lines = [f'{HEAD}python = "{version()}"  # whose standard library is checked']
    for name in COMMANDS:
        modules = run_in_child("imports", name).items()
        lines += ["", f"[imports.{name}]", *(f'"{package}" = "{" ".join(names)}"' for package, names in modules)]
    for name in COMMANDS:
        calls = run_in_child("startup", name).items()
        lines += ["", f"[startup.{name}]", *(f"{package} = {count}" for package, count in calls)]
    for name in CALLS:
        calls = {function: round(count) for function, count in sorted(run_in_child("calls", name).items())}
        lines += ["", f"[calls.{name}]", *(f'"{function}" = {count}' for function, count in calls.items() if count)]
    lines += ["", "[bytes]", *(f"{name} = {math.ceil(run_in_child('bytes', name))}" for name in BYTES)]
    return "\n".join(lines) + "\n"


def version():
    return f"{sys.version_info.major}.{sys.version_info.minor} on {sys.platform}"


def main(action, name=""):
    if action == "update":
        BUDGETS.write_text(updated_budgets(), encoding="utf-8")
        return
    for file, text in PROJECT.items():
        Path(file).write_text(text, encoding="utf-8")
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        output.write(json.dumps(MEASURES[action](name)))


if __name__ == "__main__":
    main(*sys.argv[1:])
