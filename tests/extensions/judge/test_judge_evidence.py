"""Sentences of `compare` about runs that a judge scored: without labels, with agreement, and with labelled pairs."""

import io
import json

import msgspec
import numpy as np
import pytest

from agentv.extensions.judge.labels import answer_hash
from agentv.model.manifest import RunManifest
from agentv.model.result import EvaluatorResult
from agentv.runs.folder import RunFolder
from agentv.runs.record import encode_record
from agentv.runs.store import RunStore
from made_results import made

START = "2026-01-02T03:04:05Z"
CALLS = {"calls": [{"target": "judge", "model": "m"}]}


def write_run(folder, name, truth, verdicts, judge=True):
    """Write a run whose answers have a true quality, and verdicts of a judge or a deterministic evaluator."""
    records = [
        made(
            eval_id=str(row),
            run_id=name,
            score=float(passed),
            verdict="pass" if passed else "fail",
            candidate_answer=f"{name} {row} {good}",
            evaluator_results=(
                EvaluatorResult(
                    name="quality",
                    weight=1.0,
                    type="llm_judge",
                    score=float(passed),
                    verdict="pass" if passed else "fail",
                    evaluator_provider_request=CALLS if judge else None,
                ),
            ),
        )
        for row, (good, passed) in enumerate(zip(truth.tolist(), verdicts.tolist(), strict=True))
    ]
    folder.write(f"{name}.jsonl", b"".join(map(encode_record, records)))
    return records


def write_labels(folder, *runs, rows):
    lines = [
        {
            "timestamp": "2026-01-02T03:04:05Z",
            "dataset": record.dataset,
            "eval_id": record.eval_id,
            "answer": answer_hash(record.candidate_answer),
            "label": "pass" if record.candidate_answer.endswith("True") else "fail",
            "run_id": record.run_id,
        }
        for run in runs
        for record in run
        if int(record.eval_id) in rows
    ]
    folder.write(".agentv/labels.jsonl", lines)


def biased_runs(folder, gain=0.0, judge=True, bias=0.35, n=1_000):
    """Two runs whose judge passes bad answers of B more often than those of A."""
    random = np.random.default_rng(1)
    runs = []
    for name, chance, lenient in (("a", 0.6, 0.1), ("b", 0.6 + gain, bias)):
        truth = random.random(n) < chance
        verdicts = np.where(truth, random.random(n) < 0.95, random.random(n) < lenient)
        runs.append(write_run(folder, name, truth, verdicts, judge))
    return runs


def sentence_of(command, *options):
    ended = command("compare", "a.jsonl", "b.jsonl", *options)
    return ended.stdout.splitlines()[0], ended


def test_an_uncalibrated_judge_only_scores_higher(folder, command):
    biased_runs(folder)
    sentence, ended = sentence_of(command)
    assert sentence.startswith("The judge scores B higher by 0.084")
    assert "The judge (quality) is not calibrated: 0 labels, too few" in ended.stdout
    assert command("compare", "a.jsonl", "b.jsonl", "--judge-must-agree", "0.6").code == 5


def test_an_uncalibrated_judge_only_scores_without_a_difference(folder, command):
    truth = np.arange(1_000) % 3 > 0
    for name in "ab":
        write_run(folder, name, truth, truth)
    assert sentence_of(command)[0].startswith(
        "By the judge's scores, no difference larger than 0.004. B scored the same"
    )


def test_a_deterministic_evaluator_keeps_its_claim(folder, command):
    biased_runs(folder, judge=False)
    assert sentence_of(command)[0].startswith("B is better by 0.084")
    assert command("compare", "a.jsonl", "b.jsonl", "--judge-must-agree", "0.6").code == 0


@pytest.mark.parametrize(("required", "is_calibrated"), [("0.6", True), ("0.95", False)])
def test_a_judge_that_agrees_with_the_labels_of_one_run_is_calibrated(folder, command, required, is_calibrated):
    write_labels(folder, biased_runs(folder)[0], rows=range(300))
    folder.write(".agentv/config.yaml", {"execution": {"judge_must_agree": float(required)}})
    sentence, _ = sentence_of(command)
    assert sentence.startswith("B is better" if is_calibrated else "The judge scores B higher")
    data = json.loads(command("compare", "a.jsonl", "b.jsonl", "--json").stdout)
    assert (data["judge"]["is_calibrated"], data["judge"]["agreement"]["labels"]) == (is_calibrated, 300)


