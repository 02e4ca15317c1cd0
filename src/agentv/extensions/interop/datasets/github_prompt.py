"""Prompt files of GitHub Models (`.prompt.yml`): messages, test data and evaluators."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, Mapper, document_of, record_file
from agentv.datasets.foreign.records import Record, RecordFile, items_of
from agentv.datasets.foreign.values import filled, first_of, is_blank, metadata_of, text_of, with_outcome
from agentv.datasets.formats.dataset_format import Document, Source
from agentv.errors import InvalidDatasetError

_STRINGS = {
    "equals": "equals",
    "contains": "icontains",
    "startsWith": "starts_with",
    "endsWith": "ends_with",
    "matches": "regex",
}
_PATTERNS = {"startsWith": r"(?i)\A\s*{}", "endsWith": r"(?i){}\s*\Z"}
"""Checks that ignore the case."""

_EXPECTED = re.compile(r"\s*\{\{\s*expected\s*\}\}\s*")

_BUILT_IN: dict[str, dict[str, Any]] = {
    "github/similarity": {
        "type": "llm_judge",
        "prompt": "Judge how similar the answer is in meaning to the correct answer: {{ expected_output }}",
    },
    "github/relevance": {"type": "answer_relevance"},
    "github/groundedness": {"type": "faithfulness"},
    "github/coherence": {"type": "llm_judge", "prompt": "Judge the coherence of the answer."},
    "github/fluency": {"type": "llm_judge", "prompt": "Judge the fluency of the answer."},
}
_ABOVE_ZERO = 0.001
"""The least score of a judge: any score above 0 passes."""

_MODEL_KEYS = ("modelParameters", "responseFormat", "jsonSchema")
_USED = ("input", "expected", "id", "context")
_PROMPT = ("name", "model", "modelParameters", "messages")
_NO_TESTS = "The prompt file has no testData, so there is nothing to evaluate"


class _GitHubPrompt(ForeignFormat):
    title = "a prompt file of GitHub Models"
    strength = 0.9
    fields = "messages → prompt, testData → cases, evaluators → evaluators"
    in_folders = True

    def fits(self, file: RecordFile) -> bool:
        document = document_of(file)
        is_prompt = file.path.lower().endswith((".prompt.yml", ".prompt.yaml")) or {*document} >= {*_PROMPT}
        return isinstance(document.get("messages"), list) and (is_prompt or isinstance(document.get("testData"), list))

    def why_not(self, path: str) -> str | None:
        return None if document_of(record_file(path)).get("testData") else _NO_TESTS

    def open(self, source: Source) -> Document:
        if why := self.why_not(source.files[0]):
            hint = "Add `testData`: a list of objects with the variables of the prompt, such as `input`"
            raise InvalidDatasetError(f"No cases in {source.path}", why, hint, path=source.path, line=1)
        return super().open(source)

    def settings(self, file: RecordFile, lose: Lose) -> dict[str, Any]:
        document = document_of(file)
        if not is_blank(document.get("model")):
            lose("the model: choose a target, for example with --target")
        for key in _MODEL_KEYS:
            if not is_blank(document.get(key)):
                lose(f"{key}: set it for the target")
        evaluators = [entry for item in document.get("evaluators") or () if (entry := _entry(item, lose)) is not None]
        messages = [
            {"role": item.get("role"), "content": text_of(item.get("content"))}
            for item in document["messages"]
            if isinstance(item, dict)
        ]
        header = {"dataset": document.get("name"), "description": document.get("description"), "prompt": messages}
        # A test passes if all evaluators do, whatever the mean of their scores.
        execution = {"verdicts": {"pass": 0.0, "borderline": 0.0}} if evaluators else {}
        return filled({**header, "assertions": evaluators, "execution": execution})

    def items(self, file: RecordFile) -> Iterator[Record]:
        yield from items_of(document_of(file)["testData"])

    def mapper(self, document: Document) -> Mapper:
        prompt = text_of(document_of(record_file(document.source.files[0])).get("messages"))

        def rows(record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
            own = record.data.get("input")
            nested = [name for name in own if f"{{{{{name}}}}}" in prompt] if isinstance(own, dict) else []
            if nested and nested[0] not in record.data:
                what = f"'{nested[0]}' is inside 'input', where `gh models eval` does not look for variables"
                raise ValueError(f"{what}: write it next to 'expected'")
            return self.rows(record, lose)

        return rows

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:  # noqa: ARG002
        data = record.data
        expected = data.get("expected")
        variables = {key: text_of(value) for key, value in data.items() if key != "id"}
        row = {
            "id": data.get("id"),
            "input": {"input": "", "expected": "", **variables},
            "expected_output": expected,
            "context": data.get("context"),
            "metadata": metadata_of(data, _USED),
        }
        return [with_outcome(row)]


GITHUB_PROMPT = _GitHubPrompt()


def _entry(data: Any, lose: Lose) -> dict[str, Any] | None:
    if not isinstance(data, dict):
        lose("an evaluator that is not an object")
        return None
    common = filled({"name": text_of(data.get("name")), "required": 1.0})
    if isinstance(data.get("string"), dict):
        for key, type_ in _STRINGS.items():
            if key in data["string"]:
                value = text_of(data["string"][key])
                exact = {"exact": "trimmed"} if type_ == "equals" else {}
                if _EXPECTED.fullmatch(value):
                    return {"type": type_, **exact, **common}  # without a value, the expected output
                if "{{" in value:
                    break
                if key in _PATTERNS:
                    return {"type": "regex", "value": _PATTERNS[key].format(re.escape(value)), **common}
                return {"type": type_, "value": value, **exact, **common}
    if isinstance(data.get("llm"), dict):
        return {"type": "llm_judge", "prompt": _judge_prompt(data["llm"]), **common, "required": _ABOVE_ZERO}
    uses = data.get("uses")
    if isinstance(uses, str) and uses in _BUILT_IN:
        lose(f"the prompt of {uses}: a judge gets a shorter one")
        return {**_BUILT_IN[uses], **common, "required": _ABOVE_ZERO}
    lose(f"the evaluator '{text_of(first_of(data, 'name', 'uses'))}'")
    return None


def _judge_prompt(llm: dict[str, Any]) -> str:
    """Return the prompt of a judge with our names, and the score of each choice."""
    texts = [text_of(llm.get("systemPrompt")), text_of(llm.get("prompt"))]
    text = "\n\n".join(filter(None, texts)).replace("{{completion}}", "{{ candidate_answer }}")
    text = text.replace("{{expected}}", "{{ expected_output }}")
    choices = [choice for choice in llm.get("choices") or () if isinstance(choice, dict)]
    if choices:
        scores = ", ".join(f"{text_of(choice.get('choice'))} = {text_of(choice.get('score'))}" for choice in choices)
        text += f"\n\nThe score of each choice: {scores}."
    return text
