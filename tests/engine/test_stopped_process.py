"""A process that was stopped, as by Ctrl-Z, reads what arrived meanwhile before it judges timeouts."""

import json
import signal
import time

import pytest

from agentv_testing import FaultyServer
from waiting import wait_until

pytestmark = pytest.mark.ci

JUDGED = json.dumps({"score": 1.0, "hits": ["good"], "misses": [], "reasoning": "fine"})
TIMEOUT_S = 2.0


def run_with_a_stop(project, options, is_called, is_answered):
    """Stop a run during a call, answer the call, and continue after its timeout; return the only record."""
    options = ("d.yaml", "--out", "out", "--timeout", f"{TIMEOUT_S:g}", "--max-retries", "0", *options)
    with project.spawn(*options) as process:
        wait_until(is_called, process)
        process.send_signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        (project.path / "stopped").touch()
        # A second or more after the timeout: a shorter delay does not count as a stop.
        wait_until(lambda: is_answered() and time.monotonic() > stopped_at + 2 * TIMEOUT_S)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate()
    assert process.returncode == 0, err
    [record] = project.records()
    return record


@pytest.mark.parametrize("provider", ["openai", "judge"])
def test_an_answer_that_arrived_during_a_stop_is_not_a_timeout(project, provider):
    judge = {"type": "llm_judge", "name": "good"}
    project.dataset("yes", **({"evaluators": [judge]} if provider == "judge" else {}))

    def reply(_):
        wait_until((project.path / "stopped").exists)
        return JUDGED if provider == "judge" else "yes"

    with FaultyServer(reply) as server:
        model = {"name": provider, "provider": "openai", "model": "m", "base_url": server.url}
        others = [{"name": "default", "provider": "mock"}] if provider == "judge" else []
        project.targets(model if others else {**model, "name": "default"}, *others)
        counts = server.counts
        record = run_with_a_stop(project, (), lambda: counts.requests == 1, lambda: counts.by_status[200] == 1)
    assert (record["status"], record["score"]) == ("ok", 1.0)


def test_a_program_that_ended_during_a_stop_is_not_a_timeout(project):
    called, answered = project.path / "called", project.path / "answered"
    project.dataset("yes")
    script = f"touch {called}; until [ -e {project.path}/stopped ]; do sleep 0.01; done; echo yes; touch {answered}"
    project.targets({"name": "default", "provider": "cli", "command_template": script})
    record = run_with_a_stop(project, (), called.exists, answered.exists)
    assert (record["status"], record["candidate_answer"]) == ("ok", "yes")
