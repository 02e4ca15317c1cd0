"""Programs that a run starts cannot read its environment or its memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = "sk-planted-4711-0815"

LOOK = """
import json, os, sys
def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
found, pid = [], os.getpid()
while pid > 1:
    for name in ("environ", "cmdline"):
        try:
            if b"planted" in open(f"/proc/{pid}/{name}", "rb").read():
                found.append(name)
        except PermissionError:
            pass
    pid = parent_of(pid) if pid != int(os.environ["TOP"]) else 0
def agentv_judge(payload):
    return {"score": float(not found), "misses": found}
if __name__ == "__main__":
    print(json.dumps({"text": "found " + " ".join(found)}))
"""

TARGET = {"name": "default", "provider": "cli", "command_template": f"{sys.executable} look.py", "pass_env": ["TOP"]}
EVALUATORS = [
    {"type": "code_judge", "script": [sys.executable, "look.py"]},
    {"type": "command", "command": f"{sys.executable} look.py | grep -q '\"found \"'"},
]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("executor", ["local", "process"])
def test_a_program_finds_no_secret_in_the_processes_above_it(folder, executor):
    (folder.path / "look.py").write_text(LOOK)
    case = {"id": "a", "criteria": "x", "input": "hi", "evaluators": EVALUATORS}
    folder.write("cases.yaml", {"evalcases": [case]})
    folder.write("targets.yaml", {"targets": [TARGET]})
    folder.write(".agentv/config.yaml", {"execution": {"pass_env": ["TOP"]}})
    env = {**os.environ, "MY_API_KEY": SECRET, "TOP": str(os.getpid())}
    command = [sys.executable, "-m", "agentv", "eval", "cases.yaml", "--out", "run", "--executor", executor]
    subprocess.run(command, env=env, check=True, capture_output=True)
    record = json.loads(Path("run/results.jsonl").read_text())
    assert record["candidate_answer"] == "found "
    assert [each["score"] for each in record["evaluator_results"]] == [1, 1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_the_process_is_locked_and_keeps_its_variables():
    code = """
import ctypes, os, subprocess
from agentv.support.processes.process_memory import claim_process, hide_environment
claim_process()
hide_environment()
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), os.environ["MY_API_KEY"], flush=True)
print(os.path.getsize("/proc/self/environ"), subprocess.run(["printenv", "MY_API_KEY"], stdout=-1, text=True).stdout)
"""
    env = {**os.environ, "MY_API_KEY": SECRET}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["0", SECRET, "0", SECRET]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_process_of_another_program_is_not_locked_but_its_environment_is_erased():
    code = """
import ctypes
from agentv.support.processes.process_memory import hide_environment
hide_environment()
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), open("/proc/self/environ").read().strip(chr(0)))
"""
    env = {**os.environ, "MY_API_KEY": SECRET, "AGENTV_PROCESS": "outer.1."}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "AGENTV_PROCESS=outer.1."]
