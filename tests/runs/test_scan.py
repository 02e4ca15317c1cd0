"""Find the done jobs of a run in one pass over its records."""

import time

import msgspec
import pytest

from agentv import AgentvError
from agentv.model.result import EvaluatorResult, ExecutionMetrics, JobKey
from agentv.runs.job_index import DoneJobs
from agentv.runs.record import RecordKey, encode_record
from agentv.runs.store import RunStore
from made_results import made


def written(tmp_path, *changes, tail=b""):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"".join(encode_record(made(**c)) for c in changes) + tail)
    return path


def test_a_job_is_identified_by_all_parts_of_its_key(tmp_path):
    path = written(
        tmp_path,
        {},
        {"dataset_path": "e.jsonl", "status": "error", "score": None, "verdict": None},
        {"eval_id": "b", "status": "unscored", "score": None, "verdict": None},
        {"target": "u"},
        {"prompt": "p"},
        {"trial": 2},
    )
    done = DoneJobs.read(path)
    assert len(done) == 6
    for key in [
        ("d.jsonl", "a", "t", None, 1),
        ("e.jsonl", "a", "t", None, 1),
        ("d.jsonl", "b", "t", None, 1),
        ("d.jsonl", "a", "u", None, 1),
        ("d.jsonl", "a", "t", "p", 1),
        ("d.jsonl", "a", "t", None, 2),
    ]:
        assert key in done
        assert JobKey(*key) in done
    assert ("e.jsonl", "b", "t", None, 1) not in done
    assert ("d.jsonl", "a", "t", "q", 1) not in done


def test_the_index_finds_the_last_record_of_each_job(tmp_path):
    path = written(tmp_path, {}, {"eval_id": "b"}, {"score": 0.0}, tail=b"\n{")
    assert len(DoneJobs.read(path)) == 2
    assert list(RunStore.open(path).index) == [
        JobKey("d.jsonl", "a", "t", None, 1),
        JobKey("d.jsonl", "b", "t", None, 1),
    ]
    with RunStore.open(path) as run:
        assert run.get(JobKey("d.jsonl", "a", "t", None, 1)).score == 0.0
        assert run.get(JobKey("d.jsonl", "a", "t", None, 9)) is None


@pytest.mark.parametrize("tail", [b"", b"{", encode_record(made(eval_id="z"))[:-1]])
def test_a_last_line_without_a_newline_is_not_counted(tmp_path, tail):
    done = DoneJobs.read(written(tmp_path, {}, tail=tail))
    assert len(done) == 1
    assert ("d.jsonl", "z", "t", None, 1) not in done


def test_a_missing_or_empty_file_has_no_done_jobs(tmp_path):
    assert len(DoneJobs.read(tmp_path / "gone.jsonl")) == 0
    assert len(DoneJobs.read(written(tmp_path))) == 0


def test_an_invalid_line_is_an_error_with_its_number(tmp_path):
    path = written(tmp_path, {}, {"eval_id": "b"}, tail=b"\n{}\n")
    with pytest.raises(AgentvError, match=r"Invalid record at line 4 in .*results.jsonl"):
        DoneJobs.read(path)


def test_blank_lines_are_skipped(tmp_path):
    path = written(tmp_path, {}, tail=b"\n  \n" + encode_record(made(eval_id="b")))
    assert len(DoneJobs.read(path)) == 2


def test_scanning_many_records_is_about_as_fast_as_decoding_them(tmp_path):
    judged = EvaluatorResult(name="c", type="contains", score=1.0, weight=1.0, verdict="pass", hits=("contains x",))
    usual = {
        "candidate_answer": "x" * 100,
        "evaluator_results": (judged,),
        "execution_metrics": ExecutionMetrics(duration_ms=1.2),
    }
    path = tmp_path / "results.jsonl"
    with path.open("wb") as file:
        for number in range(20_000):
            file.write(encode_record(made(eval_id=f"case-{number}", **usual)))
    decode = msgspec.json.Decoder(RecordKey).decode

    def decode_all():
        with path.open("rb") as file:
            for line in file:
                decode(line)

    def cpu_s(call):
        start = time.process_time()
        call()
        return time.process_time() - start

    ours, floor = (min(cpu_s(call) for _ in range(5)) for call in (lambda: DoneJobs.read(path), decode_all))
    assert ours < 5 * floor
    done = DoneJobs.read(path)
    assert len(done) == 20_000
    # At most 24 bytes per job.
    assert len(done._done._slots) * 8 <= 24 * 20_000
