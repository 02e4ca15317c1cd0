"""`agentv eval --watch`: run again what a saved file changed, until Ctrl-C."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentv.extensions.watch.watch import FileWatch

pytestmark = pytest.mark.ci

AGENT = """
from helper import ending

def answer(prompt):
    with open("{log}", "a") as log:
        log.write(prompt + chr(10))
    return prompt + ending
"""


class Watching:
    """`agentv eval --watch` in a process of its own."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "agentv", "eval", *arguments, "--watch"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def until(self, text):
        """Return what is printed up to a line with this text."""
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if text in line:
                return "".join(lines)
        raise AssertionError("".join(lines))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(120)
        self.process.stdout.close()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(120)


@pytest.fixture
def project(folder, tmp_path_factory):
    """Two cases answered by a function that logs its calls outside the project."""
    log = tmp_path_factory.mktemp("log") / "calls"
    folder.write(
        ".agentv/targets.yaml", {"targets": [{"name": "a", "provider": "python", "function": "agent.py:answer"}]}
    )
    folder.write("agent.py", AGENT.format(log=log))
    folder.write("helper.py", "ending = '!'\n")
    write_cases(folder, "one", "two")
    folder.log = log
    return folder


def write_cases(folder, *inputs):
    rows = [{"id": f"c{number}", "input": text, "expected_outcome": "x"} for number, text in enumerate(inputs)]
    folder.write("evals/d.yaml", {"evaluators": [{"type": "contains", "value": "!"}], "evalcases": rows})


def calls(folder):
    """Return the prompts since the last look."""
    found = folder.log.read_text().split()
    folder.log.write_text("")
    return sorted(found)


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_saving_a_file_runs_what_it_changed(project):
    with Watching("evals") as watching:
        watching.until("Waiting for changes")
        assert calls(project) == ["one", "two"]
        write_cases(project, "one", "three")
        shown = watching.until("Waiting for changes")
        assert "Changed: evals/d.yaml. Running what it affects." in shown and calls(project) == ["three"]
        # Imported code is not tracked by name. Its new text has another length: Python compares length and second.
        project.write("helper.py", "ending = ' indeed'\n")
        shown = watching.until("Waiting for changes")
        assert "Running all cases" in shown and "0.000" in shown and calls(project) == ["one", "three"]
        project.write("evals/d.yaml", "evalcases: [")
        assert "Error" in watching.until("Waiting for changes")
        project.write("README.md", "Nothing to do with the run.")
        watching.until("Waiting for changes")
        write_cases(project, "one", "three")
        assert "Nothing to run" in watching.until("Waiting for changes") and calls(project) == []
        assert watching.stop() == 130
        assert len(list(Path(".agentv/results").iterdir())) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_during_a_run_stops_it_and_the_watch(project):
    project.write(
        "agent.py", "import time\n\ndef answer(prompt):\n    print('called', flush=True)\n    time.sleep(60)\n"
    )
    with Watching("evals") as watching:
        watching.until("called")
        assert watching.stop() == 130


@pytest.mark.parametrize("other", ["--resume", "--dry-run", "--out=run"])
def test_options_that_do_not_fit_are_refused(project, command, other):
    ended = command("eval", "evals", "--watch", other)
    assert ended.code == 2 and "cannot be combined" in ended.stderr


def test_folders_of_tools_and_results_are_not_watched(folder):
    files = FileWatch(["."], ["skipped"])
    for name in ("a.py", ".git/index", "__pycache__/a.pyc", "skipped/x", ".a.py.swp", "new/b.yaml"):
        folder.write(name, "x")
    assert {Path(path).name for path in files.wait()} == {"a.py", "b.yaml"}
    Path("a.py").unlink()
    assert {Path(path).name for path in files.wait()} == {"a.py"}
    assert files.changed() == set()
