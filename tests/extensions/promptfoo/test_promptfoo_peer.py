"""The same configurations in promptfoo and here: each answer passes or fails in both. Needs `npm install promptfoo`."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data" / "promptfoo"
PROGRAM = os.environ.get("PROMPTFOO", "promptfoo").split()

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(
        shutil.which(PROGRAM[0]) is None,
        reason="promptfoo is not installed: `npm install promptfoo`, and set PROMPTFOO to its command",
    ),
]


def theirs(folder):
    offline = ("DISABLE_TELEMETRY", "DISABLE_UPDATE", "DISABLE_REMOTE_GENERATION", "DISABLE_SHARING")
    env = {**os.environ, **{f"PROMPTFOO_{name}": "1" for name in offline}, "PROMPTFOO_CONFIG_DIR": str(folder / ".pf")}
    config = next(folder.glob("promptfooconfig.*"))
    command = [*PROGRAM, "eval", "--no-cache", "-c", str(config), "-o", str(folder / "out.json")]
    subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=300, check=False)
    found = json.loads((folder / "out.json").read_text("utf-8"))["results"]["results"]
    return Counter((_squeezed(each["prompt"]["raw"]), bool(each["success"])) for each in found)


def ours(folder):
    config = next(folder.glob("promptfooconfig.*"))
    command = [sys.executable, "-m", "agentv", "eval", config.name, "--out", "run"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode in (0, 1), ended.stderr
    records = map(json.loads, (folder / "run" / "results.jsonl").read_text("utf-8").splitlines())
    # An answer without assertions passes there, and is not scored here.
    passed = ("pass", None)
    return Counter((_squeezed(each["candidate_answer"]), each.get("verdict") in passed) for each in records)


def _squeezed(text):
    """Return a text without white space, which JSON and files have in other places."""
    return "".join(text.split())


@pytest.mark.parametrize("name", ["basic", "files", "gates", "scenarios", "odd"])
def test_each_answer_passes_or_fails_as_in_promptfoo(name, tmp_path, monkeypatch):
    folder = tmp_path / name
    shutil.copytree(DATA / name, folder)
    monkeypatch.chdir(folder)
    if name == "files":  # promptfoo would run these, or connect to a service
        config = folder / "promptfooconfig.yaml"
        unwanted = ("build.js", "https", "make", "chat.yaml")
        lines = config.read_text("utf-8").splitlines()
        config.write_text("\n".join(line for line in lines if not any(word in line for word in unwanted)))
    assert ours(folder) == theirs(folder)
