"""OpenAI Evals: samples of the registry, and the items, criteria and exports of the hosted service."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, document_of, objects
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import (
    any_of,
    first_of,
    is_blank,
    messages_of,
    metadata_of,
    parsed,
    text_of,
    texts_of,
    with_outcome,
)

_VARIABLE = re.compile(r"\{\{\s*(item|sample)\.([\w.]+)\s*\}\}")


class _OpenAISamples(ForeignFormat):
    title = "samples of OpenAI Evals"
    strength = 0.8
    fields = "input → input, ideal → expected_output and an exact comparison"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        if any_has(rows, "messages"):  # Phoenix exports `messages` and `ideal` under the same name
            return all_have(rows, "messages", "ideal")
        return all_have(rows, "input") and any_has(rows, "ideal") and not any_has(rows, "target", "expected_outcome")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        ideal = texts_of(data.get("ideal"))
        row = {
            "id": data.get("id"),
            "input": _input(first_of(data, "input", "messages"), lose),
            "expected_output": ideal[0] if ideal else None,
            "assertions": [any_of(ideal)] if ideal else [],
            "metadata": metadata_of(data, ("id", "input", "messages", "ideal", "metadata"), data.get("metadata")),
        }
        return [with_outcome(row)]


OPENAI_SAMPLES = _OpenAISamples()


class _OpenAIHosted(ForeignFormat):
    """Rows `{"item": …, "sample": …}`, alone or in an export with `testing_criteria`."""

    title = "OpenAI's hosted Evals"
    strength = 0.9
    fields = "item → input and metadata, testing_criteria → evaluators"
    in_folders = True

    def fits(self, file: RecordFile) -> bool:
        document = document_of(file)
        if "testing_criteria" in document:
            return _contents(document) is not None
        rows = objects(file)
        return all_have(rows, "item") and all(isinstance(row["item"], dict) for row in rows)

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:
        document = document_of(file)
        for criterion in document.get("testing_criteria") or ():
            if _entry(criterion, {}) is None:
                lose(f"a criterion of type '{text_of(criterion.get('type'))}'")
        name = document.get("name")
        return {"dataset": name} if isinstance(name, str) and name.strip() else {}

    def items(self, file: RecordFile) -> Iterator[Record]:
        document = document_of(file)
        if not document:
            yield from file.records()
            return
        shared = {key: document[key] for key in ("testing_criteria", "input_messages") if document.get(key)}
        for line, item in items_of(_contents(document) or []):
            yield Record(line, {**shared, **(item if "item" in item else {"item": item})})

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data, item = record.data, record.data["item"]
        if not isinstance(item, dict):
            raise ValueError("'item' must be an object")
        template = data.get("input_messages")
        if isinstance(template, dict):
            template = template.get("template") or item.get(text_of(template.get("item_reference")).split(".")[-1])
        question = template or first_of(item, "input", "prompt", "question", "query", "messages", "text", "ticket_text")
        if question is None:
            texts = [value for value in item.values() if isinstance(value, str) and value.strip()]
            if not texts:
                raise ValueError("The item has no text that could be the input")
            question = texts[0]
        answer = first_of(item, "expected_output", "ideal", "reference", "ground_truth", "expected", "answer", "label")
        answer = first_of(item, "correct_label", "correct_answer") if answer is None else answer
        graders = [entry for each in data.get("testing_criteria") or () if (entry := _entry(each, item))]
        row = {
            "id": first_of(item, "id", "item_id") or data.get("id"),
            "input": _input(_inserted(question, item), lose),
            "expected_output": answer,
            "assertions": graders,
            "metadata": {"item": item, **({"sample": data["sample"]} if not is_blank(data.get("sample")) else {})},
        }
        return [with_outcome(row)]


OPENAI_HOSTED = _OpenAIHosted()


def _input(value: Any, lose: Lose) -> Any:
    value = parsed(value)
    return value if isinstance(value, str) else messages_of(value, lose)


def _contents(document: dict[str, Any]) -> list[Any] | None:
    """Return the items of an export: under `items` or `data`, or in the source of a run."""
    source = document.get("data_source")
    source = source.get("source") if isinstance(source, dict) else None
    places = (document.get("items"), document.get("data"), source.get("content") if isinstance(source, dict) else None)
    return next((place for place in places if isinstance(place, list) and place), None)


def _inserted(value: Any, item: dict[str, Any]) -> Any:
    """Insert the values of an item for `{{item.x}}`. The output of the model cannot be part of the input."""
    if isinstance(value, list):
        return [_inserted(each, item) for each in value]
    if isinstance(value, dict):
        return {key: _inserted(each, item) for key, each in value.items()}
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda found: _value(found, item), value)


def _value(found: re.Match[str], item: dict[str, Any]) -> str:
    value: Any = item if found[1] == "item" else {}
    for part in found[2].split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return text_of(value)


_OPERATIONS = {"eq": "equals", "like": "contains", "ilike": "icontains"}
_METRICS = {
    **dict.fromkeys(("fuzzy_match", "cosine"), "similarity"),
    **dict.fromkeys(("bleu", "gleu"), "bleu"),
    **dict.fromkeys(("rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l", "meteor"), "rouge"),
}


def _entry(criterion: Any, item: dict[str, Any]) -> dict[str, Any] | None:
    """Return the evaluator for a criterion; None if there is none."""
    if not isinstance(criterion, dict):
        return None
    name = {"name": criterion["name"]} if isinstance(criterion.get("name"), str) else {}
    reference = _inserted(text_of(criterion.get("reference")), item)
    kind = criterion.get("type")
    if kind == "string_check":
        operation = text_of(criterion.get("operation"))
        type_ = _OPERATIONS.get(operation.removeprefix("n") if operation == "ne" else operation)
        if operation == "ne":
            return {"type": "equals", "value": reference, "negate": True, **name}
        return {"type": type_, "value": reference, **name} if type_ else None
    if kind == "text_similarity":
        metric = text_of(criterion.get("evaluation_metric"))
        type_ = _METRICS.get(metric)
        if type_ is None:
            return None
        variant = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}.get(metric)
        passes = criterion.get("pass_threshold")
        return {
            **{"type": type_, "value": reference, **name},
            **({"variant": variant} if variant else {}),
            **({"required": passes} if isinstance(passes, int | float) and 0 <= passes <= 1 else {}),
        }
    if kind in ("label_model", "score_model"):
        return {"type": "llm_judge", "prompt": _judge_prompt(criterion, item), **name}
    return None


def _judge_prompt(criterion: dict[str, Any], item: dict[str, Any]) -> str:
    """Return the prompt of a model grader as one text. The answer is inserted by the judge."""
    texts = []
    for message in criterion.get("input") or ():
        content = message.get("content") if isinstance(message, dict) else message
        text = content.get("text") if isinstance(content, dict) else content
        texts.append(_escaped(text_of(text), item))
    labels, passing = criterion.get("labels"), criterion.get("passing_labels")
    if labels and passing:
        texts.append(
            f"Choose one label of: {', '.join(texts_of(labels))}. "
            f"The score is 1 for {', '.join(texts_of(passing))}, otherwise 0."
        )
    if isinstance(criterion.get("range"), list):
        texts.append(f"The scale of the criteria is {criterion['range']}; convert it to a score from 0 to 1.")
    return "\n\n".join(filter(None, texts))


def _escaped(text: str, item: dict[str, Any]) -> str:
    """Insert the item, and our name for the answer; other braces are shown as they are."""

    def insert(found: re.Match[str]) -> str:
        if found[1] == "sample" and found[2] == "output_text":
            return "{{ candidate_answer }}"
        return _value(found, item).replace("{{", "{ {").replace("{%", "{ %")

    return _VARIABLE.sub(insert, text)
