"""The rules of load control on a virtual clock: bad requests, outages, random failures, rate limits, slow servers."""

import random

import pytest

from agentv.executors.lane import Failure, Ticket
from agentv.executors.load_control import Endpoint
from load_simulation import (
    DOCS,
    KINDS,
    LATENCY_S,
    PLACES,
    RETRIES,
    SHARES,
    TABLES,
    WORKERS,
    Server,
    Simulation,
    ideal_s,
    page_with,
    places,
    repeat_request,
    simulate_cell,
)

pytestmark = pytest.mark.ci


@pytest.mark.every(5)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("where", [*SHARES, *PLACES])
@pytest.mark.parametrize("kind", KINDS)
def test_bad_requests_cost_no_healthy_job_and_little_time(kind, where, workers):
    for outage in (False, True):
        ended, ideal_s = simulate_cell(kind, where, workers, outage=outage)
        assert ended.lost == set()
        assert ended.seconds <= 1.3 * ideal_s + 5
        assert ended.most_calls <= RETRIES + 1


@pytest.mark.parametrize("name", TABLES)
def test_the_pages_show_the_simulated_times(name):
    message = "Write the pages again with: python tests/load_simulation.py"
    assert (DOCS / name).read_text(encoding="utf-8") == page_with(name, TABLES[name]()), message


@pytest.mark.parametrize("kind", ["429", "500"])
def test_a_run_does_not_depend_on_the_time_that_the_clock_shows_at_its_start(kind):
    early, late = (Simulation(Server(kind, places("20 in a row", 200)), 200, (4, 4)) for _ in range(2))
    late.uptime_s = 1e6
    assert late.run().seconds == pytest.approx(early.run().seconds, abs=0.01)


@pytest.mark.parametrize("workers", [(4, 4), (10, 200)])
@pytest.mark.parametrize("kind", ["500", "reset", "timeout"])
def test_a_run_without_an_answer_takes_little_longer_than_its_calls(kind, workers):
    ended = Simulation(Server(kind, frozenset(range(60))), 60, workers).run()
    assert ended.seconds <= 1.3 * ideal_s(60, 60, kind, workers[1]) + 5
    assert ended.most_calls == RETRIES + 1


@pytest.mark.every(5)
@pytest.mark.parametrize("chance", [0.01, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("kind", ["reset", "500", "timeout"])
def test_random_failures_lose_no_more_jobs_than_their_retries_explain(kind, chance):
    jobs, probability = 2000, chance ** (RETRIES + 1)
    ended = Simulation(Server(kind, chance=chance, draws=random.Random(3)), jobs, (50, 50)).run()
    expected = jobs * probability
    assert len(ended.lost) <= expected + 2 * (expected * (1 - probability)) ** 0.5


@pytest.mark.parametrize("workers", [(4, 4), (50, 50), (10, 200)])
@pytest.mark.parametrize("burst", [10, 50])
@pytest.mark.parametrize("rate", [10, 50])
def test_a_rate_limit_costs_no_job_and_is_used(rate, burst, workers):
    jobs = rate * 40
    ended = Simulation(Server(rate=rate, burst=burst), jobs, workers).run()
    assert ended.lost == set()
    assert ended.seconds <= 1.2 * max(jobs / rate, jobs * LATENCY_S / workers[1])


@pytest.mark.parametrize("workers", [(4, 4), (50, 50), (10, 200)])
@pytest.mark.parametrize("burst", [1, 10])
@pytest.mark.parametrize(("rate", "most_lost"), [(0.5, 2), (1, 2), (2, 0), (5, 0)])
def test_a_low_rate_limit_costs_at_most_two_jobs_of_sixty(rate, most_lost, burst, workers):
    ended = Simulation(Server(rate=rate, burst=burst), 60, workers).run()
    assert len(ended.lost) <= most_lost
    assert ended.seconds <= 1.5 * 60 / rate


@pytest.mark.parametrize("workers", [(50, 50), (10, 200)])
def test_a_slow_ramp_of_latency_is_no_outage(workers):
    server = Server("timeout", latency=lambda now: min(0.8, 0.05 + now * 0.02))
    ended = Simulation(server, 3000, workers).run()
    assert ended.lost == set() and len(server.calls) == 3000


def test_after_a_burst_of_refusals_the_former_pace_returns():
    server = Server("429", outage=(0.5, 5.5), latency=lambda now: 0.05)
    ended = Simulation(server, 2000, (50, 50)).run()
    assert ended.lost == set() and ended.seconds <= 5 + 1.5 * 3


@pytest.mark.parametrize("max_outage_s", [0.0, 20.0])
def test_jobs_of_an_endpoint_that_stays_down_are_errors_without_outage_logic_else_unfinished(max_outage_s):
    ended = Simulation(Server("503", outage=(2, 10_000)), 200, (4, 4), max_outage_s).run()
    assert not (ended.unfinished if max_outage_s == 0 else ended.errors)
    assert ended.seconds < 60


def test_the_wait_that_one_request_asks_for_does_not_close_the_endpoint():
    endpoint = Endpoint(4, 4)
    lane = endpoint.lane("")
    first, second = Ticket(lane), Ticket(lane)
    assert endpoint.try_start(first, 0.0) and endpoint.try_start(second, 0.0)
    endpoint.failed(first, Failure(60.0, is_refused=True), 0.1)
    endpoint.answered(second)
    assert endpoint.try_start(Ticket(lane), 0.2)


def test_a_request_is_a_probe_only_if_it_starts():
    endpoint = Endpoint(1, 1)
    down, up = endpoint.lane("down"), endpoint.lane("up")
    down.sample = repeat_request
    down.suspect_since = 0.0
    probe, other = Ticket(down, opens_job=True), Ticket(up)
    endpoint.add(probe, 1.0)
    endpoint.add(other, 1.0)
    assert endpoint.next(1.0) is other and not probe.repeats
    endpoint.answered(other)
    assert endpoint.next(1.0) is probe and probe.repeats


def test_a_request_that_repeats_another_does_not_wait_for_its_delay_again():
    endpoint = Endpoint(1, 1)
    lane = endpoint.lane("")
    lane.sample = repeat_request
    ticket = Ticket(lane)
    ticket.retries, ticket.delay_s = 2, 3.0
    assert endpoint.try_start(ticket, 0.0)
    endpoint.failed(ticket, Failure(), 0.0)
    endpoint.add(ticket, 0.0)
    lane.suspect_since = 0.0
    assert endpoint.next(1.0) is ticket and ticket.repeats
    endpoint.answered(ticket)
    endpoint.add(ticket, 1.5)
    assert ticket.ready_at == 3.0


def test_two_models_of_an_endpoint_have_outages_of_their_own():
    endpoint = Endpoint(50, 50)
    down, up = endpoint.lane("down"), endpoint.lane("up")
    first = Ticket(down)
    assert endpoint.try_start(first, 0.0)
    endpoint.answered(first)
    tickets = [Ticket(down) for _ in range(8)]
    for ticket in tickets:
        endpoint.add(ticket, 1.0)
    while (ticket := endpoint.next(1.0)) is not None:
        endpoint.failed(ticket, Failure(), 1.0)
    assert down.suspect_since is not None and up.suspect_since is None
    other = Ticket(up)
    endpoint.add(other, 1.1)
    assert endpoint.next(1.1) is other
