"""Shared by the tests of targets: requests, single calls, and checks for running processes."""

import asyncio

import pytest

import waiting
from agentv.engine.job.request import CaseRequest
from agentv.model.case import EvalCase
from agentv.model.origin import Origin, Place


def make_request(id="one", text="Hello", *, trial=1, attempt=1, timeout_s=200.0, folder="", dataset="", **case):
    place = Place(Origin(base_dir=str(folder), dataset=dataset, path=case.pop("path", "")), 1)
    new_request = CaseRequest(EvalCase(id, input=text, place=place, **case), trial=trial)
    new_request.attempt, new_request.timeout_s = attempt, timeout_s
    return new_request


async def respond_once(target, home, *questions):
    responder = target.open(str(home))
    try:
        return [await responder.respond(new_request) for new_request in questions]
    finally:
        await responder.aclose()


@pytest.fixture
def new_request():
    return make_request


@pytest.fixture
def ask(tmp_path):
    """Open a target, call it once, and close it."""

    def call(target, *, home=tmp_path, **fields):
        [response] = asyncio.run(respond_once(target, home, make_request(**fields)))
        return response

    return call


@pytest.fixture
def still_running():
    """Return which processes are still running after a moment."""
    return waiting.still_running


@pytest.fixture
def pids_in():
    """Wait until a command has written this many numbers to a file, and return them."""

    def read(path, count):
        waiting.wait_until(lambda: len(waiting.words_in(path)) >= count)
        return [int(pid) for pid in waiting.words_in(path)]

    return read
