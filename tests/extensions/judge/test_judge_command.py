"""`agentv judge`: durable blind labels, calibration against them, and probes that try to fool a judge."""

import json
import os
import random
import select
import signal
import subprocess
import sys
import time

import msgspec
import pytest
from click.testing import CliRunner

from agentv.cli import cli
from agentv.extensions.judge.calibrate import Answers, JudgedAnswer
from agentv.extensions.judge.calibrate import calibrate as calibrate_answers
from agentv.extensions.judge.label_file import read_labels
from agentv.extensions.judge.labels import AnswerKey, Label, Labels, answer_hash
from agentv.model.result import EvaluatorResult, Result
from agentv.runs.record import encode_record
from waiting import wait_until

QUESTIONS = 12


@pytest.fixture
def judged(folder, command):
    """A run of twelve cases. The judge passes answers that contain `good`; two targets gave the same answers."""
    folder.write(".git/HEAD", "")
    folder.write(
        "targets.yaml",
        {"targets": [{"name": name, "provider": "python", "function": "a.py:answer"} for name in ("left", "right")]},
    )
    folder.write(
        "a.py", "def answer(case):\n    n = int(case.id[1:])\n    return f'good {n}' if n % 3 else f'poor {n}'\n"
    )
    rows = [
        {"id": f"c{n}", "expected_outcome": "is good", "input": f"Question {n}?", "expected_output": f"good {n}"}
        for n in range(QUESTIONS)
    ]
    folder.write("d.yaml", {"evaluators": [{"type": "contains", "name": "j", "value": "good"}], "evalcases": rows})
    ended = command("eval", "d.yaml", "--target", "left", "--target", "right", "--out", "run", "--quiet")
    assert ended.code == 0, ended
    return folder


def label(judged, keys, *arguments, run="run"):
    """Label with the keys in a string, one per line."""
    ended = CliRunner().invoke(cli, ["judge", "label", run, *arguments], input="".join(f"{key}\n" for key in keys))
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def labels(judged, name=".agentv/labels.jsonl"):
    return [(line.eval_id, line.label) for line in read_labels(judged.path / name)]


def test_labelling_does_not_reveal_scores_or_targets(judged):
    shown = label(judged, "q" * 3)
    assert "Input" in shown and "Expected output" in shown and "Expected outcome\n  is good" in shown
    for hidden in ("left", "right", "contains", "1.000", "verdict", " j "):
        assert hidden not in shown.replace("Labels in", "")


def test_identical_answers_are_shown_once(judged):
    shown = label(judged, "p" * 100)
    assert f"1 of {QUESTIONS} " in shown
    assert len({name for name, _ in labels(judged)}) == len(labels(judged)) == QUESTIONS


def test_the_order_is_random_and_the_same_every_time(judged):
    label(judged, "p" * 12, "--labels", "one.jsonl")
    label(judged, "f" * 12, "--labels", "two.jsonl")
    label(judged, "f" * 12, "--labels", "three.jsonl", "--seed", "5")
    one, two, three = ([id for id, _ in labels(judged, f"{n}.jsonl")] for n in ("one", "two", "three"))
    assert one == two != three
    assert one != sorted(one)


def test_a_second_session_continues_where_the_first_stopped(judged):
    label(judged, "pfsq")
    assert [label for _, label in labels(judged)] == ["pass", "fail", "skip"]
    shown = label(judged, "p" * 50)
    assert f"1 of {QUESTIONS - 3} " in shown
    assert len({id for id, _ in labels(judged)}) == QUESTIONS


def test_undo_takes_the_last_label_back_and_shows_the_answer_again(judged):
    shown = label(judged, "pfufq")
    (a, b, back, again) = labels(judged)
    assert (a[1], b[1], back, again) == ("pass", "fail", (b[0], None), (b[0], "fail"))
    assert shown.count(f"2 of {QUESTIONS}   {b[0]}\n") == 2


def test_undo_at_the_start_and_other_keys_do_nothing(judged):
    shown = label(judged, ["u", "x", "", "pass", "quit"])
    assert "Nothing to undo" in shown and "Unknown key 'x'" in shown
    assert [label for _, label in labels(judged)] == ["pass"]


