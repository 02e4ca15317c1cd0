"""Cases that always fail, among healthy ones: they are errors after their retries, and do not look like an outage."""

from collections import Counter

import pytest
from test_faults import target

from agentv_testing import FaultyServer, RawReply

pytestmark = pytest.mark.ci

RETRIES = 2
VERDICT = '{"reasoning": "fine", "hits": [], "misses": [], "score": 1.0}'
REPLIES = {
    "500": RawReply(b"{}", 500),
    "503": RawReply(b"{}", 503),
    "429": RawReply(b"{}", 429),
    "HTML page": RawReply(b"<html>Bad gateway</html>", headers={"Content-Type": "text/html"}),
}
THIRD = frozenset(range(0, 60, 3))


def run(project, kind, workers, bad, cases=60, *options):
    """Return how the run ended, and the calls of each case."""
    calls = Counter()

    def reply(request):
        number = int(request.prompt.split()[-1])
        calls[number] += 1
        return REPLIES[kind] if number in bad else "yes"

    with FaultyServer(reply, latency_s=0.02) as server:
        project.targets(target(server, max_retries=RETRIES, workers=workers))
        project.dataset(*(f"question {number}" for number in range(cases)))
        ended = project.eval("--out", "out", "--deadline", "200", "--quiet", *options)
    return ended, calls


def errors(project):
    return {int(record["eval_id"][1:]) for record in project.records() if record["status"] == "error"}


@pytest.mark.parametrize(("kind", "workers"), [("503", 1), ("429", 4), ("HTML page", 4), ("500", 50)])
def test_bad_cases_are_errors_and_all_others_are_scored(project, kind, workers):
    ended, calls = run(project, kind, workers, THIRD)
    assert ended.code == 0 and errors(project) == THIRD and len(project.records()) == 60
    assert max(calls[number] for number in THIRD) == RETRIES + 1


PLACES = {"in a row": range(25, 45), "first": range(20), "last": range(40, 60)}


@pytest.mark.every(3)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_twenty_bad_cases_together_are_not_an_outage(project, place):
    ended, calls = run(project, "429", 4, set(place))
    assert ended.code == 0 and errors(project) == set(place) and len(project.records()) == 60
    assert {calls[number] for number in place} == {RETRIES + 1}


def test_a_judge_that_fails_for_some_cases_ends_those_cases(project):
    bad = set(range(0, 40, 4))

    def reply(request):
        if "question" not in request.prompt or len(request.prompt) < 40:
            return f"answer to {request.prompt}"
        number = int(request.prompt.partition("answer to question ")[2].split()[0])
        return RawReply(b"{}", 500) if number in bad else VERDICT

    with FaultyServer(reply, latency_s=0.02) as server:
        project.targets(
            target(server, max_retries=RETRIES, workers=4),
            {**target(server, max_retries=RETRIES, workers=4), "name": "judge", "model": "j"},
        )
        project.dataset(
            *(f"question {number}" for number in range(40)), evaluators=[{"type": "llm_judge", "name": "j"}]
        )
        ended = project.eval("--out", "out", "--deadline", "200", "--quiet")
    scores = {int(record["eval_id"][1:]): record["score"] for record in project.records()}
    assert ended.code == 0 and {number for number, score in scores.items() if score is None} == bad
    assert len(scores) == 40
