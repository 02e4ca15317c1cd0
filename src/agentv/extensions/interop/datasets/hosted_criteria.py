"""The criteria of OpenAI's hosted Evals as evaluators, and the values of items in their templates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import is_blank, text_of, texts_of
from agentv.model.values import to_json

EVERY_CRITERION = {"verdicts": {"pass": 0.0, "borderline": 0.0}}
"""An item passes if it meets all criteria, whatever the mean of their scores."""

NO_CRITERION = "None of the criteria of the eval can be used here: score the recorded answers with another evaluator"
"""Why a case cannot run. A judge would decide about something else."""

_VARIABLE = re.compile(r"\{\{\s*(item|sample)\.([\w.\[\]-]+)\s*\}\}")
_ANSWER = re.compile(r"\s*\{\{\s*sample\.output_text\s*\}\}\s*")
_CHECKS: dict[str, dict[str, Any]] = {
    "eq": {"type": "equals", "exact": True},
    "ne": {"type": "equals", "exact": True, "negate": True},
    "like": {"type": "contains", "exact": True},
    "ilike": {"type": "icontains", "exact": True},
}
_METRICS: dict[str, dict[str, Any]] = {
    "fuzzy_match": {"type": "similarity"},
    "cosine": {"type": "similarity", "method": "embedding"},
    "bleu": {"type": "bleu"},
    "gleu": {"type": "bleu", "method": "gleu"},
    "rouge_1": {"type": "rouge", "variant": "rouge1"},
    "rouge_2": {"type": "rouge", "variant": "rouge2"},
    "rouge_l": {"type": "rouge", "variant": "rougeL"},
}
_OTHER_OUTPUT = re.compile(r"output_(?:json|tools|audio)")
_GRADE = """
names = {{}}
exec({source!r}, names)
sample = {{"output_text": output, "choices": [{{"message": {{"role": "assistant", "content": output}}}}]}}
return float(names["grade"](sample, json.loads({item!r})))
"""
_SYMMETRIC = ("eq", "ne", "fuzzy_match", "cosine")
_DEFAULT_LIMIT = 0.8


def evaluator_of(criterion: Any, item: dict[str, Any], lose: Lose) -> dict[str, Any] | None:
    """Return the evaluator for a criterion; None, with the loss, if there is none."""
    data = criterion if isinstance(criterion, dict) else {}
    kind = text_of(data.get("type"))
    if kind == "string_check":
        entry = _check(data, text_of(data.get("operation")), _CHECKS, item, lose)
    elif kind == "text_similarity":
        metric = text_of(data.get("evaluation_metric"))
        if entry := _check(data, metric, _METRICS, item, lose):
            lose(f"how OpenAI computes '{metric}', which it does not publish: here it is that of `{entry['type']}`")
            entry |= {"threshold": _limit(data, [0, 1], lose)}
    elif kind in ("label_model", "score_model"):
        entry = _judge(data, item, lose)
    elif kind == "python":
        entry = _python(data, item, lose)
    else:
        lose(f"a criterion of type '{kind}'")
        return None
    return entry and {"required": 1.0, **entry, **({"name": data["name"]} if isinstance(data.get("name"), str) else {})}


def inserted(value: Any, item: dict[str, Any]) -> Any:
    """Insert the values of an item for `{{item.x}}`. The output of the model cannot be part of the input."""
    if isinstance(value, list):
        return [inserted(element, item) for element in value]
    if isinstance(value, dict):
        return {key: inserted(_text_in(element), item) for key, element in value.items()}
    return _VARIABLE.sub(lambda match: _value(match, item), value) if isinstance(value, str) else value


def _check(
    data: dict[str, Any], name: str, types: dict[str, dict[str, Any]], item: dict[str, Any], lose: Lose
) -> dict[str, Any] | None:
    """Return the evaluator that compares the answer with a reference."""
    texts = [text_of(data.get(key)) for key in ("input", "reference")]
    if name in _SYMMETRIC and _ANSWER.fullmatch(texts[1]):
        texts.reverse()
    answer, reference = texts
    if name not in types:
        lose(f"a criterion with the operation or metric '{name}'")
    elif not _ANSWER.fullmatch(answer) or any(match[1] == "sample" for match in _VARIABLE.finditer(reference)):
        lose(f"a criterion that compares {answer or 'nothing'} with {reference or 'nothing'}, not the whole answer")
    elif is_blank(value := inserted(reference, item)):
        lose(f"a criterion whose reference {reference} is blank")
    else:
        return {**types[name], "value": value}
    return None


def _judge(data: dict[str, Any], item: dict[str, Any], lose: Lose) -> dict[str, Any] | None:
    """Return the judge for a model grader. Its prompt is one text, into which the judge inserts the answer."""
    texts = list(_prompt_texts(data.get("input"), lose))
    names = {match[2] for text in texts for match in _VARIABLE.finditer(text) if match[1] == "sample"}
    if names != {"output_text"}:
        others = ", ".join(sorted(f"`sample.{name}`" for name in names - {"output_text"}))
        lose(f"a model grader that reads {others}" if others else "a model grader that does not read the answer")
        return None
    lose("the model of a grader and the form of its reply: the judge of the run gives a score from 0 to 1")
    texts = [_escaped(text, item) for text in texts]
    if data["type"] == "label_model":
        labels, passing = (", ".join(texts_of(data.get(key))) for key in ("labels", "passing_labels"))
        form = f"Choose one label of: {labels}. The score is 1 for {passing}, otherwise 0."
        return {"type": "llm_judge", "prompt": "\n\n".join([*texts, form])}
    limits = data["range"] if isinstance(data.get("range"), list) and len(data["range"]) == 2 else [0, 1]
    form = f"The scale of the criteria is {limits}; convert it to a score from 0 to 1."
    return {"type": "llm_judge", "prompt": "\n\n".join([*texts, form]), "required": _limit(data, limits, lose)}


def _python(data: dict[str, Any], item: dict[str, Any], lose: Lose) -> dict[str, Any] | None:
    """Return the evaluator that calls `grade` of a Python grader."""
    source = text_of(data.get("source"))
    if parts := sorted(set(_OTHER_OUTPUT.findall(source))):
        lose(f"a python grader that reads {', '.join(f'`{part}` of the sample' for part in parts)}")
        return None
    lose("the packages of a python grader: those installed here are used")
    code = _GRADE.format(source=source, item=to_json(item).decode())
    return {"type": "python", "code": code, "required": _limit(data, [0, 1], lose)}


def _limit(data: dict[str, Any], scale: list[Any], lose: Lose) -> float:
    """Return the limit of a criterion as a number from 0 to 1."""
    least, most = scale
    if not isinstance(limit := data.get("pass_threshold"), int | float) or most <= least:
        lose(f"the limit of a criterion without `pass_threshold`: here it is {_DEFAULT_LIMIT}")
        return _DEFAULT_LIMIT
    return float(min(1.0, max(0.0, round((limit - least) / (most - least), 6))))


def _prompt_texts(messages: Any, lose: Lose) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else [messages]:
        content = message.get("content") if isinstance(message, dict) else message
        for part in content if isinstance(content, list) else [content]:
            if isinstance(text := _text_in(part), str):
                yield text
            else:
                lose("a part of a model grader's prompt that is not text")


def _text_in(part: Any) -> Any:
    """Return the text of a text part; any other value unchanged."""
    return part["text"] if isinstance(part, dict) and isinstance(part.get("text"), str) else part


def _value(match: re.Match[str], item: dict[str, Any]) -> str:
    value: Any = item if match[1] == "item" else {}
    for part in re.findall(r"[^.\[\]]+", match[2]):
        if isinstance(value, list):
            value = value[int(part)] if part.isdecimal() and int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return text_of(value)


def _escaped(text: str, item: dict[str, Any]) -> str:
    """Insert the item, and our name for the answer; other braces are shown as they are."""

    def insert(match: re.Match[str]) -> str:
        if match[1] == "sample":
            return "{{ candidate_answer }}"
        return _value(match, item).replace("{{", "{ {").replace("{%", "{ %")

    return _VARIABLE.sub(insert, text)
