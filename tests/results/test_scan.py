"""One pass over the records of a run tells which jobs are done."""

import time

import msgspec
import pytest

from agentv import AgentvError
from agentv.model.result import EvaluatorResult, ExecutionMetrics
from agentv.runs.record import encode_record
from agentv.runs.scan import DoneJobs, JobKey, _Keys, scan
from made_results import made


def written(tmp_path, *changes, tail=b""):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"".join(encode_record(made(**c)) for c in changes) + tail)
    return path


def test_a_job_is_known_by_all_parts_of_its_key(tmp_path):
    path = written(
        tmp_path,
        {},
        {"dataset_path": "e.jsonl", "status": "error", "score": None, "verdict": None},
        {"eval_id": "b", "status": "unscored", "score": None, "verdict": None},
        {"target": "u"},
        {"prompt": "p"},
        {"trial": 2},
    )
    done = scan(path)
    assert len(done) == 6
    assert done.counts == {"ok": 4, "unscored": 1, "error": 1}
    assert done.repeats == 0
    for key in [
        ("d.jsonl", "a", "t", None, 1),
        ("d.jsonl", "b", "t", None, 1),
        ("d.jsonl", "a", "u", None, 1),
        ("d.jsonl", "a", "t", "p", 1),
        ("d.jsonl", "a", "t", None, 2),
    ]:
        assert key in done
        assert JobKey(*key) in done
        assert not done.failed(key)
    assert ("e.jsonl", "a", "t", None, 1) in done
    assert done.failed(("e.jsonl", "a", "t", None, 1))
    assert ("e.jsonl", "b", "t", None, 1) not in done
    assert ("d.jsonl", "a", "t", "q", 1) not in done


def test_a_job_with_two_records_is_reported(tmp_path):
    path = written(
        tmp_path, {}, {"eval_id": "b"}, {"status": "error", "score": None, "verdict": None}, {"eval_id": "b"}
    )
    done = scan(path)
    assert (done.repeats, len(done)) == (2, 2)
    assert done.repeated == [JobKey("d.jsonl", "a", "t", None, 1), JobKey("d.jsonl", "b", "t", None, 1)]


@pytest.mark.parametrize("tail", [b"", b"{", encode_record(made(eval_id="z"))[:-1]])
def test_a_last_line_without_its_newline_is_not_done(tmp_path, tail):
    done = scan(written(tmp_path, {}, tail=tail))
    assert len(done) == 1
    assert ("d.jsonl", "z", "t", None, 1) not in done


def test_no_file_and_an_empty_one_mean_that_nothing_is_done(tmp_path):
    assert len(scan(tmp_path / "gone.jsonl")) == 0
    assert len(scan(written(tmp_path))) == 0


def test_a_line_that_is_no_record_is_an_error_with_its_number(tmp_path):
    path = written(tmp_path, {}, {"eval_id": "b"}, tail=b"\n{}\n")
    with pytest.raises(AgentvError, match=r"Not a result record at line 4 in .*results.jsonl"):
        scan(path)


def test_blank_lines_are_passed_over(tmp_path):
    path = written(tmp_path, {}, tail=b"\n  \n" + encode_record(made(eval_id="b")))
    assert len(scan(path)) == 2


def test_jobs_can_be_added_as_they_end():
    done = DoneJobs()
    for number in range(5000):
        done.add(made(eval_id=str(number)))
    assert len(done) == 5000
    assert all(("d.jsonl", str(number), "t", None, 1) in done for number in range(5000))
    assert not any(("d.jsonl", str(number), "t", None, 1) in done for number in range(5000, 10_000))


def test_many_records_are_scanned_hardly_slower_than_they_can_be_decoded(tmp_path, capsys):
    judged = EvaluatorResult(name="c", type="contains", score=1.0, weight=1.0, verdict="pass", hits=("contains x",))
    usual = {
        "candidate_answer": "x" * 100,
        "evaluator_results": (judged,),
        "execution_metrics": ExecutionMetrics(duration_ms=1.2),
    }
    path = tmp_path / "results.jsonl"
    with path.open("wb") as file:
        for number in range(200_000):
            file.write(encode_record(made(eval_id=f"case-{number}", **usual)))
    decode = msgspec.json.Decoder(_Keys).decode

    start = time.process_time()
    with path.open("rb") as file:
        for line in file:
            decode(line)
    bare = time.process_time() - start
    start = time.process_time()
    done = scan(path)
    ours = time.process_time() - start
    with capsys.disabled():
        print(f"\n200,000 records: bare {bare:.2f} s, scan {ours:.2f} s, ratio {ours / bare:.2f}")
    assert (len(done), done.repeats) == (200_000, 0)
    # The table has room for a half more than there are, and 8 bytes a place.
    assert len(done._done._slots) * 8 <= 24 * 200_000
