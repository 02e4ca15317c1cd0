"""An answer is stored before it is judged: a run that is killed in between does not pay for it again."""

import json
import signal

import pytest

from agentv.model.result import TokenUsage
from agentv_testing import Answer, FaultyServer
from waiting import wait_until

CENT = TokenUsage(1000, 900)
VERDICT = Answer('{"score": 1, "reasoning": "good", "hits": [], "misses": []}', usage=CENT)


class Models:
    """A target and a judge at one server, which counts the calls of each."""

    def __init__(self):
        self.calls = {"default": 0, "judge": 0}
        self.server = FaultyServer(self.answer)

    def answer(self, request):
        self.calls[request.model] += 1
        if request.model == "default":
            return Answer(f"answer to {request.prompt}", usage=CENT)
        return VERDICT

    def settings(self, name):
        own = {"provider": "openai", "base_url": self.server.url, "model": name, "max_retries": 0}
        return {"name": name, **own, "prices": {"input": 1, "output": 10}}


@pytest.fixture
def models(project):
    models = Models()
    with models.server:
        project.targets(models.settings("default"), models.settings("judge"))
        yield models


JUDGE = {"type": "llm_judge", "name": "asks"}


def test_a_killed_run_calls_only_the_judge_again(project, models):
    judging = project.path / "judging"
    project.write(
        "slow.py",
        "import os, sys, time, json\n"
        f"open({str(judging)!r}, 'a').write('x')\n"
        "while os.path.exists('hold'):\n    time.sleep(0.01)\n"
        "print(json.dumps({'score': 1.0}))\n",
    )
    project.write("hold", "")
    project.dataset("one", "two", "three", evaluators=[{"type": "code_judge", "command": "python slow.py"}])
    process = project.spawn("d.yaml", "--target", "default", "--out", "out", "--workers", "3")
    wait_until(lambda: len(list((project.path / "out" / "answers").glob("*"))) == 1 and models.calls["default"] == 3)
    wait_until(lambda: sum(map(len, lines_of(project))) == 3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (project.path / "hold").unlink()
    assert project.records() == []
    assert project.eval("--resume", "--out", "out").code == 0
    assert models.calls["default"] == 3
    records = project.by_id()
    assert {record["candidate_answer"] for record in records.values()} == {
        "answer to one",
        "answer to two",
        "answer to three",
    }
    assert {record["execution_metrics"]["cost_usd"] for record in records.values()} == {0.01}
    assert not (project.path / "out" / "answers").exists()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_every_paid_answer_of_a_stopped_run_is_in_its_cost_once(project, models, stop):
    project.write("hold", "")
    project.write(
        "judge.py",
        "import os, time, json\nwhile os.path.exists('hold'):\n    time.sleep(0.01)\n"
        "print(json.dumps({'score': 1.0}))\n",
    )
    project.dataset("one", "two", "three", evaluators=[{"type": "code_judge", "command": "python judge.py"}])
    for before in (0, 3):  # stopped twice: the second time, all answers are known already
        process = project.spawn("d.yaml", "--resume", "--target", "default", "--out", "out", "--workers", "3")
        wait_until(lambda: sum(map(len, lines_of(project))) == 3 and models.calls["default"] == 3)
        wait_until(lambda before=before: before == 0 or (project.path / "out" / ".lock").exists())
        process.send_signal(stop)
        process.communicate()
        assert models.calls["default"] == 3
        if process.returncode == 130:
            assert project.manifest()["unrecorded_cost_usd"] == pytest.approx(0.03)
    (project.path / "hold").unlink()
    assert project.eval("--resume", "--out", "out").code == 0
    assert project.summary()["cost_usd"] == pytest.approx(0.03)
    assert project.manifest().get("unrecorded_cost_usd", 0) == 0


def lines_of(project):
    return [path.read_bytes().splitlines() for path in (project.path / "out" / "answers").glob("*.jsonl")]


def stopped_by_budget(project, models, *options):
    """A run whose budget is used up between the answers and their judges."""
    project.dataset(*["one", "two", "three", "four"], evaluators=[JUDGE])
    ended = project.eval("--target", "default", "--out", "out", "--budget-usd", "0.009", *options)
    assert ended.code == 4 and models.calls == {"default": 1, "judge": 0}


@pytest.mark.parametrize("options", [(), ("--changed-since", "earlier")], ids=["new", "with carried records"])
def test_a_run_stopped_by_its_budget_keeps_the_answer(project, models, options):
    if options:
        project.dataset("other", evaluators=[{"type": "contains", "value": "answer"}])
        assert project.eval("--target", "default", "--out", "earlier").code == 0
        models.calls["default"] = 0
    stopped_by_budget(project, models, *options)
    assert project.manifest()["unrecorded_cost_usd"] == project.manifest()["stored_cost_usd"] == pytest.approx(0.01)
    assert project.eval("--resume", "--out", "out", "--budget-usd", "0.015").code == 4
    assert models.calls == {"default": 1, "judge": 1}
    assert project.eval("--resume", "--out", "out", "--budget-usd", "1").code == 0
    assert models.calls == {"default": 4, "judge": 4}
    assert len(project.records()) == 4


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_damaged_answer_is_asked_for_again(project, models, cut):
    stopped_by_budget(project, models)
    (path,) = (project.path / "out" / "answers").glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-cut])
    assert project.eval("--resume", "--out", "out", "--budget-usd", "1").code == 0
    assert models.calls == {"default": 5, "judge": 4}


def test_a_stored_answer_has_the_same_record_as_a_live_one(project, models):
    stopped_by_budget(project, models)
    project.eval("--resume", "--out", "out", "--budget-usd", "1")
    records = project.by_id()
    volatile = ("timestamp", "eval_id", "fingerprint", "candidate_answer", "execution_metrics", "evaluator_results")
    shapes = [{key: value for key, value in record.items() if key not in volatile} for record in records.values()]
    assert all(shape == shapes[0] for shape in shapes)
    metrics = [record["execution_metrics"] for record in records.values()]
    assert all(each.keys() == metrics[0].keys() for each in metrics)


def test_conversations_are_stored_with_their_replies(project, models):
    turns = [{"input": "two", "evaluators": [{"type": "contains", "value": "answer to two"}]}]
    project.dataset({"input": "one", "turns": turns}, evaluators=[JUDGE])
    ended = project.eval("--target", "default", "--out", "out", "--budget-usd", "0.015")
    assert ended.code == 4 and models.calls == {"default": 2, "judge": 0}
    assert project.eval("--resume", "--out", "out", "--budget-usd", "1").code == 0
    assert models.calls == {"default": 2, "judge": 1}
    record = project.by_id()["c0"]
    assert (record["score"], record["conversation"]["turns"]) == (1.0, 2)


def test_runs_without_waiting_evaluators_store_no_answers(project, models):
    project.dataset("yes")
    project.eval("--target", "default", "--out", "out")
    assert sorted(path.name for path in (project.path / "out").iterdir()) == [
        "cases.jsonl",
        "results.jsonl",
        "run.json",
        "summary.json",
    ]


def test_secrets_do_not_reach_stored_answers(project, models):
    target = {**models.settings("default"), "api_key": "sk-very-secret-key-123"}
    project.targets(target, models.settings("judge"))
    project.dataset("my key is sk-very-secret-key-123", evaluators=[JUDGE])
    project.eval("--target", "default", "--out", "out", "--budget-usd", "0.005")
    (lines,) = lines_of(project)
    assert b"sk-very-secret" not in lines[0] and json.loads(lines[0])["text"].startswith("answer to my key is")
