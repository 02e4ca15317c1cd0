"""Isolated targets, hooks and tools have limits on processes, memory and disk, as evaluators have."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from agentv.model.environment import Environment
from agentv.model.sandbox_settings import RunSandbox, SandboxSettings
from agentv.sandbox import methods
from agentv.sandbox.methods import CannotConfine
from agentv.sandbox.sandbox import open_sandbox
from agentv.sandbox.subprocesses import ProcessFailure, ProcessSpec, run_process
from platforms import only_on_posix

pytestmark = [pytest.mark.ci, only_on_posix("programs are not isolated, and their memory and processes not limited")]


@pytest.fixture(params=["landlock", "bubblewrap"])
def engine(request):
    try:
        methods.confinement_by(request.param)
    except CannotConfine as error:
        pytest.skip(str(error))
    return request.param


FILL = "import mmap, os, sys, time\nMB = 1024 * 1024\n"
WRITE = "for i in range(1000):\n    {}.write(b'x' * MB); time.sleep(0.01)"
"""Writes until it is stopped: what was written before the first measurement of the folders does not count."""
CHILDREN = "for _ in range({}):\n    if os.fork() == 0: {}; time.sleep(60); os._exit(0)\ntime.sleep(60)\n"

EXCESSIVE = {
    "processes": (CHILDREN.format(200, "pass"), "started more than 100 processes"),
    "processes that leave their parent": (
        CHILDREN.format(200, "os.fork() and os._exit(0); os.setsid()"), "started more than 100 processes",
    ),
    "memory": ("x = b'x' * (300 * MB); time.sleep(60)", "used more than 200 MiB of memory"),
    "memory of several processes": (
        CHILDREN.format(3, "x = b'x' * (100 * MB)"), "used more than 200 MiB of memory",
    ),
    "memory that is shared": (
        "x = mmap.mmap(-1, 300 * MB)\nfor _ in range(300): x.write(b'x' * MB)\ntime.sleep(60)",
        "used more than 200 MiB of memory",
    ),
    "files": (
        WRITE.format("open(f'{sys.argv[1]}/{i}', 'wb')"),
        "wrote more than 50 MiB",
    ),
    "temporary files": (
        WRITE.format("open(f\"{os.environ['TMPDIR']}/{i}\", 'wb')"),
        "wrote more than 50 MiB",
    ),
    "deleted files": (
        "f = open(sys.argv[1] + '/x', 'wb', 0); os.remove(f.name)\n" + WRITE.format("f"),
        "wrote more than 50 MiB",
    ),
    "files in memory": (
        "f = open(os.memfd_create('x'), 'wb', 0)\n" + WRITE.format("f"),
        "wrote more than 50 MiB",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "message"), EXCESSIVE.values(), ids=EXCESSIVE)
def test_an_isolated_program_that_exceeds_a_limit_is_stopped(engine, tmp_path, monkeypatch, code, message):
    monkeypatch.setattr("agentv.support.processes.process_limits.MAX_PROCESSES", 100)
    settings = SandboxSettings(engine=engine, memory_mb=200, disk_mb=50)
    sandbox = open_sandbox(Environment(sandbox=RunSandbox(default=settings)))
    command = [sys.executable, "-c", FILL + code, str(tmp_path)]
    spec = ProcessSpec(command=command, cwd=str(tmp_path), env=dict(os.environ), timeout_s=200, grace_s=0)
    with pytest.raises(ProcessFailure, match=message):
        asyncio.run(run_process(sandbox.confine(spec, (str(tmp_path),))))


def test_memory_that_processes_share_is_counted_once(engine, tmp_path):
    settings = SandboxSettings(engine=engine, memory_mb=200, disk_mb=50)
    sandbox = open_sandbox(Environment(sandbox=RunSandbox(default=settings)))
    code = FILL + "x = b'x' * (100 * MB)\n" + CHILDREN.format(4, "time.sleep(0.5); os._exit(0)")
    code = code.removesuffix("time.sleep(60)\n") + "for _ in range(4): os.wait()\nprint('done')\n"
    command = [sys.executable, "-c", code]
    spec = ProcessSpec(command=command, cwd=str(tmp_path), env=dict(os.environ), timeout_s=200)
    assert asyncio.run(run_process(sandbox.confine(spec, ()))).stdout == "done\n"


@pytest.mark.parametrize("who", ["target", "setup"])
def test_limits_of_the_settings_apply_to_targets_and_hooks(engine, folder, command, who):
    code = FILL + "x = b'x' * (300 * MB); time.sleep(60)"
    (folder.path / "fill.py").write_text(code)
    fill, work = f"{sys.executable} {folder.path}/fill.py", {"setup": "true"}
    case = {"id": "a", "criteria": "x", "input": "hi", "workspace": work, "evaluators": []}
    target = {"name": "default", "provider": "cli", "command_template": fill if who == "target" else "echo hi"}
    work["setup"] = fill if who == "setup" else "true"
    folder.write("cases.yaml", {"evalcases": [case]})
    folder.write("targets.yaml", {"targets": [target]})
    folder.write(".agentv/config.yaml", {"execution": {"sandbox": {"engine": engine, "memory_mb": 200}}})
    command("eval", "cases.yaml", "--out", "run")
    record = json.loads(Path("run/results.jsonl").read_text())
    assert "used more than 200 MiB of memory (the limit, 'memory_mb') and was stopped" in record["error"]["message"]
