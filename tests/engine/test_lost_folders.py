"""A run notices that its folder was deleted or moved, and survives changes of the working directory."""

import pytest

from agentv.runs import writer as writing
from platforms import only_on_posix

AGENT = """
import asyncio, os, pathlib, shutil
from contextlib import suppress

async def answer(prompt):
    if prompt == "yes 5":
        {change}
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.02)
    with open({log!r}, "a") as log:
        log.write(prompt + "\\n")
    return prompt
"""


@pytest.fixture
def agent(project):
    """A project whose target does something to the run during its sixth call, and logs its calls."""

    def made(change):
        log = project.path / "calls.log"
        project.write("agent.py", AGENT.format(change=change, log=str(log)))
        project.targets({"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 1})
        return log

    return made


@only_on_posix("open files cannot be removed")
@pytest.mark.parametrize(
    "change", ["shutil.rmtree('out')", "os.rename('out', 'moved')", "os.unlink('out/results.jsonl')"]
)
def test_a_deleted_run_folder_stops_the_run_at_the_next_sync(project, agent, monkeypatch, change):
    log = agent(change)
    monkeypatch.setattr(writing, "SYNC_INTERVAL_S", 0.05)
    project.dataset(*(f"yes {number}" for number in range(500)))
    ended = project.eval("--out", "out")
    assert ended.code == 2
    assert "The file was deleted, moved or replaced while it was written" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(log.read_text().splitlines()) < 100


@pytest.mark.parametrize("executor", ["local", "process"])
def test_a_target_that_changes_the_working_directory_does_not_move_the_run(project, agent, executor):
    agent("os.chdir('/')")
    project.dataset(*(f"yes {number}" for number in range(20)))
    code, _, err = project.run("d.yaml", "--out", "out", "--executor", executor, "--dump-prompts", "prompts")
    assert (code, "Traceback" in err) == (0, False), err
    assert project.manifest()["counts"]["ok"] == len(project.records()) == 20
    assert len(list((project.path / "prompts").rglob("*.*"))) >= 20


def test_a_dataset_that_cannot_be_found_after_chdir_is_explained(project, agent):
    agent("os.chdir('/')")
    project.dataset(*(f"yes {number}" for number in range(70)), name="a.yaml")
    project.dataset("yes", name="b.yaml")
    code, _, err = project.run("a.yaml", "b.yaml", "--out", "out")
    assert code == 2 and "The working directory changed during the run" in err and "absolute path" in err
