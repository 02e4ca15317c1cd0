"""Processes that share the limit of an endpoint: never more calls than the limit, and a fair part for each."""

import asyncio
import os
import signal
import sys

import pytest

from agentv.executors.shares import FileLease, Owner, fair_shares
from agentv_testing import FaultyServer
from waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes share limits through POSIX locks")


def calls_of(lease, most, needed, in_flight):
    """State the demand of an owner; return its calls."""
    return asyncio.run(lease.update(Owner(most, needed, in_flight))).calls


@pytest.mark.parametrize(
    ("total", "wanted", "shares"),
    [
        (10, {1: 10}, {1: 10}),
        (10, {1: 10, 2: 10}, {1: 5, 2: 5}),
        (10, {1: 2, 2: 10}, {1: 2, 2: 8}),
        (10, {1: 0, 2: 3, 3: 10}, {1: 0, 2: 3, 3: 7}),
        (1, {1: 5, 2: 5}, {1: 1, 2: 0}),
    ],
)
def test_shares_are_fair(total, wanted, shares):
    assert fair_shares(total, wanted, turn=0) == shares


def test_what_cannot_be_divided_goes_around():
    turns = [fair_shares(1, {4: 1, 7: 1, 9: 1}, turn) for turn in range(3)]
    assert [max(shares, key=shares.get) for shares in turns] == [4, 7, 9]


def test_two_owners_never_own_more_than_the_limit(tmp_path):
    first, second = FileLease("https://api.example.com#k", tmp_path), FileLease("https://api.example.com#k", tmp_path)
    assert calls_of(first, 10, 10, 0) == 10
    assert calls_of(second, 10, 10, 0) == 0
    assert calls_of(first, 10, 10, 9) == 5
    assert calls_of(second, 10, 10, 0) == 1
    assert calls_of(first, 10, 10, 5) == 5
    assert calls_of(second, 10, 10, 1) == 5
    second.release()
    assert calls_of(first, 10, 10, 5) == 10
    first.release()
    assert os.listdir(tmp_path) == []


def test_other_endpoints_and_keys_have_their_own_limit(tmp_path):
    for endpoint in ("https://api.example.com#k", "https://api.example.com#other", "https://other.example.com#k"):
        assert calls_of(FileLease(endpoint, tmp_path), 10, 10, 0) == 10


def test_an_owner_that_does_not_look_at_its_share_loses_it(tmp_path):
    first, second = FileLease("https://a", tmp_path), FileLease("https://a", tmp_path)
    calls_of(first, 4, 4, 0)
    [owned] = tmp_path.glob("*.[0-9]*")
    os.utime(owned, (0, 0))
    assert calls_of(second, 4, 4, 0) == 4
    # Its number is not valid any more: it gets a new one, and only what is free.
    assert calls_of(first, 4, 4, 0) == 0


def test_an_owner_that_lost_its_share_does_not_take_that_of_a_later_one(tmp_path):
    stalled, second, third = (FileLease("https://a", tmp_path) for _ in range(3))
    calls_of(stalled, 4, 4, 0)
    [owned] = tmp_path.glob("*.[0-9]*")
    os.utime(owned, (0, 0))
    calls_of(second, 4, 4, 0)
    second.release()
    assert calls_of(third, 4, 4, 0) == 4
    assert calls_of(stalled, 4, 4, 0) == 0


def test_nothing_is_left_of_a_run_that_has_ended(tmp_path):
    lease = FileLease("https://a", tmp_path)
    calls_of(lease, 4, 4, 0)
    lease.release()
    assert os.listdir(tmp_path) == []
    assert calls_of(FileLease("https://a", tmp_path), 4, 4, 0) == 4


@pytest.mark.parametrize("contents", [b"", b"{", b"\xff\x00", b'{"owners": 3}'])
def test_a_damaged_file_does_not_stop_calls(tmp_path, contents):
    first = FileLease("https://a", tmp_path)
    calls_of(first, 4, 4, 0)
    [path] = tmp_path.glob("*.json")
    path.write_bytes(contents)
    assert calls_of(FileLease("https://a", tmp_path), 4, 4, 0) == 4


def test_without_a_writable_folder_the_limit_is_not_shared(tmp_path):
    (tmp_path / "file").touch()
    lease = FileLease("https://a", tmp_path / "file" / "folder")
    assert calls_of(lease, 4, 4, 0) == 4
    lease.release()


def prepare(project, server, *, is_judged):
    own = {"provider": "openai", "base_url": server.url, "workers": 4}
    project.targets({"name": "default", **own, "model": "m"}, {"name": "judge", **own, "model": "j"})
    judged = {"evaluators": [{"type": "llm_judge", "name": "j"}]} if is_judged else {}
    project.dataset(*(["q"] * (20 if is_judged else 40)), **judged)


VERDICT = '{"reasoning": "fine", "hits": [], "misses": [], "score": 1.0}'


@pytest.mark.parametrize("is_judged", [False, True])
def test_two_processes_stay_within_the_limit_of_an_endpoint(project, is_judged):
    with FaultyServer(
        lambda request: "yes" if request.prompt == "q" else VERDICT, latency_s=0.02, together=4
    ) as server:
        prepare(project, server, is_judged=is_judged)
        runs = [project.spawn("d.yaml", "--out", out, "--quiet") for out in ("a", "b")]
        assert [run.communicate(timeout=200) for run in runs] == [("", ""), ("", "")]
    assert server.counts.requests == 80 and server.counts.most_at_once == 4


@pytest.mark.parametrize("is_judged", [False, True])
def test_the_calls_of_a_killed_process_are_free_again(project, is_judged):
    with FaultyServer(lambda request: "yes" if request.prompt == "q" else VERDICT, latency_s=0.05) as server:
        prepare(project, server, is_judged=is_judged)
        killed, other = (project.spawn("d.yaml", "--out", out, "--quiet") for out in ("a", "b"))
        wait_until(lambda: server.counts.requests > 12)
        other.send_signal(signal.SIGSTOP)
        killed.kill()
        killed.communicate()
        wait_until(lambda: server.counts.at_once == 0)
        server.counts.most_at_once = 0
        other.send_signal(signal.SIGCONT)
        assert other.communicate(timeout=200) == ("", "")
    assert server.counts.most_at_once == 4
