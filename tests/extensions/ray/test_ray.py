"""A Ray cluster: two nodes on loopback, one of which may die at any time. Secrets come from the nodes' environment."""

import os
import re
import select
import sys
from collections import Counter

import pytest

from agentv.support.processes.watchdog import family
from agentv_testing import FaultyServer
from ray_nodes import RayNodes
from waiting import still_running, wait_until, whole_lines, words_in

KEY = "sk-0123456789abcdef"
SLOW = "import asyncio\nasync def answer(prompt):\n    await asyncio.sleep(0.05)\n    return 'yes'\n"


@pytest.fixture(scope="module")
def cluster():
    """Two nodes that have MY_API_KEY in their environment; a driver has not."""
    pytest.importorskip("ray")
    with RayNodes({"MY_API_KEY": KEY}) as nodes:
        yield nodes


@pytest.fixture
def fragile_cluster():
    """Two nodes for one test, which may kill one of them."""
    pytest.importorskip("ray")
    with RayNodes() as nodes:
        yield nodes


@pytest.mark.cluster
def test_a_killed_node_and_a_killed_driver_cost_only_the_jobs_in_flight(fragile_cluster, project):
    cluster = fragile_cluster
    project.write("agent.py", SLOW)
    target = {"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 20}
    project.targets(target)
    project.dataset(*["q"] * 600)
    results = project.path / "out" / "results.jsonl"

    def started_until(count):
        driver = project.spawn("d.yaml", "--resume", "--out", "out", *cluster.options, env=cluster.environment)
        wait_until(lambda: whole_lines(results) >= count, driver)
        return driver

    with started_until(100) as driver:
        driver.kill()
    with started_until(300) as driver:
        assert cluster.kill_node() > 1
        out, err = driver.communicate(timeout=200)
    assert driver.returncode == 0, err
    assert "raylet" not in out + err
    assert Counter(record["eval_id"] for record in project.records()) == {f"c{number}": 1 for number in range(600)}
    assert {record["verdict"] for record in project.records()} == {"pass"}
    assert project.eval("--out", "local").code == 0
    assert sorted(os.listdir("out")) == sorted(os.listdir("local"))
    assert project.records("out")[0].keys() == project.records("local")[0].keys()
    assert project.command("compare", "out", "local").code == 0


@pytest.mark.cluster
def test_secrets_come_from_the_environment_of_the_workers(cluster, project):
    project.dataset(*["q"] * 10)
    with FaultyServer(f"yes, with {KEY}") as server:
        settings = {"name": "default", "provider": "openai", "model": "m", "base_url": server.url}
        project.targets({**settings, "api_key": "${{ MY_API_KEY }}"})
        code, _, err = project.run("d.yaml", *cluster.options, "--out", "out", env=cluster.environment)
        assert code == 0, err
        assert {request.headers["Authorization"] for request in server.requests} == {f"Bearer {KEY}"}
        assert {record["candidate_answer"] for record in project.records()} == {"yes, with [redacted]"}
        project.targets({**settings, "api_key": "${{ OTHER_API_KEY }}"})
        code, _, err = project.run("d.yaml", *cluster.options, "--out", "other", env=cluster.environment)
    assert code == 2
    assert re.search(r"on node \S+\n +Target 'default': 'api_key' uses \$\{\{ OTHER_API_KEY \}\}, which is not", err)


@pytest.mark.cluster
def test_workers_end_with_a_driver_that_is_killed(cluster, project):
    code = (
        "import os, time\ndef answer(prompt):\n    open('pids', 'a').write(f'{os.getpid()}\\n')\n    time.sleep(1000)\n"
    )
    project.write("agent.py", code)
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    project.dataset(*["q"] * 4)
    pids = project.path / "pids"
    with project.spawn("d.yaml", "--out", "out", *cluster.options, env=cluster.environment) as driver:
        wait_until(lambda: len(words_in(pids)) >= 2, driver)
        watched = [os.pidfd_open(int(pid)) for pid in set(pids.read_text().split())]
        driver.kill()
    for descriptor in watched:
        assert select.select([descriptor], [], [], 200)[0]
        os.close(descriptor)


@pytest.mark.cluster
def test_a_killed_driver_takes_its_own_ray_along_and_pays_twice_only_for_calls_in_flight(project):
    pytest.importorskip("ray")
    workers, results = 20, project.path / "out" / "results.jsonl"
    project.dataset(*[f"yes {number}" for number in range(400)])
    with FaultyServer("yes", latency_s=0.2) as server:
        project.targets(
            {"name": "default", "provider": "openai", "model": "m", "base_url": server.url, "workers": workers}
        )
        options = ("d.yaml", "--resume", "--out", "out", "--executor", "ray")
        with project.spawn(*options) as driver:
            wait_until(lambda: whole_lines(results) >= 100, driver)
            pids = [pid for pid, _ in family(driver.pid, "no process has this mark")]
            driver.kill()
        assert len(pids) > 3
        assert still_running(pids) == []
        code, _, err = project.run(*options)
        assert code == 0, err
        assert sorted(project.by_id()) == sorted(f"c{number}" for number in range(400))
        assert len(project.records()) == 400
        assert server.counts.by_status[200] <= 400 + 2 * workers  # an answer may also be on its way to the driver


def test_a_literal_secret_is_not_sent_to_workers(project):
    project.targets({"name": "default", "provider": "openai", "model": "m", "api_key": KEY})
    project.dataset("q")
    ended = project.eval("--executor", "ray", "--out", "out")
    assert ended.code == 2
    assert "'api_key' of target 'default' contains a secret" in ended.stderr
    assert KEY not in ended.stderr
    assert not os.path.exists("out")


def test_calls_on_other_machines_cannot_be_recorded(project):
    project.dataset("q")
    ended = project.eval("--executor", "ray", "--record", "calls.jsonl")
    assert ended.code == 2
    assert "Calls on other machines cannot be recorded" in ended.stderr


def test_the_error_without_ray_has_the_install_command(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    project.dataset("q")
    ended = project.eval("--executor", "ray", "--out", "out")
    assert ended.code == 2
    assert "pip install 'agentv[ray]'" in ended.stderr


def test_an_unreachable_address_is_refused_immediately(project):
    pytest.importorskip("ray")
    project.dataset("q")
    ended = project.eval("--executor", "ray", "--ray-address", "127.0.0.2:1", "--out", "out")
    assert ended.code == 2
    assert "Cannot connect to the Ray cluster at 127.0.0.2:1" in ended.stderr
