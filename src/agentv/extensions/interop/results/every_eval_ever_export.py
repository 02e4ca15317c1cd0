"""Write a run in the format of Every Eval Ever: for each target, a file with totals and one with samples."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import UsageError, file_errors
from agentv.extensions.interop.imports.foreign_values import content_text_of, text_of
from agentv.model.result import Result
from agentv.model.values import to_json
from agentv.runs.folder import write_whole
from agentv.runs.store import RunStore
from agentv.support.private_files import make_folder
from agentv.version import __version__

SCHEMA_VERSION = "0.2.2"
SCORE = "score"
"""The metric of the score of a case. The scores of its evaluators are metrics too."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one target."""

    target: str
    totals: Path
    samples: Path
    rows: int
    unscored: int


class _Total:
    """The sum of the scores of one dataset and metric."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.sum = 0.0
        self.count = self.errors = 0


def export_run(run: RunStore, folder: Path) -> list[Exported]:
    """Write the files of all targets to a folder. Raises UsageError if they exist, or if the run has no records."""
    with file_errors(f"Cannot write {folder}"):
        make_folder(folder)
    targets = list(dict.fromkeys(record.target for record in run.records()))
    if not targets:
        raise UsageError(f"{run.path} has no results to export")
    return [_Target(run, target, folder).write() for target in targets]


class _Target:
    """Writes the files of one target."""

    def __init__(self, run: RunStore, target: str, folder: Path) -> None:
        self._run = run
        self._target = target
        manifest = run.manifest
        entries = {entry.name: entry for entry in manifest.targets} if manifest is not None else {}
        entry = entries.get(target)
        self._provider = "" if entry is None else entry.provider
        model = text_of(entry.settings.get("model")) if entry is not None else ""
        self._model = model or target
        self._id = f"{run.run_id}/{target}"
        digest = hashlib.sha256(self._id.encode()).digest()
        # A name that is the same each time: the format wants a UUID of version 4.
        name = str(uuid.UUID(bytes=digest[:16], version=4))
        self._totals_path, self._samples_path = folder / f"{name}.json", folder / f"{name}_samples.jsonl"
        self._totals: dict[tuple[str, str], _Total] = {}
        self._hash = hashlib.sha256()
        self._rows = self._unscored = 0

    def write(self) -> Exported:
        """Write the samples, then the totals."""
        for path in (self._totals_path, self._samples_path):
            if path.exists():
                raise UsageError(f"The file already exists: {path}", hint="Choose another folder with --out")
        write_whole(self._samples_path, self._lines(), is_private=False)
        write_whole(self._totals_path, to_json(self._document()) + b"\n", is_private=False)
        return Exported(
            target=self._target,
            totals=self._totals_path,
            samples=self._samples_path,
            rows=self._rows,
            unscored=self._unscored,
        )

    def _lines(self) -> Iterator[bytes]:
        cases = _CaseFields(self._run)
        for record in self._run.records():
            if record.target == self._target:
                for row in self._samples(record, cases.get(record)):
                    line = to_json(row) + b"\n"
                    self._hash.update(line)
                    self._rows += 1
                    yield line

    def _samples(self, record: Result, case: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a row for each metric of a record; for an error, one row for the score."""
        dataset = record.dataset or "dataset"
        if record.status == "error":
            self._total(dataset, SCORE, SCORE).errors += 1
            message = record.error.message if record.error is not None else "unknown error"
            # The format requires a score. Its `error` tells that there is none; the totals leave it out.
            yield {**self._row(record, case, SCORE, SCORE), "evaluation": _evaluation(record, 0.0), "error": message}
            return
        metrics = [] if record.score is None else [(SCORE, SCORE, record.score, record.verdict == "pass")]
        metrics += [
            (result.name, result.type, result.score, result.verdict == "pass")
            for result in record.evaluator_results
            if result.score is not None
        ]
        self._unscored += not metrics
        for name, kind, score, is_correct in metrics:
            total = self._total(dataset, name, kind)
            total.sum += score
            total.count += 1
            yield {**self._row(record, case, name, kind), "evaluation": _evaluation(record, score, is_correct)}

    def _total(self, dataset: str, metric: str, kind: str) -> _Total:
        return self._totals.setdefault((dataset, metric), _Total(kind))

    def _row(self, record: Result, case: dict[str, Any], metric: str, kind: str) -> dict[str, Any]:
        is_single = _interaction(record) == "single_turn"
        last = 0 if is_single else len(record.output_messages)
        raw, references = _question(case, record.prompt), _references(case)
        hashed = {"raw": raw, "reference": references}
        row: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "evaluation_id": self._id,
            "model_id": self._model,
            "evaluation_name": record.dataset or "dataset",
            "evaluation_result_id": f"{record.dataset or 'dataset'}/{metric}",
            "sample_id": record.eval_id,
            "sample_hash": hashlib.sha256(msgspec.json.encode(hashed, order="sorted")).hexdigest(),
            "interaction_type": _interaction(record),
            "input": {"raw": raw, "reference": references},
            **_output(record, raw),
            "answer_attribution": [
                {
                    "turn_idx": last,
                    "source": "output.raw" if is_single else f"messages[{last}].content",
                    "extracted_value": record.candidate_answer or "",
                    "extraction_method": kind,
                    "is_terminal": True,
                }
            ],
            "metadata": _metadata(record),
        }
        return row | _usage(record)

    def _document(self) -> dict[str, Any]:
        manifest, run = self._run.manifest, self._run
        started = manifest.started_at if manifest is not None else ""
        library = {"name": "agentv", "version": __version__}
        return {
            "schema_version": SCHEMA_VERSION,
            "evaluation_id": self._id,
            **({"evaluation_timestamp": started} if started else {}),
            "retrieved_timestamp": started or "0",
            "source_metadata": {
                "source_name": "agentv",
                "source_type": "evaluation_run",
                "source_organization_name": "unknown",
                "evaluator_relationship": "other",
            },
            "eval_library": library,
            "model_info": {
                "name": self._target,
                "id": self._model,
                **({"inference_platform": self._provider} if self._provider else {}),
            },
            "evaluation_results": list(self._results()),
            "detailed_evaluation_results": {
                "format": "jsonl",
                "file_path": self._samples_path.name,
                "hash_algorithm": "sha256",
                "checksum": self._hash.hexdigest(),
                "total_rows": self._rows,
                "additional_details": {"run_id": run.run_id, "unscored_jobs": str(self._unscored)},
            },
        }

    def _results(self) -> Iterator[dict[str, Any]]:
        for (dataset, metric), total in self._totals.items():
            if not total.count:
                continue
            counts = {"scored": str(total.count), "errors": str(total.errors)}
            yield {
                "evaluation_result_id": f"{dataset}/{metric}",
                "evaluation_name": dataset,
                "source_data": {"dataset_name": dataset, "source_type": "other"},
                "metric_config": {
                    "metric_id": f"agentv.{metric}",
                    "metric_name": metric,
                    "lower_is_better": False,
                    "score_type": "continuous",
                    "min_score": 0,
                    "max_score": 1,
                },
                "score_details": {
                    "score": total.sum / total.count,
                    "details": counts,
                    "uncertainty": {"num_samples": total.count},
                },
            }


