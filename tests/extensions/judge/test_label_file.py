"""The label file: several labellers and programs, notes, scores, answers picked by hand, and files of others."""

import fcntl
import io
import json
import stat
import subprocess
import sys
from threading import Thread

import msgspec
import pytest

from agentv.errors import AgentvError
from agentv.extensions.judge.calibrate import Answers, JudgedAnswer, calibrate
from agentv.extensions.judge.label_file import LabelFile, read_labels
from agentv.extensions.judge.labels import AnswerKey, Label, Labels, answer_hash, draw_order

CASES = [f"c{n}" for n in range(8)]


def key_of(case):
    return AnswerKey("d", case, answer_hash(f"answer {case}"))


def label_of(case, value, **further):
    return Label(timestamp="t", **key_of(case)._asdict(), label=value, **further)


@pytest.fixture
def answered(folder):
    """A result file with eight answers, of which the judge passes the first four."""
    rows = [{"eval_id": case, "dataset": "d", "target": "gpt", "score": 1 - n // 4} for n, case in enumerate(CASES)]
    folder.write("run.jsonl", [{**row, "candidate_answer": f"answer {row['eval_id']}"} for row in rows])
    folder.write("d.yaml", {"evalcases": [{"id": case, "input": "?", "expected_outcome": "x"} for case in CASES]})
    return folder


@pytest.fixture
def labelled(answered, command, monkeypatch):
    """Labels the answers of that file in a terminal session with these keys."""

    def run(keys, *arguments):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{key}\n" for key in keys)))
        return command("judge", "label", "run.jsonl", "d.yaml", "--labels", "labels.jsonl", *arguments)

    return run


@pytest.fixture
def calibrated(answered, command):
    """Calibrates the judge of that file with labels: by case, and by labeller if there are several."""

    def run(*labels, arguments=(), code=0):
        (answered.path / "labels.jsonl").unlink(missing_ok=True)
        LabelFile("labels.jsonl").add(*labels)
        ended = command("judge", "calibrate", "run.jsonl", "--labels", "labels.jsonl", *arguments)
        assert ended.code == code, ended
        return ended

    return run


@pytest.mark.parametrize("text", ["a note", '{"theme": "dark"}', '{"schema": 1', "\x00\x01", '{"label": "pass"}'])
def test_a_file_that_is_not_a_label_file_is_left_alone(folder, text):
    folder.write("mine", text)
    with pytest.raises(AgentvError, match="not a valid label"):
        LabelFile("mine").add(label_of("c1", "pass"))
    assert (folder.path / "mine").read_text() == text


def test_content_that_appears_later_is_kept_too(folder):
    file = LabelFile("labels.jsonl")
    folder.write("labels.jsonl", '{"theme": "dark"}')
    with pytest.raises(AgentvError, match="the last line is not a valid label"):
        file.add(label_of("c1", "pass"))
    assert (folder.path / "labels.jsonl").read_text() == '{"theme": "dark"}'


def test_a_link_is_refused_before_anyone_labels(folder):
    (folder.path / "link.jsonl").symlink_to("real.jsonl")
    with pytest.raises(AgentvError, match=r"Cannot write link\.jsonl"):
        LabelFile("link.jsonl")


def test_a_last_label_without_a_newline_counts(folder):
    (folder.path / "labels.jsonl").write_bytes(msgspec.json.encode(label_of("c1", "pass")))
    file = LabelFile("labels.jsonl")
    assert file.labels.verdict(key_of("c1")) == "pass"
    file.add(label_of("c2", "fail"))
    assert [line.label for line in read_labels("labels.jsonl")] == ["pass", "fail"]


def test_unknown_keys_of_a_label_are_ignored(folder):
    folder.write("labels.jsonl", [{**msgspec.to_builtins(label_of("c1", "pass")), "reviewed_by": "eve"}])
    assert [line.label for line in read_labels("labels.jsonl")] == ["pass"]


def test_programs_that_write_at_the_same_time_lose_no_label(folder):
    program = """
import sys
from agentv.extensions.judge.label_file import LabelFile
from agentv.extensions.judge.labels import Label
for n in range(15):
    LabelFile("labels.jsonl").add(Label(timestamp="t", dataset="d", eval_id=str(n), answer="a", label="pass",
                                  labeller=sys.argv[1], comment="x" * 5000))
"""
    writers = [subprocess.Popen([sys.executable, "-c", program, name], cwd=folder.path) for name in ("ann", "bob")]
    assert [writer.wait(200) for writer in writers] == [0, 0]
    assert Labels(read_labels(folder.path / "labels.jsonl")).labellers() == {"ann": 15, "bob": 15}
    assert stat.S_IMODE((folder.path / "labels.jsonl").stat().st_mode) == 0o600


def test_a_label_waits_until_another_program_has_written_its_line(folder):
    file = LabelFile("labels.jsonl")
    line = msgspec.json.encode(label_of("c1", "pass")) + b"\n"
    with (folder.path / "labels.jsonl").open("ab", buffering=0) as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        theirs.write(line[:30])
        mine = Thread(target=file.add, args=(label_of("c2", "fail"),))
        mine.start()
        mine.join(0.2)
        assert mine.is_alive()
        theirs.write(line[30:])
    mine.join()
    assert [label.eval_id for label in read_labels("labels.jsonl")] == ["c1", "c2"]


def test_an_open_label_file_shows_the_labels_of_other_programs(folder):
    mine, theirs = LabelFile("labels.jsonl"), LabelFile("labels.jsonl")
    theirs.add(label_of("c1", "fail", labeller="bob", comment="too short"))
    assert mine.labels.of(key_of("c1"), "bob").comment == "too short"
    theirs.add(label_of("c1", None, labeller="bob"))
    assert mine.labels.of(key_of("c1"), "bob") is None


def test_a_note_is_no_label_and_stays_when_the_answer_is_labelled(labelled):
    LabelFile("labels.jsonl").add(label_of("c1", None, comment="look again"))
    ended = labelled("p" * 8)
    assert ended.code == 0 and "8 pass" in ended.stdout, ended
    found = LabelFile("labels.jsonl").labels
    assert found.of(key_of("c1"), "").comment == found.comment(key_of("c1"), "") == "look again"


@pytest.mark.parametrize("score", [-0.1, 1.1, True, "1"])
def test_a_score_outside_0_to_1_is_not_a_label(folder, score):
    folder.write("labels.jsonl", [{**msgspec.to_builtins(label_of("c1", "pass")), "score": score}])
    with pytest.raises(AgentvError, match="line 1 is not a valid label"):
        read_labels("labels.jsonl")


def test_the_agreement_of_two_labellers_is_printed_and_equals_a_hand_count(calibrated):
    """Ann passes c0 to c5; Bob passes c0 to c2 and c6, and skips c7. They differ on c3, c4, c5 and c6."""
    ann = [label_of(case, "pass" if n < 6 else "fail", labeller="ann") for n, case in enumerate(CASES)]
    bob = [label_of(case, "pass" if case in ("c0", "c1", "c2", "c6") else "fail", labeller="bob") for case in CASES[:7]]
    told = calibrated(*ann, *bob, label_of("c7", "skip", labeller="bob")).stdout
    assert "Labellers   ann 8, bob 7\n            ann and bob agree on 3 of 7 answers, kappa -0.273 (too few" in told
    found = json.loads(calibrated(*ann, *bob, arguments=["--json"]).stdout)
    [pair] = found["agreement"]
    assert (pair["labellers"], pair["n"], pair["agreed"]) == (["ann", "bob"], 7, 3)
    assert pair["confusion"] == [[3, 3], [1, 0]]
    # By chance, both pass 6/7 · 4/7 and both fail 1/7 · 3/7 of the answers: 27 of 49.
    assert pair["kappa"]["value"] == pytest.approx((3 / 7 - 27 / 49) / (1 - 27 / 49))
    assert pair["agreement"]["value"] == pytest.approx(3 / 7)


def test_calibration_can_use_the_labels_of_one_person(calibrated):
    ann = [label_of(case, "pass", labeller="ann") for case in CASES]
    bob = [label_of(case, "pass" if n < 4 else "fail", labeller="bob") for n, case in enumerate(CASES)]
    both, one = (
        json.loads(calibrated(*ann, *bob, arguments=["--json", *extra]).stdout) for extra in ([], ["--labeller", "bob"])
    )
    assert (both["labelled"], both["disputed"], both["labellers"]) == (4, 4, {"ann": 8, "bob": 8})
    assert (one["labelled"], one["disputed"], one["confusion"]) == (8, 0, [[4, 0], [0, 4]])
    ended = calibrated(*ann, *bob, arguments=["--labeller", "eve"], code=2)
    assert "labels.jsonl has no labels of 'eve'" in ended.stderr and "Labellers in this file: ann, bob" in ended.stderr


def test_answers_that_the_labeller_picked_are_not_used_but_counted(calibrated):
    labels = [label_of(case, "fail", drawn="chosen") for case in CASES[4:]] + [label_of("c0", "pass")]
    told = calibrated(*labels).stdout
    assert "Labels      1 of 8 answers\n            4 labels not used: answer picked by the labeller" in told


def test_a_picked_answer_joins_the_sample_when_a_later_one_is_drawn(labelled):
    first, *_, last = sorted(CASES, key=lambda case: draw_order(key_of(case), 0))
    LabelFile("labels.jsonl").add(*(label_of(case, "fail", drawn="chosen") for case in (first, last)))
    assert labelled("pq").code == 0
    found = LabelFile("labels.jsonl").labels
    drawn = {label.eval_id: (label.label, label.drawn) for label in found.all_by("")}
    assert (drawn.pop(first), drawn.pop(last)) == (("fail", "random"), ("fail", "chosen"))
    assert list(drawn.values()) == [("pass", "random")]


def test_picking_the_failures_does_not_bias_the_estimate():
    """Someone labels every failure, then 30 answers in random order: the estimate covers the true rate of 0.5."""
    keys = [AnswerKey("d", f"a{n}", "") for n in range(200)]
    answers = Answers(
        judged=[JudgedAnswer(key, "pass" if n % 2 else "fail", float(n % 2)) for n, key in enumerate(keys)]
    )
    order = sorted(keys, key=lambda key: draw_order(key, 0))
    failed = {each.key for each in answers.judged if each.verdict == "fail"}
    given = {
        key: "random" if place < 60 else "chosen" for place, key in enumerate(order) if place < 60 or key in failed
    }
    labels = Labels(
        Label(timestamp="t", **key._asdict(), label="fail" if key in failed else "pass", drawn=drawn)
        for key, drawn in given.items()
    )
    found = calibrate(answers, labels, "j")
    assert found.labelled == 60 and found.chosen == sum(drawn == "chosen" for drawn in given.values()) > 50
    low, high = found.labels_alone.ci95
    assert low < 0.5 < high and found.warnings == ()


@pytest.mark.parametrize("name", ["x" * 101, "two\nlines", "\x1b[31mred"])
def test_an_unsuitable_name_of_a_labeller_is_refused(labelled, name):
    ended = labelled("p", "--labeller", name)
    assert ended.code == 2 and "The labeller's name" in ended.stderr
