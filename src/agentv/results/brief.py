"""Records in brief: scores, costs and names of a run without its texts, which takes a third of the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from agentv.model.result import SCHEMA_VERSION, Result, Share, Status, Verdict
from agentv.results.reading import YAML, decoded_lines, read_run, records_file, refused, run_id_of
from agentv.results.record import RecordError, decode_record


class BriefEvaluator(msgspec.Struct, gc=False):
    """What one evaluator found."""

    name: str
    score: Share | None = None


class BriefMetrics(msgspec.Struct, gc=False):
    """What a job used."""

    cost_usd: float | None = None
    duration_ms: float | None = None


class BriefError(msgspec.Struct, gc=False, rename={"error_class": "class"}):
    """Of which class a failure was."""

    error_class: str


class BriefRecord(msgspec.Struct, gc=False, kw_only=True):
    """The fields of a result that comparisons are made of, under the same names."""

    schema_version: int
    eval_id: str
    dataset: str
    dataset_path: str
    target: str
    status: Status
    score: Share | None
    verdict: Verdict | None
    trial: int = 1
    prompt: str | None = None
    conversation_id: str | None = None
    evaluator_results: tuple[BriefEvaluator, ...] = ()
    execution_metrics: BriefMetrics | None = None
    error: BriefError | None = None
    cached: bool = False
    tags: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(BriefRecord).decode


def brief_records(path: Path | str) -> Iterator[tuple[int | None, BriefRecord | Result]]:
    """The records of a run with the byte at which each starts, None in YAML. Rows of AgentV's come whole."""
    file, run_id = records_file(path), run_id_of(path)
    if file is None:
        return iter(())
    if file.suffix.lower() in YAML:
        return ((None, result) for result in read_run(path))

    def decode(line: bytes) -> BriefRecord | Result:
        try:
            record = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return decode_record(line, run_id)  # another tool's row, another version, or a mistake that it can name
        return record if record.schema_version == SCHEMA_VERSION else decode_record(line, run_id)

    return decoded_lines(file, decode)


def whole_record(path: Path | str, start: int) -> Result:
    """The record that starts at a byte of a run's file."""
    file = records_file(path)
    assert file is not None
    with open(file, "rb") as stream:
        stream.seek(start)
        line = stream.readline().removeprefix(b"\xef\xbb\xbf")
        try:
            return decode_record(line, run_id_of(path))
        except RecordError as error:  # its texts are looked at here for the first time
            stream.seek(0)
            number = stream.read(start).count(b"\n") + 1
            raise refused(file, f"line {number}", error) from error