def test_labels_of_several_labellers_are_separate(judged):
    label(judged, "ppq", "--labeller", "ann")
    label(judged, "pfq", "--labeller", "bob")
    found = Labels(read_labels(judged.path / ".agentv/labels.jsonl"))
    assert sorted(map(found.verdict, found.keys)) == ["disputed", "pass"]


def test_an_incomplete_line_is_ignored(judged):
    label(judged, "ppq")
    path = judged.path / ".agentv/labels.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert len(labels(judged)) == 1
    label(judged, "fq")
    assert [label for _, label in labels(judged)] == ["pass", "fail"]


def test_an_invalid_label_is_an_error_with_its_line(judged, command):
    judged.write("bad.jsonl", '{"label": "maybe"}\n')
    ended = command("judge", "calibrate", "run", "--labels", "bad.jsonl")
    assert ended.code == 2
    assert "bad.jsonl, line 1 is not a valid label" in ended.stderr


def test_result_files_without_cases_need_the_datasets(judged, command):
    row = {"eval_id": "c1", "dataset": "d", "target": "gpt", "score": 1, "candidate_answer": "\x1b[2Jgood"}
    judged.write("old.jsonl", [row])
    ended = command("judge", "label", "old.jsonl")
    assert ended.code == 2 and "Pass the run's datasets" in ended.stderr
    shown = label(judged, "p", "d.yaml", run="old.jsonl")
    assert "Question 1?" in shown and "\\x1b[2Jgood" in shown


