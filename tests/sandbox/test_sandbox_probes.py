"""The table of probes and engines in the documentation: every cell is tried on this machine."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import sandbox_probes
from agentv.sandbox.kernel import landlock_problem
from other_user import NOBODY, command_as_nobody, has_another_user
from platforms import only_on_posix
from podman_image import IMAGE, READABLE, podman_problem, use_runc

pytestmark = only_on_posix("programs are not isolated")

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "sandbox-probes.md"
COLUMNS = {
    "Landlock": {"engine": "landlock"},
    "Landlock without namespaces": {"engine": "landlock", "namespaces": False},
    "bubblewrap": {"engine": "bubblewrap"},
    "bubblewrap as root": {"engine": "bubblewrap"},
    "Podman": {"engine": "podman", "image": IMAGE, "readable": READABLE},
}


def table():
    """The outcomes of the page, by engine."""
    lines = PAGE.read_text("utf-8").partition("## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    header, _, *body = rows
    return {name: {row[0]: row[index] for row in body} for index, name in enumerate(header) if index}


def problem_of(name, folder):
    """Why an engine cannot be tried on this machine."""
    if name.startswith("Landlock"):
        return landlock_problem()
    if name == "Podman":
        return podman_problem(folder)
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    if name == "bubblewrap as root":
        return "" if os.geteuid() == 0 else "not root"
    return "" if has_another_user() else "no other user"


@pytest.mark.parametrize("name", COLUMNS)
def test_the_page_lists_what_programs_can_do_with_an_engine(name, tmp_path_factory, monkeypatch):
    base = tmp_path_factory.getbasetemp()
    if name == "Podman":
        monkeypatch.setenv("CONTAINERS_CONF", use_runc(base))
    if problem := problem_of(name, base):
        pytest.skip(problem)
    command = [sys.executable, sandbox_probes.__file__, json.dumps(COLUMNS[name])]
    # Not in a folder of pytest, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="agentv-probes-") as folder:
        if name == "bubblewrap" and os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            command = command_as_nobody([*command, folder])
        else:
            command = [*command, folder]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    outcomes = {probe: "allowed" if it else "blocked" for probe, it in json.loads(done.stdout).items()}
    assert outcomes == {probe: cell.split()[0] for probe, cell in table()[name].items()}


def test_every_column_of_the_page_is_tried_and_has_every_probe():
    assert list(table()) == list(COLUMNS)
    assert all(list(column) == list(sandbox_probes.TRIES) for column in table().values())
