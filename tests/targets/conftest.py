"""What the tests of targets share: questions, one call from opening to closing, and whether a process still runs."""

import asyncio

import pytest

import waiting
from agentv.engine.job.request import Question
from agentv.model.case import EvalCase, Origin, Place


def make_question(id="one", text="Hello", *, trial=1, attempt=1, timeout_s=10.0, folder="", dataset="", **case):
    place = Place(Origin(base_dir=str(folder), dataset=dataset, path=case.pop("path", "")), 1)
    question = Question(EvalCase(id, input=text, place=place, **case), trial=trial)
    question.attempt, question.timeout_s = attempt, timeout_s
    return question


async def respond_once(target, home, *questions):
    responder = target.open(str(home))
    try:
        return [await responder.respond(question) for question in questions]
    finally:
        await responder.aclose()


@pytest.fixture
def question():
    return make_question


@pytest.fixture
def ask(tmp_path):
    """The answer of a target to one question, from opening it to closing it."""

    def call(target, *, home=tmp_path, **asked):
        [response] = asyncio.run(respond_once(target, home, make_question(**asked)))
        return response

    return call


@pytest.fixture
def still_running():
    """Which of some processes run on after a moment."""
    return waiting.still_running


@pytest.fixture
def pids_in():
    """The numbers that a command has written into a file, as soon as there are so many of them."""

    def read(path, count):
        waiting.wait_until(lambda: len(waiting.words_in(path)) >= count)
        return [int(pid) for pid in waiting.words_in(path)]

    return read
