"""Read results in the format of Every Eval Ever: a JSON file with totals, and JSON Lines with one row per sample."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import grouped_lines, problem, read_document
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_messages,
    dict_of,
    error_info,
    text_of,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message
from agentv.model.values import digest
from agentv.support.json_keys import top_level

_MAX_TOTALS_BYTES = 64 * 1024 * 1024
_TIMES = ("latency_ms", "generation_time_ms")
_MORE_TOKENS = {
    "cached": "input_tokens_cache_read",
    "cache_write": "input_tokens_cache_write",
    "reasoning": "reasoning_tokens",
}
_TRIAL = "trial"
_TARGET = "target"
"""Keys of the metadata in which `agentv runs export` writes what the format has no field for."""


class EveryEvalEver(ForeignResults):
    """Results in the format of Every Eval Ever. A row has one metric of a sample; the rows of a sample are one job."""

    title = "results in the format of Every Eval Ever"
    unit = "row"
    scores_by_first = True

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = top_level(head)
        if "schema_version" not in keys or "evaluation_id" not in keys:
            return False
        return "evaluation_results" in keys or "model_info" in keys or {"sample_id", "evaluation"} <= keys.keys()

    def files(self, path: Path) -> list[Path]:
        if path.suffix == ".json":
            rows = _rows_of(path)
            return [path] if rows is None else [path, rows]
        totals = _totals_of(path)
        return [path] if totals is None else [totals, path]

    def open(self, path: Path) -> ForeignRun:
        files = self.files(path)
        rows = next((file for file in files if file.suffix != ".json"), None)
        if rows is None:
            what = "It has totals only, and the file with the samples is not next to it"
            raise problem(path, what, "Name the .jsonl file with the samples")
        totals = dict_of(read_document(files[0], _MAX_TOTALS_BYTES)) if len(files) > 1 else Fields()
        return _Reader(rows, totals).run()


def _rows_of(totals: Path) -> Path | None:
    """Return the file with the samples, which the totals name: the file of that name next to them, nowhere else."""
    detailed = dict_of(read_document(totals, _MAX_TOTALS_BYTES)).object("detailed_evaluation_results")
    name = detailed.text("file_path").replace("\\", "/").rpartition("/")[2]
    candidates = [totals.with_name(name)] if name.endswith(".jsonl") else []
    candidates += [totals.with_name(f"{totals.stem}_samples.jsonl"), totals.with_suffix(".jsonl")]
    return next((file for file in candidates if file.is_file()), None)


def _totals_of(rows: Path) -> Path | None:
    """Return the file with the totals next to the samples, if there is one."""
    path = rows.with_name(f"{rows.stem.removesuffix('_samples')}.json")
    return path if path.is_file() else None


class _Reader:
    """Converts the rows of one file."""

    def __init__(self, rows: Path, totals: Fields) -> None:
        self._rows = rows
        self._totals = totals
        results = totals.objects("evaluation_results")
        self._results = {_result_name(result): result for result in results}
        self._notes: dict[str, None] = {}

    def run(self) -> ForeignRun:
        """Return the run."""
        totals, library = self._totals, self._totals.object("eval_library")
        info = totals.object("model_info")
        model = info.text("id")
        settings = {"provider": "every-eval-ever", **{key: value for key, value in info.items() if value is not None}}
        version = library.text("version")
        run = ForeignRun(
            jobs=(),
            id=totals.text("evaluation_id") or self._rows.stem,
            started_at=_time(totals.get("evaluation_timestamp") or totals.get("retrieved_timestamp")),
            targets={model: settings} if model else {},
            versions={library.text("name"): version} if library.get("name") and version else {},
        )
        run.jobs = self._jobs(run)
        return run

    def _jobs(self, run: ForeignRun) -> Iterator[ForeignJob]:
        for _, rows in grouped_lines(self._rows, self._key):
            yield from map(self._job, _answers(list(map(Fields, rows))))
        run.notes = list(self._notes)

    def _dataset(self, row: Fields) -> str:
        """Return the dataset of a row: the names of evaluations may include those of metrics."""
        dataset = row.object("metadata").get("dataset")
        source = self._results.get(_result_name(row), Fields()).object("source_data")
        return text_of(dataset or source.get("dataset_name") or row.get("evaluation_name")) or "every-eval-ever"

    def _key(self, row: Any) -> Any:
        """Return what identifies the answer that a row is about: a sample may have been answered several times."""
        if not isinstance(row, dict) or "sample_id" not in row:
            raise problem(self._rows, "A row has no 'sample_id'")
        row = Fields(row)
        metadata, prompt = row.object("metadata"), row.object("input")
        answered = metadata.get(_TRIAL) or digest([row.get("output"), row.get("messages")])
        names = text_of(row["sample_id"]), row.text("model_id"), metadata.text(_TARGET)
        return self._dataset(row), *names, digest(prompt.get("raw")), text_of(answered)

    def _job(self, rows: list[Fields]) -> ForeignJob:
        row = rows[0]
        metadata = row.object("metadata")
        target = metadata.pop(_TARGET, None) or row.text("model_id") or "model"
        trial = metadata.pop(_TRIAL, None)
        error = next((entry["error"] for entry in rows if entry.get("error")), None)
        messages = _transcript(row)
        usage, times = row.object("token_usage"), row.object("performance")
        return ForeignJob(
            case=_case(row, self._dataset(row), metadata),
            target=text_of(target),
            trial=int(trial) if isinstance(trial, str) and trial.isdecimal() else None,
            answer=_answer(row, messages),
            messages=messages,
            grades=() if error else tuple(self._grade(entry) for entry in rows),
            error=None if error is None else error_info(error),
            usage=usage.usage("input_tokens", "output_tokens", **_MORE_TOKENS),
            duration_ms=next(filter(None, (times.number(key) for key in _TIMES)), None),
            place=f"sample {row.text('sample_id')}",
        )

    def _grade(self, row: Fields) -> ForeignGrade:
        evaluation = row.object("evaluation")
        result = self._results.get(_result_name(row), Fields())
        config = result.object("metric_config")
        name = text_of(config.get("metric_name") or config.get("metric_id") or row.get("evaluation_name")) or "score"
        value, details = evaluation.grade("score"), None
        if config.get("lower_is_better") is True:
            self._notes[f"'{name}' is better if it is lower: kept as a metric, not as a score"] = None
            value, details = None, {"value": evaluation.get("score")}
        settings = {key: config[key] for key in _METRIC_KEYS if config.get(key) is not None}
        judges = config.object("llm_scoring").objects("judges")
        judge = judges[0].object("model_info").text("id") if judges else ""
        # `is_correct` is required, although it has no meaning for a score between 0 and 1.
        is_binary = value in (0, 1) or config.get("score_type") == "binary"
        passed = evaluation.get("is_correct") if is_binary else None
        return ForeignGrade(
            name=name,
            type=f"every-eval-ever:{name}",
            value=value,
            passed=passed if isinstance(passed, bool) else None,
            details=details,
            settings={"tool": self._totals.object("eval_library").text("name"), **settings},
            judge=judge or None,
        )


_METRIC_KEYS = ("metric_id", "metric_kind", "metric_parameters", "score_type", "min_score", "max_score", "llm_scoring")


def _result_name(entry: Fields) -> str:
    return entry.text("evaluation_result_id", "evaluation_name")


def _answers(rows: list[Fields]) -> list[list[Fields]]:
    """Split rows with the same answer: a metric that is there twice belongs to another trial."""
    trials: list[dict[str, Fields]] = []
    for row in rows:
        name = _result_name(row)
        trial = next((group for group in trials if name not in group), None)
        if trial is None:
            trials.append(trial := {})
        trial[name] = row
    return [list(group.values()) for group in trials]


def _case(row: Fields, dataset: str, metadata: dict[str, Any]) -> ForeignCase:
    prompt = row.object("input")
    references = prompt.items_of("reference")
    choices = {"choices": prompt["choices"]} if prompt.get("choices") else {}
    return ForeignCase(
        id=row.text("sample_id"),
        dataset=dataset,
        input=prompt.text("raw"),
        expected=references[0] if len(references) == 1 else references or None,
        metadata={**{key: value for key, value in metadata.items() if key != "dataset"}, **choices},
    )


def _transcript(row: Fields) -> tuple[Message, ...]:
    messages = chat_messages(row.get("messages"))
    start = next((place for place, message in enumerate(messages) if message.role == "assistant"), len(messages))
    return messages[start:]


def _answer(row: Fields, messages: tuple[Message, ...]) -> str | None:
    output = row.object("output").items_of("raw")
    if output:
        return text_of(output[0])
    return next((message.text for message in reversed(messages) if message.role == "assistant" and message.text), None)


def _time(value: Any) -> str:
    """Return a time stamp as text: seconds since 1970, or text as it is."""
    from datetime import UTC, datetime  # late: only some files have seconds

    text = text_of(value)
    try:
        return datetime.fromtimestamp(float(text), UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return text