class _CaseFields:
    """The stored cases of a run, of which only the positions are held."""

    def __init__(self, run: RunStore) -> None:
        self._path = run.folder.cases_path
        self._places: dict[int, int] = {}
        place = 0
        for case in run.cases():
            self._places[hash((case.dataset_path, case.id))] = place
            place += len(case.data)

    def get(self, record: Result) -> dict[str, Any]:
        """Return the fields of the case of a record; empty if the run did not store it."""
        place = self._places.get(hash((record.dataset_path, record.eval_id)))
        if place is None:
            return {}
        with self._path.open("rb") as file:
            file.seek(place)
            fields: dict[str, Any] = msgspec.json.decode(file.readline())
        return fields


def _question(case: dict[str, Any], prompt: str | None) -> str:
    rendered = next((entry["input"] for entry in case.get("prompts", ()) if entry["id"] == prompt), None)
    messages = rendered if rendered is not None else case.get("input", ())
    return "\n\n".join(
        content_text_of(message.get("content")) for message in messages if message.get("role") != "assistant"
    )


def _references(case: dict[str, Any]) -> list[str]:
    return [content_text_of(message.get("content")) for message in case.get("expected_output", ())]


def _interaction(record: Result) -> str:
    if record.trace_summary is not None and record.trace_summary.event_count:
        return "agentic"
    return "multi_turn" if len(record.output_messages) > 1 else "single_turn"


def _output(record: Result, question: str) -> dict[str, Any]:
    """Return the answer: texts for a single turn, messages otherwise."""
    if _interaction(record) == "single_turn":
        return {"output": {"raw": [record.candidate_answer or ""]}}
    messages = [{"role": "user", "content": question}, *record.output_messages]
    return {"messages": [_message(number, message) for number, message in enumerate(messages)]}


def _message(number: int, message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    calls = [
        {
            "id": text_of(call.get("id")) or f"call_{number}_{place}",
            "name": text_of(call.get("tool")),
            "arguments": {key: text_of(value) for key, value in call["input"].items()}
            if isinstance(call.get("input"), dict)
            else {},
        }
        for place, call in enumerate(message.get("tool_calls") or ())
    ]
    return {
        "turn_idx": number,
        "role": text_of(message.get("role")),
        "content": None if content is None else content_text_of(content),
        **({"tool_calls": calls} if calls else {}),
    }


def _evaluation(record: Result, score: float, is_correct: bool = False) -> dict[str, Any]:
    evaluation: dict[str, Any] = {"score": score, "is_correct": is_correct}
    if _interaction(record) != "single_turn":
        evaluation["num_turns"] = len(record.output_messages) + 1
    if record.trace_summary is not None:
        evaluation["tool_calls_count"] = record.trace_summary.event_count
    return evaluation


def _metadata(record: Result) -> dict[str, str]:
    """Return what the format has no field for, as text."""
    fields = {"dataset": record.dataset, "target": record.target, "trial": str(record.trial), "prompt": record.prompt}
    return {key: value for key, value in fields.items() if value}


def _usage(record: Result) -> dict[str, Any]:
    metrics = record.execution_metrics
    usage = metrics.token_usage if metrics is not None else None
    fields: dict[str, Any] = {}
    if usage is not None:
        counts = {
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "input_tokens_cache_read": usage.cached,
            "input_tokens_cache_write": usage.cache_write,
            "reasoning_tokens": usage.reasoning,
        }
        fields["token_usage"] = {key: value for key, value in counts.items() if value is not None}
    if metrics is not None and metrics.duration_ms is not None:
        fields["performance"] = {"latency_ms": metrics.duration_ms}
    return fields
