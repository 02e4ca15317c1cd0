"""Read tables of results with a column for each metric: of Ragas and of MLflow, as CSV or as pandas writes JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from agentv.datasets.foreign.foreign_format import table_records
from agentv.datasets.foreign.records import RecordFile
from agentv.datasets.foreign.values import first_of, is_blank, parsed, question_of
from agentv.extensions.interop.datasets.dataset_values import cell_list, cell_value
from agentv.extensions.interop.imports.foreign_files import (
    problem,
    read_document,
    read_lines,
    read_table,
    row_keys,
    table_names,
)
from agentv.extensions.interop.imports.foreign_values import dict_of, grade_value, list_of, text_of
from agentv.extensions.interop.imports.json_stream import JsonProblem, decode_json
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.values import digest

_COLUMNS = re.compile(rb'"columns"\s*:\s*(\[[^\]]*\])')
_HEAD_BYTES = 64 * 1024
_MOST_BYTES = 512 * 1024 * 1024
_RAGAS = re.compile(
    r"((llm|non_llm|id_based)_)?context_(precision|recall|entity_recall|entities_recall|utilization|relevance)"
    r"(_with_reference|_without_reference)?|faithfulness(_with_hhem)?|factual_correctness|summary_score|topic_adherence"
    r"|(answer|response|context|nv_\w+)_(relevancy|relevance|correctness|similarity|accuracy|groundedness)"
    r"|semantic_similarity|agent_goal_accuracy|tool_call_(accuracy|f1)|(bleu|rouge|chrf)_score|exact_match"
    r"|string_present|non_llm_string_similarity|multi_modal_(faithfulness|relevance)|quoted_spans_alignment|nv_accuracy"
    r"|llm_sql_equivalence_with_reference|data_compare_score|noise_sensitivity\w*|harmfulness|maliciousness"
)
"""Metrics from 0 to 1. A metric with a mode has it in parentheses."""

_LOWER_IS_BETTER = re.compile(r"noise_sensitivity|harmfulness|maliciousness|toxicity")


class ScoreTable(ForeignResults):
    """Base class. A row is a job, whose score is the mean of its metrics."""

    unit = "row"
    tool: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]
    answers: ClassVar[tuple[str, ...]]
    references: ClassVar[tuple[str, ...]]
    contexts: ClassVar[tuple[str, ...]] = ()

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        names = _names(head)
        has_answer = not names.isdisjoint(self.inputs) and not names.isdisjoint(self.answers)
        return has_answer and any(map(self.metric, names))

    def metric(self, column: str) -> str:
        """Return the name of the metric whose value a column has; empty for other columns."""
        raise NotImplementedError

    def value(self, column: str, row: dict[str, Any]) -> float | bool | None:
        """Return the value of a metric; None if it has none, or one that is not from 0 to 1."""
        return grade_value(_number(row[column]))

    def reason(self, column: str, row: dict[str, Any]) -> str:  # noqa: ARG002
        """Return why a metric has its value; empty if the table does not say it."""
        return ""

    def jobs(self, path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
        target = run.target("model", self.tool)
        for number, row in _rows(path):
            question = question_of(parsed(first_of(row, *self.inputs)), lambda _: None)
            metrics = {column: name for column in row if (name := self.metric(column))}
            stems = {column.rpartition("/")[0] for column in metrics} - {""}
            about = (column for column in row if column.rpartition("/")[0] in stems)
            used = {"id", *self.inputs, *self.answers, *self.references, *self.contexts, *metrics, *about}
            grades = tuple(self._grade(name, column, row) for column, name in metrics.items())
            for name, kind in ((grade.name, _kind_of(grade.details["value"])) for grade in grades if grade.details):
                note = f"'{name}' has {kind}: kept, not counted as scores"
                run.notes += [] if note in run.notes else [note]
            yield ForeignJob(
                case=ForeignCase(
                    id=text_of(row.get("id")) or digest(text_of(question))[:12],
                    dataset=path.stem,
                    input=text_of(question),
                    expected=first_of(row, *self.references),
                    context=tuple(cell_list(first_of(row, *self.contexts) or "", "\n")),
                ),
                target=target,
                answer=text_of(first_of(row, *self.answers)) or None,
                grades=grades,
                metadata={name: value for name, value in row.items() if name not in used and not is_blank(value)},
                place=f"row {number}",
            )

    def _grade(self, name: str, column: str, row: dict[str, Any]) -> ForeignGrade:
        value, reason = self.value(column, row), self.reason(column, row)
        is_missing = value is None and _number(row[column]) is None
        return ForeignGrade(
            name=name,
            type=f"{self.tool}:{name}",
            value=value,
            weight=0.0 if is_missing or _LOWER_IS_BETTER.match(name) else 1.0,
            reasoning=reason or None,
            details={"value": row[column]} if value is None and not is_missing else None,
            error=(reason or f"{name} has no value") if is_missing else None,
            settings={"tool": self.tool, "metric": name},
        )


class RagasResults(ScoreTable):
    """The scores of Ragas, as `to_pandas` returns them."""

    title = "results of Ragas"
    tool = "ragas"
    inputs = ("user_input", "question")
    answers = ("response", "answer")
    references = ("reference", "ground_truth", "ground_truths")
    contexts = ("retrieved_contexts", "contexts")

    def metric(self, column: str) -> str:
        return column if _RAGAS.fullmatch(column.partition("(")[0]) else ""


class MlflowResults(ScoreTable):
    """The table of `mlflow.evaluate`, whose judges grade from 1 to 5, and that of `mlflow.genai.evaluate`."""

    title = "an evaluation table of MLflow"
    tool = "mlflow"
    inputs = ("inputs", "request", "question")
    answers = ("outputs", "predictions", "response", "answer")
    references = ("ground_truth", "targets")

    def metric(self, column: str) -> str:
        match = re.fullmatch(r"([^/]+)(?:/v\d+/score|/value)", column)
        return match[1] if match else ""

    def value(self, column: str, row: dict[str, Any]) -> float | bool | None:
        is_judged = f"{column.rpartition('/')[0]}/justification" in row
        rating = {"yes": True, "no": False}.get(text_of(row[column]).strip().lower())
        return None if is_judged else super().value(column, row) if rating is None else rating

    def reason(self, column: str, row: dict[str, Any]) -> str:
        stem = column.rpartition("/")[0]
        return text_of(first_of(row, f"{stem}/error_message", f"{stem}/justification", f"{stem}/rationale"))


def _names(head: bytes) -> set[str]:
    """Return the names of the columns of a table, or the keys of the first row."""
    if (columns := _COLUMNS.search(head)) is None:
        return {*table_names(head), *row_keys(head)}
    try:
        return set(map(text_of, list_of(decode_json(columns[1]))))
    except JsonProblem:
        return set()


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a table, of an array or of lines, each with its line or number. Raises AgentvError."""
    with path.open("rb") as stream:
        is_table = bool(table_names(stream.read(_HEAD_BYTES)))
    if is_table:
        rows = read_table(path)
        names = next(rows, (1, []))[1]
        for line, cells in rows:
            yield line, {name: cell_value(cell) for name, cell in zip(names, cells, strict=True)}
        return
    items: Iterable[tuple[int, Any]] = read_lines(path)
    if RecordFile(str(path)).kind == "json":
        document = read_document(path, _MOST_BYTES)
        items = enumerate(document if isinstance(document, list) else table_records(dict_of(document)) or [document], 1)
    for number, row in items:
        if not isinstance(row, dict):
            raise problem(path, f"Row {number} is not an object")
        yield number, row


def _number(value: Any) -> Any:
    """Return the number or truth value in a cell, or another text; None for a blank one and for NaN."""
    if not isinstance(value, str):
        return None if is_blank(value) else value
    word = value.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    try:
        return float(word)
    except ValueError:
        return value


def _kind_of(value: Any) -> str:
    is_grade = grade_value(_number(value)) is not None
    return "grades of a judge, from 1 to 5" if is_grade else "values that are not numbers"


_WORDS = {"true": True, "false": False, "": None, "nan": None, "none": None, "null": None}
