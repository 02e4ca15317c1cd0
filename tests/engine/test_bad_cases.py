"""Cases that always fail, among healthy ones: they are errors after their retries, and do not look like an outage."""

from collections import Counter

import pytest
from test_faults import target

from agentv_testing import FaultyServer, RawReply

RETRIES = 2
REPLIES = {
    "500": RawReply(b"{}", 500),
    "503": RawReply(b"{}", 503),
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
        ended = project.eval("--out", "out", "--deadline", "60", "--quiet", *options)
    return ended, calls


def errors(project):
    return {int(record["eval_id"][1:]) for record in project.records() if record["status"] == "error"}


@pytest.mark.parametrize("workers", [1, 4, 50])
@pytest.mark.parametrize("kind", REPLIES)
def test_bad_cases_are_errors_and_all_others_are_scored(project, kind, workers):
    ended, calls = run(project, kind, workers, THIRD)
    assert ended.code == 0 and errors(project) == THIRD and len(project.records()) == 60
    assert {calls[number] for number in THIRD} == {RETRIES + 1}


def test_healthy_cases_are_scored_if_the_last_cases_are_bad(project):
    run(project, "500", 4, set(range(40, 60)), 60, "--max-outage", "2")
    assert {int(record["eval_id"][1:]) for record in project.records() if record["status"] == "ok"} == set(range(40))