def test_labels_of_one_run_cannot_show_a_bias_for_the_other(folder, command):
    runs = biased_runs(folder)
    write_labels(folder, runs[0], rows=range(300))
    bias = "a judge that favours one of them would not show. Run `agentv judge label b.jsonl --against a.jsonl`"
    assert bias in sentence_of(command)[1].stdout
    write_labels(folder, *runs, rows=range(300))
    assert bias not in sentence_of(command)[1].stdout


def test_labels_do_not_decide_about_drawn_cases(folder, command):
    """The labelled pairs are not weighted, so they would be an estimate of the drawn cases only."""
    runs = biased_runs(folder)
    write_labels(folder, *runs, rows=range(200))
    for name, records in zip("ab", runs, strict=True):
        drawn = (msgspec.structs.replace(each, probability=0.1 + 0.8 * (int(each.eval_id) % 2)) for each in records)
        folder.write(f"{name}.jsonl", b"".join(map(encode_record, drawn)))
    data = json.loads(command("compare", "a.jsonl", "b.jsonl", "--json").stdout)
    assert (data["summary"]["test"], data["judge"]["pairs"]) == ("weighted t", 0)


@pytest.mark.parametrize("seeds", [(0, None), (0, 0), (0, 1)], ids=["one", "both", "other orders"])
def test_labels_do_not_decide_about_runs_that_stopped_early(folder, command, seeds):
    """The labelled pairs do not allow for the looks at the results, nor does the interval around them."""
    runs = biased_runs(folder)
    write_labels(folder, *runs, rows=range(200))
    for name, seed, records in zip("ab", seeds, runs, strict=True):
        run = RunFolder.create(folder.path / f"run-{name}")
        run.write_manifest(
            RunManifest(run_id=name, started_at=START, finished_at=START, seed=seed, stopped_early=seed is not None)
        )
        run.results_path.write_bytes(b"".join(map(encode_record, records)))
    data = json.loads(command("compare", "run-a", "run-b", "--json").stdout)
    assert data["summary"]["test"] != "PPI++" and data["judge"]["pairs"] == 0


@pytest.mark.parametrize(("gain", "start"), [(0.0, "Can't tell yet"), (0.15, "B is better by 0.1")])
def test_labels_of_both_runs_decide_despite_a_bias_of_the_judge(folder, command, gain, start):
    write_labels(folder, *biased_runs(folder, gain), rows=range(200))
    sentence, ended = sentence_of(command)
    assert sentence.startswith(start) and "PPI++" in ended.stdout
    data = json.loads(command("compare", "a.jsonl", "b.jsonl", "--json").stdout)
    assert (data["summary"]["test"], data["judge"]["pairs"]) == ("PPI++", 200)


def test_too_few_labels_of_both_runs_are_named(folder, command):
    write_labels(folder, *biased_runs(folder), rows=range(12))
    _, ended = sentence_of(command)
    text = (
        "the labels of 12 cases in both runs are too few to decide. Run `agentv judge label b.jsonl --against a.jsonl`"
    )
    assert text in ended.stdout


@pytest.mark.parametrize("losses", [1, 3, 7])
def test_suggested_labels_decide_even_if_the_judge_saw_few_losses(folder, command, monkeypatch, losses):
    """Each of its wins, ties and losses gets five labels, or as many as it has cases."""
    first, second = (np.arange(120) < count for count in (60 + losses, 90))
    second[:losses] = False
    for name, truth in {"a": first, "b": second}.items():
        write_run(folder, name, truth, truth)
    folder.write("d.jsonl", [{"id": str(row), "expected_outcome": "x", "input": "q"} for row in range(120)])
    monkeypatch.setattr("sys.stdin", io.StringIO("p\n" * 80))
    assert command("judge", "label", "b.jsonl", "d.jsonl", "--against", "a.jsonl", "--count", "80").code == 0
    data = json.loads(command("compare", "a.jsonl", "b.jsonl", "--json").stdout)
    assert data["judge"]["pairs"] == 40, data["judge"]