def test_one_key_is_enough_on_a_terminal(judged):
    """On a terminal, no Enter is needed, Ctrl-D ends the session, and labels are kept."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "agentv", "judge", "label", "run"],
        cwd=judged.path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    try:
        for key, then in ((b"p", "1 of"), (b"f", "2 of"), (b"u", "3 of"), (b"s", "2 of"), (b"\x04", "3 of")):
            read_until(ours, then)
            os.write(ours, key)
        read_until(ours, "calibrate")
        assert process.wait(timeout=200) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert [label for _, label in labels(judged)] == ["pass", "fail", None, "skip"]


def read_until(terminal, text):
    """Read until a card is shown and its prompt waits for a key."""
    seen, deadline = "", time.monotonic() + 60
    while not (text in seen and (seen.rstrip().endswith("quit >") or text == "calibrate")):
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 65536).decode(errors="replace")


def answer_text(id, other_answers=()):
    return f"another answer {id}" if id in other_answers else f"answer {id}"


def write_run(judged, rows, name="many", other_answers=()):
    """Write a result file: dataset d, one answer each, with the verdict and score of a judge."""
    same = {"timestamp": "t", "run_id": "r", "dataset": "d", "dataset_path": "d.yaml", "target": "gpt", "trial": 1}
    records = []
    for id, verdict, score in rows:
        scored = {"score": score, "verdict": verdict}
        found = EvaluatorResult(name="j", type="llm_judge", weight=1.0, reasoning="because", **scored)
        record = Result(
            eval_id=id,
            status="ok",
            candidate_answer=answer_text(id, other_answers),
            evaluator_results=(found,),
            **same,
            **scored,
        )
        records.append(encode_record(record))
    (judged.path / f"{name}.jsonl").write_bytes(b"".join(records))
    return f"{name}.jsonl"


def write_labels(judged, values, drawn="random", run_id="", other_answers=()):
    lines = [
        Label(
            timestamp="t", dataset="d", eval_id=id, answer=answer_hash(answer_text(id, other_answers)), label=word,
            drawn=drawn, run_id=run_id,
        )
        for id, word in values.items()
    ]  # fmt: skip
    path = judged.path / ".agentv" / "labels.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)


def calibrate(command, run, *arguments, code=0):
    ended = command("judge", "calibrate", run, "--json", *arguments)
    assert ended.code == code, ended
    return json.loads(ended.stdout)


def test_a_judge_is_compared_with_the_labels(judged, command):
    rows = [(f"a{n}", "pass" if n < 70 else "fail", 0.9 if n < 70 else 0.2) for n in range(100)]
    run = write_run(judged, rows)
    good = {*range(0, 30), *range(70, 75)}
    write_labels(judged, {f"a{n}": "pass" if n in good else "fail" for n in (*range(40), *range(70, 90))})
    found = calibrate(command, run)
    assert (found["answers"], found["labelled"], found["confusion"]) == (100, 60, [[30, 5], [10, 15]])
    assert found["accuracy"]["value"] == 0.75
    assert found["kappa"]["value"] == pytest.approx(0.4706, abs=1e-4)
    assert found["judge_pass_rate"] == 0.7
    assert found["labels_alone"]["value"] == pytest.approx(35 / 60)
    # The judge passes 70 of 100: 30 of 35 good answers and 10 of 25 bad ones.
    assert found["rogan_gladen"]["value"] == pytest.approx((0.7 - 0.4) / (30 / 35 - 0.4))
    assert found["ppi"]["value"] == pytest.approx(0.6, abs=0.01)
    for name in ("accuracy", "kappa", "labels_alone", "rogan_gladen", "ppi"):
        low, high = found[name]["ci95"]
        assert low < found[name]["value"] < high
    told = command("judge", "calibrate", run, "--evaluator", "j").stdout
    assert "person: pass             30                 5\nperson: fail             10                15" in told
    assert "a30: person fail, judge pass 0.900: because" in told


def test_a_judge_worse_than_chance_is_not_corrected(judged, command):
    run = write_run(judged, [(f"a{n}", "pass" if n < 70 else "fail", float(n < 70)) for n in range(100)])
    write_labels(judged, {f"a{n}": "fail" if n < 70 else "pass" for n in range(42, 82)})
    assert calibrate(command, run)["rogan_gladen"] is None
    told = command("judge", "calibrate", run, "--evaluator", "j").stdout
    assert "  Rogan-Gladen  -\n" in told
    assert "Note: Rogan-Gladen cannot correct this judge: it passes bad answers at least as often as good ones" in told


def test_the_next_twenty_answers_to_label_are_listed_with_reasons(judged, command):
    rows = [(f"a{n}", "pass" if n < 70 else "fail", 1.0 if n < 70 else 0.0) for n in range(100)]
    run = write_run(judged, rows)
    write_labels(judged, {f"a{n}": "pass" if n % 2 else "fail" for n in range(10)})
    write_labels(judged, {f"a{n}": "fail" for n in range(70, 80)})
    chosen = calibrate(command, run)["next"]
    assert len({each["eval_id"] for each in chosen}) == 20
    assert not {each["eval_id"] for each in chosen} & {f"a{n}" for n in (*range(10), *range(70, 80))}
    why = [each["why"] for each in chosen]
    assert why.count("judge's verdict pass: wrong on 5 of 10 labelled, 70 in total") > 15
    assert "judge's verdict fail" in "".join(why) or len(set(why)) == 1
    assert len(calibrate(command, run, "--next", "3")["next"]) == 3


def test_suggested_labels_are_reweighted(judged, command):
    rows = [(f"a{n}", "pass" if n < 90 else "fail", 1.0 if n < 90 else 0.0) for n in range(100)]
    run = write_run(judged, rows)
    write_labels(judged, {f"a{n}": "pass" for n in (*range(8), 89)} | {"a8": "fail"})
    write_labels(judged, {f"a{n}": "pass" if n < 95 else "fail" for n in range(90, 100)}, "suggested")
    found = calibrate(command, run)
    assert (found["labelled"], found["suggested"]) == (20, 10)
    # 9 of 10 of the ninety passes are good, and 5 of the ten fails: not (9 + 5) / 20.
    assert found["ppi"]["value"] == pytest.approx(0.9 * 0.9 + 0.1 * 0.5)
    assert found["accuracy"]["value"] == pytest.approx(0.9 * 0.9 + 0.1 * 0.5)
    assert found["rogan_gladen"] is None and found["labels_alone"] is None
    assert any("randomly drawn" in note for note in found["notes"])


def test_labels_of_suggested_answers_are_marked(judged, command):
    label(judged, "pppq")
    shown = label(judged, "f" * 50, "--suggested", "--count", "4")
    assert "1 of 4 " in shown
    lines = read_labels(judged.path / ".agentv/labels.jsonl")
    assert [line.drawn for line in lines] == ["random"] * 3 + ["suggested"] * 4
    assert calibrate(command, "run")["suggested"] == 4


def test_labels_apply_to_the_same_answers_in_another_run(judged, command):
    label(judged, "p" * 12)
    assert command("rescore", "run", "-e", "{type: contains, name: k, value: poor}", "--out", "again", "-q").code == 0
    before, after = calibrate(command, "run"), calibrate(command, "again", "--evaluator", "k")
    assert (before["labelled"], after["labelled"]) == (12, 12)
    assert before["confusion"] == [[8, 4], [0, 0]] and after["confusion"] == [[4, 8], [0, 0]]


def test_labels_of_another_run_with_other_answers_are_no_random_sample(judged, command):
    """The new run answers every case worse that ends in 5 or 6; the labels of the old run only fit the others."""
    rows = [(f"a{n}", "pass" if n % 10 < 5 else "fail", float(n % 10 < 5)) for n in range(400)]
    run = write_run(judged, rows, other_answers={f"a{n}" for n in range(400) if n % 10 in (5, 6)})
    write_labels(judged, {f"a{n}": "pass" if n % 10 < 7 else "fail" for n in range(100)}, run_id="before")
    found = calibrate(command, run, "--min-kappa", "0.5", code=1)
    assert (found["labelled"], found["elsewhere"], found["unmatched"]) == (80, 80, 20)
    assert [found[name] for name in ("accuracy", "kappa", "labels_alone", "rogan_gladen", "ppi")] == [None] * 5
    told = command("judge", "calibrate", run).stdout
    assert told.startswith("Warning: 80 labels from another run, whose answers differ from those of this run")


def test_new_labels_of_a_run_stand_for_the_answers_without_older_labels(judged, command):
    rows = [(f"a{n}", "pass" if n % 10 < 5 else "fail", float(n % 10 < 5)) for n in range(400)]
    others = {f"a{n}" for n in range(400) if n % 10 in (5, 6)}
    run = write_run(judged, rows, other_answers=others)
    write_labels(judged, {f"a{n}": "pass" if n % 10 < 7 else "fail" for n in range(100)}, run_id="before")
    fresh = {f"a{n}": "pass" if n % 10 < 5 else "fail" for n in range(100, 200)}
    write_labels(judged, fresh, run_id="r", other_answers=others)
    found = calibrate(command, run)
    assert (found["labelled"], found["elsewhere"]) == (180, 80)
    low, high = found["ppi"]["ci95"]
    assert low < 0.5 < high < 0.6


def test_estimates_cover_the_truth_when_answers_changed_after_labelling():
    """100 of 300 answers of a run are labelled; a third of its good answers become bad; 60 more labels are drawn."""
    chance, held, rounds = random.Random(5), 0, 120
    for _ in range(rounds):
        before = {n: chance.random() < 0.8 for n in range(300)}
        after = {n: good and chance.random() < 2 / 3 for n, good in before.items()}
        changed = {n for n in before if before[n] != after[n]}
        keys = {n: AnswerKey("d", f"a{n}", f"{n}{n in changed}") for n in before}
        drawn = chance.sample(range(300), 100)
        old = [(AnswerKey("d", f"a{n}", f"{n}False"), before[n], "before") for n in drawn]
        rest = [n for n in before if n in changed or n not in drawn]
        new = [(keys[n], after[n], "r") for n in chance.sample(rest, 60)]
        given = [
            Label(timestamp="t", **key._asdict(), label="pass" if good else "fail", run_id=run)
            for key, good, run in (*old, *new)
        ]
        judged = [(keys[n], good if chance.random() < 0.9 else not good) for n, good in after.items()]
        answers = [JudgedAnswer(key, "pass" if good else "fail", float(good), "", ("r",)) for key, good in judged]
        low, high = calibrate_answers(Answers(judged=answers), Labels(given), "j").ppi.ci95
        held += low <= 0.8 * 2 / 3 <= high
    # Of 120, 95 % are 114 give or take 2.4; the bound is four of those away.
    assert held >= 104


def test_labels_of_another_run_with_the_same_answers_are_used(judged, command):
    run = write_run(judged, [(f"a{n}", "pass" if n % 10 < 7 else "fail", float(n % 10 < 7)) for n in range(400)])
    write_labels(judged, {f"a{n}": "pass" if n % 10 < 7 else "fail" for n in range(100)}, run_id="before")
    found = calibrate(command, run)
    assert (found["elsewhere"], found["warnings"]) == (0, [])
    assert found["ppi"]["value"] == pytest.approx(0.7)


def test_labels_of_a_smaller_run_of_the_project_do_not_cover_the_new_cases(judged, command):
    assert command("eval", "d.yaml", "--limit", "8", "--target", "left", "--quiet").code == 0
    (small,) = (judged.path / ".agentv/results").glob("*-*")
    label(judged, "p" * 8, run=small.name)
    assert calibrate(command, small.name)["ppi"] is not None
    found = calibrate(command, "run")
    assert (found["labelled"], found["elsewhere"], found["ppi"]) == (8, 8, None)


def test_labels_that_favour_one_verdict_are_reported_and_reweighted(judged, command):
    run = write_run(judged, [(f"a{n}", "pass" if n < 280 else "fail", float(n < 280)) for n in range(400)])
    good = {n: "pass" if n % 20 else "fail" for n in range(95)} | dict.fromkeys(range(280, 285), "fail")
    write_labels(judged, {f"a{n}": word for n, word in good.items()}, run_id="r")
    found = calibrate(command, run)
    assert "the judge passed 95% of them, but 70% of all answers" in found["warnings"][0]
    assert found["labels_alone"] is found["rogan_gladen"] is None
    assert found["ppi"]["value"] == pytest.approx(0.7 * 0.947, abs=0.01)


def test_few_labels_give_no_interval_of_kappa(judged, command):
    run = write_run(judged, [(f"a{n}", "pass" if n < 50 else "fail", float(n < 50)) for n in range(100)])
    write_labels(judged, {f"a{n}": "pass" if n < 50 else "fail" for n in range(40, 60)})
    found = calibrate(command, run)
    assert (found["kappa"]["value"], found["kappa"]["ci95"], found["rogan_gladen"]) == (1, None, None)
    assert found["accuracy"]["ci95"][1] == 1
    assert "too few labels for an interval, n = 20" in command("judge", "calibrate", run).stdout


def test_excluded_labels_are_counted(judged, command):
    run = write_run(judged, [("a", "pass", 1.0), ("b", "fail", 0.0), ("c", "pass", 1.0), ("e", "borderline", 0.7)])
    write_labels(judged, {"a": "pass", "b": "skip", "gone": "fail"})
    ann = [Label(timestamp="t", dataset="d", eval_id="c", answer=answer_hash("answer c"), label="fail", labeller="ann")]
    write_labels(judged, {"c": "pass"})
    with (judged.path / ".agentv/labels.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(ann[0]) + b"\n")
    found = calibrate(command, run)
    assert [found[name] for name in ("answers", "labelled", "skipped", "disputed", "unmatched")] == [4, 1, 1, 1, 1]


def test_the_gate_uses_the_lower_bound_of_kappa(judged, command):
    rows = [(f"a{n}", "pass" if n < 50 else "fail", float(n < 50)) for n in range(100)]
    run = write_run(judged, rows)
    write_labels(judged, {f"a{n}": "pass" if n < 50 else "fail" for n in range(100)})
    assert calibrate(command, run, "--min-kappa", "0.8")["labelled"] == 100
    assert calibrate(command, run, "--min-kappa", "0.999", code=1)["labelled"] == 100


def test_a_run_without_labels_or_judge_says_what_to_do(judged, command):
    ended = command("judge", "calibrate", "run")
    assert ended.code == 0 and "Start with: agentv judge label run" in ended.stderr
    ended = command("judge", "calibrate", "run", "--evaluator", "k")
    assert ended.code == 2 and "Its evaluators: j" in ended.stderr


def test_labelling_continues_in_another_label_file(judged, command):
    shown = label(judged, "pq", "--labels", "my labels.jsonl")
    assert shown.endswith("Next: agentv judge calibrate run --labels 'my labels.jsonl'\n")
    ended = command("judge", "calibrate", "run", "--labels", "nope.jsonl")
    assert ended.code == 2
    assert "Labels file not found: nope.jsonl" in ended.stderr
    assert "agentv judge label run --labels nope.jsonl" in ended.stderr


def test_a_gate_without_labels_is_reported(judged, command):
    ended = command("judge", "calibrate", "run", "--min-kappa", "0.6")
    assert ended.code == 1
    assert "Gate: not enough labels (0) to estimate kappa; required: 0.6" in ended.stderr


def test_labels_of_answers_without_a_verdict_count_as_unjudged(judged, command):
    row = {"eval_id": "c0", "dataset": "d", "target": "gpt", "score": 1, "candidate_answer": "fine"}
    judged.write("some.jsonl", [row, {**row, "eval_id": "c1", "evaluator_results": [{"name": "k", "score": 1}]}])
    label(judged, "pp", "d.yaml", run="some.jsonl")
    write_labels(judged, {"gone": "fail"})
    ended = command("judge", "calibrate", "some.jsonl", "--evaluator", "k")
    assert (
        "Labels      1 of 1 answer\n            1 label not used: answer of this run, but not selected\n"
        in ended.stdout
    )
    assert "            1 label not used: answer not in this run\n" in ended.stdout


def test_a_label_is_withdrawn_only_by_its_labeller():
    key = AnswerKey("d", "a", "x")
    given = [("ann", "pass"), ("bob", "fail"), ("bob", None)]
    found = Labels(
        [Label(timestamp="t", dataset="d", eval_id="a", answer="x", label=word, labeller=name) for name, word in given]
    )
    assert found.verdict(key) == "pass"


JUDGES = """
def trusting(context):
    answer = context.candidate_answer
    return 1.0 if "highest score" in answer or answer == context.reference_answer else 0.0

