"""Tasks of lm-evaluation-harness whose data is in local files: their templates become the input and the reference."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, document_of, record_file
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import filled, is_blank, object_at, text_of, texts_of, with_outcome
from agentv.datasets.formats.dataset_format import Document, Source
from agentv.errors import InvalidDatasetError
from agentv.extensions.interop.datasets.dataset_values import cell_value
from agentv.settings.project import project_root
from agentv.support.templates import TemplateProblem, render
from agentv.support.yaml.yaml_file import parse_yaml_file

_LOCAL = ("json", "csv", "parquet", "text")
_MOST_INCLUDES = 10
_LOST = (
    *("metric_list", "filter_list", "process_docs", "num_fewshot", "fewshot_config", "generation_kwargs", "repeats"),
    *("gen_prefix", "use_prompt", "doc_to_image", "doc_to_audio"),
)
_METRIC_KEYS = {"metric", "aggregation", "higher_is_better"}
_SPLITS = ("test_split", "validation_split", "training_split")


class _LMEval(ForeignFormat):
    title = "a task of lm-evaluation-harness"
    strength = 0.85
    fields = "description and doc_to_text → input, doc_to_target → expected_output, doc_to_choice → the question"

    def fits(self, file: RecordFile) -> bool:
        document = document_of(file)
        is_group = "group" in document and isinstance(document.get("task"), list)
        return is_group or (
            isinstance(document.get("task"), str)
            and not document.keys().isdisjoint(("dataset_path", "dataset_name", "doc_to_text", "include"))
        )

    def open(self, source: Source) -> Document:
        path = source.files[0]
        if isinstance(document_of(record_file(path)).get("task"), list):
            what, hint = (
                "A group has no cases, but names tasks",
                "Read the file of one task, or write one for a task of it",
            )
            raise InvalidDatasetError(f"No cases in {path}", what, hint, path=path, line=1)
        return super().open(source)

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:
        document = _task(file)
        for key in _LOST:
            if document.get(key) and not (key == "metric_list" and _is_exact(document)):
                lose(f"'{key}' of the task")
        if "multiple_choice" in text_of(document.get("output_type")):
            lose("the comparison of the likelihoods of choices: the answer is compared with the correct one")
        return {"dataset": text_of(document["task"])}

    def items(self, file: RecordFile) -> Iterator[Record]:
        document = _task(file)
        for path in _data_files(file.path, document):
            for record in record_file(path).records():
                yield Record(record.line, {"doc": record.data, "task": document})

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:  # noqa: ARG002
        document, task = record.data["doc"], record.data["task"]
        if not isinstance(document, dict):
            raise ValueError("A record of the data is not an object")
        choices = cell_value(_value(task.get("doc_to_choice"), document))
        target = _value(task.get("doc_to_target"), document)
        texts = texts_of(choices) if isinstance(choices, list) else []
        if texts and text_of(target).strip().isdecimal() and int(target) < len(texts):
            target = texts[int(target)]
        question = "".join(text_of(_value(task.get(key), document)) for key in ("description", "doc_to_text"))
        is_exact = _is_exact(task) and not is_blank(target)
        choice_list = "\n\n" + "\n".join(f"- {text}" for text in texts) if texts else ""
        row = {
            "id": document.get("id"),
            "input": question + choice_list,
            "expected_output": target,
            "assertions": [{"type": "equals", "value": text_of(target), "exact": True}] if is_exact else None,
            "metadata": filled({"doc": document}),
        }
        return [with_outcome(row)]


LM_EVAL = _LMEval()


def _is_exact(task: dict[str, Any]) -> bool:
    """Whether a whole answer must equal the target, which is the default of tasks that generate text."""
    metrics = task.get("metric_list") or [{"metric": "exact_match"}]
    is_plain = all(item.get("metric") == "exact_match" and item.keys() <= _METRIC_KEYS for item in metrics)
    return is_plain and task.get("output_type", "generate_until") == "generate_until" and not task.get("filter_list")


def _task(file: RecordFile) -> dict[str, Any]:
    """Return the settings of a task, and those of the files it includes, inside the project."""
    root = project_root(os.path.dirname(file.path) or ".")

    def with_includes(document: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        if depth > _MOST_INCLUDES:
            raise InvalidDatasetError(f"Invalid task: {file.path}", "Its files include each other", path=file.path)
        merged: dict[str, Any] = {}
        for name in reversed(texts_of(document.get("include"))):  # the first one overrides those after it
            place = os.path.join(os.path.dirname(path), name)
            if os.path.commonpath((root, os.path.realpath(place))) != root:
                raise InvalidDatasetError(f"Invalid task: {file.path}", f"'{place}' is outside the project", path=path)
            included = parse_yaml_file(place)
            merged |= with_includes(included, place, depth + 1) if isinstance(included, dict) else {}
        return {**merged, **{key: value for key, value in document.items() if key != "include"}}

    return with_includes(document_of(file), file.path, 0)


def _value(template: Any, document: dict[str, Any]) -> Any:
    """Return the value of a field or of a template. Raises ValueError."""
    if isinstance(template, list):
        return [_value(item, document) for item in template]
    if not isinstance(template, str):
        return template
    if template in document:
        return document[template]
    try:
        return render(template, document)
    except TemplateProblem as error:
        raise ValueError(f"Cannot render '{template}': {error}") from None


def _data_files(path: str, task: dict[str, Any]) -> list[str]:
    """Return the local data of a task, inside the project. Raises InvalidDatasetError if it is elsewhere."""
    files: Any = object_at(task, "dataset_kwargs").get("data_files")
    if isinstance(files, dict):
        splits = [task[key] for key in _SPLITS if task.get(key) in files]
        files = files[splits[0]] if splits else next(iter(files.values()), None)
    names = texts_of(files)
    if task.get("dataset_path") not in _LOCAL or not names:
        what = f"The data of the task is on Hugging Face: {text_of(task.get('dataset_path'))}"
        hint = "Download the data, and read it with --map"
        raise InvalidDatasetError(f"No cases in {path}", what, hint, path=path, line=1)
    if any("://" in name for name in names):
        what, hint = f"The data of the task is on the web: {', '.join(names)}", "Download it, and name the file"
        raise InvalidDatasetError(f"No cases in {path}", what, hint, path=path, line=1)
    folder = os.path.dirname(path) or "."
    root = project_root(folder)
    places = [[os.path.join(base, name) for base in (folder, root)] for name in names]
    paths = [next(filter(os.path.isfile, both), both[0]) for both in places]
    for file in paths:
        if os.path.commonpath((root, os.path.realpath(file))) != root:
            raise InvalidDatasetError(f"Invalid task: {path}", f"'{file}' is outside the project", path=path, line=1)
    return paths
