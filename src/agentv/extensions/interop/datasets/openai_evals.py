"""OpenAI Evals: samples of the registry, and the items, criteria and exports of the hosted service."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from agentv.datasets.foreign.case_parts import NO_CHECK, chat_messages, count_losses, first_input, text_in
from agentv.datasets.foreign.foreign_format import (
    ForeignFormat,
    Lose,
    Mapper,
    all_have,
    any_has,
    document_of,
    objects,
    record_file,
)
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import (
    first_of,
    is_blank,
    messages_of,
    metadata_of,
    parsed,
    text_of,
    texts_of,
    with_outcome,
)
from agentv.datasets.formats.dataset_format import Content, Document, Source
from agentv.errors import InvalidDatasetError
from agentv.extensions.interop.datasets.hosted_criteria import EVERY_CRITERION, NO_CRITERION, evaluator_of, inserted
from agentv.extensions.interop.datasets.openai_registry import (
    NO_CLASS,
    custom_classes,
    eval_of,
    exact_check,
    examples_of,
    samples_in,
)
from agentv.extensions.interop.datasets.written_case import restore, seal, write_records
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.settings.project import is_inside, project_root

_MARKS = ("ideal", "sample", "criteria")
_USED = ("id", "input", "messages", "ideal", "criteria", "metadata")
_OTHER_SAMPLES = (
    (
        ("input1", "input2"),
        "Each sample has several inputs, whose completions a model-graded eval compares",
        "Write one case per input, or compare two targets: agentv compare",
    ),
    (
        ("input", "completion", "choice"),
        "Each sample is a completion with a label, which a meta-eval compares with the choices of a model",
        "Use the samples that were completed; labels of answers calibrate a judge: agentv judge calibrate",
    ),
)
"""Keys of samples that are not cases: what they are, and what to do."""

_EXAMPLES = "few-shot examples, which an eval shows to the model before each sample, are cases here"
_LAXER = "that an answer must equal the reference: `Match` of OpenAI Evals accepts one that begins with it"


class _OpenAISamples(ForeignFormat):
    title = "samples of OpenAI Evals"
    strength = 0.8
    fields = "input → input, ideal → expected_output and the comparison of the class, or an exact one"
    writes = (".jsonl",)

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        if file.kind == "yaml" and (samples_in(file.path) or custom_classes(file.path)):
            return True
        if any_has(rows, "messages"):  # Phoenix exports `messages` and `ideal` under the same name
            return all_have(rows, "messages", "ideal")
        if all_have(rows, "sample") and not any_has(rows, "item", "input"):
            return all(isinstance(row["sample"], list) for row in rows)
        if any(all_have(rows, *keys) for keys, *_ in _OTHER_SAMPLES):
            return True
        if rows and all(row.keys() == {"input"} for row in rows):
            return all(_is_chat(row["input"]) for row in rows) or eval_of(file.path) is not None
        is_chat = all(isinstance(row.get("input"), list) for row in rows) and not any_has(rows, "id")
        marks = ("ideal", "criteria") if is_chat else ("ideal",)
        return all_have(rows, "input") and any_has(rows, *marks) and not any_has(rows, "target", "expected_outcome")

    def files(self, path: str) -> tuple[str, ...]:
        """Return the file, and for one of the registry the only file with samples that it names, inside the project."""
        samples = samples_in(path) if path.endswith(".yaml") and os.path.isfile(path) else []
        root = project_root(os.path.dirname(path) or ".")
        is_readable = len(samples) == 1 and os.path.isfile(samples[0]) and is_inside(os.path.realpath(samples[0]), root)
        return (path, *samples) if is_readable else (path,)

    def open(self, source: Source) -> Document:
        if samples := samples_in(source.path) if record_file(source.path).kind == "yaml" else []:
            if len(source.files) == 1:
                what = f"An eval of the registry names files with samples: {', '.join(samples)}"
                hint = "Name the samples, which are compared as the class of the eval does it"
                raise InvalidDatasetError(f"No cases in {source.path}", what, hint, path=source.path, line=1)
            source = replace(source, files=source.files[1:])
        if record_file(source.path).kind == "yaml" and (classes := custom_classes(source.path)):
            what, hint = f"A class of its own reads the samples: {', '.join(classes)}", "Name the file of the samples"
            raise InvalidDatasetError(f"No cases in {source.path}", what, hint, path=source.path, line=1)
        for keys, what, hint in _OTHER_SAMPLES:
            if all_have(objects(record_file(source.files[0])), *keys):
                raise InvalidDatasetError(f"No cases in {source.path}", what, hint, path=source.path, line=1)
        return super().open(source)

    def mapper(self, document: Document) -> Mapper:
        """Map samples. An eval without `ideal` is graded by a model; if others have one, its absence is an error."""
        path, mapped = document.source.files[0], document.mapped
        assert mapped is not None
        entry = eval_of(path, document.source.path if path != document.source.path else "")
        examples = examples_of(entry, path)
        is_graded = not any_has(objects(record_file(path)), *_MARKS) or (entry is not None and entry.is_graded)

        def rows(record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
            if is_graded:
                lose("how a model grades the answers: it is part of the eval, not of its samples")
            elif not any(name in record.data for name in _MARKS):
                raise KeyError("ideal")
            for row in self.rows(record, lose):
                answers = texts_of(record.data.get("ideal"))
                if answers and row.get("assertions") == exact_check(answers):
                    checks = entry.checks(answers) if entry is not None else None
                    row["assertions"] = checks or row["assertions"]
                    if checks is None:
                        mapped.differ(NO_CLASS)
                if examples and isinstance(row["input"], list):
                    row["input"] = [*row["input"][:-1], *messages_of(examples, lose), row["input"][-1]]
                if "sample" in record.data:
                    mapped.differ(_EXAMPLES)
                yield row

        return rows

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = _example(record.data) if "sample" in record.data else record.data
        ideal = data.get("ideal")
        if isinstance(ideal, list) and any(isinstance(item, list | dict) for item in ideal):
            raise ValueError("'ideal' must be a text or a list of texts")
        answers = texts_of(ideal)
        row = {
            "id": data.get("id"),
            "input": _input(first_of(data, "input", "messages"), lose),
            "expected_output": answers[0] if answers else None,
            "assertions": exact_check(answers),
            "expected_outcome": text_of(data.get("criteria")),
            "metadata": metadata_of(data, _USED, data.get("metadata")),
        }
        return [restore(with_outcome(row), data, "metadata", lose)]

    def write(self, content: Content, path: str) -> None:
        """Write one sample per case. A model can grade by `criteria`, and other classes compare with `ideal`."""
        write_records((_sample(row.case, content.lose) for row in content.rows), path)


OPENAI_SAMPLES = _OpenAISamples()


def _sample(case: EvalCase, lose: Lose) -> dict[str, Any]:
    reference = text_in(case.expected_output, lose) if case.expected_output else ""

    def is_exact(spec: EvaluatorSpec) -> bool:
        is_reference = bool(reference) and spec.settings.get("value", reference) == reference
        return spec.type == "equals" and not spec.negate and is_reference and spec in case.evaluators

    count_losses(case, lose, keeps=is_exact)
    if any(map(is_exact, case.evaluators)):
        lose(_LAXER)
    if not reference:
        lose("an ideal answer: classes that compare with `ideal` end with an error, and a model grades by `criteria`")
    record = {  # without the id: with `criteria`, it would be a case of ours
        "input": chat_messages(first_input(case), lose),
        "ideal": reference,
        "criteria": case.expected_outcome if reference else case.expected_outcome or NO_CHECK,
    }
    return seal(record, "metadata", case, ("input", "chat", *(("expected_output",) if reference else ())))


def _example(data: dict[str, Any]) -> dict[str, Any]:
    """Return a few-shot example as a sample: its last message is the ideal answer."""
    messages = [message for message in data["sample"] if isinstance(message, dict)]
    if len(messages) < 2:
        raise ValueError("A few-shot example needs a question and an answer")
    roles = {"example_user": "user", "example_assistant": "assistant"}
    chat = [{**message, "role": roles.get(text_of(message.get("name")), message.get("role"))} for message in messages]
    plain = [{key: value for key, value in message.items() if key != "name"} for message in chat]
    rest = {key: value for key, value in data.items() if key != "sample"}
    return {**rest, "input": plain[:-1], "ideal": text_of(plain[-1].get("content"))}


class _OpenAIHosted(ForeignFormat):
    """Rows `{"item": …, "sample": …}`, alone or in an export with `testing_criteria`."""

    title = "OpenAI's hosted Evals"
    strength = 0.9
    fields = "item → input and metadata, testing_criteria → evaluators"
    in_folders = True

    def fits(self, file: RecordFile) -> bool:
        document = document_of(file)
        if isinstance(document.get("testing_criteria"), list):
            return True
        rows = objects(file)
        return all_have(rows, "item") and all(isinstance(row["item"], dict) for row in rows)

    def open(self, source: Source) -> Document:
        document = document_of(record_file(source.files[0]))
        if document and _contents(document) is None:
            what, hint = "The eval has criteria and no items, which are in its runs", "Use: agentv generate from-openai"
            raise InvalidDatasetError(f"No cases in {source.path}", what, hint, path=source.path, line=1)
        return super().open(source)

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:  # noqa: ARG002
        name = document_of(file).get("name")
        return {"dataset": name} if isinstance(name, str) and name.strip() else {}

    def items(self, file: RecordFile) -> Iterator[Record]:
        document = document_of(file)
        if not document:
            yield from file.placed()
            return
        shared = {key: document[key] for key in ("testing_criteria", "input_messages") if document.get(key)}
        for line, item, _ in items_of(_contents(document) or []):
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
        criteria = data.get("testing_criteria") or ()
        graders = [entry for criterion in criteria if (entry := evaluator_of(criterion, item, lose))]
        row = {
            "id": first_of(item, "id", "item_id") or data.get("id"),
            "input": _input(inserted(question, item), lose),
            "expected_output": answer,
            "assertions": graders,
            "execution": EVERY_CRITERION if graders else {},
            "case_error": NO_CRITERION if criteria and not graders else None,
            "metadata": {"item": item, **({"sample": data["sample"]} if not is_blank(data.get("sample")) else {})},
        }
        return [with_outcome(row)]


OPENAI_HOSTED = _OpenAIHosted()


def _input(value: Any, lose: Lose) -> Any:
    value = parsed(value)
    if isinstance(value, list) and len(value) > 1 and all(isinstance(item, str) for item in value):
        raise ValueError("'input' has several prompts: write one sample for each")
    if isinstance(value, dict) and "role" not in value:
        raise ValueError("'input' is an object, which only the class of the eval turns into a prompt")
    return value if isinstance(value, str) else messages_of(value, lose)


def _is_chat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and "role" in item for item in value)


def _contents(document: dict[str, Any]) -> list[Any] | None:
    """Return the items of an export: under `items` or `data`, or in the source of a run."""
    source = document.get("data_source")
    source = source.get("source") if isinstance(source, dict) else None
    places = (document.get("items"), document.get("data"), source.get("content") if isinstance(source, dict) else None)
    return next((place for place in places if isinstance(place, list) and place), None)