def test_labels_of_all_cases_without_a_difference_are_no_proof_of_none(folder, command):
    truth = np.arange(60) < 40
    write_labels(folder, *(write_run(folder, name, truth, truth) for name in "ab"), rows=range(60))
    summary = json.loads(command("compare", "a.jsonl", "b.jsonl", "--json").stdout)["summary"]
    assert (summary["test"], summary["mean_delta"]) == ("PPI++", 0.0)
    assert summary["ci95"][0] < 0 < summary["ci95"][1]


def test_several_runs_of_an_uncalibrated_judge_are_scored_higher(folder, command):
    biased_runs(folder)
    ended = command("compare", "a.jsonl", "b.jsonl", "b.jsonl")
    assert ended.stdout.startswith("The judge scores B and C higher than A")


def test_label_proposes_the_answers_of_both_runs_to_the_same_cases(folder, command, monkeypatch):
    runs = biased_runs(folder)
    cases = [{"id": str(row), "expected_outcome": "x", "input": "q"} for row in range(1_000)]
    folder.write("d.jsonl", cases)
    write_labels(folder, *runs, rows=range(100))
    monkeypatch.setattr("sys.stdin", io.StringIO("p\n" * 80))
    assert command("judge", "label", "b.jsonl", "d.jsonl", "--against", "a.jsonl", "--count", "80").code == 0
    labels = [json.loads(line) for line in (folder.path / ".agentv/labels.jsonl").read_text().splitlines()][200:]
    assert len(labels) == 80 and {label["drawn"] for label in labels} == {"suggested"}
    assert sorted(label["eval_id"] for label in labels if label["run_id"] == "a") == sorted(
        label["eval_id"] for label in labels if label["run_id"] == "b"
    )
    assert json.loads(command("compare", "a.jsonl", "b.jsonl", "--json").stdout)["judge"]["pairs"] == 140


GRADE = "Grade: {{ candidate_answer }}"
JUDGE = """
import json

def grade(prompt):
    return json.dumps({"score": float("good" in prompt), "hits": [], "misses": [], "reasoning": "r"})
"""
AGENT = """
import hashlib

def answer(prompt):
    return prompt + (" good" if hashlib.sha256(prompt.encode()).digest()[0] % 2 else " bad")

def later(prompt):
    return answer(prompt) + "!"
"""


@pytest.mark.parametrize(
    ("prompt", "is_calibrated"), [("Grade: {{ candidate_answer }}", True), ("Other: {{ candidate_answer }}", False)]
)
def test_labels_of_an_earlier_run_count_for_the_same_judge(folder, command, prompt, is_calibrated):
    folder.write("judge.py", JUDGE)
    folder.write("agent.py", AGENT)
    functions = {"old": "agent.py:answer", "new": "agent.py:later", "judge": "judge.py:grade"}
    targets = [{"name": name, "provider": "python", "function": place} for name, place in functions.items()]
    folder.write(".agentv/targets.yaml", {"targets": targets})
    folder.write(
        "d.jsonl", [{"id": str(row), "expected_outcome": "x", "input": f"question {row}"} for row in range(60)]
    )
    for run, target, text in (
        ("first", "old", "Grade: {{ candidate_answer }}"),
        ("a", "new", prompt),
        ("b", "new", prompt),
    ):
        folder.write("d.yaml", {"evaluators": [{"name": "quality", "type": "llm_judge", "prompt": text}]})
        assert command("eval", "d.jsonl", "--target", target, "--out", f".agentv/results/{run}").code == 0
    run = RunStore.open(".agentv/results/first")
    labels = [
        {
            "timestamp": "2026-01-02T03:04:05Z",
            "dataset": result.dataset,
            "eval_id": result.eval_id,
            "answer": answer_hash(result.candidate_answer),
            "label": "pass" if "good" in result.candidate_answer else "fail",
            "run_id": "first",
        }
        for result in run.records()
    ]
    folder.write(".agentv/labels.jsonl", labels)
    judge = json.loads(command("compare", ".agentv/results/a", ".agentv/results/b", "--json").stdout)["judge"]
    assert (judge["is_calibrated"], judge["agreement"]["labels"]) == (is_calibrated, 60 if is_calibrated else 0)