def by_length(context):
    return min(1.0, len(context.candidate_answer) / 500)

def broken(context):
    raise ValueError("no")
"""


@pytest.fixture
def probing(folder, command):
    folder.write("judges.py", JUDGES)
    rows = [
        {"id": f"c{n}", "expected_outcome": "x", "input": f"Question {n}?", "expected_output": f"The answer is {n}."}
        for n in range(3)
    ]
    folder.write("d.yaml", {"evaluators": [{"type": "equals"}], "evalcases": rows})

    def run(*arguments, judge=None):
        chosen = ("-e", f"{{type: python, name: {judge}, function: 'judges.py:{judge}'}}") if judge else ()
        return command("judge", "probe", "d.yaml", *chosen, *arguments)

    run.folder = folder
    return run


def test_a_sound_evaluator_passes_no_probe(probing):
    ended = probing("--json")
    assert ended.code == 0, ended
    found = json.loads(ended.stdout)
    assert (found["judged"], found["misjudged"]) == (24, 0)
    assert {kind: counts["judged"] for kind, counts in found["kinds"].items()} == dict.fromkeys(found["kinds"], 3)
    assert len(found["kinds"]) == 8


FOOLED = {
    "trusting": {"injected-instruction": 3},
    "by_length": {"verbose-wrong": 3, "oracle": 3},
}


@pytest.mark.parametrize("judge", FOOLED)
def test_a_fooled_judge_is_reported_with_the_probe(probing, judge):
    ended = probing("--json", judge=judge)
    assert ended.code == 1
    kinds = {kind: counts["misjudged"] for kind, counts in json.loads(ended.stdout)["kinds"].items()}
    for kind, count in FOOLED[judge].items():
        assert kinds[kind] == count
    ended = probing(judge=judge)
    assert f"Evaluator {judge} misjudged: " in ended.stdout
    assert "c0: " in ended.stdout and "probes misjudged" in ended.stderr


def test_max_fooled_allows_misjudged_probes(probing):
    assert probing("--max-fooled", "3", judge="trusting").code == 0
    assert probing("--max-fooled", "5%", judge="trusting").code == 1
    assert probing("--max-fooled", "few", judge="trusting").code == 2


def test_errors_of_a_judge_fail_the_command(probing):
    ended = probing(judge="broken")
    assert ended.code == 3
    assert "no probe was scored" in ended.stderr


def test_only_the_selected_kinds_are_tried(probing):
    found = json.loads(probing("--probe", "nop", "--probe", "oracle", "--json").stdout)
    assert sorted(found["kinds"]) == ["nop", "oracle"]
    ended = probing("--probe", "orcale")
    assert ended.code == 2 and "Did you mean 'oracle'?" in ended.stderr


def test_cases_without_a_reference_have_no_oracle_and_limits_are_left_out(probing):
    case = {"id": "c", "expected_outcome": "x", "input": "q", "evaluators": [{"type": "regex", "value": "zzz"}]}
    case["evaluators"].append({"type": "latency", "threshold": 1})
    probing.folder.write("d.yaml", {"evalcases": [case]})
    found = json.loads(probing("--json").stdout)
    assert "oracle" not in found["kinds"]
    assert (found["judged"], found["errors"], list(found["evaluators"])) == (7, 0, ["regex"])


@pytest.mark.parametrize(
    ("reference", "kept"),
    [
        ("blue", ["equals"]),
        ([{"role": "assistant", "content": "blue", "tool_calls": [{"tool": "search"}]}], ["calls", "equals"]),
    ],
)
def test_tool_calls_are_probed_only_if_the_reference_has_some(probing, reference, kept):
    checks = [{"type": "tool-trajectory", "name": "calls", "minimums": {"search": 1}, "mode": "any_order"}]
    case = {"id": "c", "expected_outcome": "x", "input": "q", "expected_output": reference}
    probing.folder.write("d.yaml", {"evalcases": [{**case, "evaluators": [*checks, {"type": "equals"}]}]})
    ended = probing("--json")
    assert ended.code == 0, ended.stdout
    assert sorted(json.loads(ended.stdout)["evaluators"]) == kept


@pytest.mark.parametrize("judge", ["nope", "nop"])
def test_a_kind_of_probe_cannot_be_the_judge(probing, judge):
    probing.folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    ended = probing("-e", "llm_judge", "--judge", judge)
    assert ended.code == 2 and f"Unknown judge '{judge}'" in ended.stderr, ended
    assert "Known targets: default" in ended.stderr and "Did you mean" not in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_interrupted_probe_fails_the_command(probing):
    slow = "import threading\n\ndef judge(context):\n    open('started', 'w').close()\n    threading.Event().wait()\n"
    probing.folder.write("slow.py", slow)
    entry = "{type: python, function: 'slow.py:judge'}"
    command = [sys.executable, "-m", "agentv", "judge", "probe", "d.yaml", "-e", entry, "--out", "out"]
    with subprocess.Popen(command, cwd=probing.folder.path, stderr=subprocess.PIPE, text=True) as process:
        wait_until((probing.folder.path / "started").exists, process)
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=200)[1]
    assert process.returncode == 130 and "Interrupted. Finished probes are saved in out." in stderr


def test_the_run_of_the_probes_can_be_kept(probing):
    assert probing("--out", "kept").code == 0
    lines = (probing.folder.path / "kept" / "results.jsonl").read_text().splitlines()
    assert len(lines) == 24
    assert not (probing.folder.path / ".agentv").exists()


def test_the_reference_keeps_its_tool_calls(probing):
    expected = [{"role": "assistant", "content": "Done.", "tool_calls": [{"tool": "search", "input": {}}]}]
    trajectory = {"type": "tool_trajectory", "mode": "any_order", "minimums": {"search": 1}}
    case = {"id": "c", "expected_outcome": "x", "input": "q", "expected_output": expected, "evaluators": [trajectory]}
    probing.folder.write("d.yaml", {"evalcases": [case]})
    found = json.loads(probing("--json").stdout)
    assert found["kinds"]["oracle"] == {"judged": 1, "misjudged": 0, "errors": 0, "unscored": 0}


def test_labels_of_a_large_run_are_drawn_evenly(judged, command):
    """In a run of 400 where a third fails, about a third of the first answers shown fail too."""
    chance = random.Random(2)
    rows = [(f"a{n}", "fail" if chance.random() < 1 / 3 else "pass", 0.5) for n in range(400)]
    run = write_run(judged, rows)
    label(judged, "p" * 150, "d.yaml", "--count", "150", run=run)
    found = calibrate(command, run)
    assert found["labelled"] == 150
    assert 30 <= found["confusion"][0][1] <= 70
